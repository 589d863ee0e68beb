/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: wherever ranks share memory in groups, every algorithm ends with the
 * same bits, those of a sum with two levels; what weft chooses for an operation
 * sends no more over the network than it must, and two_hop as few messages.
 *
 * Method: the simulator of simulator.h over every way to put up to six ranks on
 * hosts, and over drawn ones of more ranks. Traffic is counted message by
 * message and compared with the least that the collective's definition allows.
 * Worlds of thousands of ranks: test_many_hosts.c.
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

#include <cmocka.h>

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_ALLGATHER, WEFT_COLLECTIVE_REDUCESCATTER,
    WEFT_COLLECTIVE_BROADCAST, WEFT_COLLECTIVE_ALLTOALL,
    WEFT_COLLECTIVE_GATHER,    WEFT_COLLECTIVE_SCATTER};

static const weft_collective varied[] = {
    WEFT_COLLECTIVE_ALLGATHERV, WEFT_COLLECTIVE_REDUCESCATTERV,
    WEFT_COLLECTIVE_ALLTOALLV, WEFT_COLLECTIVE_GATHERV,
    WEFT_COLLECTIVE_SCATTERV};

#if defined(__SANITIZE_THREAD__)
enum { EVERY_WORLD = 4, DRAWN = 10, SUMS = 20 };
#elif defined(__SANITIZE_ADDRESS__)
enum { EVERY_WORLD = 5, DRAWN = 30, SUMS = 60 };
#else
enum { EVERY_WORLD = 6, DRAWN = 60, SUMS = 300 };
#endif

enum { MOST_RANKS = 24, LONG_WORLD = 6 };

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

static bool is_rooted(weft_collective collective)
{
    return wefti_shape_get(collective)->rooted;
}

static bool can_be_in_place(weft_collective collective)
{
    return collective != WEFT_COLLECTIVE_ALLTOALL &&
           collective != WEFT_COLLECTIVE_ALLTOALLV;
}

/* Pairs of a host and a rank of another one. */
static size_t count_host_pairs(const int *hosts, int nranks)
{
    size_t pairs = 0;
    for (int host = 0; host < nranks; host++) {
        for (int rank = 0; rank < nranks && hosts[host] == host; rank++) {
            pairs += hosts[rank] != host;
        }
    }
    return pairs;
}

/* Elements of the longest part that a host sends with others'. */
static size_t longest_small(const sim_case *what, int host)
{
    size_t ranks = 0, most = what->problem.relay_elems;
    for (int rank = 0; rank < what->problem.nranks; rank++) {
        ranks += what->hosts[rank] == host;
    }
    size_t share = what->problem.chunk_elems / ranks;
    return ranks == 1 ? 0 : most < share ? most : share;
}

/* Messages of one host for a rank of another: its small parts are one, and of
 * others each chunk is. */
static size_t count_messages(const sim_case *what, int host, int to)
{
    size_t nranks = (size_t)what->problem.nranks, messages = 0;
    size_t chunk = what->problem.chunk_elems, most = longest_small(what, host);
    bool small = false;
    for (size_t from = 0; from < nranks; from++) {
        size_t elems = what->counts[from * nranks + (size_t)to];
        if (what->hosts[from] != host || elems == 0) {
            continue;
        }
        small |= elems <= most;
        messages += elems <= most ? 0 : (elems + chunk - 1) / chunk;
    }
    return messages + small;
}

/* The same with counts, whatever is small. */
static void check_relay(sim_case what)
{
    static const size_t small[] = {1, 5, 1000};
    int nranks = what.problem.nranks;
    size_t messages = 0;
    what.pattern = &wefti_pattern_two_hop;
    what.problem.relay_elems = small[what.seed % 3];
    for (int host = 0; host < nranks; host++) {
        for (int to = 0; to < nranks && what.hosts[host] == host; to++) {
            messages +=
                what.hosts[to] != host ? count_messages(&what, host, to) : 0;
        }
    }
    sim_traffic traffic = sim_check(&what);
    assert_int_equal(traffic.messages, messages);
    assert_int_equal(traffic.elems,
                     least_elems(&what.problem, what.counts, what.hosts));
}

/* Two hops are as many bytes as one, in a message from each host to a rank. */
static void check_two_hop(sim_case what)
{
    int nranks = what.problem.nranks;
    if (what.counts) {
        check_relay(what);
        return;
    }
    what.pattern = &wefti_pattern_two_hop;
    sim_traffic traffic = sim_check(&what);
    assert_int_equal(traffic.elems,
                     least_elems(&what.problem, NULL, what.hosts));
    if (what.problem.count > 0 &&
        what.problem.chunk_elems >= what.problem.count * (size_t)nranks) {
        assert_int_equal(traffic.messages,
                         count_host_pairs(what.hosts, nranks));
    }
}

/* With the pattern that weft takes for it: no other moves less over the
 * network. Not of sums that know no hosts; whether there was one. */
static bool check_traffic(sim_case what)
{
    wefti_grouping *grouping;
    int nranks = what.problem.nranks;
    bool sums = wefti_shape_get(what.problem.collective)->reduces;
    if (sums && what.problem.flat) {
        return false;
    }
    assert_true(wefti_grouping_create(what.hosts, nranks, &grouping));
    what.problem.grouping = grouping;
    what.pattern = wefti_pattern_first(&what.problem);
    bool two_hop = wefti_pattern_two_hop.supports(&what.problem);
    free(grouping);
    what.problem.grouping = NULL; /* the simulator makes its own */
    if (two_hop) {
        check_two_hop(what);
    }
    sim_traffic traffic = sim_check(&what);
    assert_int_equal(traffic.elems,
                     least_elems(&what.problem, what.counts, what.hosts));
    return true;
}

/* The patterns of one level, which must end each host's level too. */
static size_t check_flat_patterns(sim_case what)
{
    size_t checked = 0;
    for (size_t i = 0; wefti_patterns[i] != NULL; i++) {
        what.pattern = wefti_patterns[i];
        if (!what.pattern->in_entries &&
            what.pattern->supports(&what.problem)) {
            (void)sim_check(&what);
            checked++;
        }
    }
    return checked;
}

/* ---- every small world ----------------------------------------------------
 */

static size_t check_hosts(weft_collective collective, const int *hosts,
                          int nranks, uint64_t *seed)
{
    size_t n = (size_t)nranks, checked = 0;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 2 * n + 3, 67 * n + 5};
    const size_t chunks[] = {1, 3, 16, 2000};
    for (size_t i = 0; i < WEFTI_COUNT_OF(counts); i++) {
        uint64_t drawn = random_next(seed);
        for (size_t j = 0; j < WEFTI_COUNT_OF(chunks); j++) {
            /* Of long lists, and in the short form, a part. */
            bool skipped = counts[i] / chunks[j] > 50 || (drawn >> j & 1) == 0;
            if (skipped && !is_long()) {
                continue;
            }
            for (int root = 0; root < (is_rooted(collective) ? nranks : 1);
                 root++) {
                sim_case what = {
                    .problem = {.collective = collective,
                                .nranks = nranks,
                                .root = root,
                                .count = counts[i],
                                .chunk_elems = chunks[j]},
                    .hosts = hosts,
                    .dtype = WEFT_DTYPE_F32,
                    .redop = drawn >> 8 & 1 ? WEFT_REDOP_SUM : WEFT_REDOP_AVG,
                    .in_place = can_be_in_place(collective) && drawn >> 9 & 1,
                    .order = (sim_order)((drawn >> 10) + (uint64_t)root + j) %
                             SIM_ORDERS,
                    .seed = drawn};
                checked += check_traffic(what);
                bool trees = wefti_pattern_binomial.supports(&what.problem);
                checked += root == 0 || trees ? check_flat_patterns(what) : 0;
            }
        }
    }
    return checked;
}

/* Nothing, a little or much; at the edges of chunks; nearly all of one. */
static void draw_counts(size_t *counts, size_t places, size_t chunk,
                        uint64_t *seed)
{
    uint64_t kind = random_next(seed) % 4;
    size_t heavy = random_next(seed) % places;
    for (size_t i = 0; i < places; i++) {
        uint64_t drawn = random_next(seed);
        counts[i] = kind == 0   ? drawn % 2
                    : kind == 1 ? (drawn % 3 ? drawn / 3 % 40 : 0)
                    : kind == 2 ? chunk * (drawn % 4) + drawn / 4 % 3
                                : (i == heavy ? 40 * chunk + 1 : drawn % 2);
    }
}

static size_t check_varied_hosts(weft_collective collective, const int *hosts,
                                 int nranks, uint64_t *seed)
{
    static const size_t chunks[] = {1, 3, 16};
    size_t counts[LONG_WORLD * LONG_WORLD], checked = 0;
    size_t ranks = (size_t)nranks;
    for (int round = 0; round < (is_long() ? 40 : 4); round++) {
        size_t chunk = chunks[round % 3];
        draw_counts(counts, ranks * ranks, chunk, seed);
        uint64_t drawn = random_next(seed);
        sim_case what = {
            .problem = {.collective = collective,
                        .nranks = nranks,
                        .root =
                            is_rooted(collective) ? (int)(drawn % ranks) : 0,
                        .chunk_elems = chunk},
            .counts = counts,
            .hosts = hosts,
            .gap = (drawn >> 32) % 4,
            .dtype = WEFT_DTYPE_F32,
            .redop = drawn >> 8 & 1 ? WEFT_REDOP_SUM : WEFT_REDOP_AVG,
            .in_place = can_be_in_place(collective) && drawn >> 40 & 1,
            .order = (sim_order)(drawn >> 10) % SIM_ORDERS,
            .seed = drawn};
        checked += check_traffic(what);
        checked += check_flat_patterns(what);
    }
    return checked;
}

static void check_every_world(weft_collective collective)
{
    uint64_t seed = random_seed();
    size_t checked = 0, worlds = 0;
    bool is_varied = wefti_shape_get(collective)->varied;
    /* Under a sanitizer, what is drawn has more ranks. */
    const int few = getenv("WEFT_TEST_FEW") ? 4 : EVERY_WORLD;
    for (int nranks = 2; nranks <= (is_long() ? LONG_WORLD : few); nranks++) {
        int hosts[LONG_WORLD] = {0};
        do {
            int count = least_hosts(hosts, nranks);
            if (count > 1 && count < nranks) {
                checked +=
                    is_varied
                        ? check_varied_hosts(collective, hosts, nranks, &seed)
                        : check_hosts(collective, hosts, nranks, &seed);
                worlds++;
            }
        } while (partition_next(hosts, nranks));
    }
    print_message("%zu runs of %zu worlds\n", checked, worlds);
}

static void test_hosts_all_ways_counted(void **state)
{
    (void)state;
    /* Bell's numbers: the partitions of 1 to 7 things. */
    static const int partitions[] = {1, 2, 5, 15, 52, 203, 877};
    for (int nranks = 1; nranks <= 7; nranks++) {
        int hosts[7] = {0}, found = 0;
        do {
            for (int rank = 0; rank < nranks; rank++) {
                assert_int_equal(hosts[hosts[rank]], hosts[rank]);
            }
            found++;
        } while (partition_next(hosts, nranks));
        assert_int_equal(found, partitions[nranks - 1]);
    }
}

static void test_allreduce_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_ALLREDUCE);
}

static void test_reduce_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_REDUCE);
}

static void test_allgather_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_ALLGATHER);
}

static void test_reducescatter_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_REDUCESCATTER);
}

static void test_broadcast_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_BROADCAST);
}

static void test_alltoall_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_ALLTOALL);
}

static void test_gather_scatter_every_world_exact_and_least(void **state)
{
    (void)state;
    check_every_world(WEFT_COLLECTIVE_GATHER);
    check_every_world(WEFT_COLLECTIVE_SCATTER);
}

static void test_varied_every_world_exact_and_least(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(varied); i++) {
        check_every_world(varied[i]);
    }
}

/* ---- drawn worlds ----------------------------------------------------------
 */

static void test_all_larger_worlds_exact_and_least(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    size_t checked = 0;
    for (int round = 0; round < (is_long() ? 10 * DRAWN : DRAWN); round++) {
        int hosts[MOST_RANKS];
        int nranks = 7 + (int)(random_next(&seed) % (MOST_RANKS - 6));
        partition_draw(hosts, nranks, 2 + (int)(random_next(&seed) % 6), &seed);
        for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
            uint64_t drawn = random_next(&seed);
            sim_case what = {.problem = {.collective = collectives[i],
                                         .nranks = nranks,
                                         .count = drawn % 500,
                                         .chunk_elems = 1 + (drawn >> 16) % 90},
                             .hosts = hosts,
                             .dtype = WEFT_DTYPE_F16,
                             .redop = WEFT_REDOP_SUM,
                             .in_place = can_be_in_place(collectives[i]) &&
                                         drawn >> 32 & 1,
                             .order = (sim_order)(drawn >> 33) % SIM_ORDERS,
                             .seed = drawn};
            what.problem.root =
                is_rooted(collectives[i]) ? (int)(drawn % (uint64_t)nranks) : 0;
            checked += check_traffic(what);
        }
    }
    print_message("%zu runs\n", checked);
}

static void test_alltoallv_larger_worlds_exact_and_least(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < (is_long() ? 10 * DRAWN : DRAWN); round++) {
        int hosts[MOST_RANKS];
        size_t counts[MOST_RANKS * MOST_RANKS];
        size_t nranks = 7 + random_next(&seed) % (MOST_RANKS - 6);
        uint64_t drawn = random_next(&seed);
        partition_draw(hosts, (int)nranks, 2 + (int)(drawn >> 48) % 6, &seed);
        sim_case what = {.problem = {.collective = WEFT_COLLECTIVE_ALLTOALLV,
                                     .nranks = (int)nranks,
                                     .chunk_elems = 1 + drawn % 90},
                         .counts = counts,
                         .hosts = hosts,
                         .gap = (drawn >> 16) % 4,
                         .dtype = WEFT_DTYPE_I32,
                         .order = (sim_order)(drawn >> 32) % SIM_ORDERS,
                         .seed = drawn >> 8};
        draw_counts(counts, nranks * nranks, what.problem.chunk_elems, &seed);
        (void)check_traffic(what);
    }
}

/* Types and reductions; and the same inputs in one level only. */
static void test_sums_any_type_and_pattern_same_bits(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < SUMS; round++) {
        int hosts[MOST_RANKS];
        uint64_t drawn = random_next(&seed);
        int nranks = 3 + (int)(drawn % 7);
        weft_dtype dtype = (weft_dtype)((drawn >> 8) % WEFT_DTYPE_COUNT);
        weft_redop redop = (weft_redop)((drawn >> 16) % WEFT_REDOP_COUNT);
        partition_draw(hosts, nranks, 2 + (int)(drawn >> 24 & 15) % 3, &seed);
        if (!weft_redop_applies(redop, dtype)) {
            continue;
        }
        for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
            sim_case what = {.problem = {.collective = collectives[i],
                                         .nranks = nranks,
                                         .count = 130,
                                         .chunk_elems = 7 + drawn % 100},
                             .hosts = hosts,
                             .dtype = dtype,
                             .redop = redop,
                             .in_place = can_be_in_place(collectives[i]) &&
                                         drawn >> 32 & 1,
                             .seed = drawn};
            (void)check_traffic(what);
            (void)check_flat_patterns(what);
            what.problem.flat = true;
            (void)check_traffic(what); /* what only gathers */
            (void)check_flat_patterns(what);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_all_ways_counted),
        cmocka_unit_test(test_allreduce_every_world_exact_and_least),
        cmocka_unit_test(test_reduce_every_world_exact_and_least),
        cmocka_unit_test(test_allgather_every_world_exact_and_least),
        cmocka_unit_test(test_reducescatter_every_world_exact_and_least),
        cmocka_unit_test(test_broadcast_every_world_exact_and_least),
        cmocka_unit_test(test_alltoall_every_world_exact_and_least),
        cmocka_unit_test(test_gather_scatter_every_world_exact_and_least),
        cmocka_unit_test(test_varied_every_world_exact_and_least),
        cmocka_unit_test(test_all_larger_worlds_exact_and_least),
        cmocka_unit_test(test_alltoallv_larger_worlds_exact_and_least),
        cmocka_unit_test(test_sums_any_type_and_pattern_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
