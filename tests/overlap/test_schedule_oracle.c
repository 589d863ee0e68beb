/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: generators and simulator together give the bubbles and the memory that
 * the schedules' papers promise, and where those promises do not hold the
 * numbers that follow from the dependencies alone.
 *
 * Method: one row per schedule and cost model; 32 micro-batches, free
 * communication. The figures were derived outside this program. Then the closed
 * formulas, over many numbers of ranks and micro-batches.
 */
#include "tests/overlap/schedules.h"

#include <math.h>

enum { MICROBATCHES = 32 };

typedef struct cost_model {
    double f, i, w, fb;
} cost_model;

static const cost_model equal = {1, 1, 1, 3}, fast_fb = {1, 1, 1, 2};
static const cost_model long_i = {1, 1.2, 0.8, 3}, long_w = {1, 0.8, 1.2, 3};

static const double any = -1;

typedef struct row {
    const char *name;
    int chunks, ranks;
    const cost_model *cost;
    double bubble, window, peak;
} row;

static const row rows[] = {
    {"gpipe", 0, 4, &equal, 9, any, 32},
    {"1f1b", 0, 4, &equal, 9, any, 4},
    {"interleaved", 2, 4, &equal, 4.5, any, any},
    {"interleaved", 3, 4, &equal, 3, any, any},
    {"interleaved", 4, 4, &equal, 2.25, any, any},
    {"interleaved", 8, 4, &equal, 1.125, any, any},
    {"zb_h1", 0, 4, &equal, 3, any, 4},
    {"zb_h2", 0, 4, &equal, 3, 0, 7},
    {"zbv", 0, 4, &equal, 1.5, 0, 4},
    {"dualpipe", 0, 4, &equal, 2, any, 5},
    {"dualpipe", 0, 4, &fast_fb, 1, any, 5},
    {"dualpipev", 0, 4, &equal, 3, any, 4.5},
    {"dualpipev", 0, 4, &fast_fb, 1.5, any, 4.5},
    {"gpipe", 0, 8, &equal, 21, any, 32},
    {"1f1b", 0, 8, &equal, 21, any, 8},
    {"interleaved", 2, 8, &equal, 10.5, any, 11.5},
    {"interleaved", 3, 8, &equal, 7, any, 31.0 / 3},
    {"interleaved", 4, 8, &equal, 5.25, any, 9.75},
    {"interleaved", 8, 8, &equal, 2.625, any, 8.875},
    {"zb_h1", 0, 8, &equal, 7, any, 8},
    {"zb_h2", 0, 8, &equal, 7, 0, 15},
    {"zbv", 0, 8, &equal, 3.5, 0, 8},
    {"dualpipe", 0, 8, &equal, 6, any, 9},
    {"dualpipe", 0, 8, &fast_fb, 3, any, 9},
    {"dualpipev", 0, 8, &equal, 7, any, 8.5},
    {"dualpipev", 0, 8, &fast_fb, 3.5, any, 8.5},
    {"gpipe", 0, 8, &long_i, 21, any, any},
    {"1f1b", 0, 8, &long_i, 21, any, any},
    {"interleaved", 2, 8, &long_i, 10.5, any, any},
    {"interleaved", 3, 8, &long_i, 7, any, any},
    {"interleaved", 4, 8, &long_i, 5.25, any, any},
    {"interleaved", 8, 8, &long_i, 2.625, any, any},
    {"zb_h1", 0, 8, &long_i, 9.8, any, any},
    {"zb_h2", 0, 8, &long_i, 7, 4.2, any},
    {"zbv", 0, 8, &long_i, 4.2, 2.8, any},
    {"dualpipe", 0, 8, &long_i, 7.2, any, any},
    {"dualpipev", 0, 8, &long_i, 8.6, any, any},
    {"gpipe", 0, 8, &long_w, 21, any, any},
    {"1f1b", 0, 8, &long_w, 21, any, any},
    {"interleaved", 2, 8, &long_w, 10.5, any, any},
    {"interleaved", 3, 8, &long_w, 7, any, any},
    {"interleaved", 4, 8, &long_w, 5.25, any, any},
    {"interleaved", 8, 8, &long_w, 2.625, any, any},
    {"zb_h1", 0, 8, &long_w, 7, any, any},
    {"zb_h2", 0, 8, &long_w, 7, 0, any},
    {"zbv", 0, 8, &long_w, 4.1, 0.6, any},
    {"dualpipe", 0, 8, &long_w, 6, any, any},
    {"dualpipev", 0, 8, &long_w, 7, any, any},
};

static weft_schedule_cost make_cost(const cost_model *model)
{
    return (weft_schedule_cost){.size_bytes = sizeof(weft_schedule_cost),
                                .f = model->f,
                                .i = model->i,
                                .w = model->w,
                                .fb = model->fb};
}

static weft_schedule_run simulate(const weft_schedule *schedule,
                                  const cost_model *model)
{
    weft_schedule_cost cost = make_cost(model);
    weft_schedule_run plan;
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &plan));
    return plan;
}

static void assert_near(const row *r, const char *what, double got, double want)
{
    if (want != any && fabs(got - want) > 1e-9) {
        fail_msg("%s, V=%d, P=%d, F=%g I=%g W=%g FB=%g: %s %.12g, not %.12g",
                 r->name, r->chunks, r->ranks, r->cost->f, r->cost->i,
                 r->cost->w, r->cost->fb, what, got, want);
    }
}

static void test_simulate_published_cases_gives_their_figures(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        const row *r = &rows[k];
        weft_schedule *schedule =
            make_schedule(r->name, r->ranks, MICROBATCHES, r->chunks);
        weft_schedule_run plan = simulate(schedule, r->cost);
        assert_near(r, "bubble", plan.bubble, r->bubble);
        assert_near(r, "window bubble", plan.window_bubble, r->window);
        assert_near(r, "peak", plan.activations, r->peak);
        weft_schedule_run_fini(&plan);
        weft_schedule_destroy(schedule);
    }
}

/* With FB short, the outer ranks of DualPipe idle less. */
static void test_simulate_dualpipe_gives_each_ranks_bubble(void **state)
{
    (void)state;
    static const double want[] = {1, 2, 3, 3, 3, 3, 2, 1};
    weft_schedule *schedule = make_schedule("dualpipe", 8, MICROBATCHES, 0);
    weft_schedule_run plan = simulate(schedule, &fast_fb);
    for (int r = 0; r < 8; r++) {
        assert_true(fabs(plan.ranks[r].bubble - want[r]) < 1e-9);
    }
    weft_schedule_run_fini(&plan);
    weft_schedule_destroy(schedule);
}

static void test_interleaved_overlap_and_groups_cost_memory_only(void **state)
{
    (void)state;
    static const struct {
        int group;
        bool overlap;
        double peak;
    } cases[] = {{8, true, 10}, {16, false, 15.75}, {32, false, 27.75}};
    for (size_t k = 0; k < 3; k++) {
        weft_schedule_config config =
            make_config("interleaved", 8, MICROBATCHES, 4);
        config.group = cases[k].group;
        config.overlap = cases[k].overlap;
        weft_schedule *schedule = NULL;
        ASSERT_OK(weft_schedule_create(&config, &schedule));
        weft_schedule_run plan = simulate(schedule, &equal);
        assert_true(fabs(plan.bubble - 5.25) < 1e-9);
        assert_true(fabs(plan.activations - cases[k].peak) < 1e-9);
        weft_schedule_run_fini(&plan);
        weft_schedule_destroy(schedule);
    }
}

/* ---- memory of each rank --------------------------------------------------
 */

/* In device units, of rank r; m is large enough for none to run dry. */
static double peak_of(const char *name, int p, int r, int chunks, int m)
{
    if (strcmp(name, "gpipe") == 0) {
        return m;
    }
    if (strcmp(name, "1f1b") == 0) {
        return p - r;
    }
    if (strcmp(name, "interleaved") == 0) {
        double ahead = 2 * (p - 1 - r) + (chunks - 1) * p + 1;
        return fmin(ahead / chunks, m);
    }
    if (strcmp(name, "zb_h2") == 0) {
        return 2 * p - 1;
    }
    if (strcmp(name, "dualpipe") == 0) {
        return p + 1;
    }
    return strcmp(name, "dualpipev") == 0 ? p + 0.5 : p;
}

static void test_peaks_of_each_rank_are_the_formulas(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        for (int ranks = 2; ranks <= 12; ranks += 2) {
            int chunks = n == INTERLEAVED ? 1 + ranks / 2 : 0;
            int m = 4 * ranks;
            weft_schedule *schedule = make_schedule(names[n], ranks, m, chunks);
            weft_verdict verdict =
                check_schedule(schedule, WEFT_SEMANTICS_GROUPED, 0);
            for (int r = 0; r < ranks; r++) {
                double want = peak_of(names[n], ranks, r, chunks, m);
                if (fabs(verdict.activations[r] - want) > 1e-9) {
                    fail_msg("%s, P=%d, V=%d, rank %d: %g, not %g", names[n],
                             ranks, chunks, r, verdict.activations[r], want);
                }
            }
            weft_verdict_fini(&verdict);
            weft_schedule_destroy(schedule);
        }
    }
}

/* ---- closed formulas ------------------------------------------------------
 */

/* window: of the bubble that counts from a rank's own first start; or any. */
static void assert_window(const char *name, int ranks, int microbatches,
                          int chunks, const cost_model *model, double bubble,
                          double window)
{
    weft_schedule *schedule = make_schedule(name, ranks, microbatches, chunks);
    weft_schedule_run plan = simulate(schedule, model);
    if (fabs(plan.bubble - bubble) > 1e-9 * plan.makespan) {
        fail_msg("%s P=%d m=%d V=%d: bubble %.12g, not %.12g", name, ranks,
                 microbatches, chunks, plan.bubble, bubble);
    }
    if (window != any &&
        fabs(plan.window_bubble - window) > 1e-9 * plan.makespan) {
        fail_msg("%s P=%d m=%d: window bubble %.12g, not %.12g", name, ranks,
                 microbatches, plan.window_bubble, window);
    }
    for (int r = 0; r < plan.rank_count; r++) {
        double sum = 0;
        for (int w = 0; w < WEFT_WAIT_COUNT; w++) {
            sum += plan.ranks[r].wait[w];
        }
        assert_true(fabs(sum - plan.ranks[r].bubble) < 1e-9 * plan.makespan);
    }
    weft_schedule_run_fini(&plan);
    weft_schedule_destroy(schedule);
}

static void assert_formula(const char *name, int ranks, int microbatches,
                           int chunks, const cost_model *model, double bubble)
{
    assert_window(name, ranks, microbatches, chunks, model, bubble, any);
}

static void test_simulate_any_size_gives_the_formulas(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < 400; round++) {
        int ranks = 1 + (int)(random_next(&seed) % 12);
        int microbatches = 1 + (int)(random_next(&seed) % 60);
        double f = 1 + (double)(random_next(&seed) % 8) / 4;
        double i = 1 + (double)(random_next(&seed) % 8) / 4;
        double w = 0.25 + (double)(random_next(&seed) % 16) / 4;
        cost_model c = {f, i, w, 0};
        int p = ranks - 1;
        assert_formula("gpipe", ranks, microbatches, 0, &c, p * (f + i + w));
        assert_formula("1f1b", ranks, microbatches, 0, &c, p * (f + i + w));
        if (microbatches >= ranks) {
            assert_formula("zb_h1", ranks, microbatches, 0, &c,
                           p * fmax(fmax(f, i), f + i - w));
        }
        if (microbatches >= 2 * ranks - 1 && w <= fmin(f, i)) {
            assert_window("zb_h2", ranks, microbatches, 0, &c,
                          p * fmax(f, f + i - 2 * w),
                          p * fmax(0, f + i - 2 * w));
        }
        if (microbatches >= 2 * ranks - 1) {
            cost_model same = {f, f, f, 0};
            assert_window("zbv", ranks, microbatches, 0, &same, p * f / 2, 0);
        }
        int rest = microbatches % ranks;
        if (microbatches >= ranks && rest == 0) {
            int chunks = 1 + (int)(random_next(&seed) % 4);
            assert_formula("interleaved", ranks, microbatches, chunks, &c,
                           p * (f + i + w) / chunks);
        }
    }
}

static void test_simulate_dual_sizes_gives_the_formulas(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < 200; round++) {
        int ranks = 1 + (int)(random_next(&seed) % 10);
        int microbatches = 2 * ranks + (int)(random_next(&seed) % 20);
        double f = 1 + (double)(random_next(&seed) % 8) / 4;
        double w = f * (double)(random_next(&seed) % 5) / 4;
        double b = f + w;
        double fb = b + f * (double)(1 + random_next(&seed) % 4) / 4;
        cost_model c = {f, f, w, fb};
        assert_formula("dualpipev", ranks, microbatches, 0, &c,
                       (ranks - 1) * (fb + b - 3 * w) / 2);
        assert_formula("dualpipe", 2 * ranks, 2 * microbatches, 0, &c,
                       (ranks - 1) * (fb + b - 3 * w));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulate_published_cases_gives_their_figures),
        cmocka_unit_test(test_simulate_dualpipe_gives_each_ranks_bubble),
        cmocka_unit_test(test_interleaved_overlap_and_groups_cost_memory_only),
        cmocka_unit_test(test_peaks_of_each_rank_are_the_formulas),
        cmocka_unit_test(test_simulate_any_size_gives_the_formulas),
        cmocka_unit_test(test_simulate_dual_sizes_gives_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
