/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the simulator's times are those that follow from order, inputs and
 * costs, and each wait is put down to what caused it.
 *
 * Method: random schedules with random costs of stages and messages, against
 * times found without events, by going through all lists until nothing moves
 * any more. Then small cases by hand for what takes turns: links, reductions,
 * gathers, barriers.
 */
#include "tests/overlap/schedules.h"

#include <math.h>
#include <stdlib.h>

enum { STAGES_MOST = 64, MICROBATCHES_MOST = 64 };

/* ---- the same, without events ---------------------------------------------
 */

typedef struct slow {
    const weft_schedule *schedule;
    const weft_schedule_cost *cost;
    double f[STAGES_MOST][MICROBATCHES_MOST]; /* ends; 0: not yet */
    double back[STAGES_MOST][MICROBATCHES_MOST];
    bool moved;
} slow;

static double price_of(const slow *s, const weft_action *part)
{
    const weft_stage_cost *c = &s->cost->stages[part->stage];
    return part->type == WEFT_ACTION_F   ? c->f
           : part->type == WEFT_ACTION_I ? c->i
           : part->type == WEFT_ACTION_W ? c->w
                                         : c->b;
}

static double input_of(const slow *s, const weft_action *part)
{
    wefti_edge edge = wefti_edge_in(s->schedule, part);
    if (!edge.exists) {
        return 0;
    }
    double end = part->type == WEFT_ACTION_F
                     ? s->f[edge.from_stage][part->microbatch]
                     : s->back[edge.from_stage][part->microbatch];
    return end + (edge.remote ? s->cost->p2p : 0);
}

static void set_end(slow *s, const weft_action *part, double end)
{
    double *was = part->type == WEFT_ACTION_F
                      ? &s->f[part->stage][part->microbatch]
                      : &s->back[part->stage][part->microbatch];
    if (part->type != WEFT_ACTION_W && *was != end) {
        *was = end;
        s->moved = true;
    }
}

/* One pass over a rank; ends of its actions in ends, if not NULL. */
static void go_through(slow *s, int rank, double *ends)
{
    const wefti_actions *list = &s->schedule->lists[rank];
    double time = 0;
    for (size_t k = 0; k < list->count; k++) {
        weft_action parts[2];
        int count = wefti_action_split(&list->items[k], parts);
        double price = 0;
        for (int p = 0; p < count; p++) {
            time = fmax(time, input_of(s, &parts[p]));
            price += price_of(s, &parts[p]);
        }
        time += price;
        for (int p = 0; p < count; p++) {
            set_end(s, &parts[p], time);
        }
        if (ends) {
            ends[k] = time;
        }
    }
}

static void compare(slow *s, const weft_schedule_run *run)
{
    static double ends[1 << 14];
    do {
        s->moved = false;
        for (int r = 0; r < s->schedule->ranks; r++) {
            go_through(s, r, NULL);
        }
    } while (s->moved);
    for (int r = 0; r < s->schedule->ranks; r++) {
        go_through(s, r, ends);
        for (size_t k = 0; k < s->schedule->lists[r].count; k++) {
            double got = run->ranks[r].spans[k].end;
            if (fabs(got - ends[k]) > 1e-9) {
                fail_msg("%s: rank %d, action %zu ends at %.12g, not %.12g",
                         s->schedule->name, r, k, got, ends[k]);
            }
        }
    }
}

static double draw_cost(uint64_t *seed)
{
    return (double)(1 + below(seed, 64)) / 16;
}

static weft_schedule *draw_schedule(uint64_t *seed)
{
    int n = (int)below(seed, NAMES);
    int ranks = 1 + (int)below(seed, 8);
    ranks += n == DUALPIPE ? ranks % 2 : 0;
    int microbatches = 2 * ranks + 2 * (int)below(seed, 12);
    microbatches -= n == INTERLEAVED ? microbatches % ranks : 0;
    return make_schedule(names[n], ranks, microbatches, 0);
}

static void test_simulate_random_costs_gives_the_times_of_passes(void **state)
{
    (void)state;
    static slow s;
    uint64_t seed = random_seed();
    for (int round = 0; round < 200; round++) {
        weft_schedule *schedule = draw_schedule(&seed);
        weft_stage_cost stages[STAGES_MOST];
        assert_true(schedule->stages <= STAGES_MOST);
        for (int k = 0; k < schedule->stages; k++) {
            stages[k] = (weft_stage_cost){draw_cost(&seed), draw_cost(&seed),
                                          draw_cost(&seed), draw_cost(&seed)};
        }
        weft_schedule_cost cost = {.size_bytes = sizeof(cost),
                                   .f = 1,
                                   .i = 1,
                                   .w = 1,
                                   .stages = stages,
                                   .p2p = draw_cost(&seed) * (round % 2)};
        weft_schedule_run run, lowered;
        ASSERT_OK(weft_schedule_simulate(schedule, &cost, true, &run));
        memset(&s, 0, sizeof(s));
        s.schedule = schedule;
        s.cost = &cost;
        compare(&s, &run);
        ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
        ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &lowered));
        assert_true(fabs(run.makespan - lowered.makespan) < 1e-9);
        assert_true(fabs(run.bubble - lowered.bubble) < 1e-9);
        weft_schedule_run_fini(&run);
        weft_schedule_run_fini(&lowered);
        weft_schedule_destroy(schedule);
    }
}

/* ---- by hand --------------------------------------------------------------
 */

static weft_schedule_run simulate_text(const char *text,
                                       const weft_schedule_cost *cost)
{
    weft_schedule *schedule = NULL;
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_read(text, strlen(text), 1, 0, &schedule));
    ASSERT_OK(weft_schedule_simulate(schedule, cost, true, &run));
    weft_schedule_destroy(schedule);
    return run;
}

/* Forward messages share link 0, backward ones link 1. */
static int route_by_way(void *context, int from_rank, int to_rank, int *links)
{
    (void)context;
    links[0] = from_rank > to_rank;
    return 1;
}

static void test_simulate_messages_take_turns_on_a_link(void **state)
{
    (void)state;
    const weft_link links[2] = {{2, 0.5}, {0, 0}};
    weft_schedule_cost cost = {.size_bytes = sizeof(cost),
                               .f = 1,
                               .b = 1,
                               .links = links,
                               .link_count = 2,
                               .route = route_by_way};
    weft_schedule_run run = simulate_text("0F0,0F1,0F2,0B0,0B1,0B2\n"
                                          "1F0,1F1,1F2,1B0,1B1,1B2\n",
                                          &cost);
    const weft_schedule_span *spans = run.ranks[1].spans;
    assert_true(spans[0].begin == 3.5); /* sent at 1, on the link from 1 */
    assert_true(spans[1].begin == 5.5); /* sent at 2, on the link from 3 */
    assert_true(spans[2].begin == 7.5); /* sent at 3, on the link from 5 */
    assert_int_equal(spans[2].wait, WEFT_WAIT_TRANSFER);
    assert_int_equal(spans[2].wait_rank, 0);
    assert_true(run.ranks[1].wait[WEFT_WAIT_FORWARD] == 1);
    assert_true(run.ranks[1].wait[WEFT_WAIT_TRANSFER] == 2.5 + 1 + 1);
    assert_true(run.makespan == 12.5);
    weft_schedule_run_fini(&run);
}

static void test_simulate_optimizer_waits_for_its_reduction(void **state)
{
    (void)state;
    weft_schedule_cost cost = {.size_bytes = sizeof(cost),
                               .f = 1,
                               .b = 2,
                               .reduce = 4,
                               .optimizer = 1};
    weft_schedule_run run =
        simulate_text("0F0,0B0,0F1,0B1,0REDUCE_GRAD,0OPT\n", &cost);
    assert_true(run.makespan == 11);
    assert_true(run.ranks[0].wait[WEFT_WAIT_REDUCE] == 4);
    assert_true(run.ranks[0].busy == 7);
    weft_schedule_run_fini(&run);
    run = simulate_text("0F0,0B0,0REDUCE_GRAD\n", &cost);
    assert_true(run.makespan == 7);
    assert_true(run.ranks[0].wait[WEFT_WAIT_END] == 4);
    weft_schedule_run_fini(&run);
}

static void
test_simulate_two_copies_are_reduced_when_both_are_there(void **state)
{
    (void)state;
    weft_schedule_cost cost = {
        .size_bytes = sizeof(cost), .f = 1, .i = 1, .w = 1, .reduce = 3};
    weft_schedule *schedule = make_schedule("dualpipe", 4, 8, 0);
    ASSERT_OK(weft_schedule_reduce(schedule, false));
    ASSERT_OK(weft_schedule_optimize(schedule));
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &run));
    for (int r = 0; r < 2; r++) {
        assert_true(fabs(run.ranks[r].wait[WEFT_WAIT_REDUCE] -
                         run.ranks[3 - r].wait[WEFT_WAIT_REDUCE]) < 1e-9);
        assert_true(run.ranks[r].wait[WEFT_WAIT_REDUCE] >= 3);
    }
    weft_schedule_run_fini(&run);
    weft_schedule_destroy(schedule);
}

static void test_simulate_parameters_come_one_stage_at_a_time(void **state)
{
    (void)state;
    weft_schedule_cost cost = {
        .size_bytes = sizeof(cost), .f = 2, .b = 2, .gather = 6};
    weft_schedule_run run =
        simulate_text("0UNSHARD,1UNSHARD,0F0,1F0,1B0,0B0\n", &cost);
    assert_true(run.ranks[0].spans[2].begin == 3);
    assert_true(run.ranks[0].spans[3].begin == 6);
    assert_true(run.ranks[0].wait[WEFT_WAIT_PARAM] == 5);
    weft_schedule_run_fini(&run);
}

static void test_simulate_all_wait_at_a_barrier(void **state)
{
    (void)state;
    weft_schedule_cost cost = {.size_bytes = sizeof(cost), .f = 1, .b = 2};
    weft_schedule_run run = simulate_text("0F0,0B0,0BARRIER,0F1,0B1\n"
                                          "1F0,1B0,0BARRIER,1F1,1B1\n",
                                          &cost);
    assert_true(run.ranks[0].spans[3].begin == 6); /* 1: 1..4, 0: 4..6 */
    assert_true(run.ranks[1].spans[3].begin == 7); /* after 0F1 */
    assert_true(run.ranks[1].wait[WEFT_WAIT_BARRIER] == 2);
    weft_schedule_run_fini(&run);
}

static void test_simulate_what_cannot_be_is_refused(void **state)
{
    (void)state;
    weft_schedule *schedule = NULL;
    weft_schedule_run run;
    const char *text = "0B0,0F0\n1F0,1B0\n";
    weft_schedule_cost cost = {.size_bytes = sizeof(cost), .f = 1};
    ASSERT_OK(weft_schedule_read(text, strlen(text), 1, 0, &schedule));
    assert_int_equal(weft_schedule_simulate(schedule, &cost, false, &run),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "0B0"));
    cost.f = -1;
    assert_int_equal(weft_schedule_simulate(schedule, &cost, false, &run),
                     WEFT_ERR_INVALID);
    cost = (weft_schedule_cost){.size_bytes = sizeof(cost), .link_count = 1};
    assert_int_equal(weft_schedule_simulate(schedule, &cost, false, &run),
                     WEFT_ERR_INVALID);
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulate_random_costs_gives_the_times_of_passes),
        cmocka_unit_test(test_simulate_messages_take_turns_on_a_link),
        cmocka_unit_test(test_simulate_optimizer_waits_for_its_reduction),
        cmocka_unit_test(
            test_simulate_two_copies_are_reduced_when_both_are_there),
        cmocka_unit_test(test_simulate_parameters_come_one_stage_at_a_time),
        cmocka_unit_test(test_simulate_all_wait_at_a_barrier),
        cmocka_unit_test(test_simulate_what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
