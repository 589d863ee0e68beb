/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: in one shot the results are the same wherever payloads lie: in the
 * first line of the entry, behind it, beside the entries, or in the buffers of
 * those ranks that have them in a weft_mem, which are read before their
 * operation ends. Many under way at once do not overwrite each other's.
 *
 * Method: sizes on both sides of each border, all collectives, in place too, by
 * threads and by processes; buffers are poisoned when an operation returns.
 * Rounds of twelve operations, begun before any is waited for.
 */
#include "tests/comm/one_op.h"
#include "tests/comm/world.h"

#include "comm/core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LARGEST_BYTES = 64000,
    ROOM_BYTES = 5 * LARGEST_BYTES + 8192,
    AT_ONCE = 12,
    ROUNDS = 20
};

static const size_t sizes[] = {1,    9,    40,    2000,         4000,
                               4100, 9000, 20000, LARGEST_BYTES};

static int run_sizes(weft_comm *comm, one_op_room *room)
{
    int failures = 0;
    for (size_t s = 0; s < WEFTI_COUNT_OF(sizes); s++) {
        for (int c = 0; c < ONE_OP_COLLECTIVES; c++) {
            failures += one_op_run(comm, one_op_collectives[c],
                                   s % 2 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                                   sizes[s], false, room);
        }
        failures += one_op_run(comm, WEFT_COLLECTIVE_ALLREDUCE, WEFT_DTYPE_F32,
                               sizes[s], true, room);
        failures += one_op_run(comm, WEFT_COLLECTIVE_ALLGATHER, WEFT_DTYPE_U8,
                               sizes[s], true, room);
    }
    return failures;
}

/* With buffers of the heap, and of a weft_mem on some ranks or on all. */
static int is_exact(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    int failures = run_sizes(comm, NULL);
    if (CHECK(weft_mem_create(comm, 2 * ROOM_BYTES, &mem) == WEFT_OK)) {
        return failures + 1;
    }
    unsigned char *base = weft_mem_get_base(mem);
    one_op_room room = {.memory = {base, base + ROOM_BYTES},
                        .bytes = {ROOM_BYTES, ROOM_BYTES}};
    const uint64_t before = one_op_unstaged(comm);
    failures += run_sizes(comm, &room);
    failures += CHECK(one_op_unstaged(comm) > before);
    failures +=
        run_sizes(comm, weft_comm_get_rank(comm) % 2 == 0 ? &room : NULL);
    weft_mem_destroy(mem);
    return failures;
}

static void run_threads(int nranks, world_rank_call call)
{
    const struct world world = {.nranks = nranks, .call = call};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_payload_threads_exact_wherever_it_lies(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks++) {
        run_threads(nranks, is_exact);
    }
}

static void test_payload_processes_exact_wherever_it_lies(void **state)
{
    (void)state;
    const struct world world = {.nranks = 2, .call = is_exact};
    assert_int_equal(world_run_processes(&world), 0);
}

/* Element i of what rank gives to the operation k of a round. */
static int32_t value_of(int rank, int round, int k, size_t i)
{
    return (int32_t)(((round * AT_ONCE + k) * 8 + rank) * 1000 + (int)i % 991);
}

static int run_round(weft_comm *comm, int round, size_t count, int32_t *memory)
{
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    const size_t stride = count * (size_t)(1 + nranks);
    weft_request *requests[AT_ONCE] = {NULL};
    int failures = 0;
    for (int k = 0; k < AT_ONCE; k++) {
        int32_t *send = memory + (size_t)k * stride;
        for (size_t i = 0; i < count; i++) {
            send[i] = value_of(rank, round, k, i);
        }
        memset(send + count, 0xA5, count * (size_t)nranks * sizeof(*send));
        const weft_op op = {.size_bytes = sizeof(op),
                            .collective = WEFT_COLLECTIVE_ALLGATHER,
                            .send = send,
                            .recv = send + count,
                            .count = count,
                            .dtype = WEFT_DTYPE_I32};
        failures += CHECK(weft_op_begin(&op, 0, comm, &requests[k]) == WEFT_OK);
    }
    /* The last one first on every second rank. */
    for (int n = 0; n < AT_ONCE && !failures; n++) {
        const int k = rank % 2 ? AT_ONCE - 1 - n : n;
        failures += CHECK(weft_request_wait(requests[k]) == WEFT_OK);
    }
    for (int k = 0; k < AT_ONCE; k++) {
        const int32_t *recv = memory + (size_t)k * stride + count;
        for (size_t i = 0; i < count * (size_t)nranks && !failures; i++) {
            failures += CHECK(recv[i] ==
                              value_of((int)(i / count), round, k, i % count));
        }
        weft_request_destroy(requests[k]);
    }
    return failures;
}

static int runs_many(weft_comm *comm, void *context)
{
    static const size_t counts[] = {3, 800, 2500, 9000};
    const size_t most = counts[WEFTI_COUNT_OF(counts) - 1];
    const size_t ranks = (size_t)weft_comm_get_nranks(comm);
    (void)context;
    int32_t *memory = malloc(AT_ONCE * most * (1 + ranks) * sizeof(*memory));
    int failures = CHECK(memory != NULL);
    for (int round = 0; round < ROUNDS && !failures; round++) {
        failures +=
            run_round(comm, round,
                      counts[(size_t)round % WEFTI_COUNT_OF(counts)], memory);
    }
    free(memory);
    return failures;
}

static void test_payload_many_at_once_keep_theirs(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks++) {
        run_threads(nranks, runs_many);
    }
    const struct world world = {.nranks = 2, .call = runs_many};
    assert_int_equal(world_run_processes(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_payload_processes_exact_wherever_it_lies),
        cmocka_unit_test(test_payload_threads_exact_wherever_it_lies),
        cmocka_unit_test(test_payload_many_at_once_keep_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
