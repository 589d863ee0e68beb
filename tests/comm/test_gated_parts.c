/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: collectives with a part for each rank move what is ready and announce
 * what has arrived, gate chunk by gate chunk where the parts are even, as one
 * chunk where they are not; and plans of v forms keep their counts.
 *
 * Method: threads as ranks. A chunk is written only right before its ready
 * signal, in another order on each rank, so that anything sent too early is
 * seen as a wrong element; arrived chunks are checked before the operation has
 * ended. With "wide" no world has fewer than three ranks, so that pairs of them
 * are on two hosts.
 */
#include "tests/comm/world.h"

#include "base/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 20011, GATE = 7000, MOST_RANKS = 4, ROOT = 1 };
enum { MOST_CHUNKS = MOST_RANKS * COUNT / GATE + 1 };

static int fewest = 1;

/* What one rank works with. */
struct desk {
    weft_comm *comm;
    int rank, nranks, root;
    weft_device *device;
    weft_stream *stream;
    weft_gate *ready, *arrived;
    float *send, *recv;
    uint64_t epoch;
};

static int set_up(struct desk *desk, weft_comm *comm)
{
    size_t bytes = (size_t)MOST_RANKS * COUNT * sizeof(float);
    *desk = (struct desk){.comm = comm,
                          .rank = weft_comm_get_rank(comm),
                          .nranks = weft_comm_get_nranks(comm),
                          .send = malloc(bytes),
                          .recv = malloc(bytes)};
    desk->root = ROOT % desk->nranks;
    return weft_device_open("host", 0, &desk->device) != WEFT_OK ||
           weft_stream_create(desk->device, 0, &desk->stream) != WEFT_OK ||
           weft_gate_create(desk->device, MOST_CHUNKS + 2, &desk->ready) !=
               WEFT_OK ||
           weft_gate_create(desk->device, MOST_CHUNKS + 3, &desk->arrived) !=
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

/* Element i of what `from` has for `to`. */
static float value_of(const struct desk *desk, int from, int to, size_t i)
{
    return (float)((size_t)from * 1000 + (size_t)to * 100 + i % 89 +
                   (size_t)desk->epoch * 7);
}

static bool sends_parts(weft_collective collective)
{
    return collective != WEFT_COLLECTIVE_GATHER;
}

static bool gets_parts(weft_collective collective)
{
    return collective != WEFT_COLLECTIVE_SCATTER;
}

/* Elements of this rank's buffers; 0: it has none. */
static size_t send_elems(const struct desk *desk, weft_collective collective)
{
    size_t all = (size_t)desk->nranks * COUNT;
    bool root = desk->rank == desk->root;
    return collective == WEFT_COLLECTIVE_SCATTER && !root ? 0
           : sends_parts(collective)                      ? all
                                                          : COUNT;
}

static size_t recv_elems(const struct desk *desk, weft_collective collective)
{
    size_t all = (size_t)desk->nranks * COUNT;
    bool root = desk->rank == desk->root;
    return collective == WEFT_COLLECTIVE_GATHER && !root ? 0
           : gets_parts(collective)                      ? all
                                                         : COUNT;
}

static void make_chunk(struct desk *desk, weft_collective collective,
                       size_t chunk)
{
    size_t elems = send_elems(desk, collective);
    size_t end = (chunk + 1) * GATE;
    for (size_t i = chunk * GATE; i < end && i < elems; i++) {
        int to = sends_parts(collective) ? (int)(i / COUNT) : desk->root;
        desk->send[i] = value_of(desk, desk->rank, to, i % COUNT);
    }
}

static int check_chunk(const struct desk *desk, weft_collective collective,
                       size_t chunk)
{
    size_t elems = recv_elems(desk, collective);
    size_t end = (chunk + 1) * GATE;
    for (size_t i = chunk * GATE; i < end && i < elems; i++) {
        int from = gets_parts(collective) ? (int)(i / COUNT) : desk->root;
        if (desk->recv[i] != value_of(desk, from, desk->rank, i % COUNT)) {
            fprintf(stderr, "%s, rank %d of %d: chunk %zu wrong at %zu\n",
                    weft_collective_text(collective), desk->rank, desk->nranks,
                    chunk, i);
            return 1;
        }
    }
    return 0;
}

static size_t chunks_of(size_t elems)
{
    return elems ? (elems - 1) / GATE + 1 : 1;
}

static int once(struct desk *desk, weft_collective collective)
{
    size_t bytes = (size_t)MOST_RANKS * COUNT * sizeof(float);
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = collective,
                  .send = desk->send,
                  .recv = desk->recv,
                  .count = COUNT,
                  .dtype = WEFT_DTYPE_F32,
                  .root = desk->root,
                  .ready = desk->ready,
                  .arrived = desk->arrived,
                  .gate_elems = GATE,
                  .ready_chunk = 2,
                  .arrived_chunk = 3};
    memset(desk->send, 0xA5, bytes);
    memset(desk->recv, 0xA5, bytes);
    desk->epoch++;
    int failures =
        weft_op_post(&op, desk->epoch, desk->comm, desk->stream) != WEFT_OK;
    size_t chunks = chunks_of(send_elems(desk, collective));
    for (size_t c = 0; c < chunks; c++) {
        size_t chunk = desk->rank % 2 ? c : chunks - 1 - c;
        make_chunk(desk, collective, chunk);
        failures += weft_gate_signal(desk->ready, 2 + chunk, desk->epoch,
                                     NULL) != WEFT_OK;
    }
    chunks = chunks_of(recv_elems(desk, collective));
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        failures += weft_gate_wait(desk->arrived, 3 + chunk, desk->epoch,
                                   NULL) != WEFT_OK;
        failures += check_chunk(desk, collective, chunk);
    }
    return failures + (weft_stream_wait(desk->stream) != WEFT_OK);
}

static int even_parts(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    int failures = set_up(&desk, comm);
    for (int round = 0; round < 3; round++) {
        failures += once(&desk, WEFT_COLLECTIVE_ALLTOALL);
        failures += once(&desk, WEFT_COLLECTIVE_GATHER);
        failures += once(&desk, WEFT_COLLECTIVE_SCATTER);
    }
    put_away(&desk);
    return failures;
}

static void test_gated_even_parts_chunks_in_any_order_exact(void **state)
{
    (void)state;
    for (int nranks = fewest; nranks <= MOST_RANKS; nranks++) {
        struct world world = {.nranks = nranks, .call = even_parts};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* An early block is complete while a late one has not even been made. */
static int early_block_first(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    int failures = set_up(&desk, comm);
    size_t parts = (size_t)desk.nranks;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLTOALL,
                  .send = desk.send,
                  .recv = desk.recv,
                  .count = 2 * GATE,
                  .dtype = WEFT_DTYPE_F32,
                  .ready = desk.ready,
                  .arrived = desk.arrived,
                  .gate_elems = GATE};
    for (size_t i = 0; i < parts * 2 * GATE; i++) {
        desk.send[i] = (float)desk.rank;
    }
    failures += weft_op_post(&op, 1, comm, desk.stream) != WEFT_OK;
    for (size_t half = 0; half < 2; half++) {
        for (size_t p = 0; p < parts; p++) {
            failures += weft_gate_test(desk.arrived, 2 * p + half, 1) !=
                        WEFT_INPROGRESS;
        }
        failures += weft_barrier(comm, NULL) != WEFT_OK;
        for (size_t p = 0; p < parts; p++) {
            failures +=
                weft_gate_signal(desk.ready, 2 * p + half, 1, NULL) != WEFT_OK;
        }
        for (size_t p = 0; p < parts; p++) {
            failures +=
                weft_gate_wait(desk.arrived, 2 * p + half, 1, NULL) != WEFT_OK;
            failures += desk.recv[(2 * p + half) * GATE + 5] != (float)p;
        }
        failures += weft_barrier(comm, NULL) != WEFT_OK;
    }
    failures += weft_stream_wait(desk.stream) != WEFT_OK;
    put_away(&desk);
    return failures;
}

static void test_gated_early_block_arrives_before_late_is_made(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = early_block_first};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Uneven: one chunk each, ready before anything, arrived after everything. */
static int uneven_parts(weft_comm *comm, void *context)
{
    (void)context;
    struct desk desk;
    size_t out[MOST_RANKS], in[MOST_RANKS];
    int failures = set_up(&desk, comm);
    for (int p = 0; p < desk.nranks; p++) {
        out[p] = (size_t)(desk.rank * 3000 + p * 500) * (p != desk.rank);
        in[p] = (size_t)(p * 3000 + desk.rank * 500) * (p != desk.rank);
    }
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLTOALLV,
                  .send = desk.send,
                  .recv = desk.recv,
                  .send_counts = out,
                  .recv_counts = in,
                  .dtype = WEFT_DTYPE_F32,
                  .ready = desk.ready,
                  .arrived = desk.arrived,
                  .ready_chunk = 4,
                  .arrived_chunk = 5};
    weft_plan *plan;
    failures += weft_op_plan(&op, comm, &plan) != WEFT_OK;
    size_t sent[MOST_RANKS], got[MOST_RANKS];
    memcpy(sent, out, sizeof(out));
    memcpy(got, in, sizeof(in));
    memset(out, 0xff, sizeof(out)); /* the plan's own now */
    memset(in, 0xff, sizeof(in));
    for (desk.epoch = 1; desk.epoch <= 5; desk.epoch++) {
        memset(desk.recv, 0xA5, (size_t)COUNT * sizeof(float));
        failures += weft_plan_post(plan, desk.epoch, desk.stream) != WEFT_OK;
        failures +=
            weft_gate_test(desk.arrived, 5, desk.epoch) != WEFT_INPROGRESS;
        float *at = desk.send;
        for (int to = 0; to < desk.nranks; to++) {
            for (size_t i = 0; i < sent[to]; i++) {
                *at++ = value_of(&desk, desk.rank, to, i);
            }
        }
        failures +=
            weft_gate_signal(desk.ready, 4, desk.epoch, NULL) != WEFT_OK;
        failures +=
            weft_gate_wait(desk.arrived, 5, desk.epoch, NULL) != WEFT_OK;
        at = desk.recv;
        for (int from = 0; from < desk.nranks; from++) {
            for (size_t i = 0; i < got[from]; i++) {
                failures += *at++ != value_of(&desk, from, desk.rank, i);
            }
        }
        failures += weft_stream_wait(desk.stream) != WEFT_OK;
    }
    weft_plan_destroy(plan);
    put_away(&desk);
    return failures < 63 ? failures : 63;
}

static void test_gated_uneven_plan_one_chunk_exact(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
        struct world world = {.nranks = nranks, .call = uneven_parts};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gated_even_parts_chunks_in_any_order_exact),
        cmocka_unit_test(test_gated_early_block_arrives_before_late_is_made),
        cmocka_unit_test(test_gated_uneven_plan_one_chunk_exact),
    };
    fewest = count > 1 && strcmp(arguments[1], "wide") == 0 ? 3 : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
