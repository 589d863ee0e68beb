/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: on tens of hosts, thousands of ranks, uneven hosts in any order and
 * counts beyond 32 bits, the lists of what weft takes for each operation fit
 * together and send no more from host to host than they must.
 *
 * Method: pattern_walk.h; no memory is moved. What is sent is compared with the
 * least that the collective's definition allows.
 */
#include "base/check.h"
#include "comm/pattern/shape.h"
#include "tests/comm/least_traffic.h"
#include "tests/comm/pattern_walk.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_ALLGATHER, WEFT_COLLECTIVE_REDUCESCATTER,
    WEFT_COLLECTIVE_BROADCAST, WEFT_COLLECTIVE_ALLTOALL,
    WEFT_COLLECTIVE_GATHER,    WEFT_COLLECTIVE_SCATTER};

/* Those whose counts every rank knows. */
static const weft_collective varied[] = {WEFT_COLLECTIVE_ALLGATHERV,
                                         WEFT_COLLECTIVE_REDUCESCATTERV};

/* Ranks of a host, and hosts, in the long form. */
#if defined(__SANITIZE_THREAD__)
enum { WALKED = 16 };
#elif defined(__SANITIZE_ADDRESS__)
enum { WALKED = 32 };
#else
enum { WALKED = 64 };
#endif

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

/* A sanitizer sees in half as many hosts of half as many ranks what it would in
 * all: they are alike. */
static int walked(void)
{
    return getenv("WEFT_TEST_FEW") ? WALKED / 2 : WALKED;
}

/* With the pattern that moves the least, and in two hops. */
static void walk_least(const wefti_problem *problem, const size_t *counts,
                       const int *hosts)
{
    const wefti_pattern *patterns[] = {wefti_pattern_first(problem),
                                       &wefti_pattern_two_hop};
    for (size_t i = 0; i < WEFTI_COUNT_OF(patterns); i++) {
        if (patterns[i]->supports(problem)) {
            assert_int_equal(pattern_walk(patterns[i], *problem),
                             least_elems(problem, counts, hosts));
        }
    }
    if (wefti_pattern_binomial.supports(problem)) { /* passes parts on */
        assert_true(pattern_walk(&wefti_pattern_binomial, *problem) >=
                    least_elems(problem, counts, hosts));
    }
}

/* count: of each rank's part. */
static void walk_hosts(const int *hosts, int nranks, size_t count,
                       size_t chunk_elems)
{
    wefti_grouping *grouping;
    assert_true(wefti_grouping_create(hosts, nranks, &grouping));
    for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
        wefti_problem problem = {.collective = collectives[i],
                                 .nranks = nranks,
                                 .root = wefti_shape_get(collectives[i])->rooted
                                             ? nranks / 2 + 1
                                             : 0,
                                 .count = count,
                                 .chunk_elems = chunk_elems,
                                 .grouping = grouping};
        if (collectives[i] == WEFT_COLLECTIVE_ALLREDUCE) {
            problem.count *= (size_t)nranks;
        }
        walk_least(&problem, NULL, hosts);
    }
    free(grouping);
}

/* As many hosts as each has ranks; with 4096 ranks that takes ten seconds. */
static void test_step_at_many_hosts_messages_match(void **state)
{
    (void)state;
    static int hosts[WALKED * WALKED];
    int side = is_long() ? WALKED : walked() / 2;
    for (int rank = 0; rank < side * side; rank++) {
        hosts[rank] = rank / side * side;
    }
    walk_hosts(hosts, side * side, 1, 16384);
}

/* Eight uneven hosts, placed in turns: of 36 ranks host h has h + 1. */
static void place_uneven(int *hosts, int nranks)
{
    for (int rank = 0; rank < nranks; rank++) {
        int host = 0;
        for (int at = rank % 36; at > host; host++) {
            at -= host + 1;
        }
        hosts[rank] = rank < 8 ? rank : host;
    }
}

static void test_step_at_uneven_hosts_messages_match(void **state)
{
    (void)state;
    static int hosts[WALKED * WALKED];
    int nranks = is_long() ? WALKED * WALKED : walked() * 4;
    place_uneven(hosts, nranks);
    walk_hosts(hosts, nranks, 20, 8);
}

/* v forms whose lists all ranks know, in the same hosts: up to 90 elements of a
 * rank, of some none. */
static void test_step_of_varied_counts_messages_match(void **state)
{
    (void)state;
    enum { RANKS = 144 };
    size_t counts[RANKS], displs[RANKS], end = 0;
    int hosts[RANKS];
    uint64_t seed = random_seed();
    wefti_grouping *grouping;
    place_uneven(hosts, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        uint64_t drawn = random_next(&seed);
        displs[rank] = end;
        counts[rank] = drawn % 4 ? drawn / 4 % 90 : 0;
        end += counts[rank];
    }
    assert_true(wefti_grouping_create(hosts, RANKS, &grouping));
    for (size_t i = 0; i < WEFTI_COUNT_OF(varied); i++) {
        wefti_problem problem = {.collective = varied[i],
                                 .nranks = RANKS,
                                 .chunk_elems = 8,
                                 .grouping = grouping,
                                 .send_counts = counts,
                                 .send_displs = displs,
                                 .recv_counts = counts,
                                 .recv_displs = displs};
        walk_least(&problem, counts, hosts);
    }
    free(grouping);
}

/* Through four levels: ranks of equal remainders are together, so that they are
 * far from each other, and in as many groups as the remainders' divisor. */
static void walk_nested(int nranks, weft_collective collective, size_t count)
{
    enum { LEVELS = 4, HOSTS = 2 };
    static const int divisors[LEVELS] = {256, 64, 16, 4};
    static int firsts[LEVELS][4096];
    const int *levels[LEVELS];
    wefti_grouping *grouping;
    wefti_nest *nest;
    for (int level = 0; level < LEVELS; level++) {
        levels[level] = firsts[level];
        for (int rank = 0; rank < nranks; rank++) {
            firsts[level][rank] = rank % divisors[level];
        }
    }
    assert_true(wefti_grouping_create(firsts[HOSTS], nranks, &grouping));
    assert_true(wefti_nest_create(levels, LEVELS, nranks, &nest));
    assert_int_equal(nest->level_count, LEVELS);
    const wefti_problem problem = {.collective = collective,
                                   .nranks = nranks,
                                   .count = count,
                                   .chunk_elems = 1000,
                                   .grouping = grouping,
                                   .nest = nest};
    assert_int_equal(pattern_walk(&wefti_pattern_nested, problem),
                     least_elems(&problem, NULL, firsts[HOSTS]));
    free(grouping);
    free(nest);
}

static void test_step_of_nested_levels_messages_match(void **state)
{
    (void)state;
    const int many = is_long() ? 4096 : walked() * 16 + 253; /* uneven */
    walk_nested(many, WEFT_COLLECTIVE_ALLGATHER, 3);
    walk_nested(many, WEFT_COLLECTIVE_ALLREDUCE, (size_t)many * 3);
    walk_nested(4096, WEFT_COLLECTIVE_ALLREDUCE, 3);
    walk_nested(4096, WEFT_COLLECTIVE_BROADCAST, 70001);
    walk_nested(4093, WEFT_COLLECTIVE_BROADCAST, 9999);
}

/* Ranks in a row, so that groups are nodes: two levels inside hosts. */
static void walk_sums(int nranks, weft_collective collective, size_t count)
{
    enum { LEVELS = 3, HOSTS = 2 };
    static const int runs[LEVELS] = {2, 8, 24};
    static int firsts[LEVELS][4096];
    const int *levels[LEVELS];
    wefti_grouping *grouping;
    wefti_nest *nest;
    for (int level = 0; level < LEVELS; level++) {
        levels[level] = firsts[level];
        for (int rank = 0; rank < nranks; rank++) {
            firsts[level][rank] = rank / runs[level] * runs[level];
        }
    }
    assert_true(wefti_grouping_create(firsts[HOSTS], nranks, &grouping));
    assert_true(wefti_nest_create(levels, LEVELS, nranks, &nest));
    assert_true(wefti_nest_find_sums(nest, firsts[HOSTS]));
    assert_int_equal(nest->sums->level_count, LEVELS);
    const wefti_problem problem = {.collective = collective,
                                   .nranks = nranks,
                                   .count = count,
                                   .chunk_elems = 1000,
                                   .grouping = grouping,
                                   .nest = nest,
                                   .upward = true};
    assert_int_equal(pattern_walk(&wefti_pattern_nested_sums, problem),
                     least_elems(&problem, NULL, firsts[HOSTS]));
    free(grouping);
    wefti_nest_free(nest);
}

static void test_step_of_sums_through_levels_messages_match(void **state)
{
    (void)state;
    const int many = is_long() ? 4093 : walked() * 8 + 11; /* uneven */
    walk_sums(many, WEFT_COLLECTIVE_ALLREDUCE, (size_t)many * 3);
    walk_sums(many, WEFT_COLLECTIVE_REDUCESCATTER, 3);
    walk_sums(4096, WEFT_COLLECTIVE_ALLREDUCE, 3);
    walk_sums(4093, WEFT_COLLECTIVE_REDUCE, 9999);
}

/* Beyond 32 bits in every number that counts elements. */
static void test_step_of_huge_counts_messages_match(void **state)
{
    (void)state;
    static const int hosts[] = {0, 1, 0, 0, 1};
    walk_hosts(hosts, 5, ((size_t)1 << 40) + 12345, (size_t)1 << 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_at_many_hosts_messages_match),
        cmocka_unit_test(test_step_at_uneven_hosts_messages_match),
        cmocka_unit_test(test_step_of_varied_counts_messages_match),
        cmocka_unit_test(test_step_of_nested_levels_messages_match),
        cmocka_unit_test(test_step_of_sums_through_levels_messages_match),
        cmocka_unit_test(test_step_of_huge_counts_messages_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
