/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the orders of chunks that can be asked for are those of the patterns'
 * drawings; wrong questions and orders are refused by name; ranks that ask for
 * different orders are told so, with both in the text.
 *
 * Method: rank 1 of 3 asks; ranks differ in the order alone. Threads.
 */
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { GATE = 600, BLOCKS = 3, COUNT = GATE * BLOCKS, MOST_CHUNKS = 16 };

typedef struct known {
    weft_collective collective;
    weft_chunk_order order;
    const char *ready, *arrived; /* of rank 1 of 3, with two blocks a part */
} known;

static void print(char *text, const size_t *chunks, size_t count)
{
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        sprintf(text + strlen(text), i ? " %zu" : "%zu", chunks[i]);
    }
}

static int compare(weft_comm *comm, const weft_op *op, const known *wanted)
{
    size_t chunks[MOST_CHUNKS], count;
    char ready[64] = "refused", arrived[64] = "refused";
    if (weft_op_ready_order(op, comm, chunks, MOST_CHUNKS, &count) == WEFT_OK) {
        print(ready, chunks, count);
    }
    if (weft_op_arrived_order(op, comm, chunks, MOST_CHUNKS, &count) ==
        WEFT_OK) {
        print(arrived, chunks, count);
    }
    const bool right =
        strcmp(ready, wanted->ready) == 0 &&
        (!wanted->arrived || strcmp(arrived, wanted->arrived) == 0);
    if (!right) {
        fprintf(stderr, "%s, order %d: ready %s, arrived %s\n",
                weft_collective_text(op->collective), op->chunk_order, ready,
                arrived);
    }
    return !right;
}

static int compare_known(weft_comm *comm, void *context)
{
    enum { HALF = 2 * GATE };
    (void)context;
    static const known rows[] = {
        {WEFT_COLLECTIVE_REDUCESCATTER, 0, "4 0 2 5 1 3", "0 1"},
        {WEFT_COLLECTIVE_REDUCESCATTER, 1, "5 1 3 4 0 2", "1 0"},
        {WEFT_COLLECTIVE_ALLTOALL, 0, "4 0 5 1 2 3", "2 3 0 4 1 5"},
        {WEFT_COLLECTIVE_ALLTOALL, 1, "5 1 4 0 3 2", "3 2 1 5 0 4"},
        {WEFT_COLLECTIVE_ALLGATHER, 0, "0 1", "2 3 0 4 1 5"},
        {WEFT_COLLECTIVE_ALLGATHER, 1, "1 0", "3 2 1 5 0 4"},
        {WEFT_COLLECTIVE_ALLREDUCE, 0, "0 1", "0 1"},
        {WEFT_COLLECTIVE_ALLREDUCE, 1, "1 0", "1 0"},
        {WEFT_COLLECTIVE_SCATTER, 0, "4 0 5 1 2 3", "0 1"},
        {WEFT_COLLECTIVE_GATHER, 0, "0 1", "2 3 0 4 1 5"},
        {WEFT_COLLECTIVE_BROADCAST, 1, "1 0", "1 0"}};
    static const size_t counts[] = {HALF, HALF, HALF};
    static _Thread_local int32_t send[3 * HALF], recv[3 * HALF];
    int failures = 0;
    weft_op op = {.size_bytes = sizeof(op),
                  .send = send,
                  .recv = recv,
                  .count = HALF,
                  .dtype = WEFT_DTYPE_I32,
                  .root = 1};
    if (weft_comm_get_rank(comm) != 1) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        op.collective = rows[i].collective;
        op.chunk_order = rows[i].order;
        op.gate_elems = GATE;
        failures += compare(comm, &op, &rows[i]);
    }
    op.collective = WEFT_COLLECTIVE_ALLTOALLV;
    op.chunk_order = WEFT_CHUNK_ORDER_ASCENDING;
    op.gate_elems = WEFT_GATE_PER_RANK;
    op.send_counts = op.recv_counts = counts;
    return failures +
           compare(comm, &op, &(known){.ready = "2 0 1", .arrived = "1 0 2"});
}

static void test_orders_of_three_ranks_as_drawn(void **state)
{
    struct world world = {.nranks = 3, .call = compare_known};
    const char *spread = spread_get();
    (void)state;
    if (!spread || strcmp(spread, "apart") == 0) { /* else levels decide */
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* ---- what is refused -------------------------------------------------------
 */

static int refused(weft_status status, weft_status wanted, const char *text)
{
    const bool right = status == wanted && strstr(weft_error_text(), text);
    if (!right) {
        fprintf(stderr, "status %d: \"%s\" lacks \"%s\"\n", status,
                weft_error_text(), text);
    }
    return !right;
}

static int ask_wrongly(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local int32_t send[COUNT], recv[COUNT];
    static const size_t counts[] = {3, 3};
    size_t chunks[MOST_CHUNKS], count = 0;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = send,
                  .recv = recv,
                  .count = COUNT,
                  .dtype = WEFT_DTYPE_I32,
                  .gate_elems = GATE};
    int failures =
        refused(weft_op_ready_order(&op, comm, chunks, 2, &count),
                WEFT_ERR_INVALID, "room 2: allowed is 0, or at least") +
        (count != BLOCKS) +
        refused(weft_op_ready_order(&op, comm, NULL, 2, &count),
                WEFT_ERR_INVALID, "chunks_out is NULL") +
        refused(weft_op_arrived_order(&op, comm, chunks, 2, NULL),
                WEFT_ERR_INVALID, "count_out is NULL");
    failures += weft_op_arrived_order(&op, comm, NULL, 0, &count) != WEFT_OK ||
                count != BLOCKS;
    op.size_bytes = offsetof(weft_op, chunk_order);
    failures +=
        weft_op_ready_order(&op, comm, chunks, MOST_CHUNKS, &count) != WEFT_OK;
    op.size_bytes = sizeof(op);
    op.chunk_order = WEFT_CHUNK_ORDER_COUNT;
    failures += refused(weft_op_post(&op, 0, comm, NULL), WEFT_ERR_INVALID,
                        "chunk_order 2: allowed is 0..1");
    op.chunk_order = WEFT_CHUNK_ORDER_DESCENDING;
    op.collective = WEFT_COLLECTIVE_ALLTOALLV;
    op.gate_elems = WEFT_GATE_PER_RANK;
    op.send_counts = op.recv_counts = counts;
    return failures + refused(weft_op_post(&op, 0, comm, NULL),
                              WEFT_ERR_INVALID,
                              "chunk_order descending in alltoallv: allowed "
                              "is ascending");
}

static void test_wrong_questions_refused_by_name(void **state)
{
    struct world world = {.nranks = 2, .call = ask_wrongly};
    (void)state;
    assert_int_equal(world_run_threads(&world), 0);
}

/* Rank 0 goes the other way. */
static int go_apart(weft_comm *comm, void *context)
{
    static _Thread_local int32_t send[3 * COUNT], recv[3 * COUNT];
    const int rank = weft_comm_get_rank(comm);
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = *(const weft_collective *)context,
                  .send = send,
                  .recv = recv,
                  .count = COUNT,
                  .dtype = WEFT_DTYPE_I32,
                  .gate_elems = GATE,
                  .chunk_order = rank == 0 ? WEFT_CHUNK_ORDER_DESCENDING
                                           : WEFT_CHUNK_ORDER_ASCENDING};
    if (op.collective == WEFT_COLLECTIVE_SEND) {
        op.root = 1 - rank;
        op.collective = rank == 0 ? WEFT_COLLECTIVE_SEND : WEFT_COLLECTIVE_RECV;
    }
    weft_status status = weft_op_post(&op, 0, comm, NULL);
    if (status == WEFT_OK) { /* it needed nobody, and learns it now */
        status = weft_barrier(comm, NULL);
    }
    return refused(status, WEFT_ERR_MISMATCH,
                   "gate_elems 600, chunk_order descending");
}

static void test_different_orders_are_a_mismatch(void **state)
{
    static const weft_collective some[] = {
        WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_ALLTOALL,
        WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_SEND};
    (void)state;
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        weft_collective collective = some[i];
        struct world world = {.nranks =
                                  collective == WEFT_COLLECTIVE_SEND ? 2 : 3,
                              .call = go_apart,
                              .context = &collective};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_of_three_ranks_as_drawn),
        cmocka_unit_test(test_wrong_questions_refused_by_name),
        cmocka_unit_test(test_different_orders_are_a_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
