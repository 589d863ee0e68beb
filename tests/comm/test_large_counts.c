/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: counts beyond 2^31 elements, and beyond what any memory holds, are
 * dealt out completely and in order, and one such transfer arrives.
 *
 * Method: the arithmetic is walked without memory: every message of a pair
 * begins where the one before ended, both ends count the same, and the piece at
 * any index is the one that a plain enumeration of rounds has there. And every
 * step of every pattern for counts and chunks 2^36 times as large is the small
 * one's (which tests/comm/test_pattern.c proves), 2^36 times as large. The
 * transfer (with --long also a broadcast and an all-reduce) runs on address
 * space that maps the same few pages again and again, so that it needs no
 * memory; its data repeat with the same period.
 */
#include "base/check.h"
#include "comm/pattern/parts.h"
#include "comm/pattern/shape.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 7 };

/* A v form's arrays for all ranks. */
struct plan {
    int nranks;
    size_t matrix[MOST_RANKS][MOST_RANKS]; /* [from][to] */
    size_t counts[MOST_RANKS][2][MOST_RANKS];
    size_t displs[MOST_RANKS][2][MOST_RANKS];
};

static void lay_out(struct plan *plan)
{
    for (int rank = 0; rank < plan->nranks; rank++) {
        for (int side = 0; side < 2; side++) {
            size_t end = 0;
            for (int p = 0; p < plan->nranks; p++) {
                size_t count =
                    side ? plan->matrix[p][rank] : plan->matrix[rank][p];
                plan->counts[rank][side][p] = count;
                plan->displs[rank][side][p] = end;
                end += count;
            }
        }
    }
}

static wefti_problem problem_of(const struct plan *plan, int rank, size_t chunk)
{
    return (wefti_problem){.collective = WEFT_COLLECTIVE_ALLTOALLV,
                           .rank = rank,
                           .nranks = plan->nranks,
                           .chunk_elems = chunk,
                           .send_counts = plan->counts[rank][0],
                           .send_displs = plan->displs[rank][0],
                           .recv_counts = plan->counts[rank][1],
                           .recv_displs = plan->displs[rank][1]};
}

/* Each part from its begin to its end, in steps of at most a chunk. */
static void walk_list(const struct plan *plan, int rank, int list, size_t chunk)
{
    wefti_problem problem = problem_of(plan, rank, chunk);
    bool out = list == 0;
    size_t next[MOST_RANKS] = {0};
    size_t steps = wefti_pattern_pairwise.step_count(&problem, list);
    for (size_t i = 0; i < steps; i++) {
        wefti_step step;
        wefti_pattern_pairwise.step_at(&problem, list, i, &step);
        size_t begin = out ? step.src_elem : step.dst_elem;
        size_t place = plan->displs[rank][!out][step.peer] + next[step.peer];
        assert_int_equal(begin, place);
        size_t left = plan->counts[rank][!out][step.peer] - next[step.peer];
        assert_int_equal(step.elems, left < chunk ? left : chunk);
        next[step.peer] += step.elems;
    }
    for (int p = 0; p < plan->nranks; p++) {
        size_t all = list == 2 && p != rank   ? 0
                     : list != 2 && p == rank ? 0
                                              : plan->counts[rank][!out][p];
        assert_int_equal(next[p], all);
    }
}

static void walk(struct plan *plan, size_t chunk)
{
    lay_out(plan);
    for (int rank = 0; rank < plan->nranks; rank++) {
        for (int list = 0; list < WEFTI_FLAT_STEP_LISTS; list++) {
            walk_list(plan, rank, list, chunk);
        }
    }
}

static void test_pairwise_counts_beyond_int_complete(void **state)
{
    (void)state;
    const size_t big = (size_t)1 << 33;
    struct plan plan = {.nranks = 3,
                        .matrix = {{big + 1, 3, (size_t)1 << 31},
                                   {0, big / 2 - 1, big + 77},
                                   {((size_t)1 << 31) + 1, 0, 0}}};
    walk(&plan, (size_t)1 << 22);
}

/* The most that the checks of arguments let through: half of all addresses. */
static void test_pairwise_counts_beyond_memory_complete(void **state)
{
    (void)state;
    const size_t huge = SIZE_MAX / 8;
    struct plan plan = {
        .nranks = 3,
        .matrix = {{0, huge, huge * 2 + 5}, {huge, 1, 0}, {huge, huge, huge}}};
    walk(&plan, (size_t)1 << 57);
    walk(&plan, huge);
    walk(&plan, huge - 1);
}

/* Even counts go another way through the same arithmetic. */
static void test_even_counts_beyond_int_complete(void **state)
{
    (void)state;
    static const weft_collective collectives[] = {WEFT_COLLECTIVE_ALLTOALL,
                                                  WEFT_COLLECTIVE_GATHER,
                                                  WEFT_COLLECTIVE_SCATTER};
    const size_t count = ((size_t)1 << 33) + 12345, chunk = (size_t)1 << 22;
    for (size_t c = 0; c < WEFTI_COUNT_OF(collectives); c++) {
        size_t sent = 0, got = 0, copied = 0;
        wefti_problem problem = {.collective = collectives[c],
                                 .nranks = 4,
                                 .root = 2,
                                 .count = count,
                                 .chunk_elems = chunk};
        for (problem.rank = 0; problem.rank < 4; problem.rank++) {
            for (int list = 0; list < WEFTI_STEP_LISTS; list++) {
                size_t steps =
                    wefti_pattern_pairwise.step_count(&problem, list);
                for (size_t i = 0; i < steps; i++) {
                    wefti_step step;
                    wefti_pattern_pairwise.step_at(&problem, list, i, &step);
                    *(list == 0   ? &sent
                      : list == 1 ? &got
                                  : &copied) += step.elems;
                }
            }
        }
        size_t pairs = collectives[c] == WEFT_COLLECTIVE_ALLTOALL ? 12 : 3;
        assert_int_equal(sent, pairs * count);
        assert_int_equal(got, pairs * count);
        assert_int_equal(copied, pairs / 3 * count);
    }
}

/* Piece by piece: round j has chunk j of each part that has one, in turn. */
static void test_side_at_any_index_as_enumerated(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < 300; round++) {
        struct plan plan = {.nranks =
                                1 + (int)(random_next(&seed) % MOST_RANKS)};
        size_t chunk = 1 + random_next(&seed) % 5, most = 0;
        for (int i = 0; i < MOST_RANKS * MOST_RANKS; i++) {
            uint64_t drawn = random_next(&seed);
            size_t count = drawn % 4 ? (drawn >> 8) % (1u << drawn % 9) : 0;
            plan.matrix[i / MOST_RANKS][i % MOST_RANKS] = count;
            most = count > most ? count : most;
        }
        lay_out(&plan);
        int rank = (int)(random_next(&seed) % (uint64_t)plan.nranks), peers;
        wefti_problem problem = problem_of(&plan, rank, chunk);
        wefti_part_side side = {&problem, round % 2 == 0, NULL};
        const size_t *counts = plan.counts[rank][!side.outward];
        size_t index = 0;
        for (size_t j = 0; j * chunk < most; j++) {
            for (int k = 1; k < plan.nranks; k++) {
                int step = side.outward ? k : plan.nranks - k;
                int peer = (rank + step) % plan.nranks;
                if (counts[peer] <= j * chunk) {
                    continue;
                }
                wefti_piece_place at = wefti_side_at(&side, index++);
                assert_int_equal(at.peer, peer);
                assert_int_equal(at.begin,
                                 plan.displs[rank][!side.outward][peer] +
                                     j * chunk);
            }
        }
        assert_int_equal(wefti_side_count(&side, &peers), index);
    }
}

/* ---- the same, so many times as large -------------------------------------
 */

static const size_t times = ((size_t)1 << 36) + 3;

/* A problem and the four arrays of its v forms, all counts times scale. */
struct sized {
    wefti_problem problem;
    size_t counts[MOST_RANKS], displs[MOST_RANKS];
};

static void size_up(struct sized *sized, size_t scale, size_t elems,
                    size_t chunk)
{
    size_t end = 0;
    wefti_problem *problem = &sized->problem;
    for (int p = 0; p < problem->nranks; p++) {
        sized->counts[p] = (elems / 3 * (size_t)(p % 3) + 5) * scale;
        sized->displs[p] = end;
        end += sized->counts[p];
    }
    problem->count = elems * scale;
    problem->chunk_elems = chunk * scale;
    if (wefti_shape_get(problem->collective)->varied) {
        problem->count = sized->counts[problem->rank];
        problem->send_counts = problem->recv_counts = sized->counts;
        problem->send_displs = problem->recv_displs = sized->displs;
    }
}

/* How many steps were compared. */
static size_t compare_lists(const wefti_pattern *pattern,
                            const struct sized *small,
                            const struct sized *large)
{
    size_t compared = 0;
    for (int list = 0; list < WEFTI_STEP_LISTS; list++) {
        size_t steps = pattern->step_count(&small->problem, list);
        assert_int_equal(pattern->step_count(&large->problem, list), steps);
        for (size_t i = 0; i < steps; i++) {
            wefti_step one, other;
            pattern->step_at(&small->problem, list, i, &one);
            pattern->step_at(&large->problem, list, i, &other);
            assert_int_equal(one.kind, other.kind);
            assert_int_equal(one.src, other.src);
            assert_int_equal(one.dst, other.dst);
            assert_int_equal(one.peer, other.peer);
            assert_int_equal(one.channel, other.channel);
            assert_true(one.src_elem * times == other.src_elem);
            assert_true(one.dst_elem * times == other.dst_elem);
            assert_true(one.elems * times == other.elems);
            compared++;
        }
    }
    return compared;
}

/* Shares are whole lines of 16 elements, so counts are such that they are; and
 * a binomial tree's parts of a chunk those of 1, 2 or 4 ranks. */
static void test_every_pattern_of_huge_counts_is_the_small_one(void **state)
{
    static const size_t chunks[] = {7, 64, 1000, 100000};
    size_t compared = 0;
    (void)state;
    for (size_t i = 0; wefti_patterns[i]; i++) {
        for (int c = 0; c < WEFT_COLLECTIVE_COUNT * 4 * 6; c++) {
            struct sized small = {
                .problem = {.collective = (weft_collective)(c / 24),
                            .nranks = 1 + c % 6}};
            size_t before = compared, chunk = chunks[c / 6 % 4];
            if (wefti_patterns[i] == &wefti_pattern_binomial && chunk == 7) {
                chunk = 8;
            }
            if (wefti_patterns[i]->in_entries ||
                !wefti_patterns[i]->supports(&small.problem)) {
                continue;
            }
            for (int rank = 0; rank < small.problem.nranks; rank++) {
                small.problem.rank = rank;
                small.problem.root = small.problem.nranks / 2;
                struct sized large = small;
                size_up(&small, 1, 960, chunk);
                size_up(&large, times, 960, chunk);
                compared += compare_lists(wefti_patterns[i], &small, &large);
            }
            assert_true(compared > before || small.problem.nranks == 1);
        }
    }
    print_message("%zu steps compared\n", compared);
}

/* Address space of many bytes that is STAGING bytes of memory, repeated. */
static const size_t window_bytes = (size_t)16 << 20;

static unsigned char *map_again_and_again(size_t bytes)
{
    int memory = memfd_create("window", 0);
    size_t all = (bytes / window_bytes + 1) * window_bytes;
    unsigned char *base =
        mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
             -1, 0);
    assert_true(memory >= 0 && base != MAP_FAILED);
    assert_int_equal(ftruncate(memory, (off_t)window_bytes), 0);
    for (size_t at = 0; at < all; at += window_bytes) {
        assert_ptr_equal(mmap(base + at, window_bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED, memory, 0),
                         base + at);
    }
    close(memory);
    return base;
}

/* The thread sanitizer keeps several bytes for each byte that is touched,
 * however often it is mapped: less of it. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static const size_t large = ((size_t)1 << 26) + 4097;
#else
static const size_t large = ((size_t)1 << 31) + 4097;
#endif

/* How many bytes are not those of rank 1. */
static size_t count_wrong(const unsigned char *recv)
{
    size_t wrong = 0;
    for (size_t i = 0; i < window_bytes; i++) {
        wrong += recv[i] != (unsigned char)(i % 251 + 1);
    }
    return wrong;
}

/* Rank 1 sends more than 2^31 bytes to rank 0, which sends it 3. */
static int transfer(weft_comm *comm, void *context)
{
    (void)context;
    int rank = weft_comm_get_rank(comm), failures = 0;
    size_t out[2] = {0, 3}, in[2] = {0, large};
    if (rank == 1) {
        out[0] = large;
        out[1] = in[1] = 0;
        in[0] = 3;
    }
    unsigned char *send = map_again_and_again(large);
    unsigned char *recv = map_again_and_again(large);
    for (size_t i = 0; i < window_bytes; i++) {
        send[i] = (unsigned char)(i % 251 + (size_t)rank);
    }
    memset(recv, 0xA5, window_bytes);
    failures += weft_alltoallv(send, out, NULL, recv, in, NULL, WEFT_DTYPE_U8,
                               comm, NULL) != WEFT_OK;
    failures += rank == 0 && count_wrong(recv);
    failures += rank == 1 && memcmp(recv, "\0\1\2\xA5", 4) != 0;
    if (getenv("WEFT_TEST_LONG")) {
        memset(recv, 0xA5, window_bytes);
        failures += weft_gatherv(send, out[0], recv, in, NULL, WEFT_DTYPE_U8, 0,
                                 comm, NULL) != WEFT_OK;
        failures += rank == 0 && count_wrong(recv);
    }
    munmap(send, (large / window_bytes + 1) * window_bytes);
    munmap(recv, (large / window_bytes + 1) * window_bytes);
    return failures;
}

/* How many bytes are not the sums of both ranks. */
static size_t count_sums(const unsigned char *recv)
{
    size_t wrong = 0;
    for (size_t i = 0; i < window_bytes; i++) {
        wrong += recv[i] != (unsigned char)(2 * (i % 251) + 1);
    }
    return wrong;
}

/* Collectives of as many elements, whose ends are never all there at once. */
static int broadcast_and_reduce(weft_comm *comm, void *context)
{
    (void)context;
    int rank = weft_comm_get_rank(comm), failures = 0;
    unsigned char *send = map_again_and_again(large);
    unsigned char *recv = map_again_and_again(large);
    for (size_t i = 0; i < window_bytes; i++) {
        send[i] = (unsigned char)(i % 251 + (size_t)rank);
    }
    memset(recv, 0xA5, window_bytes);
    failures += weft_broadcast(send, recv, large, WEFT_DTYPE_U8, 1, comm,
                               NULL) != WEFT_OK;
    failures += count_wrong(recv) != 0;
    memset(recv, 0xA5, window_bytes);
    failures += weft_allreduce(send, recv, large, WEFT_DTYPE_U8, WEFT_REDOP_SUM,
                               comm, NULL) != WEFT_OK;
    failures += count_sums(recv) != 0;
    munmap(send, (large / window_bytes + 1) * window_bytes);
    munmap(recv, (large / window_bytes + 1) * window_bytes);
    return failures;
}

static void test_collectives_beyond_int_exact(void **state)
{
    (void)state;
    struct world world = {
        .nranks = 2, .call = broadcast_and_reduce, .deadline_s = 100};
    if (getenv("WEFT_TEST_LONG")) {
        assert_int_equal(world_run_threads(&world), 0);
    }
}

static void test_transfer_beyond_int_arrives(void **state)
{
    (void)state;
    struct world world = {.nranks = 2, .call = transfer, .deadline_s = 100};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairwise_counts_beyond_int_complete),
        cmocka_unit_test(test_pairwise_counts_beyond_memory_complete),
        cmocka_unit_test(test_even_counts_beyond_int_complete),
        cmocka_unit_test(test_side_at_any_index_as_enumerated),
        cmocka_unit_test(test_every_pattern_of_huge_counts_is_the_small_one),
        cmocka_unit_test(test_transfer_beyond_int_arrives),
        cmocka_unit_test(test_collectives_beyond_int_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
