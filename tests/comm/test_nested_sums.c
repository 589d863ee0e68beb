/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: sums that go through levels inside hosts have the bits that each host
 * gives without these, whatever the groups, the type and the reduction; each
 * group that is a node of its host's tree leaves once, added up, and what is no
 * node is told from it.
 *
 * Method: the simulator of simulator.h over every pair of nested ways to group
 * up to five ranks, and drawn ones of more. Nodes are found here by their
 * definition, as aligned runs of a power of two; what crosses the border of a
 * level is compared with their number.
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

#if defined(__SANITIZE_THREAD__)
enum { EVERY_WORLD = 4, DRAWN = 20 };
#elif defined(__SANITIZE_ADDRESS__)
enum { EVERY_WORLD = 4, DRAWN = 60 };
#else
enum { EVERY_WORLD = 5, DRAWN = 60 };
#endif

enum { MOST_RANKS = 24 };

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_REDUCESCATTERV};

/* Groups inside hosts; hosts: all 0 where there is one. */
typedef struct world {
    int nranks;
    int groups[MOST_RANKS], hosts[MOST_RANKS];
} world;

static bool has_hosts(const world *own)
{
    int hosts = least_hosts(own->hosts, own->nranks);
    return hosts > 1 && hosts < own->nranks;
}

/* The lowest rank of the largest node of the host's tree that has the rank and
 * lies in its group: a run of 2^j of the host's ranks, from a multiple of that
 * on, or what there is of it. */
static int node_of(const world *own, int rank)
{
    int members[MOST_RANKS], count = 0, at = 0, best = rank;
    for (int other = 0; other < own->nranks; other++) {
        if (own->hosts[other] == own->hosts[rank]) {
            at = other == rank ? count : at;
            members[count++] = other;
        }
    }
    for (int run = 2; run < 2 * MOST_RANKS; run *= 2) {
        int begin = at / run * run;
        bool alike = true;
        for (int i = begin; i < begin + run && i < count; i++) {
            alike &= own->groups[members[i]] == own->groups[rank];
        }
        best = alike ? members[begin] : best;
    }
    return best;
}

static int count_nodes(const world *own, int group)
{
    int nodes = 0;
    for (int rank = 0; rank < own->nranks; rank++) {
        nodes += own->groups[rank] == group && node_of(own, rank) == rank;
    }
    return nodes;
}

static bool has_nodes(const world *own)
{
    int nodes = 0;
    for (int group = 0; group < own->nranks; group++) {
        nodes += count_nodes(own, group);
    }
    return nodes < own->nranks && nodes > least_hosts(own->hosts, own->nranks);
}

static wefti_nest *make_nest(const world *own)
{
    const int *const levels[] = {own->groups, own->hosts};
    wefti_nest *nest;
    assert_true(wefti_nest_create(levels, 2, own->nranks, &nest));
    assert_true(!nest || wefti_nest_find_sums(nest, own->hosts));
    return nest;
}

static void check_nodes(const world *own)
{
    wefti_nest *nest = make_nest(own);
    const wefti_nest *sums = nest ? nest->sums : NULL;
    assert_int_equal(sums != NULL, nest && has_nodes(own));
    for (int rank = 0; sums && rank < own->nranks; rank++) {
        wefti_nest_run run = wefti_nest_group(sums, 0, sums->places[rank]);
        assert_int_equal(sums->members[run.begin], node_of(own, rank));
    }
    wefti_nest_free(nest);
}

/* Operation number `drawn` of the world; counts: room for a v form's. */
static sim_case draw_case(const world *own, const int *const *levels,
                          weft_collective collective, size_t *counts,
                          uint64_t drawn)
{
    static const size_t chunks[] = {1, 3, 16, 2000};
    size_t ranks = (size_t)own->nranks, chunk = chunks[drawn % 4];
    size_t most = chunk * 6 > ranks * 70 ? ranks * 70 : chunk * 6;
    uint64_t seed = drawn;
    sim_case what = {.pattern = &wefti_pattern_nested_sums,
                     .problem = {.collective = collective,
                                 .nranks = own->nranks,
                                 .root = collective == WEFT_COLLECTIVE_REDUCE
                                             ? (int)((drawn >> 4) % ranks)
                                             : 0,
                                 .count = (drawn >> 8) % (most + 1),
                                 .chunk_elems = chunk},
                     .hosts = has_hosts(own) ? own->hosts : NULL,
                     .levels = levels,
                     .level_count = 2,
                     .dtype = (weft_dtype)((drawn >> 24) % WEFT_DTYPE_COUNT),
                     .redop = (weft_redop)((drawn >> 30) % WEFT_REDOP_COUNT),
                     .in_place = drawn >> 40 & 1,
                     .order = (sim_order)(drawn >> 42) % SIM_ORDERS,
                     .seed = drawn};
    if (!weft_redop_applies(what.redop, what.dtype)) {
        what.redop = WEFT_REDOP_SUM;
    }
    if (wefti_shape_get(collective)->varied) {
        for (size_t i = 0; i < ranks; i++) {
            counts[i] = random_next(&seed) % (4 * chunk + 2);
        }
        what.counts = counts;
        what.gap = (drawn >> 50) % 4;
    }
    return what;
}

/* Elements that enter groups so that sums can be made there: a rank's part
 * needs what each node of each other group of the host has. */
static size_t least_sums(const world *own, const sim_case *what)
{
    size_t elems = 0;
    for (int to = 0; to < own->nranks; to++) {
        size_t part = what->counts ? what->counts[to] : what->problem.count;
        bool gets = what->problem.collective != WEFT_COLLECTIVE_REDUCE ||
                    to == what->problem.root;
        for (int group = 0; gets && group < own->nranks; group++) {
            bool other =
                own->hosts[group] == own->hosts[to] && group != own->groups[to];
            elems += other ? part * (size_t)count_nodes(own, group) : 0;
        }
    }
    return elems;
}

/* Runs one operation; whether there are levels for it. */
static bool check_world(const world *own, weft_collective collective,
                        uint64_t drawn)
{
    const int *const levels[] = {own->groups, own->hosts};
    size_t counts[MOST_RANKS];
    sim_case what = draw_case(own, levels, collective, counts, drawn);
    if (!has_nodes(own)) {
        return false;
    }
    if (has_hosts(own)) {
        what.border = own->hosts;
        assert_int_equal(sim_check(&what).elems,
                         least_elems(&what.problem, what.counts, own->hosts));
    } else if (collective != WEFT_COLLECTIVE_ALLREDUCE) {
        what.border = own->groups;
        assert_int_equal(sim_check(&what).elems, least_sums(own, &what));
    } else {
        (void)sim_check(&what);
    }
    return true;
}

static void check_every_world(weft_collective collective)
{
    uint64_t seed = random_seed();
    size_t worlds = 0;
    for (int nranks = 3; nranks <= EVERY_WORLD; nranks++) {
        world own = {.nranks = nranks};
        do {
            int ways[MOST_RANKS] = {0};
            do {
                partition_cross(own.hosts, ways, nranks, own.groups);
                check_nodes(&own);
                for (int i = 0; i < 4; i++) {
                    worlds += check_world(&own, collective, random_next(&seed));
                }
            } while (partition_next(ways, nranks));
        } while (partition_next(own.hosts, nranks));
    }
    print_message("%zu runs\n", worlds);
    assert_true(worlds > 0);
}

static void test_sums_every_world_exact_and_least(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
        check_every_world(collectives[i]);
    }
}

/* Groups of runs, so that most are nodes, of one or two hosts. */
static void draw_world(world *own, uint64_t *seed)
{
    uint64_t drawn = random_next(seed);
    *own = (world){.nranks = 6 + (int)(drawn % (MOST_RANKS - 5))};
    int run = 2 << (drawn >> 8) % 3, split = own->nranks;
    if (drawn >> 12 & 1) {
        split = 1 + (int)((drawn >> 16) % (uint64_t)(own->nranks - 1));
    }
    for (int rank = 0; rank < own->nranks; rank++) {
        int host = rank < split ? 0 : split;
        own->hosts[rank] = host;
        own->groups[rank] = host + (rank - host) / run * run;
    }
}

static void test_sums_larger_worlds_exact_and_least(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    size_t worlds = 0;
    for (int round = 0; round < (is_long() ? 5 * DRAWN : DRAWN); round++) {
        world own;
        draw_world(&own, &seed);
        check_nodes(&own);
        for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
            worlds += check_world(&own, collectives[i], random_next(&seed));
        }
    }
    print_message("%zu runs\n", worlds);
    assert_true(worlds > 0);
}

/* Two levels inside one host, or each of two: bits alone. */
static void test_sums_through_two_levels_exact(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < (is_long() ? 5 * DRAWN : DRAWN); round++) {
        uint64_t drawn = random_next(&seed);
        world own = {.nranks = 6 + (int)(drawn % (MOST_RANKS - 5))};
        int outer[MOST_RANKS];
        int half = drawn >> 9 & 1 ? own.nranks / 2 : own.nranks;
        for (int rank = 0; rank < own.nranks; rank++) {
            int host = rank < half ? 0 : half;
            own.hosts[rank] = host;
            own.groups[rank] = host + (rank - host) / 2 * 2;
            outer[rank] = host + (rank - host) / 4 * 4;
        }
        const int *const levels[] = {own.groups, outer, own.hosts};
        for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
            size_t counts[MOST_RANKS];
            sim_case what = draw_case(&own, levels, collectives[i], counts,
                                      random_next(&seed));
            what.level_count = 3;
            (void)sim_check(&what);
        }
    }
}

static void test_sums_of_interleaved_groups_none(void **state)
{
    (void)state;
    static const world none = {.nranks = 6, .groups = {0, 1, 0, 1, 0, 1}};
    static const world some = {.nranks = 6, .groups = {0, 0, 0, 3, 3, 3}};
    wefti_nest *nest = make_nest(&none);
    const wefti_problem problem = {
        .collective = WEFT_COLLECTIVE_REDUCE, .nranks = 6, .nest = nest};
    assert_null(nest->sums);
    assert_false(wefti_pattern_nested_sums.supports(&problem));
    wefti_nest_free(nest);
    nest = make_nest(&some); /* 0 1 and 4 5 are nodes */
    assert_non_null(nest->sums);
    assert_int_equal(nest->sums->levels[0].group_count, 4);
    wefti_nest_free(nest);
}

/* A tree over all ranks has no nodes of one host. */
static void test_sums_flat_not_through_levels(void **state)
{
    (void)state;
    static const world own = {.nranks = 4, .groups = {0, 0, 2, 2}};
    wefti_nest *nest = make_nest(&own);
    const wefti_problem problem = {.collective = WEFT_COLLECTIVE_REDUCE,
                                   .nranks = 4,
                                   .nest = nest,
                                   .flat = true};
    assert_non_null(nest->sums);
    assert_false(wefti_pattern_nested_sums.supports(&problem));
    wefti_nest_free(nest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_interleaved_groups_none),
        cmocka_unit_test(test_sums_flat_not_through_levels),
        cmocka_unit_test(test_sums_every_world_exact_and_least),
        cmocka_unit_test(test_sums_larger_worlds_exact_and_least),
        cmocka_unit_test(test_sums_through_two_levels_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
