/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: through any levels nested in each other, inside hosts and above them,
 * uneven and in any order of ranks, data reach everybody with the bits of every
 * other algorithm, and a byte that all get enters each group of each level
 * once.
 *
 * Method: the simulator of simulator.h over every pair of nested ways to group
 * up to five ranks, and over drawn nests of up to four levels of more ranks.
 * What crosses each level is counted and compared with the least that the
 * collective's definition allows. Then who is whose agent is counted in groups
 * of each size. Worlds of thousands of ranks: test_many_hosts.c.
 */
#include "base/check.h"
#include "comm/pattern/shape.h"
#include "tests/comm/least_traffic.h"
#include "tests/comm/partitions.h"
#include "tests/comm/simulator.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_ALLGATHER,
    WEFT_COLLECTIVE_BROADCAST, WEFT_COLLECTIVE_ALLGATHERV};

#if defined(__SANITIZE_THREAD__)
enum { EVERY_WORLD = 4, DRAWN = 20 };
#elif defined(__SANITIZE_ADDRESS__)
enum { EVERY_WORLD = 4, DRAWN = 60 };
#else
enum { EVERY_WORLD = 5, DRAWN = 300 };
#endif

enum { MOST_RANKS = 24, MOST_LEVELS = 4, LONG_WORLD = 6 };

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

/* Levels, innermost first; hosts is one of them, or level_count. */
typedef struct world {
    int nranks, level_count, hosts;
    int firsts[MOST_LEVELS][MOST_RANKS];
} world;

/* What the world's hosts are for the simulator. */
static const int *hosts_of(const world *own)
{
    return own->hosts < own->level_count ? own->firsts[own->hosts] : NULL;
}

/* Operation number `drawn` of the world; counts: room for a v form's. */
static sim_case draw_case(const world *own, const int *const *levels,
                          weft_collective collective, size_t *counts,
                          uint64_t drawn)
{
    static const size_t chunks[] = {1, 3, 16, 2000};
    static const weft_dtype types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16,
                                       WEFT_DTYPE_I32};
    size_t ranks = (size_t)own->nranks, chunk = chunks[drawn % 4];
    const wefti_shape *shape = wefti_shape_get(collective);
    size_t most = chunk * 6 > ranks * 70 ? ranks * 70 : chunk * 6;
    uint64_t seed = drawn;
    sim_case what = {
        .pattern = &wefti_pattern_nested,
        .problem = {.collective = collective,
                    .nranks = own->nranks,
                    .root = shape->rooted ? (int)((drawn >> 4) % ranks) : 0,
                    .count = (drawn >> 8) % (most + 1),
                    .chunk_elems = chunk,
                    .flat = (drawn >> 24) % 4 == 0},
        .hosts = hosts_of(own),
        .levels = levels,
        .level_count = own->level_count,
        .dtype = types[(drawn >> 26) % 3],
        .redop = WEFT_REDOP_SUM,
        .in_place = drawn >> 28 & 1,
        .order = (sim_order)(drawn >> 32) % SIM_ORDERS,
        .seed = drawn};
    if (shape->varied) {
        for (size_t i = 0; i < ranks; i++) {
            counts[i] = random_next(&seed) % (4 * chunk + 2);
        }
        what.counts = counts;
        what.gap = (drawn >> 40) % 4;
    }
    return what;
}

/* The least over the border: a sum's inputs, on several hosts, too. */
static void check_border(sim_case what, const int *border, bool between_hosts)
{
    what.border = border;
    sim_traffic traffic = sim_check(&what);
    size_t least = least_elems(&what.problem, what.counts, border);
    if (what.problem.collective != WEFT_COLLECTIVE_ALLREDUCE) {
        assert_int_equal(traffic.elems, least);
    } else if (between_hosts && !what.problem.flat) {
        assert_int_equal(traffic.elems, least);
    } else { /* results once into each group, inputs each on its own */
        assert_true(traffic.elems >= least / 2);
        assert_true(traffic.elems <= least / 2 + (size_t)what.problem.nranks *
                                                     what.problem.count);
    }
}

/* Whether the world has levels for the pattern. */
static bool check_world(const world *own, weft_collective collective,
                        uint64_t *seed)
{
    const int *levels[MOST_LEVELS];
    size_t counts[MOST_RANKS];
    wefti_nest *nest;
    for (int level = 0; level < own->level_count; level++) {
        levels[level] = own->firsts[level];
    }
    assert_true(
        wefti_nest_create(levels, own->level_count, own->nranks, &nest));
    if (!nest) {
        return false;
    }
    free(nest);
    for (int level = 0; level < own->level_count; level++) {
        check_border(
            draw_case(own, levels, collective, counts, random_next(seed)),
            levels[level],
            level == own->hosts &&
                least_hosts(levels[level], own->nranks) < own->nranks);
    }
    return true;
}

/* Each pair as two levels inside one host, as nodes in hosts, and as hosts in
 * racks. */
static void check_every_world(weft_collective collective)
{
    uint64_t seed = random_seed();
    size_t worlds = 0;
    int most = is_long() ? LONG_WORLD : EVERY_WORLD;
    for (int nranks = 3; nranks <= most; nranks++) {
        int outer[LONG_WORLD] = {0};
        do {
            int ways[LONG_WORLD] = {0};
            do {
                world own = {.nranks = nranks, .level_count = 2};
                partition_cross(outer, ways, nranks, own.firsts[0]);
                if (memcmp(own.firsts[0], ways, sizeof(int) * (size_t)nranks)) {
                    continue; /* not nested: it comes as another */
                }
                memcpy(own.firsts[1], outer, sizeof(int) * (size_t)nranks);
                for (own.hosts = 0; own.hosts <= 2; own.hosts++) {
                    worlds += check_world(&own, collective, &seed);
                }
            } while (partition_next(ways, nranks));
        } while (partition_next(outer, nranks));
    }
    print_message("%zu worlds\n", worlds);
    assert_true(worlds > 0);
}

static void test_allreduce_every_world_exact(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_ALLREDUCE);
}

static void test_allgather_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_ALLGATHER);
    check_every_world(WEFT_COLLECTIVE_ALLGATHERV);
}

static void test_broadcast_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_BROADCAST);
}

static void draw_world(world *own, uint64_t *seed)
{
    uint64_t drawn = random_next(seed);
    *own = (world){.nranks = 6 + (int)(drawn % (MOST_RANKS - 5)),
                   .level_count = 2 + (int)(drawn >> 8) % (MOST_LEVELS - 1)};
    own->hosts = (int)((drawn >> 16) % (uint64_t)(own->level_count + 1));
    for (int level = own->level_count - 1; level >= 0; level--) {
        int ways[MOST_RANKS];
        partition_draw(ways, own->nranks, 2 + (int)(random_next(seed) % 3),
                       seed);
        partition_cross(level + 1 < own->level_count ? own->firsts[level + 1]
                                                     : ways,
                        ways, own->nranks, own->firsts[level]);
    }
}

static void test_all_larger_worlds_exact_and_least(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    size_t worlds = 0;
    for (int round = 0; round < (is_long() ? 10 * DRAWN : DRAWN); round++) {
        world own;
        draw_world(&own, &seed);
        for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
            worlds += check_world(&own, collectives[i], &seed);
        }
    }
    print_message("%zu runs\n", worlds);
    assert_true(worlds > 0);
}

/* ---- nests ----------------------------------------------------------------
 */

static void test_nest_levels_that_part_nothing_left_out(void **state)
{
    (void)state;
    static const int single[] = {0, 1, 2, 3, 4}, pair[] = {0, 0, 2, 3, 3},
                     host[] = {0, 0, 0, 3, 3}, all[] = {0, 0, 0, 0, 0};
    const int *const useless[] = {single, all};
    const int *const some[] = {single, pair, pair, host, all};
    wefti_nest *nest;
    assert_true(wefti_nest_create(useless, 2, 5, &nest));
    assert_null(nest);
    assert_true(wefti_nest_create(some, 5, 5, &nest));
    assert_int_equal(nest->level_count, 2);
    assert_int_equal(nest->levels[0].group_count, 3);
    assert_int_equal(nest->levels[1].group_count, 2);
    free(nest);
}

/* Ranks of groups lie in turns: members stand group by group all the same. */
static void test_nest_members_stand_group_by_group(void **state)
{
    (void)state;
    static const int node[] = {0, 1, 2, 0, 1, 2}, host[] = {0, 1, 0, 0, 1, 0};
    static const int members[] = {0, 3, 2, 5, 1, 4};
    const int *const levels[] = {node, host};
    wefti_nest *nest;
    assert_true(wefti_nest_create(levels, 2, 6, &nest));
    assert_memory_equal(nest->members, members, sizeof(members));
    assert_int_equal(wefti_nest_group(nest, 0, 2).end, 4);
    assert_int_equal(wefti_nest_group(nest, 1, 0).end, 4);
    assert_int_equal(wefti_nest_group(nest, 2, 0).end, 6);
    free(nest);
}

/* Of an owner elsewhere each rank of a host is its agent in one of as many
 * rounds as the host has ranks, from the first's turn on, however its nodes
 * part them. The owner is one behind the next after the host: that makes a
 * turn. */
static void test_nest_agents_of_a_host_share_evenly(void **state)
{
    (void)state;
    enum { RANKS = 9, HOST = 7 };
    static const int node[RANKS] = {0, 0, 0, 0, 4, 5, 5, 7, 7};
    static const int host[RANKS] = {0, 0, 0, 0, 0, 0, 0, 7, 7};
    const int *const levels[] = {node, host};
    wefti_nest *nest;
    int turns[HOST] = {0};
    assert_true(wefti_nest_create(levels, 2, RANKS, &nest));
    for (size_t round = HOST - 1; round < 2 * HOST - 1; round++) {
        int taken = 0;
        for (int rank = 0; rank < HOST; rank++) {
            if (wefti_nest_parent(nest, rank, 8, round) == 8) {
                turns[rank]++;
                taken++;
            }
        }
        assert_int_equal(taken, 1);
    }
    for (int rank = 0; rank < HOST; rank++) {
        assert_int_equal(turns[rank], 1);
    }
    free(nest);
}

/* Everybody's parent has it for a child, and nobody else. */
static void test_nest_children_are_those_whose_parent_it_is(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < 200; round++) {
        const int *levels[MOST_LEVELS];
        world own;
        wefti_nest *nest;
        draw_world(&own, &seed);
        for (int level = 0; level < own.level_count; level++) {
            levels[level] = own.firsts[level];
        }
        assert_true(
            wefti_nest_create(levels, own.level_count, own.nranks, &nest));
        int owner = (int)(random_next(&seed) % (uint64_t)own.nranks), found = 0;
        size_t turn = random_next(&seed) % 50;
        for (int rank = 0; nest && rank < own.nranks; rank++) {
            int count = wefti_nest_child_count(nest, rank, owner, turn);
            for (int i = 0; i < count; i++) {
                int child = wefti_nest_child(nest, rank, owner, turn, i);
                assert_int_not_equal(child, owner);
                assert_int_equal(wefti_nest_parent(nest, child, owner, turn),
                                 rank);
                found++;
            }
        }
        assert_int_equal(found, nest ? own.nranks - 1 : 0);
        free(nest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nest_levels_that_part_nothing_left_out),
        cmocka_unit_test(test_nest_members_stand_group_by_group),
        cmocka_unit_test(test_nest_agents_of_a_host_share_evenly),
        cmocka_unit_test(test_nest_children_are_those_whose_parent_it_is),
        cmocka_unit_test(test_allreduce_every_world_exact),
        cmocka_unit_test(test_allgather_every_world_exact_and_least),
        cmocka_unit_test(test_broadcast_every_world_exact_and_least),
        cmocka_unit_test(test_all_larger_worlds_exact_and_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
