/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a cost counts between the NUMA nodes of a host is what the lists
 * of steps send there, and levels inside hosts are chosen only where that makes
 * the difference. Counts that all ranks know cost what they move.
 *
 * Method: every SEND of every rank, in hosts of equal nodes, counted by the
 * node that it goes to and compared with the cost; choices over the usual
 * rates.
 */
#include "base/check.h"
#include "comm/core/select.h"
#include "comm/pattern/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 64, MUCH = 12 << 20 }; /* more than caches keep */

static const weft_collective collectives[] = {WEFT_COLLECTIVE_ALLREDUCE,
                                              WEFT_COLLECTIVE_ALLGATHER,
                                              WEFT_COLLECTIVE_BROADCAST};

static const weft_collective sums[] = {WEFT_COLLECTIVE_ALLREDUCE,
                                       WEFT_COLLECTIVE_REDUCE,
                                       WEFT_COLLECTIVE_REDUCESCATTER};

/* Hosts of so many ranks, these in nodes of so many. */
typedef struct scene {
    int hosts, locals, inner;
    wefti_grouping *grouping;
    wefti_nest *nest;
} scene;

static void scene_make(scene *own, int hosts, int locals, int inner)
{
    int firsts[2][RANKS_MOST], nranks = hosts * locals;
    const int *const levels[] = {firsts[0], firsts[1]};
    assert_true(nranks <= RANKS_MOST);
    for (int rank = 0; rank < nranks; rank++) {
        firsts[0][rank] = rank / inner * inner;
        firsts[1][rank] = rank / locals * locals;
    }
    *own = (scene){.hosts = hosts, .locals = locals, .inner = inner};
    assert_true(wefti_grouping_create(firsts[1], nranks, &own->grouping));
    assert_true(wefti_nest_create(levels, 2, nranks, &own->nest));
    assert_non_null(own->nest);
    assert_true(wefti_nest_find_sums(own->nest, firsts[1]));
}

static void scene_free(scene *own)
{
    free(own->grouping);
    wefti_nest_free(own->nest);
}

/* Adds a message's elements to the nodes that it crosses into. */
static void count_send(const scene *own, const wefti_problem *problem,
                       const wefti_step *step, double *entering)
{
    int count = wefti_peer_count(problem, step->peer, step->owner, step->round);
    for (int i = 0; i < count; i++) {
        int to =
            wefti_peer_at(problem, step->peer, step->owner, step->round, i);
        if (to / own->locals == problem->rank / own->locals &&
            to / own->inner != problem->rank / own->inner) {
            entering[to / own->inner] += (double)step->elems;
        }
    }
}

/* Of the node that most enters. */
static double count_border(const scene *own, const wefti_pattern *pattern,
                           wefti_problem problem)
{
    double entering[RANKS_MOST] = {0}, most = 0;
    for (problem.rank = 0; problem.rank < problem.nranks; problem.rank++) {
        for (int list = 0; list < WEFTI_STEP_LISTS; list++) {
            size_t count = pattern->step_count(&problem, list);
            for (size_t i = 0; i < count; i++) {
                wefti_step step;
                pattern->step_at(&problem, list, i, &step);
                if (step.kind == WEFTI_STEP_SEND ||
                    step.kind == WEFTI_STEP_RELAY) {
                    count_send(own, &problem, &step, entering);
                }
            }
        }
    }
    for (int node = 0; node < problem.nranks / own->inner; node++) {
        most = entering[node] > most ? entering[node] : most;
    }
    return most;
}

static int compare(const scene *own, const wefti_pattern *pattern,
                   wefti_problem problem)
{
    wefti_cost cost = {0};
    problem.upward = pattern == &wefti_pattern_nested_sums;
    wefti_sizes sizes = wefti_sizes_of(&problem, 4, 4);
    problem.nest =
        problem.upward || pattern == &wefti_pattern_nested ? own->nest : NULL;
    pattern->cost(&problem, &sizes, &cost);
    double really = 4 * count_border(own, pattern, problem);
    if (fabs(cost.border_bytes - really) <= 0.1 * really) {
        return 0;
    }
    print_message("%s by %s, %d hosts of %d ranks, nodes of %d: %.0f bytes "
                  "enter a node, counted %.0f\n",
                  weft_collective_text(problem.collective), pattern->name,
                  own->hosts, own->locals, own->inner, cost.border_bytes,
                  really);
    return 1;
}

static void test_cost_border_is_what_the_lists_send(void **state)
{
    static const int scenes[][3] = {{1, 4, 2}, {1, 8, 4},  {1, 8, 2},
                                    {2, 4, 2}, {2, 16, 4}, {4, 8, 4}};
    static const wefti_pattern *const patterns[] = {
        &wefti_pattern_direct, &wefti_pattern_hierarchical,
        &wefti_pattern_nested, &wefti_pattern_nested_sums};
    int failures = 0;
    (void)state;
    for (size_t s = 0; s < WEFTI_COUNT_OF(scenes); s++) {
        scene own;
        scene_make(&own, scenes[s][0], scenes[s][1], scenes[s][2]);
        for (size_t c = 0; c < 2 * WEFTI_COUNT_OF(collectives); c++) {
            const int nranks = own.hosts * own.locals;
            const weft_collective collective =
                c % 2 ? sums[c / 2] : collectives[c / 2];
            const wefti_shape *shape = wefti_shape_get(collective);
            bool parts = shape->recv_parts || shape->send_parts;
            wefti_problem problem = {.collective = collective,
                                     .nranks = nranks,
                                     .count =
                                         MUCH / (parts ? (size_t)nranks : 1),
                                     .chunk_elems = 8192,
                                     .grouping = own.grouping,
                                     .nest = own.nest};
            for (size_t p = 0; p < WEFTI_COUNT_OF(patterns); p++) {
                failures += patterns[p]->supports(&problem)
                                ? compare(&own, patterns[p], problem)
                                : 0;
            }
        }
        scene_free(&own);
    }
    assert_int_equal(failures, 0);
}

static const char *choose(const scene *own, weft_collective collective,
                          size_t bytes, bool levels)
{
    static const wefti_tuning tuning;
    const wefti_scope scope = {.tuning = &tuning,
                               .nranks = own->hosts * own->locals,
                               .grouping = own->grouping,
                               .nest = levels ? own->nest : NULL};
    weft_op op = {
        .collective = collective, .dtype = WEFT_DTYPE_F32, .count = bytes / 4};
    if (wefti_shape_get(collective)->recv_parts ||
        wefti_shape_get(collective)->send_parts) {
        op.count /= (size_t)scope.nranks;
    }
    wefti_role role = wefti_role_of(collective, op.dtype, 0, 0);
    wefti_choice choice = wefti_select(&scope, &op, &role);
    return wefti_choice_text(&choice);
}

/* Eight of a node that read what another's eight have fill the way there. */
static void test_choice_much_data_of_many_ranks_through_levels(void **state)
{
    (void)state;
    scene own;
    scene_make(&own, 1, 32, 8);
    for (size_t c = 0; c < WEFTI_COUNT_OF(collectives); c++) {
        assert_string_equal(choose(&own, collectives[c], 64 << 20, true),
                            "nested");
        assert_string_equal(choose(&own, collectives[c], 64 << 20, false),
                            "direct");
    }
    for (size_t c = 0; c < WEFTI_COUNT_OF(collectives); c++) {
        /* What caches keep crosses once whoever reads it. */
        assert_string_not_equal(choose(&own, collectives[c], 1 << 20, true),
                                "nested");
    }
    scene_free(&own);
}

/* Sixteen of a node that each read what others' ranks have fill the way out. To
 * one root a tree leads, which leaves a node once too. */
static void test_choice_sums_of_many_ranks_leave_levels_once(void **state)
{
    (void)state;
    scene own;
    scene_make(&own, 1, 64, 16);
    assert_string_equal(choose(&own, WEFT_COLLECTIVE_ALLREDUCE, 64 << 20, true),
                        "nested_sums");
    assert_string_equal(
        choose(&own, WEFT_COLLECTIVE_REDUCESCATTER, 64 << 20, true),
        "nested_sums");
    assert_string_equal(choose(&own, WEFT_COLLECTIVE_REDUCE, 64 << 20, true),
                        "tree");
    for (size_t c = 0; c < WEFTI_COUNT_OF(sums); c++) {
        assert_string_not_equal(choose(&own, sums[c], 64 << 20, false),
                                "nested_sums");
    }
    scene_free(&own);
}

/* Two of a node do not fill the way that leads there. */
static void test_choice_of_few_ranks_not_through_levels(void **state)
{
    (void)state;
    static const int scenes[][3] = {{1, 4, 2}, {2, 4, 2}};
    for (size_t s = 0; s < WEFTI_COUNT_OF(scenes); s++) {
        scene own;
        scene_make(&own, scenes[s][0], scenes[s][1], scenes[s][2]);
        for (size_t c = 0; c < WEFTI_COUNT_OF(collectives); c++) {
            for (size_t bytes = 64; bytes <= 64 << 20; bytes *= 4) {
                assert_string_not_equal(
                    choose(&own, collectives[c], bytes, true), "nested");
            }
        }
        scene_free(&own);
    }
}

/* An all-gather with counts, or a reduce-scatter, on hosts of 4. */
static double v_cost_ns(int hosts, weft_collective collective,
                        const wefti_pattern *pattern, const size_t *counts)
{
    static const wefti_tuning tuning;
    scene own;
    scene_make(&own, hosts, 4, 2);
    const wefti_scope scope = {
        .tuning = &tuning, .nranks = 4 * hosts, .grouping = own.grouping};
    const weft_op op = {.collective = collective,
                        .dtype = WEFT_DTYPE_F32,
                        .count = counts[0],
                        .send_counts = counts,
                        .recv_counts = counts};
    const double ns =
        wefti_select_cost_ns(&scope, &op, wefti_algorithm_bit(pattern));
    scene_free(&own);
    return ns;
}

/* Even counts cost what the even form does; a long part takes more rounds. */
static void test_cost_of_v_forms_counts_the_longest_part(void **state)
{
    enum { EACH = 1 << 16, RANKS = 8 };
    static const struct {
        weft_collective with, without;
    } forms[] = {
        {WEFT_COLLECTIVE_ALLGATHERV, WEFT_COLLECTIVE_ALLGATHER},
        {WEFT_COLLECTIVE_REDUCESCATTERV, WEFT_COLLECTIVE_REDUCESCATTER}};
    const wefti_pattern *const patterns[] = {&wefti_pattern_direct,
                                             &wefti_pattern_hierarchical};
    size_t even[RANKS], one[RANKS] = {0};
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        even[rank] = EACH;
    }
    one[3] = (size_t)RANKS * EACH;
    for (int i = 0; i < 4; i++) {
        const wefti_pattern *pattern = patterns[i % 2];
        const double alike = v_cost_ns(2, forms[i / 2].without, pattern, even);
        assert_true(v_cost_ns(2, forms[i / 2].with, pattern, even) == alike);
        assert_true(v_cost_ns(2, forms[i / 2].with, pattern, one) > alike);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost_of_v_forms_counts_the_longest_part),
        cmocka_unit_test(test_cost_border_is_what_the_lists_send),
        cmocka_unit_test(test_choice_much_data_of_many_ranks_through_levels),
        cmocka_unit_test(test_choice_sums_of_many_ranks_leave_levels_once),
        cmocka_unit_test(test_choice_of_few_ranks_not_through_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
