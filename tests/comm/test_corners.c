/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the corners of operations: ranks that cut differently, peers that have
 * left or not come, gates where nothing is sent or received, empty messages,
 * splits and copies that are refused, a job that was stopped as a whole.
 *
 * Method: threads as ranks (processes where they are stopped); each corner is
 * one small world whose ranks check status, text and data.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "base/clock.h"
#include "comm/core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ELEMS = 25000, CUT = 1000, DEADLINE_S = 30 };

/* Shared by ranks, also by processes. */
struct arena {
    _Atomic int inside, go;
};

static struct arena *arena;

static void nap_ms(long ms)
{
    struct timespec nap = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&nap, NULL);
}

static void wait_until(const _Atomic int *value, int least)
{
    int64_t end_ns = wefti_clock_ns() + (int64_t)DEADLINE_S * 1000000000;
    while (atomic_load(value) < least && wefti_clock_ns() < end_ns) {
        nap_ms(1);
    }
}

static int run(int nranks, world_rank_call call, int64_t timeout_ms)
{
    struct world world = {
        .nranks = nranks, .config = {.timeout_ms = timeout_ms}, .call = call};
    atomic_store(&arena->inside, 0);
    atomic_store(&arena->go, 0);
    return world_run_threads(&world);
}

static weft_op plain_op(weft_collective collective, const void *send,
                        void *recv, size_t count)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = collective,
                     .send = send,
                     .recv = recv,
                     .count = count,
                     .dtype = WEFT_DTYPE_F32,
                     .redop = WEFT_REDOP_SUM};
}

static int still_works(weft_comm *comm)
{
    int32_t one = 1, sum = 0;
    return weft_allreduce(&one, &sum, 1, WEFT_DTYPE_I32, WEFT_REDOP_SUM, comm,
                          NULL) != WEFT_OK ||
           sum != weft_comm_get_nranks(comm);
}

static int cut_differently(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local float data[ELEMS];
    weft_op op = plain_op(WEFT_COLLECTIVE_ALLREDUCE, data, data, ELEMS);
    op.gate_elems = weft_comm_get_rank(comm) == 0 ? CUT : 0;
    weft_status status = weft_op_post(&op, 0, comm, NULL);
    if (status == WEFT_OK) {
        status = weft_barrier(comm, NULL);
    }
    return expect(status, WEFT_ERR_MISMATCH, "gate_elems 1000");
}

static void test_cut_other_gate_elems_mismatch_named(void **state)
{
    (void)state;
    assert_int_equal(run(2, cut_differently, 0), 0);
}

/* Only one side has a gate; both know where messages end. */
static int gate_on_one_side(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local float data[ELEMS];
    weft_device *device;
    weft_gate *ready;
    bool first = weft_comm_get_rank(comm) == 0;
    weft_op op = plain_op(first ? WEFT_COLLECTIVE_SEND : WEFT_COLLECTIVE_RECV,
                          data, data, ELEMS);
    op.root = first ? 1 : 0;
    op.gate_elems = CUT;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_gate_create(device, ELEMS / CUT, &ready) != WEFT_OK;
    for (size_t chunk = 0; first && chunk < ELEMS / CUT; chunk++) {
        failures += weft_gate_signal(ready, chunk, 1, NULL) != WEFT_OK;
    }
    for (int i = 0; i < ELEMS; i++) {
        data[i] = first ? (float)i : -1;
    }
    op.ready = first ? ready : NULL;
    failures += weft_op_post(&op, first, comm, NULL) != WEFT_OK;
    op.collective = WEFT_COLLECTIVE_ALLREDUCE;
    op.root = 0;
    failures += weft_op_post(&op, first, comm, NULL) != WEFT_OK;
    for (int i = 0; i < ELEMS; i++) {
        failures += data[i] != 2 * (float)i;
    }
    weft_gate_destroy(ready);
    weft_device_close(device);
    return failures > 63 ? 63 : failures;
}

static void test_cut_gate_on_one_side_exact(void **state)
{
    (void)state;
    assert_int_equal(run(2, gate_on_one_side, 5000), 0);
}

/* The root has left while what it sent is still on the emulated link. */
static int leave_after_sending(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local float data[ELEMS];
    bool root = weft_comm_get_rank(comm) == 0;
    for (int i = 0; i < ELEMS; i++) {
        data[i] = root ? (float)i : -1;
    }
    int failures =
        expect(weft_broadcast(data, data, ELEMS, WEFT_DTYPE_F32, 0, comm, NULL),
               WEFT_OK, "");
    for (int i = 0; i < ELEMS; i++) {
        failures += data[i] != (float)i;
    }
    return failures > 63 ? 63 : failures;
}

static void test_left_peer_whose_data_are_under_way_not_blamed(void **state)
{
    (void)state;
    setenv("WEFT_EMULATE_GBPS", "0.001", 1);
    assert_int_equal(run(2, leave_after_sending, 0), 0);
    unsetenv("WEFT_EMULATE_GBPS");
}

/* Every operation of the root is done but not read: its op slots run out. */
static int send_to_the_absent(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local float data[ELEMS];
    int failures = 0;
    if (weft_comm_get_rank(comm) == 0) {
        weft_status status = WEFT_OK;
        for (int i = 0; i < 20 && status == WEFT_OK; i++) {
            status = weft_broadcast(data, data, ELEMS, WEFT_DTYPE_F32, 0, comm,
                                    NULL);
        }
        failures = expect(status, WEFT_ERR_TIMEOUT, "rank 1 has not entered");
        atomic_store(&arena->go, 1);
    }
    wait_until(&arena->go, 1);
    return failures;
}

static void test_absent_reader_of_finished_operations_named(void **state)
{
    (void)state;
    assert_int_equal(run(2, send_to_the_absent, 400), 0);
}

static int barrier_with_count(weft_comm *comm, void *context)
{
    (void)context;
    weft_op op = plain_op(WEFT_COLLECTIVE_BARRIER, NULL, NULL, 100000);
    if (weft_comm_get_rank(comm) == 1) {
        nap_ms(50);
    }
    atomic_fetch_add(&arena->inside, 1);
    int failures = weft_op_post(&op, 0, comm, NULL) != WEFT_OK;
    return failures + (atomic_load(&arena->inside) != 2);
}

static void test_barrier_any_count_nobody_leaves_early(void **state)
{
    (void)state;
    assert_int_equal(run(2, barrier_with_count, 0), 0);
}

/* One gate chunk however large; again and again in the same op slots. */
static int huge_gate_elems(weft_comm *comm, weft_gate *gate)
{
    static _Thread_local float data[ELEMS];
    int failures = 0;
    for (uint64_t epoch = 1; epoch <= 20; epoch++) {
        weft_op op = plain_op(WEFT_COLLECTIVE_ALLREDUCE, data, data, ELEMS);
        op.gate_elems = SIZE_MAX;
        op.arrived = gate;
        failures += weft_op_post(&op, epoch, comm, NULL) != WEFT_OK;
        failures += weft_gate_test(gate, 0, epoch) != WEFT_OK;
    }
    return failures;
}

/* Rank 1 of a reduce receives nothing, of a broadcast sends nothing; rank 0 of
 * a broadcast may receive nothing. */
static int idle_gates(weft_comm *comm, weft_gate *gate, size_t count)
{
    static _Thread_local float data[2][ELEMS];
    weft_op op = plain_op(WEFT_COLLECTIVE_REDUCE, data[0], data[1], count);
    uint64_t epoch = 100 + count;
    op.arrived = gate;
    int failures = weft_op_post(&op, epoch, comm, NULL) != WEFT_OK;
    failures += weft_gate_test(gate, 0, epoch) != WEFT_OK;
    op = plain_op(WEFT_COLLECTIVE_BROADCAST, data[0], data[0], count);
    op.ready = weft_comm_get_rank(comm) == 1 ? gate : NULL;
    failures += expect(weft_op_post(&op, epoch + 1, comm, NULL), WEFT_OK, "");
    bool root = weft_comm_get_rank(comm) == 0;
    op.ready = NULL;
    op.arrived = gate;
    op.recv = root ? NULL : data[0];
    failures += weft_op_post(&op, epoch + 2, comm, NULL) != WEFT_OK;
    failures += weft_gate_test(gate, 0, epoch + 2) != WEFT_OK;
    return failures;
}

/* An empty message waits for its peer, whatever its gate says. */
static int empty_message(weft_comm *comm, weft_gate *gate)
{
    bool first = weft_comm_get_rank(comm) == 0;
    weft_op op = plain_op(first ? WEFT_COLLECTIVE_SEND : WEFT_COLLECTIVE_RECV,
                          NULL, NULL, 0);
    op.root = first ? 1 : 0;
    op.ready = gate;
    if (first) {
        nap_ms(20);
    }
    return weft_op_post(&op, 1, comm, NULL) != WEFT_OK;
}

static int gates(weft_comm *comm, void *context)
{
    (void)context;
    weft_device *device;
    weft_gate *gate;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_gate_create(device, 1, &gate) != WEFT_OK;
    failures += huge_gate_elems(comm, gate);
    failures += idle_gates(comm, gate, 8);
    failures += idle_gates(comm, gate, ELEMS);
    failures += empty_message(comm, gate);
    weft_gate_destroy(gate);
    weft_device_close(device);
    return failures;
}

static void test_gates_in_corners_raised_and_not_waited_for(void **state)
{
    (void)state;
    assert_int_equal(run(2, gates, 3000), 0);
}

static int foreign_stream(weft_comm *comm, void *context)
{
    (void)context;
    weft_device *device;
    weft_stream *stream;
    int failures = weft_device_open("shadow", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &stream) != WEFT_OK;
    failures += expect(weft_barrier(comm, stream), WEFT_ERR_INVALID,
                       "stream of shadow device 0");
    failures += still_works(comm);
    weft_stream_destroy(stream);
    weft_device_close(device);
    return failures;
}

static void test_post_foreign_stream_refused_nothing_queued(void **state)
{
    (void)state;
    assert_int_equal(run(2, foreign_stream, 3000), 0);
}

static int refused_splits(weft_comm *comm, void *context)
{
    (void)context;
    int rank = weft_comm_get_rank(comm);
    weft_comm *child;
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .flags = rank == 1 ? 4 : 0};
    int failures =
        expect(weft_comm_split(comm, 0, 0, &config, &child), WEFT_ERR_INVALID,
               rank == 1 ? "flags" : "rank 1's config");
    if (rank == 0) {
        wefti_shared_header *header = comm->fabric.shared.header;
        atomic_store(&header->next_offset, (uint64_t)1 << 44);
    }
    failures += expect(weft_comm_split(comm, 0, 0, NULL, &child),
                       WEFT_ERR_NO_MEMORY, "no room");
    return failures + still_works(comm);
}

static void test_split_refused_on_one_rank_all_learn_parent_lives(void **state)
{
    (void)state;
    assert_int_equal(run(3, refused_splits, 3000), 0);
}

/* Rank 0's send buffer is shorter than it says: the device does not copy. */
static int short_buffer(weft_comm *comm, void *context)
{
    (void)context;
    float result[64];
    void *send;
    bool first = weft_comm_get_rank(comm) == 0;
    weft_device *device = comm->device;
    int failures = weft_device_alloc(device, first ? 16 : sizeof(result),
                                     &send) != WEFT_OK;
    weft_status status = weft_allreduce(send, result, 64, WEFT_DTYPE_F32,
                                        WEFT_REDOP_SUM, comm, NULL);
    failures += expect(status, WEFT_ERR_INVALID, "refused a copy");
    weft_device_free(device, send);
    return failures;
}

static void test_oneshot_refused_copy_fails_on_all_ranks(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = short_buffer};
    assert_int_equal(weft_device_open("shadow", 0, &world.config.device),
                     WEFT_OK);
    assert_int_equal(world_run_threads(&world), 0);
    weft_device_close(world.config.device);
}

static void add_bytes(void *context, const wefti_transfer *transfer)
{
    *(size_t *)context += transfer->bytes;
}

static int small_bytes(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local float data[3][300];
    bool root = weft_comm_get_rank(comm) == 0;
    size_t bytes = 0;
    wefti_observer observer = {add_bytes, &bytes};
    int failures = wefti_comm_observe(comm, &observer) != WEFT_OK;
    failures += weft_broadcast(data, data, 100, WEFT_DTYPE_F32, 0, comm,
                               NULL) != WEFT_OK;
    failures += bytes != (root ? 800 : 400);
    bytes = 0;
    failures += weft_reduce(data[0], data[1], 100, WEFT_DTYPE_F32,
                            WEFT_REDOP_SUM, 0, comm, NULL) != WEFT_OK;
    failures += bytes != (root ? 800 : 400);
    bytes = 0;
    failures += weft_reducescatter(data[0], data[1], 10, WEFT_DTYPE_F32,
                                   WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
    failures += bytes != 160;
    failures += wefti_comm_observe(comm, NULL) != WEFT_OK;
    return failures + (weft_barrier(comm, NULL) != WEFT_OK);
}

static void test_observer_small_payloads_both_ways_counted(void **state)
{
    (void)state;
    assert_int_equal(run(3, small_bytes, 0), 0);
}

static void *post_barrier(void *comm)
{
    weft_device *device;
    weft_stream *stream;
    bool failed = weft_device_open("host", 0, &device) != WEFT_OK ||
                  weft_stream_create(device, 0, &stream) != WEFT_OK ||
                  weft_barrier(comm, stream) != WEFT_OK ||
                  weft_stream_wait(stream) != WEFT_OK;
    weft_stream_destroy(stream);
    weft_device_close(device);
    return failed ? comm : NULL;
}

/* The first streams of two communicators of a rank, at the same time. */
static int first_streams(weft_comm *comm, void *context)
{
    (void)context;
    weft_comm *child;
    pthread_t other;
    void *failed;
    if (weft_comm_split(comm, 0, 0, NULL, &child) != WEFT_OK ||
        pthread_create(&other, NULL, post_barrier, child) != 0) {
        return 1;
    }
    int failures = post_barrier(comm) != NULL;
    pthread_join(other, &failed);
    weft_comm_destroy(child);
    return failures + (failed != NULL);
}

static void test_streams_first_of_two_communicators_at_once(void **state)
{
    (void)state;
    assert_int_equal(run(2, first_streams, 0), 0);
}

static int wait_for_go(weft_comm *comm, void *context)
{
    (void)context;
    atomic_fetch_add(&arena->inside, 1);
    if (weft_comm_get_rank(comm) == 1) {
        wait_until(&arena->go, 1);
    }
    return expect(weft_barrier(comm, NULL), WEFT_OK, "");
}

/* The whole job is stopped for longer than its time limit. */
static void test_timeout_does_not_count_while_job_is_stopped(void **state)
{
    (void)state;
    struct world world = {
        .nranks = 2, .config = {.timeout_ms = 1200}, .call = wait_for_go};
    world_processes started;
    world_start_processes(&world, &started);
    wait_until(&arena->inside, 2);
    for (int rank = 0; rank < 2; rank++) {
        kill(started.pids[rank], SIGSTOP);
    }
    nap_ms(2500);
    for (int rank = 0; rank < 2; rank++) {
        kill(started.pids[rank], SIGCONT);
    }
    nap_ms(100); /* long enough to be judged */
    atomic_store(&arena->go, 1);
    assert_int_equal(world_finish_processes(&started, DEADLINE_S), 0);
}

static void close_standard(int rank, void *context)
{
    (void)context;
    for (int fd = 0; fd < 3; fd++) {
        if (rank != fd) {
            close(fd);
        }
    }
}

static int look_at_standard(weft_comm *comm, void *context)
{
    struct stat about;
    int failures = expect(weft_barrier(comm, NULL), WEFT_OK, "");
    (void)context;
    for (int fd = 0; fd < 3; fd++) {
        failures += fstat(fd, &about) != 0 || S_ISSOCK(about.st_mode) ||
                    (fd != weft_comm_get_rank(comm) && !S_ISCHR(about.st_mode));
    }
    return failures;
}

/* What a program prints goes nowhere then, and into no socket. */
static void test_create_closed_standard_descriptors_stay_apart(void **state)
{
    (void)state;
    const struct world world = {
        .nranks = 4, .before = close_standard, .call = look_at_standard};
    assert_int_equal(world_run_processes(&world), 0);
}

int main(void)
{
    arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {
        /* Processes first: the parent may not have threads yet. */
        cmocka_unit_test(test_timeout_does_not_count_while_job_is_stopped),
        cmocka_unit_test(test_create_closed_standard_descriptors_stay_apart),
        cmocka_unit_test(test_cut_other_gate_elems_mismatch_named),
        cmocka_unit_test(test_cut_gate_on_one_side_exact),
        cmocka_unit_test(test_left_peer_whose_data_are_under_way_not_blamed),
        cmocka_unit_test(test_absent_reader_of_finished_operations_named),
        cmocka_unit_test(test_barrier_any_count_nobody_leaves_early),
        cmocka_unit_test(test_gates_in_corners_raised_and_not_waited_for),
        cmocka_unit_test(test_post_foreign_stream_refused_nothing_queued),
        cmocka_unit_test(test_split_refused_on_one_rank_all_learn_parent_lives),
        cmocka_unit_test(test_oneshot_refused_copy_fails_on_all_ranks),
        cmocka_unit_test(test_observer_small_payloads_both_ways_counted),
        cmocka_unit_test(test_streams_first_of_two_communicators_at_once),
    };
    return arena == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
