/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what comm promises where ranks have a device: nothing of a device is
 * called under the engine's lock; sources are fetched ahead; memory, streams
 * and scalars of the wrong place are refused by name; waiting costs little.
 *
 * Method: worlds of two threads on the shadow device. A spy in its table's
 * place looks who holds the lock at each call that may be a driver's, and at
 * copies for a reduction what had been stored; it holds a message's copies back
 * until the one behind was asked for. Waiting is measured by processor time.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "comm/core/core.h"
#include "comm/engine/driver.h"
#include "device/object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    RANKS = 2,
    ELEMS = 1 << 18,
    FETCHES = ELEMS * 4 / WEFTI_P2P_SLOT_BYTES, /* of a message of ELEMS */
    MESSAGES = 5,
    REDUCTIONS = 5,
    PILE = 80,
    SPIED = 0 /* the rank */
};

/* What the spy has seen, of rank SPIED. */
static struct {
    weft_comm *_Atomic comm;
    weft_device *_Atomic device;
    _Atomic size_t under_lock; /* calls that a holder of the lock has made */
    _Atomic size_t calls;
    _Atomic size_t fetches, stores; /* of the spied rank's arena */
    _Atomic size_t fetches_ahead;   /* asked for before the last was used */
    _Atomic size_t fetched;         /* fetched into its messages */
    weft_gate *_Atomic hold;        /* epoch: how many of these may be done */
    _Atomic size_t refused;         /* calls on that gate */
} seen;

static wefti_device_table spy;

/* Whether this thread holds the spied rank's lock: the C library notes it. */
static bool is_under_lock(const weft_comm *comm)
{
    const int owner =
        __atomic_load_n(&comm->engine->lock.__data.__owner, __ATOMIC_RELAXED);
    return owner == syscall(SYS_gettid);
}

/* Of another rank's device nothing is asked: the spied one may be gone by then.
 */
static void look(const weft_device *device)
{
    const weft_comm *comm = atomic_load(&seen.comm);
    atomic_fetch_add(&seen.calls, 1);
    if (comm && device == atomic_load(&seen.device) && is_under_lock(comm)) {
        atomic_fetch_add(&seen.under_lock, 1);
    }
}

static bool is_in(const void *pointer, const void *begin, size_t bytes)
{
    return (uintptr_t)pointer - (uintptr_t)begin < bytes;
}

/* Of copies to and from bounces, what is ahead of what. */
static void look_at_bounce(const weft_comm *comm, const void *dst,
                           const void *src)
{
    if (is_in(src, comm->arena, comm->arena_bytes)) {
        atomic_fetch_add(&seen.stores, 1);
    } else if (is_in(dst, comm->arena, comm->arena_bytes)) {
        const size_t used = atomic_load(&seen.stores);
        const size_t before = atomic_fetch_add(&seen.fetches, 1);
        if (before > used) {
            atomic_fetch_add(&seen.fetches_ahead, 1);
        }
    }
}

static bool is_message(const weft_comm *comm, const void *dst)
{
    const unsigned char *own = comm->fabric.shared.regions[comm->rank];
    const wefti_layout *layout = &comm->fabric.shared.layout;
    return is_in(dst, own + layout->p2p_staging,
                 layout->region_bytes - layout->p2p_staging);
}

static void raise_hold(uint64_t messages)
{
    if (messages > 0 && weft_gate_signal(atomic_load(&seen.hold), 0, messages,
                                         NULL) != WEFT_OK) {
        atomic_fetch_add(&seen.refused, 1);
    }
}

/* The copy that is put into the stream next is done no sooner than the one
 * behind it has been asked for, unless it is its message's last. */
static void hold_message(weft_stream *stream)
{
    const size_t messages = atomic_fetch_add(&seen.fetched, 1) + 1;
    raise_hold(messages % FETCHES ? messages - 1 : messages);
    if (weft_gate_wait(atomic_load(&seen.hold), 0, messages, stream) !=
        WEFT_OK) {
        atomic_fetch_add(&seen.refused, 1);
    }
}

static weft_status spy_copy(weft_stream *stream, void *dst, const void *src,
                            size_t bytes)
{
    weft_comm *comm = atomic_load(&seen.comm);
    look(stream->device);
    if (comm && atomic_load(&seen.hold) && is_message(comm, dst)) {
        hold_message(stream);
    } else if (comm) {
        look_at_bounce(comm, dst, src);
    }
    return wefti_device_shadow.stream_copy(stream, dst, src, bytes);
}

static weft_status spy_mark(weft_stream *stream, const wefti_mark *marks,
                            size_t count)
{
    look(stream->device);
    return wefti_device_shadow.stream_mark(stream, marks, count);
}

static weft_status spy_drain(weft_stream *stream)
{
    look(stream->device);
    return wefti_device_shadow.stream_drain(stream);
}

static weft_status spy_query(weft_device *device, const void *pointer,
                             weft_pointer *out)
{
    look(device);
    return wefti_device_shadow.mem_query(device, pointer, out);
}

static weft_status spy_register(weft_device *device, void *pointer,
                                size_t bytes)
{
    look(device);
    return wefti_device_shadow.mem_register(device, pointer, bytes);
}

static void spy_unregister(weft_device *device, void *pointer)
{
    look(device);
    wefti_device_shadow.mem_unregister(device, pointer);
}

static weft_status spy_words(weft_device *device, size_t chunks,
                             _Atomic uint64_t **out)
{
    look(device);
    return wefti_device_shadow.gate_words(device, chunks, out);
}

static void spy_words_free(weft_device *device, _Atomic uint64_t *words)
{
    look(device);
    wefti_device_shadow.gate_words_free(device, words);
}

struct plan {
    weft_device *devices[RANKS];
    bool spied, shut;
};

static void use_device(int rank, weft_comm_config *config, void *context)
{
    struct plan *plan = context;
    config->device = plan->devices[rank];
}

static int close_device(int rank, void *context)
{
    struct plan *plan = context;
    weft_device_close(plan->devices[rank]);
    return 0;
}

static void run(struct plan *plan, world_rank_call call)
{
    struct world world = {.nranks = RANKS,
                          .config = {.warn_ms = 20000, .timeout_ms = 30000},
                          .call = call,
                          .context = plan,
                          .configure = use_device,
                          .after = close_device,
                          .deadline_s = 40};
    /* Before any rank runs: opening looks at the tables of open devices. */
    for (int rank = 0; rank < RANKS; rank++) {
        weft_device **own = &plan->devices[rank];
        assert_int_equal(weft_device_open("shadow", 0, own), WEFT_OK);
        (*own)->table = plan->spied ? &spy : (*own)->table;
    }
    assert_int_equal(world_run_threads(&world), 0);
}

/* A rank's buffers and stream on its device. */
struct desk {
    weft_device *device;
    weft_stream *stream;
    void *send, *recv;
};

static int sit_down(struct desk *desk, weft_comm *comm)
{
    desk->device = comm->device;
    const size_t bytes = RANKS * ELEMS * sizeof(float);
    return weft_stream_create(desk->device, 0, &desk->stream) ||
           weft_device_alloc(desk->device, bytes, &desk->send) ||
           weft_device_alloc(desk->device, bytes, &desk->recv);
}

static void get_up(struct desk *desk)
{
    weft_stream_destroy(desk->stream);
    weft_device_free(desk->device, desk->send);
    weft_device_free(desk->device, desk->recv);
}

/* Both ways at once. */
static int use_messages(weft_comm *comm, struct desk *desk, size_t count,
                        weft_stream *stream)
{
    const int other = 1 - weft_comm_get_rank(comm);
    const weft_p2p list[] = {{.size_bytes = sizeof(list[0]),
                              .kind = WEFT_P2P_SEND,
                              .buffer = desk->send,
                              .count = count,
                              .dtype = WEFT_DTYPE_F32,
                              .peer = other},
                             {.size_bytes = sizeof(list[0]),
                              .kind = WEFT_P2P_RECV,
                              .buffer = desk->recv,
                              .count = count,
                              .dtype = WEFT_DTYPE_F32,
                              .peer = other}};
    return expect(weft_p2p_post(list, 2, comm, stream), WEFT_OK, NULL);
}

/* Everything that copies: both ways, small and large, messages, memory. */
static int use_all(weft_comm *comm, struct desk *desk, weft_stream *stream)
{
    const weft_dtype type = WEFT_DTYPE_F32;
    int failures =
        expect(weft_allreduce(desk->send, desk->recv, ELEMS, type,
                              WEFT_REDOP_SUM, comm, stream),
               WEFT_OK, NULL) +
        expect(weft_allreduce(desk->send, desk->recv, 100, type, WEFT_REDOP_SUM,
                              comm, stream),
               WEFT_OK, NULL) +
        expect(weft_alltoall(desk->send, desk->recv, ELEMS, type, comm, stream),
               WEFT_OK, NULL);
    return failures + use_messages(comm, desk, ELEMS, stream);
}

/* More on a stream than was ever pending, while it stands at a gate. */
static int pile_up(weft_comm *comm, weft_mem *mem, struct desk *desk)
{
    const int other = 1 - weft_comm_get_rank(comm);
    weft_gate *shut;
    int failures =
        expect(weft_gate_create(desk->device, 1, &shut), WEFT_OK, NULL) +
        expect(weft_gate_wait(shut, 0, 1, desk->stream), WEFT_OK, NULL);
    for (int i = 0; i < PILE / 2; i++) {
        failures += expect(weft_mem_signal(mem, 1, 1, other, desk->stream),
                           WEFT_OK, NULL) +
                    use_messages(comm, desk, 1, desk->stream);
    }
    failures += expect(weft_gate_signal(shut, 0, 1, NULL), WEFT_OK, NULL) +
                expect(weft_stream_wait(desk->stream), WEFT_OK, NULL);
    weft_gate_destroy(shut);
    return failures;
}

static int work_under_spy(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    weft_mem *mem;
    float host = 1;
    if (weft_comm_get_rank(comm) == SPIED) {
        atomic_store(&seen.device, comm->device);
        atomic_store(&seen.comm, comm);
    }
    int failures = sit_down(&desk, comm);
    failures += use_all(comm, &desk, NULL);
    failures += use_all(comm, &desk, desk.stream);
    failures += expect(weft_mem_create(comm, 4096, &mem), WEFT_OK, NULL);
    const int other = 1 - weft_comm_get_rank(comm);
    for (int i = 0; i < 2; i++) {
        const void *src = i ? (const void *)&host : desk.send;
        weft_stream *streams[] = {NULL, desk.stream};
        for (int s = 0; s < 2; s++) {
            failures += expect(
                weft_mem_put(mem, 0, src, 1, WEFT_DTYPE_F32, other, streams[s]),
                WEFT_OK, NULL);
            failures += expect(weft_mem_signal(mem, 0, 1, other, streams[s]),
                               WEFT_OK, NULL);
        }
    }
    failures +=
        expect(weft_mem_wait(mem, 0, 4, other, desk.stream), WEFT_OK, NULL);
    failures += pile_up(comm, mem, &desk);
    failures += expect(weft_stream_wait(desk.stream), WEFT_OK, NULL);
    (void)!weft_barrier(comm, NULL); /* the other may abort before its end */
    failures += expect(weft_comm_abort(comm), WEFT_OK, NULL);
    failures += weft_barrier(comm, NULL) != WEFT_ERR_ABORTED;
    if (weft_comm_get_rank(comm) == SPIED) {
        atomic_store(&seen.comm, NULL);
    }
    weft_mem_destroy(mem);
    get_up(&desk);
    return failures;
}

static void start_spying(void)
{
    spy = wefti_device_shadow;
    spy.stream_copy = spy_copy;
    spy.stream_mark = spy_mark;
    spy.stream_drain = spy_drain;
    spy.mem_query = spy_query;
    spy.mem_register = spy_register;
    spy.mem_unregister = spy_unregister;
    spy.gate_words = spy_words;
    spy.gate_words_free = spy_words_free;
    memset(&seen, 0, sizeof(seen));
}

static void test_device_called_never_under_the_lock(void **state)
{
    (void)state;
    struct plan plan = {.spied = true};
    start_spying();
    run(&plan, work_under_spy);
    assert_true(atomic_load(&seen.calls) > 100);
    assert_int_equal(atomic_load(&seen.under_lock), 0);
}

static int reduce_under_spy(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    int failures = sit_down(&desk, comm);
    if (weft_comm_get_rank(comm) == SPIED) {
        atomic_store(&seen.device, comm->device);
        atomic_store(&seen.comm, comm);
    }
    for (int i = 0; i < REDUCTIONS; i++) {
        failures += expect(weft_reducescatter(desk.send, desk.recv, ELEMS,
                                              WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                                              comm, NULL),
                           WEFT_OK, NULL);
    }
    if (weft_comm_get_rank(comm) == SPIED) { /* the other may end first */
        atomic_store(&seen.comm, NULL);
    }
    get_up(&desk);
    return failures;
}

static void test_reduction_own_source_fetched_ahead_of_stores(void **state)
{
    (void)state;
    struct plan plan = {.spied = true};
    start_spying();
    run(&plan, reduce_under_spy);
    /* Copies come in the order of asking: all but each reduction's first. */
    assert_true(atomic_load(&seen.fetches) >= REDUCTIONS * 8);
    assert_int_equal(atomic_load(&seen.fetches_ahead),
                     atomic_load(&seen.fetches) - REDUCTIONS);
}

static int send_under_spy(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    weft_gate *hold = NULL;
    const bool sends = weft_comm_get_rank(comm) == SPIED;
    int failures = sit_down(&desk, comm);
    if (sends) {
        failures += weft_gate_create(desk.device, 1, &hold) != WEFT_OK;
        atomic_store(&seen.hold, hold);
        atomic_store(&seen.device, comm->device);
        atomic_store(&seen.comm, comm);
    }
    for (int i = 0; i < MESSAGES; i++) {
        failures += expect(
            sends ? weft_send(desk.send, ELEMS, WEFT_DTYPE_F32, 1, comm, NULL)
                  : weft_recv(desk.recv, ELEMS, WEFT_DTYPE_F32, 0, comm, NULL),
            WEFT_OK, NULL);
    }
    /* The receiver's time is up: the sender's stream goes on. */
    if (failures && atomic_load(&seen.hold)) {
        raise_hold(MESSAGES * FETCHES);
    }
    failures += expect(weft_barrier(comm, NULL), WEFT_OK, NULL);
    if (sends) {
        atomic_store(&seen.comm, NULL);
    }
    weft_gate_destroy(hold);
    get_up(&desk);
    return failures;
}

/* Where a message is fetched only when the one before has been sent, the second
 * never comes. */
static void test_send_next_chunk_fetched_before_last_is_sent(void **state)
{
    (void)state;
    struct plan plan = {.spied = true};
    start_spying();
    run(&plan, send_under_spy);
    assert_int_equal(atomic_load(&seen.fetched), MESSAGES * FETCHES);
    assert_int_equal(atomic_load(&seen.refused), 0);
}

static int use_wrong_places(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    weft_device *other;
    weft_stream *stream;
    void *theirs;
    weft_mem *mem;
    int failures = sit_down(&desk, comm);
    failures += weft_device_open("shadow", 1, &other) ||
                weft_device_alloc(other, 4096, &theirs) ||
                weft_stream_create(other, 0, &stream) ||
                weft_mem_create(comm, 4096, &mem);
    const weft_dtype type = WEFT_DTYPE_F32;
    const weft_redop sum = WEFT_REDOP_SUM;
    failures +=
        expect(weft_allreduce(theirs, desk.recv, 4, type, sum, comm, NULL),
               WEFT_ERR_INVALID,
               "is memory of shadow device 1: allowed on \"world\" "
               "is the host's, or that of shadow device 0");
    failures += expect(
        weft_allreduce(desk.send, theirs, 4, type, sum, comm, desk.stream),
        WEFT_ERR_INVALID, "recv ");
    failures += expect(weft_send(theirs, 4, type, 1, comm, NULL),
                       WEFT_ERR_INVALID, "shadow device 1");
    failures += expect(weft_mem_put(mem, 0, theirs, 4, type, 1, NULL),
                       WEFT_ERR_INVALID, "src ");
    failures +=
        expect(weft_allreduce(desk.send, desk.recv, 4, type, sum, comm, stream),
               WEFT_ERR_INVALID, "stream of shadow device 1");
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = desk.send,
                  .recv = desk.recv,
                  .count = 4,
                  .dtype = type,
                  .redop = WEFT_REDOP_PREMULSUM,
                  .scale = desk.send};
    failures +=
        expect(weft_op_post(&op, 0, comm, NULL), WEFT_ERR_INVALID, "scale ");
    /* Nothing was queued. */
    failures +=
        expect(weft_allreduce(desk.send, desk.recv, 4, type, sum, comm, NULL),
               WEFT_OK, NULL);
    weft_mem_destroy(mem);
    weft_stream_destroy(stream);
    weft_device_free(other, theirs);
    weft_device_close(other);
    get_up(&desk);
    return failures;
}

static void test_wrong_places_refused_by_name_nothing_queued(void **state)
{
    (void)state;
    struct plan plan = {.spied = false};
    run(&plan, use_wrong_places);
}

static int measure_staging(weft_comm *comm, void *context)
{
    (void)context;
    return comm->arena_bytes > 20u << 20;
}

/* The staging of its own that a rank pins, with chunks of the usual size. */
static void test_arena_pinned_as_small_as_steps_allow(void **state)
{
    (void)state;
    struct plan plan = {.spied = false};
    run(&plan, measure_staging);
}

/*
 * Rank 1 comes a second late, and rank 0's thread and caller may not use more
 * than a tenth of it, of host memory a twentieth. shut: it waits for its own
 * stream meanwhile, which stands at a gate.
 */
static int wait_a_second(weft_comm *comm, void *context)
{
    const struct plan *plan = context;
    static float host[2][ELEMS];
    struct desk desk;
    weft_gate *gate;
    int failures = sit_down(&desk, comm);
    failures += weft_gate_create(desk.device, 1, &gate) != WEFT_OK;
    failures += weft_barrier(comm, desk.stream) != WEFT_OK ||
                weft_stream_wait(desk.stream) != WEFT_OK;
    const bool first = weft_comm_get_rank(comm) == 0;
    for (int device = 0; device < 2; device++) {
        const wefti_thread_work *work =
            wefti_driver_get_work(comm->engine->driver);
        const int64_t begin_ns = wefti_thread_work_ns(work);
        if (!first) {
            usleep(1000000);
        } else if (plan->shut) {
            failures += weft_gate_wait(gate, 0, (uint64_t)device + 1,
                                       desk.stream) != WEFT_OK;
        }
        failures += expect(weft_allreduce(device ? desk.send : (void *)host[0],
                                          device ? desk.recv : (void *)host[1],
                                          ELEMS, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                                          comm, desk.stream),
                           WEFT_OK, NULL);
        if (first) {
            usleep(900000);
            const int64_t used_ns = wefti_thread_work_ns(work) - begin_ns;
            const int64_t most_ns = device || plan->shut ? 100000000 : 50000000;
            printf("%s memory%s: %.1f ms\n", device ? "device" : "host",
                   plan->shut ? ", behind a gate" : "", (double)used_ns / 1e6);
            failures += used_ns > most_ns;
            failures += plan->shut &&
                        weft_gate_signal(gate, 0, (uint64_t)device + 1, NULL) !=
                            WEFT_OK;
        }
        failures += expect(weft_stream_wait(desk.stream), WEFT_OK, NULL);
        failures += weft_barrier(comm, NULL) != WEFT_OK;
    }
    weft_gate_destroy(gate);
    get_up(&desk);
    return failures;
}

static void test_wait_for_peer_leaves_the_processor(void **state)
{
    (void)state;
    struct plan plan = {.shut = false};
    run(&plan, wait_a_second);
}

static void test_wait_for_own_stream_leaves_the_processor(void **state)
{
    (void)state;
    struct plan plan = {.shut = true};
    run(&plan, wait_a_second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_called_never_under_the_lock),
        cmocka_unit_test(test_reduction_own_source_fetched_ahead_of_stores),
        cmocka_unit_test(test_send_next_chunk_fetched_before_last_is_sent),
        cmocka_unit_test(test_wrong_places_refused_by_name_nothing_queued),
        cmocka_unit_test(test_arena_pinned_as_small_as_steps_allow),
        cmocka_unit_test(test_wait_for_peer_leaves_the_processor),
        cmocka_unit_test(test_wait_for_own_stream_leaves_the_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
