/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every pattern ends, without deadlock, with the result that weft/op.h
 * defines, bit for bit, in every small world and in very large ones.
 *
 * Method: the interpreter of simulator.h runs all ranks of an operation in
 * memory under random and adversarial orders and compares with a plain
 * recursion. Worlds too large for that are walked: every message sent must be
 * one that somebody reads, at the same place in its line and of the same
 * length.
 */
#include "base/check.h"
#include "comm/pattern/shape.h"
#include "tests/comm/pattern_walk.h"
#include "tests/comm/simulator.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_ALLGATHER, WEFT_COLLECTIVE_REDUCESCATTER,
    WEFT_COLLECTIVE_BROADCAST, WEFT_COLLECTIVE_ALLTOALL,
    WEFT_COLLECTIVE_GATHER,    WEFT_COLLECTIVE_SCATTER};

static const weft_collective varied[] = {
    WEFT_COLLECTIVE_ALLTOALLV, WEFT_COLLECTIVE_GATHERV,
    WEFT_COLLECTIVE_SCATTERV, WEFT_COLLECTIVE_ALLGATHERV,
    WEFT_COLLECTIVE_REDUCESCATTERV};

/* Sanitizers slow everything down, and there is one thread: fewer worlds. */
#if defined(__SANITIZE_THREAD__)
enum { WORLDS = 3, WORLDS_LONG = 17, OWNERS = 100, MANY_RANKS = 150 };
#elif defined(__SANITIZE_ADDRESS__)
enum { WORLDS = 6, WORLDS_LONG = 17, OWNERS = 1000, MANY_RANKS = 700 };
#else
enum { WORLDS = 17, WORLDS_LONG = 17, OWNERS = 1000, MANY_RANKS = 700 };
#endif

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

static bool is_rooted(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_REDUCE ||
           collective == WEFT_COLLECTIVE_BROADCAST ||
           collective == WEFT_COLLECTIVE_GATHER ||
           collective == WEFT_COLLECTIVE_GATHERV ||
           collective == WEFT_COLLECTIVE_SCATTER ||
           collective == WEFT_COLLECTIVE_SCATTERV;
}

static bool can_be_in_place(weft_collective collective)
{
    return collective != WEFT_COLLECTIVE_ALLTOALL &&
           collective != WEFT_COLLECTIVE_ALLTOALLV;
}

/* With all patterns, in all orders or the one given. */
static size_t check_everywhere(sim_case what, int only_order)
{
    size_t checked = 0;
    for (size_t i = 0; wefti_patterns[i] != NULL; i++) {
        what.pattern = wefti_patterns[i];
        what.in_place =
            what.in_place && can_be_in_place(what.problem.collective);
        if (what.pattern->in_entries ||
            !what.pattern->supports(&what.problem)) {
            continue;
        }
        for (int order = 0; order < SIM_ORDERS; order++) {
            if (only_order >= 0 && order != only_order % SIM_ORDERS) {
                continue;
            }
            what.order = (sim_order)order;
            sim_check(&what);
            checked++;
        }
    }
    return checked;
}

/* One collective in a world of nranks: counts, chunks, roots. */
static size_t check_world(weft_collective collective, int nranks,
                          uint64_t *seed)
{
    size_t n = (size_t)nranks;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 2 * n + 3, 67 * n + 5};
    const size_t chunks[] = {1, 3, 16, 2000};
    bool rooted = is_rooted(collective);
    size_t checked = 0;

    for (size_t i = 0; i < WEFTI_COUNT_OF(counts); i++) {
        for (size_t j = 0; j < WEFTI_COUNT_OF(chunks); j++) {
            if (counts[i] / chunks[j] > 200 && !is_long()) {
                continue; /* 100 000s of short messages */
            }
            for (int root = 0; root < (rooted ? nranks : 1); root++) {
                /* Roots are many, and large worlds slow: one order each, unless
                 * there is time. */
                bool one = (rooted || nranks > 9) && !is_long();
                int order = one ? root + (int)(i + j) : -1;
                sim_case what = {.problem = {.collective = collective,
                                             .nranks = nranks,
                                             .root = root,
                                             .count = counts[i],
                                             .chunk_elems = chunks[j]},
                                 .dtype = WEFT_DTYPE_I32,
                                 .redop = WEFT_REDOP_SUM,
                                 .in_place = random_next(seed) % 2 != 0,
                                 .seed = random_next(seed)};
                checked += check_everywhere(what, order);
                if (is_long()) {
                    what.in_place = !what.in_place;
                    checked += check_everywhere(what, order);
                }
            }
        }
    }
    return checked;
}

static void check_collective(weft_collective collective)
{
    uint64_t seed = random_seed();
    size_t checked = 0;
    for (int nranks = 1; nranks <= (is_long() ? WORLDS_LONG : WORLDS);
         nranks++) {
        checked += check_world(collective, nranks, &seed);
    }
    print_message("%zu runs\n", checked);
}

static void test_allreduce_small_worlds_exact(void **state)
{
    (void)state;
    check_collective(WEFT_COLLECTIVE_ALLREDUCE);
}

static void test_reduce_small_worlds_exact(void **state)
{
    (void)state;
    check_collective(WEFT_COLLECTIVE_REDUCE);
}

static void test_allgather_small_worlds_exact(void **state)
{
    (void)state;
    check_collective(WEFT_COLLECTIVE_ALLGATHER);
}

static void test_reducescatter_small_worlds_exact(void **state)
{
    (void)state;
    check_collective(WEFT_COLLECTIVE_REDUCESCATTER);
}

static void test_broadcast_small_worlds_exact(void **state)
{
    (void)state;
    check_collective(WEFT_COLLECTIVE_BROADCAST);
}

static void test_alltoall_small_worlds_exact(void **state)
{
    (void)state;
    check_collective(WEFT_COLLECTIVE_ALLTOALL);
}

static void test_gather_scatter_small_worlds_exact(void **state)
{
    (void)state;
    check_collective(WEFT_COLLECTIVE_GATHER);
    check_collective(WEFT_COLLECTIVE_SCATTER);
}

/*
 * How uneven: all nothing; some nothing; at the edges of chunks; one rank or
 * pair with nearly everything.
 */
enum unevenness { EMPTY, PATCHY, EDGES, LOPSIDED, UNEVENNESSES };

static size_t draw_count(enum unevenness kind, size_t chunk, size_t place,
                         uint64_t *seed)
{
    uint64_t drawn = random_next(seed);
    switch (kind) {
    case EMPTY:
        return 0;
    case PATCHY:
        return drawn % 3 ? drawn % 40 : 0;
    case EDGES:
        return chunk * (drawn % 4) + random_next(seed) % 3;
    default:
        return place == 1 ? 60 * chunk + 1 : drawn % 2;
    }
}

/* One v form in a world of nranks; counts has room for its square. */
static size_t check_varied_world(weft_collective collective, int nranks,
                                 size_t *counts, uint64_t *seed)
{
    static const size_t chunks[] = {1, 3, 16};
    size_t checked = 0, ranks = (size_t)nranks;
    for (size_t c = 0; c < WEFTI_COUNT_OF(chunks); c++) {
        for (int kind = 0; kind < UNEVENNESSES; kind++) {
            for (size_t i = 0; i < ranks * ranks; i++) {
                counts[i] =
                    draw_count((enum unevenness)kind, chunks[c], i, seed);
            }
            uint64_t drawn = random_next(seed);
            int root = (int)(drawn % ranks);
            sim_case what = {
                .problem = {.collective = collective,
                            .nranks = nranks,
                            .root = is_rooted(collective) ? root : 0,
                            .chunk_elems = chunks[c]},
                .counts = counts,
                .gap = (drawn >> 32) % 4,
                .dtype = WEFT_DTYPE_I32,
                .redop = WEFT_REDOP_SUM,
                .in_place = drawn >> 40 & 1,
                .seed = drawn};
            checked += check_everywhere(what, -1);
            what.in_place = !what.in_place;
            checked += check_everywhere(what, is_long() ? -1 : kind);
        }
    }
    return checked;
}

static void test_varied_small_worlds_exact(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    size_t checked = 0;
    for (int nranks = 1; nranks <= (is_long() ? WORLDS_LONG : WORLDS);
         nranks++) {
        size_t *counts =
            calloc((size_t)nranks * (size_t)nranks, sizeof(*counts));
        assert_non_null(counts);
        for (size_t i = 0; i < WEFTI_COUNT_OF(varied); i++) {
            checked += check_varied_world(varied[i], nranks, counts, &seed);
        }
        free(counts);
    }
    print_message("%zu runs\n", checked);
}

/* Worlds beyond the exhaustive ones, some counts and roots of each. */
static void test_all_larger_worlds_exact(void **state)
{
    (void)state;
    static const int worlds[] = {24, 31, 32, 33, 63, 64};
    uint64_t seed = random_seed();
    size_t many =
        is_long() || WORLDS == WORLDS_LONG ? WEFTI_COUNT_OF(worlds) : 2;
    for (size_t w = 0; w < many; w++) {
        for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
            for (int round = 0; round < 2; round++) {
                int nranks = worlds[w];
                bool rooted = is_rooted(collectives[i]);
                uint64_t root = random_next(&seed) % (uint64_t)nranks;
                /* So many a pair, not a rank. */
                bool pairs = collectives[i] == WEFT_COLLECTIVE_ALLTOALL;
                uint64_t most = pairs && !is_long() ? 30 : 300;
                sim_case what = {
                    .problem = {.collective = collectives[i],
                                .nranks = nranks,
                                .root = rooted ? (int)root : 0,
                                .count = random_next(&seed) % most,
                                .chunk_elems = 1 + random_next(&seed) % 20},
                    .dtype = WEFT_DTYPE_I64,
                    .redop = WEFT_REDOP_SUM,
                    .in_place = round % 2 != 0,
                    .seed = random_next(&seed)};
                check_everywhere(what, -1);
            }
        }
    }
}

/*
 * The same inputs by every pattern and in chunks of three sizes: each equals
 * the same recursion, so all equal each other.
 */
static void test_sums_any_pattern_and_chunk_same_bits(void **state)
{
    (void)state;
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32,    WEFT_DTYPE_BF16,
                                        WEFT_DTYPE_F64,    WEFT_DTYPE_U8,
                                        WEFT_DTYPE_F8E4M3, WEFT_DTYPE_F16};
    static const size_t chunks[] = {7, 64, 5000};
    uint64_t seed = random_seed();
    for (int nranks = 1; nranks <= (is_long() ? WORLDS_LONG : WORLDS);
         nranks++) {
        for (size_t d = 0; d < WEFTI_COUNT_OF(dtypes); d++) {
            for (int redop = 0; redop < WEFT_REDOP_COUNT; redop++) {
                size_t pick = (size_t)nranks + d + (size_t)redop;
                if (!weft_redop_applies((weft_redop)redop, dtypes[d]) ||
                    (!is_long() && pick / 2 % 4 != 0)) {
                    continue;
                }
                weft_collective collective = collectives[pick % 2];
                uint64_t inputs = random_next(&seed);
                int root = (int)(inputs % (uint64_t)nranks);
                for (size_t c = 0; c < WEFTI_COUNT_OF(chunks); c++) {
                    sim_case what = {
                        .problem = {.collective = collective,
                                    .nranks = nranks,
                                    .root = is_rooted(collective) ? root : 0,
                                    .count = 130,
                                    .chunk_elems = chunks[c]},
                        .dtype = dtypes[d],
                        .redop = (weft_redop)redop,
                        .in_place = c % 2 != 0,
                        .seed = inputs};
                    check_everywhere(what, -1);
                }
            }
        }
    }
}

static void test_share_any_count_deals_out_all(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < 20000; round++) {
        int nranks = 1 + (int)(random_next(&seed) % 70);
        size_t count = random_next(&seed) >> (random_next(&seed) % 62 + 2);
        size_t next = 0;
        size_t before = SIZE_MAX;
        for (int r = 0; r < nranks; r++) {
            size_t begin;
            size_t elems = wefti_share(count, nranks, r, &begin);
            assert_int_equal(begin, next);
            assert_true(elems <= before);
            if (count / 64 >= (size_t)nranks) {
                assert_int_equal(begin % 16, 0);
                assert_true(elems + 32 > count / (size_t)nranks);
            }
            before = elems;
            next += elems;
        }
        assert_int_equal(next, count);
    }
}

/* In the short form only the first OWNERS own a part, all send to them. */
static void test_step_at_4096_ranks_messages_match(void **state)
{
    (void)state;
    size_t count = is_long() ? 4096 + 1000 : OWNERS;
    wefti_problem problem = {.collective = WEFT_COLLECTIVE_ALLREDUCE,
                             .nranks = 4096,
                             .count = count,
                             .chunk_elems = 16384};
    for (size_t i = 0; wefti_patterns[i] != NULL; i++) {
        if (!wefti_patterns[i]->in_entries &&
            wefti_patterns[i]->supports(&problem)) {
            (void)pattern_walk(wefti_patterns[i], problem);
        }
    }
}

/* Of one message a child, of several rounds, and of chunks that have fewer
 * elements than there are ranks, or one. */
static void test_step_of_rooted_trees_at_4096_ranks_messages_match(void **state)
{
    (void)state;
    static const size_t chunks[] = {8192, 8191, 100, 1};
    for (size_t c = 0; c < WEFTI_COUNT_OF(chunks); c++) {
        for (int scatter = 0; scatter < 2; scatter++) {
            wefti_problem problem = {.collective = scatter
                                                       ? WEFT_COLLECTIVE_SCATTER
                                                       : WEFT_COLLECTIVE_GATHER,
                                     .nranks = 4096,
                                     .root = 1234,
                                     .count = chunks[c] > 1 ? 7 : 1,
                                     .chunk_elems = chunks[c]};
            (void)pattern_walk(&wefti_pattern_binomial, problem);
        }
    }
}

/* Several chunks a part, uneven parts; roots in the middle. */
static void test_step_at_many_ranks_messages_match(void **state)
{
    (void)state;
    for (size_t i = 0; wefti_patterns[i] != NULL; i++) {
        for (size_t c = 0; c < WEFTI_COUNT_OF(collectives); c++) {
            wefti_problem problem = {
                .collective = collectives[c],
                .nranks = MANY_RANKS,
                .root = is_rooted(collectives[c]) ? MANY_RANKS / 2 + 47 : 0,
                .count = 2000,
                .chunk_elems = 999};
            if (c == 0 && wefti_patterns[i] != &wefti_pattern_exchange) {
                problem.chunk_elems = 1; /* exchange: a billion messages */
            }
            if (!wefti_patterns[i]->in_entries &&
                wefti_patterns[i]->supports(&problem)) {
                (void)pattern_walk(wefti_patterns[i], problem);
            }
        }
    }
}

static bool is_listed(weft_collective what, const weft_collective *list,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == what) {
            return true;
        }
    }
    return false;
}

/* Whoever adds a collective says here, and in the simulator, what it means. */
static void test_every_collective_with_steps_is_tried(void **state)
{
    (void)state;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        const weft_collective what = (weft_collective)c;
        const wefti_problem problem = {
            .collective = what, .nranks = 3, .count = 1, .chunk_elems = 1};
        const bool tried =
            is_listed(what, collectives, WEFTI_COUNT_OF(collectives)) ||
            is_listed(what, varied, WEFTI_COUNT_OF(varied));
        if (tried != (wefti_pattern_first(&problem) != NULL)) {
            fail_msg("%s has a pattern, or it is tried, but not both",
                     weft_collective_text(what));
        }
    }
}

/* What rides in entries has no steps, and is never what weft falls back to; in
 * rounds goes what every rank gets of all. */
static void test_oneshot_is_a_row_of_what_has_one_size(void **state)
{
    static const wefti_grouping some;
    size_t rows = 0;
    (void)state;
    for (size_t i = 0; wefti_patterns[i] != NULL; i++) {
        const wefti_pattern *pattern = wefti_patterns[i];
        rows += pattern == &wefti_pattern_oneshot;
        assert_int_equal(pattern->in_entries,
                         pattern == &wefti_pattern_oneshot ||
                             pattern == &wefti_pattern_dissemination);
        assert_int_equal(pattern->in_entries, pattern->step_count == NULL);
    }
    assert_int_equal(rows, 1);
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        const wefti_problem problem = {.collective = (weft_collective)c,
                                       .nranks = 3,
                                       .count = 1,
                                       .chunk_elems = 1};
        const wefti_pattern *first = wefti_pattern_first(&problem);
        const bool by_rank = wefti_shape_get((weft_collective)c)->varied;
        const bool rounds = c == WEFT_COLLECTIVE_ALLREDUCE ||
                            c == WEFT_COLLECTIVE_REDUCESCATTER ||
                            c == WEFT_COLLECTIVE_ALLGATHER;
        wefti_problem levels = problem, apart = problem;
        levels.grouping = &some;
        apart.apart = true;
        assert_true(first != &wefti_pattern_oneshot);
        assert_false(wefti_pattern_dissemination.supports(&problem));
        assert_int_equal(wefti_pattern_dissemination.supports(&levels), rounds);
        assert_int_equal(wefti_pattern_dissemination.supports(&apart), rounds);
        assert_int_equal(wefti_pattern_oneshot.supports(&problem),
                         first != NULL && !by_rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oneshot_is_a_row_of_what_has_one_size),
        cmocka_unit_test(test_every_collective_with_steps_is_tried),
        cmocka_unit_test(test_allreduce_small_worlds_exact),
        cmocka_unit_test(test_reduce_small_worlds_exact),
        cmocka_unit_test(test_allgather_small_worlds_exact),
        cmocka_unit_test(test_reducescatter_small_worlds_exact),
        cmocka_unit_test(test_broadcast_small_worlds_exact),
        cmocka_unit_test(test_alltoall_small_worlds_exact),
        cmocka_unit_test(test_gather_scatter_small_worlds_exact),
        cmocka_unit_test(test_varied_small_worlds_exact),
        cmocka_unit_test(test_all_larger_worlds_exact),
        cmocka_unit_test(test_sums_any_pattern_and_chunk_same_bits),
        cmocka_unit_test(test_share_any_count_deals_out_all),
        cmocka_unit_test(test_step_at_4096_ranks_messages_match),
        cmocka_unit_test(
            test_step_of_rooted_trees_at_4096_ranks_messages_match),
        cmocka_unit_test(test_step_at_many_ranks_messages_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
