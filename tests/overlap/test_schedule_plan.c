/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an order planned for its costs is never longer than the published one,
 * nor than what the planner of the zero-bubble paper's authors finds, keeps to
 * its memory, runs under all semantics of messages, and is the same each time.
 *
 * Method: a table of bubbles that an independent program of that planner's
 * rules gave, timed as weft times lists; then drawn costs of drawn stages, and
 * refusals.
 */
#include "tests/overlap/schedules.h"

#include <math.h>
#include <stdlib.h>

/* One thread, and much arithmetic: sanitizers need less of it. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { POINTS_STEP = 4, ROUNDS = 8 };
#else
enum { POINTS_STEP = 1, ROUNDS = 40 };
#endif

static weft_schedule_cost make_cost(double f, double i, double w, double p2p)
{
    return (weft_schedule_cost){.size_bytes = sizeof(weft_schedule_cost),
                                .f = f,
                                .i = i,
                                .w = w,
                                .p2p = p2p};
}

static weft_schedule_run simulate(const weft_schedule *schedule,
                                  const weft_schedule_cost *cost)
{
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_simulate(schedule, cost, false, &run));
    return run;
}

static void assert_same_lists(const weft_schedule *a, const weft_schedule *b)
{
    for (int r = 0; r < a->ranks; r++) {
        assert_int_equal(a->lists[r].count, b->lists[r].count);
        for (size_t k = 0; k < a->lists[r].count; k++) {
            weft_action x = a->lists[r].items[k], y = b->lists[r].items[k];
            assert_int_equal(x.type, y.type);
            assert_int_equal(x.stage, y.stage);
            assert_int_equal(x.microbatch, y.microbatch);
        }
    }
}

/* Proved as it is and with messages, under all three semantics. */
static void assert_runs(weft_schedule *schedule, double memory_most)
{
    static const weft_semantics all[] = {WEFT_SEMANTICS_RENDEZVOUS,
                                         WEFT_SEMANTICS_EAGER,
                                         WEFT_SEMANTICS_GROUPED};
    weft_check_config config = {.size_bytes = sizeof(config),
                                .activations_most = memory_most,
                                .eager_slots = 1};
    weft_verdict verdict;
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    for (size_t k = 0; k < 3; k++) {
        if (all[k] == WEFT_SEMANTICS_GROUPED) {
            ASSERT_OK(weft_schedule_group(schedule, 0));
        }
        config.semantics = all[k];
        ASSERT_OK(weft_schedule_check(schedule, &config, &verdict));
        if (!verdict.valid) {
            fail_msg("semantics %d: %s", all[k], verdict.findings[0].text);
        }
        weft_verdict_fini(&verdict);
    }
}

/* ---- figures --------------------------------------------------------------
 */

typedef struct point {
    const char *name;
    int ranks, microbatches;
    double f, i, w, p2p;
    double memory; /* 0: the schedule's own */
    double bubble; /* that the other planner reaches */
} point;

static const point points[] = {
    {"zbv", 8, 16, 1, 0.8, 1.2, 0, 0, 3.8},
    {"zbv", 8, 24, 1, 0.8, 1.2, 0, 0, 3.8},
    {"zbv", 8, 32, 1, 0.8, 1.2, 0, 0, 3.8},
    {"zbv", 8, 32, 1, 1.2, 0.8, 0, 0, 4.2},
    {"zbv", 4, 16, 1, 1, 1, 0.2, 0, 4.1},
    {"zbv", 4, 5, 1.37, 0.43, 2.52, 0, 8, 2.63},
    {"zbv", 5, 5, 0.95, 1.79, 0.46, 0, 0, 5.09},
    {"zbv", 5, 5, 2.94, 0.43, 2.62, 0, 0, 8.715},
    {"zbv", 6, 12, 0.79, 1.87, 2.03, 0, 0, 5.15},
    {"zbv", 2, 2, 1.68, 0.75, 1.22, 0.37, 0, 1.95},
    {"zbv", 6, 11, 0.36, 1.55, 0.75, 0, 0, 3.875},
    {"zbv", 3, 6, 2.63, 1.05, 1.42, 0.14, 4.5, 3.735},
    {"zbv", 3, 4, 2.08, 0.33, 2.54, 0.07, 6, 2.36},
    {"zbv", 8, 16, 2.45, 1.36, 1.38, 0.04, 12, 10.835},
    {"zbv", 5, 10, 1.2, 2.46, 2.92, 0.16, 0, 7.16},
    {"zbv", 8, 9, 0.46, 2.3, 2.72, 0.26, 0, 13.51},
    {"zbv", 6, 12, 0.35, 1.49, 0.79, 0, 9, 3.725},
    {"zbv", 6, 6, 1.18, 1.7, 1.8, 0, 12, 5.22},
    {"zbv", 6, 12, 1.68, 2.17, 1.52, 0.21, 0, 11.06},
    {"zb_h1", 8, 32, 1, 0.8, 1.2, 0.1, 0, 10.3},
    {"zb_h1", 5, 10, 1.74, 2.4, 1.56, 0.37, 7, 10.92},
    {"zb_h1", 6, 7, 0.52, 1.11, 1.64, 0.14, 0, 7.65},
    {"zb_h1", 4, 8, 2.18, 0.48, 2.27, 0.12, 0, 7.62},
    {"zb_h1", 3, 9, 0.36, 2.87, 1.73, 0, 0, 5.74},
    {"zb_h1", 2, 3, 1.58, 0.82, 1.93, 0.14, 3, 1.72},
    {"zb_h1", 3, 4, 0.37, 1.9, 1.56, 0.26, 4, 4.47},
    {"zb_h2", 8, 32, 1, 1.2, 0.8, 0.2, 0, 8.4},
    {"zb_h2", 2, 6, 1.85, 2.66, 1.15, 0.28, 3, 2.77},
    {"zb_h2", 3, 13, 0.97, 1.36, 2.65, 0.03, 0, 2},
    {"zb_h2", 5, 10, 1.61, 0.53, 0.58, 0.14, 0, 7},
    {"zb_h2", 4, 17, 0.53, 2.08, 2.76, 0, 0, 4.65},
};

/* What each schedule may hold unless a limit is set. */
static double own_memory(const char *name, int ranks)
{
    return strcmp(name, "zb_h2") == 0 ? 2 * ranks - 1 : ranks;
}

static void test_plan_is_no_longer_than_the_other_planner(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(points) / sizeof(points[0]);
         k += POINTS_STEP) {
        const point *p = &points[k];
        weft_schedule_cost cost = make_cost(p->f, p->i, p->w, p->p2p);
        weft_schedule *schedule =
            make_schedule(p->name, p->ranks, p->microbatches, 0);
        double most = p->memory > 0 ? p->memory : own_memory(p->name, p->ranks);
        weft_schedule_run before = simulate(schedule, &cost);
        ASSERT_OK(weft_schedule_plan(schedule, &cost, p->memory));
        weft_schedule_run after = simulate(schedule, &cost);
        if (after.bubble > p->bubble + 1e-9 || after.activations > most) {
            fail_msg("%s P=%d m=%d F=%g I=%g W=%g p2p=%g: bubble %.9g with "
                     "%g units, not %.9g with %g",
                     p->name, p->ranks, p->microbatches, p->f, p->i, p->w,
                     p->p2p, after.bubble, after.activations, p->bubble, most);
        }
        assert_true(after.makespan <= before.makespan);
        assert_runs(schedule, most);
        weft_schedule_run_fini(&before);
        weft_schedule_run_fini(&after);
        weft_schedule_destroy(schedule);
    }
}

/* Nothing is shorter: rank 7 cannot begin before 3.5. */
static void test_plan_of_zbv_reaches_what_is_possible(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 0.8, 1.2, 0);
    weft_schedule *schedule = make_schedule("zbv", 8, 32, 0);
    ASSERT_OK(weft_schedule_plan(schedule, &cost, 0));
    weft_schedule_run run = simulate(schedule, &cost);
    assert_true(fabs(run.bubble - 3.5) < 1e-9);
    assert_true(run.activations <= 8);
    weft_schedule_run_fini(&run);
    weft_schedule_destroy(schedule);
}

static void test_plan_of_equal_costs_is_the_published_order(void **state)
{
    (void)state;
    static const char *const all[] = {"zb_h1", "zb_h2", "zbv"};
    for (int ranks = 1; ranks <= 6; ranks++) {
        for (size_t k = 0; k < 3; k++) {
            weft_schedule_cost cost = make_cost(1.5, 1.5, 1.5, 0);
            weft_schedule *published =
                make_schedule(all[k], ranks, 3 * ranks, 0);
            weft_schedule *planned = make_schedule(all[k], ranks, 3 * ranks, 0);
            ASSERT_OK(weft_schedule_plan(planned, &cost, 0));
            assert_same_lists(published, planned);
            weft_schedule_destroy(published);
            weft_schedule_destroy(planned);
        }
    }
}

/* ---- drawn ----------------------------------------------------------------
 */

enum { STAGES_MOST = 16 };

static double draw_cost(uint64_t *seed)
{
    return 0.3 + (double)below(seed, 270) / 100;
}

/* One cost for all, or each stage its own, now and then without a part. */
static void draw_costs(uint64_t *seed, weft_schedule_cost *cost,
                       weft_stage_cost stages[STAGES_MOST])
{
    *cost = make_cost(draw_cost(seed), draw_cost(seed), draw_cost(seed),
                      below(seed, 2) ? 0 : (double)below(seed, 50) / 100);
    for (int s = 0; s < STAGES_MOST; s++) {
        stages[s] = (weft_stage_cost){draw_cost(seed), draw_cost(seed),
                                      below(seed, 8) ? draw_cost(seed) : 0, 0};
    }
    if (below(seed, 2)) {
        cost->stages = stages;
    }
}

static void test_plan_of_drawn_costs_keeps_its_promises(void **state)
{
    (void)state;
    static const char *const all[] = {"zb_h1", "zb_h2", "zbv"};
    uint64_t seed = random_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const char *name = all[below(&seed, 3)];
        int ranks = 1 + (int)below(&seed, 6), m = 1 + (int)below(&seed, 12);
        weft_stage_cost stages[STAGES_MOST];
        weft_schedule_cost cost;
        draw_costs(&seed, &cost, stages);
        double memory = below(&seed, 2) ? 0 : 1 + (double)below(&seed, 24) / 2;
        double most = memory > 0 ? memory : own_memory(name, ranks);
        weft_schedule *planned = make_schedule(name, ranks, m, 0);
        weft_schedule *again = make_schedule(name, ranks, m, 0);
        weft_schedule_run before = simulate(planned, &cost);
        ASSERT_OK(weft_schedule_plan(planned, &cost, memory));
        ASSERT_OK(weft_schedule_plan(again, &cost, memory));
        assert_same_lists(planned, again);
        weft_schedule_run after = simulate(planned, &cost);
        if (after.activations > most ||
            (before.activations <= most && after.makespan > before.makespan)) {
            fail_msg("round %d, %s P=%d m=%d: %.9g with %g units, from %.9g "
                     "with %g; allowed are %g",
                     round, name, ranks, m, after.makespan, after.activations,
                     before.makespan, before.activations, most);
        }
        assert_runs(planned, most);
        weft_schedule_run_fini(&before);
        weft_schedule_run_fini(&after);
        weft_schedule_destroy(planned);
        weft_schedule_destroy(again);
    }
}

/* One micro-batch at a time on rank 0. */
static void test_plan_with_room_for_one_runs_one_by_one(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 2, 0.5, 0);
    weft_schedule *schedule = make_schedule("zb_h1", 3, 4, 0);
    ASSERT_OK(weft_schedule_plan(schedule, &cost, 1));
    weft_schedule_run run = simulate(schedule, &cost);
    assert_true(run.activations == 1);
    /* rank 0 waits for the way down and back, and ends with its W */
    assert_true(fabs(run.makespan - 4 * (3 * 1 + 3 * 2 + 0.5)) < 1e-9);
    weft_schedule_run_fini(&run);
    weft_schedule_destroy(schedule);
}

/* All messages share one slow link, which the planner does not count. */
static int route_all(void *context, int from_rank, int to_rank, int *links_out)
{
    (void)context;
    (void)from_rank;
    (void)to_rank;
    links_out[0] = 0;
    return 1;
}

static void test_plan_over_a_shared_link_is_never_longer(void **state)
{
    (void)state;
    const weft_link links[] = {{.busy = 0.3, .latency = 0.1}};
    for (int k = 0; k < 6; k++) {
        weft_schedule_cost cost = make_cost(1, 0.5 + 0.3 * k, 1.1, 0);
        cost.links = links;
        cost.link_count = 1;
        cost.route = route_all;
        weft_schedule *schedule = make_schedule("zbv", 4, 9, 0);
        weft_schedule_run before = simulate(schedule, &cost);
        ASSERT_OK(weft_schedule_plan(schedule, &cost, 0));
        weft_schedule_run after = simulate(schedule, &cost);
        assert_true(after.makespan <= before.makespan);
        weft_schedule_run_fini(&before);
        weft_schedule_run_fini(&after);
        weft_schedule_destroy(schedule);
    }
}

/* ---- refusals -------------------------------------------------------------
 */

static void assert_refused(weft_schedule *schedule,
                           const weft_schedule_cost *cost, double memory,
                           const char *why)
{
    assert_int_equal(weft_schedule_plan(schedule, cost, memory),
                     WEFT_ERR_INVALID);
    if (!strstr(weft_error_text(), why)) {
        fail_msg("\"%s\" does not say %s", weft_error_text(), why);
    }
    weft_schedule_destroy(schedule);
}

static void test_plan_where_it_does_not_apply_is_refused(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 2, 3, 0);
    weft_schedule_cost wrong = make_cost(1, -2, 3, 0);
    static const char *const others[] = {"gpipe", "1f1b", "interleaved",
                                         "dualpipe", "dualpipev"};
    for (size_t k = 0; k < 5; k++) {
        assert_refused(make_schedule(others[k], 2, 8, 0), &cost, 0, others[k]);
    }
    assert_refused(make_lowered("zbv", 2, 4, WEFT_LOWERING_SENDER), &cost, 0,
                   "messages");
    assert_refused(make_schedule("zbv", 2, 4, 0), &cost, 0.5, "0.5");
    assert_refused(make_schedule("zbv", 2, 4, 0), &cost, (double)NAN, "nan");
    assert_refused(make_schedule("zbv", 2, 4, 0), &wrong, 0, "I -2");
    weft_schedule *merged = make_schedule("zbv", 2, 4, 0);
    ASSERT_OK(weft_schedule_merge(merged));
    assert_refused(merged, &cost, 0, "other actions");
    weft_schedule *twice = make_schedule("zbv", 2, 4, 0);
    twice->lists[0].items[1] = twice->lists[0].items[0];
    assert_refused(twice, &cost, 0, "not valid");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_is_no_longer_than_the_other_planner),
        cmocka_unit_test(test_plan_of_zbv_reaches_what_is_possible),
        cmocka_unit_test(test_plan_of_equal_costs_is_the_published_order),
        cmocka_unit_test(test_plan_of_drawn_costs_keeps_its_promises),
        cmocka_unit_test(test_plan_with_room_for_one_runs_one_by_one),
        cmocka_unit_test(test_plan_over_a_shared_link_is_never_longer),
        cmocka_unit_test(test_plan_where_it_does_not_apply_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
