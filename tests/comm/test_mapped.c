/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what lies in a weft_mem is not staged, and all results are the same:
 * all collectives and messages, all types, in place too, at any place in the
 * memory, where only some ranks' buffers are of it, among threads and among
 * processes, on the communicator that made it and on those split from that.
 * Ranks may destroy theirs while others still send from it. What the settings
 * forbid is staged. Who dies is named.
 *
 * Method: buffers are poisoned when an operation returns. The fabric counts
 * what was not staged.
 */
#include "tests/comm/one_op.h"
#include "tests/comm/world.h"

#include "comm/make/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

/* The thread sanitizer is slow, and sees nothing between processes. */
#if defined(__SANITIZE_THREAD__)
enum { BETWEEN_PROCESSES = 0, OP_BYTES = 120000 };
#else
enum { BETWEEN_PROCESSES = 1, OP_BYTES = 300000 };
#endif

enum {
    ROOM_BYTES = 6 * OP_BYTES + 8192, /* of a buffer of 4 ranks, or messages */
    DEATH_BYTES = 8 << 20,
    ROUNDS_MOST = 10000
};

/* Room for both buffers in memory of comm. */
static int make_room(weft_comm *comm, weft_mem **mem_out, one_op_room *room_out)
{
    const size_t half = ROOM_BYTES;
    if (CHECK(weft_mem_create(comm, 2 * half, mem_out) == WEFT_OK)) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    unsigned char *base = weft_mem_get_base(*mem_out);
    *room_out =
        (one_op_room){.memory = {base, base + half}, .bytes = {half, half}};
    return 0;
}

/* To threads all types are the same. */
static bool has_few_types(void)
{
    return !BETWEEN_PROCESSES && getenv("WEFT_TEST_FEW");
}

static int run_all(weft_comm *comm, one_op_room *room)
{
    static const weft_dtype some[] = {WEFT_DTYPE_U8, WEFT_DTYPE_BF16,
                                      WEFT_DTYPE_F64};
    int failures = 0;
    for (int c = 0; c < ONE_OP_COLLECTIVES; c++) {
        for (size_t d = 0; d < sizeof(some) / sizeof(some[0]);
             d += has_few_types() ? 2 : 1) {
            failures += one_op_run(comm, one_op_collectives[c], some[d],
                                   OP_BYTES, false, room);
        }
    }
    for (int d = 0; d < WEFT_DTYPE_COUNT; d += has_few_types() ? 5 : 1) {
        failures += one_op_run(comm, WEFT_COLLECTIVE_ALLREDUCE, (weft_dtype)d,
                               OP_BYTES, true, room);
    }
    failures += one_op_run(comm, WEFT_COLLECTIVE_ALLGATHER, WEFT_DTYPE_F32,
                           OP_BYTES, true, room);
    return failures + one_op_run_messages(comm, room);
}

/* With both buffers there, with either, and with those of some ranks. */
static int is_exact(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    one_op_room both;
    if (make_room(comm, &mem, &both)) {
        return 1;
    }
    const bool odd = weft_comm_get_rank(comm) % 2;
    one_op_room send = {.memory = {both.memory[0]}, .bytes = {both.bytes[0]}};
    one_op_room recv = {.memory = {NULL, both.memory[1]},
                        .bytes = {0, both.bytes[1]}};
    const uint64_t before = one_op_unstaged(comm);
    int failures = run_all(comm, &both);
    failures += CHECK(one_op_unstaged(comm) > before);
    failures += run_all(comm, &send);
    failures += run_all(comm, &recv);
    failures += run_all(comm, odd ? &both : NULL);
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_mem_destroy(mem);
    return failures;
}

/* Ranks that share no more than they must, or what a sanitizer can see. */
static int run_beside(const struct world *world)
{
    return BETWEEN_PROCESSES || !getenv("WEFT_TEST_FEW")
               ? world_run_processes(world)
               : world_run_threads(world);
}

/* Chunks are so small that every operation has several. */
static void run_everywhere(world_rank_call call, const char *chunk_bytes)
{
    struct world world = {.call = call};
    const bool few = getenv("WEFT_TEST_FEW") != NULL;
    setenv("WEFT_CHUNK_BYTES", chunk_bytes, 1);
    if (!few) {
        for (world.nranks = 2; world.nranks <= 4; world.nranks += 2) {
            assert_int_equal(world_run_processes(&world), 0);
        }
    }
    world.nranks = 3;
    if (few && BETWEEN_PROCESSES) {
        assert_int_equal(world_run_processes(&world), 0);
    }
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_CHUNK_BYTES");
}

static void test_every_operation_is_exact_and_not_staged(void **state)
{
    (void)state;
    run_everywhere(is_exact, "16384");
}

/* Not in place a pattern that writes over what it has sent may do so too. */
static void test_exchange_is_exact(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = is_exact};
    setenv("WEFT_CHUNK_BYTES", "16384", 1);
    setenv("WEFT_ALGO", "all_reduce:exchange", 1);
    assert_int_equal(run_beside(&world), 0);
    unsetenv("WEFT_ALGO");
    unsetenv("WEFT_CHUNK_BYTES");
}

static void test_usual_chunks_are_exact_and_not_staged(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = is_exact};
    assert_int_equal(run_beside(&world), 0);
}

/* What each collective must not stage where both buffers are of a memory. */
static int stages_nothing(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    one_op_room room;
    if (make_room(comm, &mem, &room)) {
        return 1;
    }
    int failures = CHECK(wefti_comm_reads_mapped(comm));
    for (int c = 0; c < ONE_OP_COLLECTIVES; c++) {
        const weft_collective collective = one_op_collectives[c];
        const bool sends = collective == WEFT_COLLECTIVE_BROADCAST ||
                                   collective == WEFT_COLLECTIVE_SCATTER
                               ? weft_comm_get_rank(comm) == ONE_OP_ROOT
                           : collective == WEFT_COLLECTIVE_REDUCE ||
                                   collective == WEFT_COLLECTIVE_GATHER
                               ? weft_comm_get_rank(comm) != ONE_OP_ROOT
                               : true;
        const uint64_t before = one_op_unstaged(comm);
        failures += one_op_run(comm, collective, WEFT_DTYPE_F32, OP_BYTES,
                               false, &room);
        const uint64_t read_there = one_op_unstaged(comm) - before;
        if (CHECK(!sends || read_there >= OP_BYTES / 2)) {
            fprintf(stderr, "%s: %llu bytes\n",
                    weft_collective_text(collective),
                    (unsigned long long)read_there);
            failures++;
        }
    }
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_mem_destroy(mem);
    return failures;
}

static void test_no_collective_stages_what_is_mapped(void **state)
{
    (void)state;
    setenv("WEFT_ALGO", "all_reduce:direct,reduce:direct,broadcast:direct", 1);
    run_everywhere(stages_nothing, "8192");
    unsetenv("WEFT_ALGO");
}

static int stages_all(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem;
    one_op_room room;
    if (make_room(comm, &mem, &room)) {
        return 1;
    }
    int failures = CHECK(!wefti_comm_reads_mapped(comm));
    failures += run_all(comm, &room);
    failures += CHECK(one_op_unstaged(comm) == 0);
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_mem_destroy(mem);
    return failures;
}

static void test_forbidden_is_staged(void **state)
{
    (void)state;
    const struct world world = {.nranks = 2, .call = stages_all};
    setenv("WEFT_SINGLE_COPY", "off", 1);
    assert_int_equal(world_run_processes(&world), 0);
    unsetenv("WEFT_SINGLE_COPY");
}

/* Some have destroyed theirs; then the range is used for another memory. */
static int outlives(weft_comm *comm, void *context)
{
    (void)context;
    int failures = 0;
    for (int round = 0; round < 12 && failures == 0; round++) {
        weft_mem *mem;
        one_op_room room;
        if (make_room(comm, &mem, &room)) {
            return 1;
        }
        const bool early =
            (weft_comm_get_rank(comm) + round) % 2 == 0 && round % 3 != 2;
        if (early) {
            weft_mem_destroy(mem);
        }
        for (int c = 0; c < ONE_OP_COLLECTIVES; c++) {
            failures += one_op_run(comm, one_op_collectives[c], WEFT_DTYPE_F32,
                                   OP_BYTES, false, early ? NULL : &room);
        }
        failures += one_op_run_messages(comm, early ? NULL : &room);
        if (!early) {
            weft_mem_destroy(mem);
        }
    }
    return failures;
}

static void test_memory_outlives_those_that_have_left_it(void **state)
{
    (void)state;
    run_everywhere(outlives, "16384");
}

/* A part of the world has memory of its own, and uses the world's as well; so
 * does a part of that, but what came to the world later. */
static int serves_parts(weft_comm *comm, void *context)
{
    (void)context;
    weft_mem *mem, *part_mem, *later;
    weft_comm *part, *pair;
    one_op_room room, part_room, later_room;
    const int rank = weft_comm_get_rank(comm);
    if (make_room(comm, &mem, &room) ||
        CHECK(weft_comm_split(comm, rank > 3, -rank, NULL, &part) == WEFT_OK) ||
        make_room(part, &part_mem, &part_room) ||
        CHECK(weft_comm_split(part, rank / 2, rank, NULL, &pair) == WEFT_OK) ||
        make_room(comm, &later, &later_room)) {
        return 1;
    }
    int failures = run_all(part, &room);
    failures += CHECK(one_op_unstaged(part) > 0);
    failures += run_all(pair, &room);
    const uint64_t of_world = one_op_unstaged(pair);
    failures += run_all(pair, &part_room);
    failures += CHECK(of_world > 0 && one_op_unstaged(pair) == 2 * of_world);
    failures += run_all(pair, &later_room);
    failures += CHECK(one_op_unstaged(pair) == 2 * of_world);
    const uint64_t before = one_op_unstaged(comm);
    failures += run_all(comm, &part_room);
    failures += CHECK(one_op_unstaged(comm) == before);
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_mem_destroy(later);
    weft_mem_destroy(part_mem);
    weft_comm_destroy(pair);
    weft_comm_destroy(part);
    weft_mem_destroy(mem);
    return failures;
}

static void test_memory_serves_its_communicator_and_its_parts(void **state)
{
    (void)state;
    struct world world = {.nranks = 4, .call = serves_parts};
    setenv("WEFT_CHUNK_BYTES", "16384", 1);
    assert_int_equal(world_run_processes(&world), 0);
    unsetenv("WEFT_CHUNK_BYTES");
}

/* Some have destroyed the memory, or even what it was made on, when others
 * still send from it on a part; then the range is used for another one. */
static int outlives_on_parts(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    const bool in_pairs = weft_comm_get_nranks(comm) % 2 == 0;
    int failures = 0;
    for (int round = 0; round < 12 && failures == 0; round++) {
        weft_mem *mem;
        weft_comm *whole, *part;
        one_op_room room;
        if (CHECK(weft_comm_split(comm, 0, rank, NULL, &whole) == WEFT_OK) ||
            make_room(whole, &mem, &room) ||
            CHECK(weft_comm_split(whole, in_pairs ? rank / 2 : 0, rank, NULL,
                                  &part) == WEFT_OK)) {
            return 1;
        }
        const bool early = (rank + round) % 2 == 0 && round % 3 != 2;
        if (early) {
            weft_mem_destroy(mem);
        }
        if (early && round % 2) {
            weft_comm_destroy(whole);
        }
        for (int c = 0; c < ONE_OP_COLLECTIVES; c++) {
            failures += one_op_run(part, one_op_collectives[c], WEFT_DTYPE_F32,
                                   OP_BYTES, false, early ? NULL : &room);
        }
        failures += one_op_run_messages(part, early ? NULL : &room);
        if (!early) {
            weft_mem_destroy(mem);
        }
        if (!early || round % 2 == 0) {
            weft_comm_destroy(whole);
        }
        weft_comm_destroy(part);
    }
    return failures;
}

static void test_memory_outlives_on_parts_those_that_have_left_it(void **state)
{
    (void)state;
    run_everywhere(outlives_on_parts, "16384");
}

/* A range that one communicator has left serves another one next. */
static int changes_hands(weft_comm *comm, void *context)
{
    (void)context;
    weft_comm *twin;
    const int rank = weft_comm_get_rank(comm);
    int failures =
        CHECK(weft_comm_split(comm, 0, rank, NULL, &twin) == WEFT_OK);
    for (int round = 0; round < 4 && failures == 0; round++) {
        weft_comm *of = round % 2 ? twin : comm;
        weft_mem *mem;
        one_op_room room;
        if (make_room(of, &mem, &room)) {
            return 1;
        }
        failures += run_all(comm, &room);
        failures += run_all(twin, &room);
        weft_mem_destroy(mem);
    }
    weft_comm_destroy(twin);
    return failures;
}

static void test_range_that_changes_hands_is_exact(void **state)
{
    (void)state;
    run_everywhere(changes_hands, "16384");
}

/* The kernel ends rank 1 so many microseconds after its first operation. */
static int reads_who_dies(weft_comm *comm, void *context)
{
    const struct itimerval end = {.it_value = {.tv_usec = *(int *)context}};
    weft_mem *mem;
    if (CHECK(weft_mem_create(comm, DEATH_BYTES, &mem) == WEFT_OK)) {
        return 1;
    }
    float *data = weft_mem_get_base(mem);
    const size_t elems = DEATH_BYTES / sizeof(*data);
    int failures = 0, rounds = 0;
    weft_status status = weft_barrier(comm, NULL);
    if (weft_comm_get_rank(comm) == 1) {
        failures += CHECK(setitimer(ITIMER_REAL, &end, NULL) == 0);
    }
    for (; status == WEFT_OK && rounds < ROUNDS_MOST; rounds++) {
        for (size_t i = 0; i < elems; i++) {
            data[i] = 1;
        }
        status = weft_allreduce(data, data, elems, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, comm, NULL);
        for (size_t i = 0; status == WEFT_OK && i < elems && !failures; i++) {
            failures += CHECK(data[i] == 2);
        }
    }
    failures += CHECK(status == WEFT_ERR_PEER &&
                      strstr(weft_error_text(), "rank 1 has died"));
    weft_mem_destroy(mem);
    return failures;
}

static void test_sender_dies_while_read_right_data_or_its_name(void **state)
{
    (void)state;
    for (int after_us = 50; after_us < 100000; after_us = after_us * 2 + 37) {
        struct world world = {
            .nranks = 2, .call = reads_who_dies, .context = &after_us};
        assert_int_equal(world_run_processes(&world), 1); /* the dead one */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation_is_exact_and_not_staged),
        cmocka_unit_test(test_exchange_is_exact),
        cmocka_unit_test(test_usual_chunks_are_exact_and_not_staged),
        cmocka_unit_test(test_no_collective_stages_what_is_mapped),
        cmocka_unit_test(test_forbidden_is_staged),
        cmocka_unit_test(test_memory_outlives_those_that_have_left_it),
        cmocka_unit_test(test_memory_serves_its_communicator_and_its_parts),
        cmocka_unit_test(test_memory_outlives_on_parts_those_that_have_left_it),
        cmocka_unit_test(test_range_that_changes_hands_is_exact),
        cmocka_unit_test(test_sender_dies_while_read_right_data_or_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
