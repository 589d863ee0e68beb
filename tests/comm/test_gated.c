/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: gated operations move each chunk when it is ready and announce it when
 * it has arrived; the rate limit limits; observers get times that make sense.
 *
 * Method: threads as ranks; chunks are written only right before their ready
 * signal, so that anything sent too early is seen as a wrong result.
 */
#include "tests/comm/world.h"

#include "base/clock.h"
#include "comm/core/observer.h"
#include "device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 5, CHUNK_ELEMS = 30000, ELEMS = CHUNKS * CHUNK_ELEMS - 77 };

/* What one rank works with. */
struct desk {
    weft_device *device;
    weft_stream *stream;
    weft_gate *ready, *arrived;
    float *send, *recv;
};

static int set_up(struct desk *desk)
{
    desk->send = malloc(ELEMS * sizeof(float));
    desk->recv = malloc(ELEMS * sizeof(float));
    return weft_device_open("host", 0, &desk->device) != WEFT_OK ||
           weft_stream_create(desk->device, 0, &desk->stream) != WEFT_OK ||
           weft_gate_create(desk->device, CHUNKS + 2, &desk->ready) !=
               WEFT_OK ||
           weft_gate_create(desk->device, CHUNKS + 3, &desk->arrived) !=
               WEFT_OK;
}

static void put_away(struct desk *desk)
{
    weft_stream_destroy(desk->stream);
    weft_gate_destroy(desk->ready);
    weft_gate_destroy(desk->arrived);
    weft_device_close(desk->device);
    free(desk->send);
    free(desk->recv);
}

static weft_op gated_allreduce(const struct desk *desk)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = WEFT_COLLECTIVE_ALLREDUCE,
                     .send = desk->send,
                     .recv = desk->recv,
                     .count = ELEMS,
                     .dtype = WEFT_DTYPE_F32,
                     .ready = desk->ready,
                     .arrived = desk->arrived,
                     .gate_elems = CHUNK_ELEMS,
                     .ready_chunk = 2,
                     .arrived_chunk = 3,
                     .class_id = WEFT_CLASS_DP};
}

static void make_chunk(struct desk *desk, size_t chunk, uint64_t epoch,
                       int rank)
{
    size_t end = (chunk + 1) * CHUNK_ELEMS;
    for (size_t i = chunk * CHUNK_ELEMS; i < end && i < ELEMS; i++) {
        desk->send[i] = (float)((size_t)rank + i % 97 + epoch);
    }
}

static int check_chunk(const struct desk *desk, size_t chunk, uint64_t epoch,
                       int nranks)
{
    size_t end = (chunk + 1) * CHUNK_ELEMS;
    float ranks = (float)(nranks * (nranks - 1) / 2);
    for (size_t i = chunk * CHUNK_ELEMS; i < end && i < ELEMS; i++) {
        float expected =
            ranks + (float)nranks * (float)(i % 97 + (size_t)epoch);
        if (desk->recv[i] != expected) {
            fprintf(stderr, "epoch %llu chunk %zu wrong at %zu\n",
                    (unsigned long long)epoch, chunk, i);
            return 1;
        }
    }
    return 0;
}

/* Chunks are made in an order of each rank's own, from the last on rank 0. */
static int chunk_by_chunk(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    int failures = set_up(&desk);
    weft_op op = gated_allreduce(&desk);
    for (uint64_t epoch = 1; epoch <= 4; epoch++) {
        memset(desk.send, 0xA5, ELEMS * sizeof(float));
        memset(desk.recv, 0xA5, ELEMS * sizeof(float));
        failures += weft_op_post(&op, epoch, comm, desk.stream) != WEFT_OK;
        for (size_t c = 0; c < CHUNKS; c++) {
            size_t chunk = rank % 2 ? c : CHUNKS - 1 - c;
            make_chunk(&desk, chunk, epoch, rank);
            failures +=
                weft_gate_signal(desk.ready, 2 + chunk, epoch, NULL) != WEFT_OK;
        }
        for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
            failures +=
                weft_gate_wait(desk.arrived, 3 + chunk, epoch, NULL) != WEFT_OK;
            failures += check_chunk(&desk, chunk, epoch, nranks);
        }
        failures += weft_stream_wait(desk.stream) != WEFT_OK;
    }
    put_away(&desk);
    return failures;
}

static void test_gated_chunks_in_any_order_exact(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 4; nranks++) {
        struct world world = {.nranks = nranks, .call = chunk_by_chunk};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* An early chunk is complete while a late one has not even been made. */
static int early_chunk_first(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    int failures = set_up(&desk);
    weft_op op = gated_allreduce(&desk);
    op.count = 2 * CHUNK_ELEMS;
    op.gate_elems = CHUNK_ELEMS;
    failures += weft_op_post(&op, 1, comm, desk.stream) != WEFT_OK;
    make_chunk(&desk, 0, 1, rank);
    failures += weft_gate_signal(desk.ready, 2, 1, NULL) != WEFT_OK;
    failures += weft_gate_wait(desk.arrived, 3, 1, NULL) != WEFT_OK;
    failures += check_chunk(&desk, 0, 1, nranks);
    failures += weft_gate_test(desk.arrived, 4, 1) != WEFT_INPROGRESS;
    /* Everybody has seen that before anybody makes the second chunk. */
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    make_chunk(&desk, 1, 1, rank);
    failures += weft_gate_signal(desk.ready, 3, 1, NULL) != WEFT_OK;
    failures += weft_gate_wait(desk.arrived, 4, 1, NULL) != WEFT_OK;
    failures += check_chunk(&desk, 1, 1, nranks);
    failures += weft_stream_wait(desk.stream) != WEFT_OK;
    put_away(&desk);
    return failures;
}

static void test_gated_early_chunk_arrives_before_late_is_made(void **state)
{
    (void)state;
    setenv("WEFT_ALGO", "all_reduce:tree", 1);
    struct world world = {.nranks = 3, .call = early_chunk_first};
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_ALGO");
}

/* Reduce-scatter, then all-gather of what came, chunk by chunk. */
static int scatter_and_gather(weft_comm *comm, void *context)
{
    (void)context;
    enum { PART = 20011, GATE = 7000, MOST = 4 * PART };
    struct desk desk;
    weft_gate *ready, *middle, *arrived;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    size_t all = (size_t)nranks * PART;
    int failures = set_up(&desk);
    float *part = malloc(PART * sizeof(float));
    size_t chunks = MOST / GATE + 1;
    failures += weft_gate_create(desk.device, chunks, &ready) != WEFT_OK;
    failures += weft_gate_create(desk.device, chunks, &middle) != WEFT_OK;
    failures += weft_gate_create(desk.device, chunks, &arrived) != WEFT_OK;
    for (size_t i = 0; i < all; i++) {
        desk.send[i] = (float)((size_t)rank + i % 89);
    }
    weft_op scatter = {.size_bytes = sizeof(scatter),
                       .collective = WEFT_COLLECTIVE_REDUCESCATTER,
                       .send = desk.send,
                       .recv = part,
                       .count = PART,
                       .dtype = WEFT_DTYPE_F32,
                       .ready = ready,
                       .arrived = middle,
                       .gate_elems = GATE};
    weft_op gather = {.size_bytes = sizeof(gather),
                      .collective = WEFT_COLLECTIVE_ALLGATHER,
                      .send = part,
                      .recv = desk.recv,
                      .count = PART,
                      .dtype = WEFT_DTYPE_F32,
                      .ready = middle,
                      .arrived = arrived,
                      .gate_elems = GATE};
    weft_stream *second;
    failures += weft_stream_create(desk.device, 0, &second) != WEFT_OK;
    failures += weft_op_post(&scatter, 1, comm, desk.stream) != WEFT_OK;
    failures += weft_op_post(&gather, 1, comm, second) != WEFT_OK;
    for (size_t chunk = (all - 1) / GATE + 1; chunk-- > 0;) {
        failures += weft_gate_signal(ready, chunk, 1, NULL) != WEFT_OK;
    }
    for (size_t chunk = 0; chunk < (all - 1) / GATE + 1; chunk++) {
        failures += weft_gate_wait(arrived, chunk, 1, NULL) != WEFT_OK;
    }
    float ranks = (float)(nranks * (nranks - 1) / 2);
    for (size_t i = 0; i < all && failures == 0; i++) {
        failures += desk.recv[i] != ranks + (float)nranks * (float)(i % 89);
    }
    failures += weft_stream_wait(second) != WEFT_OK;
    failures += weft_stream_wait(desk.stream) != WEFT_OK;
    weft_stream_destroy(second);
    weft_gate_destroy(ready);
    weft_gate_destroy(middle);
    weft_gate_destroy(arrived);
    free(part);
    put_away(&desk);
    return failures;
}

static void test_gated_scatter_feeds_gather_exact(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 4; nranks++) {
        struct world world = {.nranks = nranks, .call = scatter_and_gather};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* Only the root has a gate; the others know how its buffer is cut. */
static int gate_at_root(weft_comm *comm, void *context)
{
    bool agree = *(bool *)context;
    struct desk desk;
    int rank = weft_comm_get_rank(comm);
    int failures = set_up(&desk);
    weft_op op = gated_allreduce(&desk);
    op.collective = WEFT_COLLECTIVE_BROADCAST;
    op.arrived = NULL;
    if (rank != 0) {
        op.ready = NULL;
        op.gate_elems = agree ? CHUNK_ELEMS : 0;
    }
    weft_status status = weft_op_post(&op, 1, comm, desk.stream);
    for (size_t chunk = 0; chunk < CHUNKS && rank == 0; chunk++) {
        make_chunk(&desk, chunk, 1, 5);
        failures += weft_gate_signal(desk.ready, 2 + chunk, 1, NULL) != WEFT_OK;
    }
    if (status == WEFT_OK) { /* else the others have found out before */
        status = weft_stream_wait(desk.stream);
    }
    if (agree) {
        failures += status != WEFT_OK ||
                    desk.recv[ELEMS - 1] != (float)(6 + (ELEMS - 1) % 97);
    } else if (status == WEFT_OK) {
        /* Whoever needed nobody learns it now. */
        status = weft_barrier(comm, NULL);
    }
    failures += !agree && status != WEFT_ERR_MISMATCH;
    put_away(&desk);
    return failures;
}

static void test_gated_only_root_has_gate_cut_alike_or_mismatch(void **state)
{
    (void)state;
    bool agree = true;
    struct world world = {.nranks = 3, .call = gate_at_root, .context = &agree};
    assert_int_equal(world_run_threads(&world), 0);
    agree = false;
    assert_int_equal(world_run_threads(&world), 0);
}

/* Operations on streams that reach them in opposite orders. */
static int opposite_streams(weft_comm *comm, void *context)
{
    (void)context;
    enum { OPS = 6 };
    struct desk desks[OPS];
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    int failures = 0;
    for (int i = 0; i < OPS; i++) {
        failures += set_up(&desks[i]);
        for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
            make_chunk(&desks[i], chunk, (uint64_t)i, rank);
        }
        /* The stream stands still until its gate is raised. */
        failures +=
            weft_gate_wait(desks[i].ready, 0, 1, desks[i].stream) != WEFT_OK;
        failures +=
            weft_allreduce(desks[i].send, desks[i].recv, ELEMS, WEFT_DTYPE_F32,
                           WEFT_REDOP_SUM, comm, desks[i].stream) != WEFT_OK;
    }
    for (int i = 0; i < OPS; i++) {
        int which = rank % 2 ? i : OPS - 1 - i;
        failures += weft_gate_signal(desks[which].ready, 0, 1, NULL) != WEFT_OK;
    }
    for (int i = 0; i < OPS; i++) {
        failures += weft_stream_wait(desks[i].stream) != WEFT_OK;
        for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
            failures += check_chunk(&desks[i], chunk, (uint64_t)i, nranks);
        }
        put_away(&desks[i]);
    }
    return failures;
}

static void test_streams_reached_in_opposite_orders_no_deadlock(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = opposite_streams};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Sums up what an observer is told. */
struct record {
    int transfers;
    size_t bytes;
    int64_t wait_ns, xfer_ns;
    bool ordered;
};

static void note(void *context, const wefti_transfer *transfer)
{
    struct record *record = context;
    record->transfers++;
    record->bytes += transfer->bytes;
    record->wait_ns += transfer->ready_ns - transfer->posted_ns;
    record->xfer_ns += transfer->end_ns - transfer->ready_ns;
    record->ordered &= transfer->posted_ns <= transfer->ready_ns &&
                       transfer->ready_ns <= transfer->end_ns &&
                       transfer->class_id == WEFT_CLASS_DP;
}

enum { LIMITED_BYTES = 4000000, LATE_NS = 60000000, ATTEMPTS = 30 };

/* A rank was held up by others that want the cores, or waits are wrong. */
static atomic_bool held_up;

/* Rank 1 comes late; at 0.2 GB/s a rank's 4 MB take 20 ms. */
static int limited(weft_comm *comm, void *context)
{
    (void)context;
    static float data[2][LIMITED_BYTES / 4];
    int rank = weft_comm_get_rank(comm);
    struct record record = {.ordered = true};
    wefti_observer observer = {note, &record};
    int failures = wefti_comm_observe(comm, &observer) != WEFT_OK;
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    int64_t start_ns = wefti_clock_ns();
    while (rank == 1 && wefti_clock_ns() < start_ns + LATE_NS) {
    }
    record = (struct record){.ordered = true};
    failures +=
        weft_allreduce(data[rank], data[rank], LIMITED_BYTES / 4,
                       WEFT_DTYPE_F32, WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
    failures += wefti_comm_observe(comm, NULL) != WEFT_OK;
    bool waited =
        rank == 0 ? record.wait_ns > LATE_NS / 2 : record.wait_ns < LATE_NS / 2;
    bool slow = record.xfer_ns > 18000000;
    const bool wrong = !slow || record.transfers != 1 || !record.ordered ||
                       record.bytes != 2 * LIMITED_BYTES;
    if (!waited) {
        atomic_store(&held_up, true);
    }
    if (wrong || !waited) {
        fprintf(stderr,
                "rank %d: %d transfers of %zu bytes, waited %lld ns, moved for "
                "%lld ns\n",
                rank, record.transfers, record.bytes, (long long)record.wait_ns,
                (long long)record.xfer_ns);
    }
    failures += wrong;
    return failures;
}

static void test_rate_limit_transfer_takes_its_time_wait_is_apart(void **state)
{
    (void)state;
    setenv("WEFT_EMULATE_GBPS", "0.2", 1);
    struct world world = {.nranks = 2, .call = limited};
    atomic_store(&held_up, true);
    for (int i = 0; i < ATTEMPTS && atomic_load(&held_up); i++) {
        atomic_store(&held_up, false);
        assert_int_equal(world_run_threads(&world), 0);
    }
    unsetenv("WEFT_EMULATE_GBPS");
    assert_false(atomic_load(&held_up));
}

/* What was to raise rank 1's gate has failed: what it was to make is not sent,
 * neither chunk by chunk nor in an operation of one message. */
static int failed_gate(weft_comm *comm, void *context)
{
    const bool *small = context;
    struct desk desk;
    int failures = set_up(&desk), rank = weft_comm_get_rank(comm);
    for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
        make_chunk(&desk, chunk, 1, rank);
        if (rank == 0) {
            failures += weft_gate_signal(desk.ready, 2 + chunk, 1, NULL) != 0;
        }
    }
    if (rank == 1) {
        wefti_gate_fail(desk.ready, WEFT_ERR_SYSTEM, "its GPU is gone");
    }
    weft_op op = gated_allreduce(&desk);
    if (*small) {
        op.count = 3;
    }
    weft_status status = weft_op_post(&op, 1, comm, NULL);
    if (status >= 0 ||
        !strstr(weft_error_text(), "has failed: its GPU is gone") ||
        !strstr(weft_error_text(), "all_reduce #2")) {
        fprintf(stderr, "rank %d: %d, %s\n", rank, (int)status,
                weft_error_text());
        failures++;
    }
    put_away(&desk);
    return failures;
}

static void test_gated_by_a_failed_gate_is_not_sent(void **state)
{
    (void)state;
    for (int small = 0; small < 2; small++) {
        bool context = small;
        struct world world = {
            .nranks = 2, .call = failed_gate, .context = &context};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gated_chunks_in_any_order_exact),
        cmocka_unit_test(test_gated_early_chunk_arrives_before_late_is_made),
        cmocka_unit_test(test_gated_scatter_feeds_gather_exact),
        cmocka_unit_test(test_gated_only_root_has_gate_cut_alike_or_mismatch),
        cmocka_unit_test(test_streams_reached_in_opposite_orders_no_deadlock),
        cmocka_unit_test(test_gated_by_a_failed_gate_is_not_sent),
        cmocka_unit_test(test_rate_limit_transfer_takes_its_time_wait_is_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
