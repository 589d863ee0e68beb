/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: on a core of its own, with the other rank behind a network, a rank's
 * progress thread is woken neither by an operation that its stream comes to nor
 * by the next post, and what a rank waits for is known as far as that can be.
 * Of several ranks on a core, with one memory, none keeps it long in waiting,
 * and what a caller has to keep going besides is left alone by waits that are
 * short, but not while much moves.
 *
 * Method: two ranks on one core that share no memory. Round by round a stream
 * stands at a gate before an all-gather, and goes on when this thread raises
 * it. The wake-ups of the progress thread are counted; it may look after
 * itself after 20, 40 and every 80 ms, of which a slow machine has more. What
 * is expected of the other rank is asked while that has sent nothing. Threads.
 */
#include "base/clock.h"
#include "comm/core/core.h"
#include "comm/engine/driver.h"
#include "comm/engine/turn.h"
#include "comm/steps/expect.h"
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NRANKS = 2,
    ROUNDS = 200,
    SMALL_BYTES = 48 << 10, /* that the signaller moves */
    PART_BYTES = 1 << 20,
    LONG_BYTES = 512 << 10, /* of a gate's chunk: several messages */
    SHORT_BYTES = 64 << 10,
    LOOK_MS = 20, /* of a thread that nothing wakes */
    LIMIT_S = 10,
    ATTEMPTS = 4
};

#define MUST(call) CHECK((call) == WEFT_OK)

typedef struct desk {
    weft_comm *comm;
    int rank;
    weft_device *device;
    weft_stream *stream;
    weft_gate *begun, *ready, *arrived;
    unsigned char *send, *recv;
} desk;

static int open_desk(desk *self, weft_comm *comm)
{
    const size_t chunks = (size_t)NRANKS * PART_BYTES / SHORT_BYTES;
    *self = (desk){.comm = comm,
                   .rank = weft_comm_get_rank(comm),
                   .send = calloc(1, PART_BYTES),
                   .recv = calloc(NRANKS, PART_BYTES)};
    return CHECK(self->send && self->recv) +
           MUST(weft_device_open("host", 0, &self->device)) +
           MUST(weft_gate_create(self->device, 1, &self->begun)) +
           MUST(weft_gate_create(self->device, chunks, &self->ready)) +
           MUST(weft_gate_create(self->device, chunks, &self->arrived)) +
           MUST(weft_stream_create(self->device, 0, &self->stream));
}

static void close_desk(desk *self)
{
    weft_stream_destroy(self->stream);
    weft_gate_destroy(self->begun);
    weft_gate_destroy(self->ready);
    weft_gate_destroy(self->arrived);
    weft_device_close(self->device);
    free(self->send);
    free(self->recv);
}

static uint64_t count_wakes(const desk *self)
{
    return atomic_load(
        &wefti_driver_get_work(self->comm->engine->driver)->wakeups);
}

/* One after another, each behind a gate of the program's. */
static int come_to_operations(weft_comm *comm, void *context)
{
    desk self;
    int failures = open_desk(&self, comm);
    (void)context;
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLGATHER,
                        .send = self.send,
                        .recv = self.recv,
                        .count = SMALL_BYTES,
                        .dtype = WEFT_DTYPE_U8,
                        .class_id = WEFT_CLASS_DP};
    uint64_t before = 0;
    int64_t begin_ns = 0;
    for (uint64_t i = 1; i <= ROUNDS + 1 && failures == 0; i++) {
        failures += MUST(weft_gate_wait(self.begun, 0, i, self.stream)) +
                    MUST(weft_op_post(&op, 0, comm, self.stream)) +
                    MUST(weft_gate_signal(self.begun, 0, i, NULL)) +
                    MUST(weft_stream_wait(self.stream));
        if (i == 1) { /* its thread runs */
            before = count_wakes(&self);
            begin_ns = wefti_clock_ns();
        }
    }
    const uint64_t wakes = failures ? 0 : count_wakes(&self) - before;
    const uint64_t looks =
        (uint64_t)((wefti_clock_ns() - begin_ns) / 1000000 / LOOK_MS);
    printf("rank %d: %llu wake-ups in %d rounds, %llu looks allowed\n",
           self.rank, (unsigned long long)wakes, ROUNDS,
           (unsigned long long)looks);
    failures += CHECK(wakes < ROUNDS * 3 / 4 + 3 * looks);
    close_desk(&self);
    return failures;
}

/* A caller that waits moves what comes by itself: beside it no thread listens.
 */
static int block_after_stream(weft_comm *comm, void *context)
{
    desk self;
    int failures = open_desk(&self, comm);
    (void)context;
    failures += MUST(weft_allgather(self.send, self.recv, SMALL_BYTES,
                                    WEFT_DTYPE_U8, comm, self.stream)) +
                MUST(weft_stream_wait(self.stream));
    const uint64_t before = count_wakes(&self);
    const int64_t begin_ns = wefti_clock_ns();
    for (int i = 0; i < ROUNDS; i++) {
        failures += MUST(weft_barrier(comm, NULL));
    }
    const uint64_t wakes = count_wakes(&self) - before;
    const uint64_t looks =
        (uint64_t)((wefti_clock_ns() - begin_ns) / 1000000 / LOOK_MS);
    printf("rank %d: %llu wake-ups beside %d barriers, %llu looks allowed\n",
           self.rank, (unsigned long long)wakes, ROUNDS,
           (unsigned long long)looks);
    failures += CHECK(wakes < ROUNDS / 4 + 3 * looks);
    close_desk(&self);
    return failures;
}

/* What this rank waits for, once that is so much; false: it never is. While it
 * moves bytes of its own, it waits for other things. */
static bool find_expected(const desk *self, size_t messages, size_t bytes_most,
                          wefti_expected *expected_out)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    bool found = false;
    while (!found && wefti_clock_ns() < until_ns) {
        pthread_mutex_lock(&self->comm->engine->lock);
        found = wefti_expect(self->comm, 1 - self->rank, expected_out) &&
                expected_out->messages >= messages &&
                expected_out->bytes <= bytes_most;
        pthread_mutex_unlock(&self->comm->engine->lock);
        sched_yield();
    }
    return found;
}

/* Until the other rank, a thread of this process, has come so far. */
static bool await(const _Atomic uint64_t *come, uint64_t epoch)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (atomic_load(come) < epoch && wefti_clock_ns() < until_ns) {
        sched_yield();
    }
    return atomic_load(come) >= epoch;
}

/* A part in chunks of the arrived gate; rank 1 makes its own when rank 0 has
 * looked at what it waits for. */
static int look_at_chunks(desk *self, size_t chunk_bytes, size_t messages,
                          _Atomic uint64_t *looked)
{
    const uint64_t epoch = messages; /* 1, then more */
    wefti_expected expected;
    const size_t chunks = PART_BYTES / chunk_bytes;
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLGATHER,
                        .send = self->send,
                        .recv = self->recv,
                        .count = PART_BYTES,
                        .dtype = WEFT_DTYPE_U8,
                        .ready = self->rank == 1 ? self->ready : NULL,
                        .arrived = self->arrived,
                        .gate_elems = chunk_bytes,
                        .class_id = WEFT_CLASS_DP};
    int failures = MUST(weft_op_post(&op, epoch, self->comm, self->stream));
    if (self->rank == 0) {
        failures +=
            CHECK(find_expected(self, messages, chunk_bytes, &expected)) +
            CHECK(expected.bytes > chunk_bytes / 2);
        atomic_store(looked, epoch);
    } else {
        failures += CHECK(await(looked, epoch));
    }
    for (size_t i = 0; i < chunks; i++) {
        failures += MUST(weft_gate_signal(self->ready, i, epoch, NULL));
    }
    return failures + MUST(weft_stream_wait(self->stream));
}

/* A message makes a chunk, or several do. */
static int expect_chunks(weft_comm *comm, void *context)
{
    desk self;
    int failures = open_desk(&self, comm);
    failures += look_at_chunks(&self, SHORT_BYTES, 1, context) +
                look_at_chunks(&self, LONG_BYTES, 2, context);
    close_desk(&self);
    return failures;
}

/* A message that this rank's own stream has yet to come to. */
static int expect_behind_gate(weft_comm *comm, void *context)
{
    desk self;
    wefti_expected expected;
    _Atomic uint64_t *looked = context;
    int failures = open_desk(&self, comm);
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = self.rank ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                           .buffer = self.recv,
                           .count = SMALL_BYTES,
                           .dtype = WEFT_DTYPE_U8,
                           .peer = 1 - self.rank,
                           .class_id = WEFT_CLASS_PP};
    failures += MUST(weft_gate_wait(self.begun, 0, 1, self.stream)) +
                MUST(weft_p2p_post(&part, 1, comm, self.stream)) +
                CHECK(find_expected(&self, 0, 0, &expected));
    atomic_fetch_add(looked, 1); /* neither has begun before both have looked */
    failures += CHECK(await(looked, NRANKS)) +
                MUST(weft_gate_signal(self.begun, 0, 1, NULL)) +
                MUST(weft_stream_wait(self.stream));
    close_desk(&self);
    return failures;
}

/* Three ranks on a core sleep soon, but not behind a network. */
static int ask_how_long(weft_comm *comm, void *context)
{
    (void)context;
    const wefti_engine *engine = comm->engine;
    const int64_t awake_ns = wefti_turn_awake_ns(engine, false);
    return engine->net ? CHECK(awake_ns == 1000000)
                       : CHECK(awake_ns <= 100000) + CHECK(awake_ns > 10000);
}

static void count_call(void *context)
{
    atomic_fetch_add((_Atomic uint64_t *)context, 1);
}

/* Those of this thread; in libc's place, for what is linked in here. */
static _Thread_local uint64_t yields;

int sched_yield(void)
{
    yields++;
    return (int)syscall(SYS_sched_yield);
}

/* A rank that does nothing else but pass on what moves keeps idle going. */
static int move_much(weft_comm *comm, _Atomic uint64_t *calls)
{
    enum { BYTES = 32 << 20, CALLS = 4 }; /* takes 25 ms */
    unsigned char *data = calloc(1, BYTES);
    int failures = CHECK(data);
    atomic_store(calls, 0);
    failures +=
        MUST(weft_broadcast(data, data, BYTES, WEFT_DTYPE_U8, 0, comm, NULL));
    failures += CHECK(atomic_load(calls) >= CALLS);
    free(data);
    return failures;
}

/* Barriers of two ranks on a core, which end with the first yield or two; and
 * one that rank 1 comes to when rank 0's wait has kept idle going. Of waits in
 * which others have had the core nothing can be said. */
static int keep_going(weft_comm *world, void *context)
{
    enum { BARRIERS = 400, SHORT_NS = 100000, SHORT_YIELDS = 8 };
    static _Atomic uint64_t calls_of[NRANKS];
    const int rank = weft_comm_get_rank(world);
    _Atomic uint64_t *calls = &calls_of[rank];
    size_t shorts = 0, seen = 0;
    weft_comm *comm;
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .idle = count_call,
                                     .idle_context = calls};
    (void)context;
    int failures = MUST(weft_comm_split(world, 0, 0, &config, &comm));
    for (int i = 0; i < BARRIERS && failures == 0; i++) {
        const uint64_t before = atomic_load(calls), yielded = yields;
        const int64_t from_ns = wefti_clock_ns();
        failures += MUST(weft_barrier(comm, NULL));
        if (wefti_clock_ns() - from_ns < SHORT_NS &&
            yields - yielded <= SHORT_YIELDS) {
            shorts++;
            seen += atomic_load(calls) > before;
        }
    }
    failures += CHECK(4 * seen <= shorts);
    failures += move_much(comm, calls);
    failures += MUST(weft_barrier(comm, NULL));
    const uint64_t before = atomic_load(&calls_of[0]);
    failures += CHECK(rank == 0 || await(&calls_of[0], before + 3));
    failures += MUST(weft_barrier(comm, NULL));
    weft_comm_destroy(comm);
    return failures;
}

static void run_ranks(int nranks, world_rank_call call)
{
    _Atomic uint64_t looked = 0;
    struct world world = {.nranks = nranks, .call = call, .context = &looked};
    assert_int_equal(world_run_threads(&world), 0);
}

static void run(world_rank_call call)
{
    run_ranks(NRANKS, call);
}

/* A busy machine may take the core from a thread that holds the lock, which is
 * a reason to wake another: one quiet run of some shows what is meant. */
static void run_quietly(world_rank_call call)
{
    int failures = 1;
    for (int i = 0; i < ATTEMPTS && failures > 0; i++) {
        struct world world = {.nranks = NRANKS, .call = call};
        failures = world_run_threads(&world);
    }
    assert_int_equal(failures, 0);
}

static void test_wakes_stream_that_comes_wakes_nobody(void **state)
{
    (void)state;
    run_quietly(come_to_operations);
}

static void test_wakes_nobody_beside_a_caller_that_waits(void **state)
{
    (void)state;
    run_quietly(block_after_stream);
}

static void test_wakes_messages_count_until_a_chunk_shows(void **state)
{
    (void)state;
    run(expect_chunks);
}

static void test_wakes_message_behind_own_stream_is_known(void **state)
{
    (void)state;
    run(expect_behind_gate);
}

static void test_wakes_crowded_ranks_sleep_soon(void **state)
{
    (void)state;
    run(ask_how_long);
    setenv("WEFT_DOMAIN", "a,a,a,b", 1);
    run_ranks(NRANKS + 2, ask_how_long);
    setenv("WEFT_DOMAIN", "a,a,a", 1);
    run_ranks(NRANKS + 1, ask_how_long);
    setenv("WEFT_DOMAIN", "a,b", 1);
}

static void test_wakes_short_waits_keep_nothing_else_going(void **state)
{
    (void)state;
    setenv("WEFT_DOMAIN", "a,a", 1);
    run_ranks(NRANKS, keep_going);
    setenv("WEFT_DOMAIN", "a,b", 1);
}

/* The first that this process may run on. */
static bool keep_to_one_core(void)
{
    cpu_set_t all, one;
    int core = 0;
    if (sched_getaffinity(0, sizeof(all), &all) != 0) {
        return false;
    }
    while (!CPU_ISSET(core, &all)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return sched_setaffinity(0, sizeof(one), &one) == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakes_stream_that_comes_wakes_nobody),
        cmocka_unit_test(test_wakes_nobody_beside_a_caller_that_waits),
        cmocka_unit_test(test_wakes_messages_count_until_a_chunk_shows),
        cmocka_unit_test(test_wakes_message_behind_own_stream_is_known),
        cmocka_unit_test(test_wakes_crowded_ranks_sleep_soon),
        cmocka_unit_test(test_wakes_short_waits_keep_nothing_else_going)};
    setenv("WEFT_DOMAIN", "a,b", 1);
    setenv("WEFT_TIMEOUT_MS", "20000", 1);
    return keep_to_one_core() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
