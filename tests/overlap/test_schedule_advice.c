/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the advice is what simulating each schedule by hand says, in the right
 * order, with what is in the way of the others; wrong questions are refused.
 *
 * Method: each candidate is made, completed and simulated again here, with its
 * own scaled costs, over random jobs; the order is checked pair by pair. Then
 * single cases whose answer is known: the figures of docs/schedules.md, limits
 * of memory, layers that do not divide or are too few, a batch cut otherwise.
 */
#include "tests/overlap/advice_jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- against simulations by hand ------------------------------------------
 */

static weft_schedule_cost scaled(const weft_schedule_cost *cost, double by)
{
    weft_schedule_cost other = *cost;
    other.f *= by;
    other.i *= by;
    other.w *= by;
    other.b *= by;
    other.fb *= by;
    other.p2p *= by;
    return other;
}

/* What one stage is given beyond its share of the rest. */
static void add_end(weft_stage_cost *stage, double by,
                    const weft_stage_cost *end)
{
    stage->f += by * end->f;
    stage->i += by * end->i;
    stage->w += by * end->w;
    stage->b += by * (end->b > 0 ? end->b : end->i + end->w);
}

/* Layers of a stage: layer l is on stage l * stages / layers. */
static int count_layers(int layers, int stages, int stage)
{
    int count = 0;
    for (int layer = 0; layer < layers; layer++) {
        count += layer * stages / layers == stage;
    }
    return count;
}

/* [stages], to be freed. */
static weft_stage_cost *make_stages(const weft_advice_config *config,
                                    const weft_schedule *schedule,
                                    const weft_schedule_cost *cost, double by)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    int each = info.stages / info.directions;
    weft_stage_cost *stages = calloc((size_t)info.stages, sizeof(*stages));
    for (int s = 0; s < info.stages; s++) {
        double share = (double)count_layers(config->layers, each, s % each) *
                       config->ranks / config->layers;
        stages[s] =
            (weft_stage_cost){share * cost->f, share * cost->i, share * cost->w,
                              share * (cost->i + cost->w)};
        if (config->first && s % each == 0) {
            add_end(&stages[s], by, config->first);
        }
        if (config->last && s % each == each - 1) {
            add_end(&stages[s], by, config->last);
        }
    }
    return stages;
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(a));
}

/* What a rank computes in a step; NAN where it has pairs. */
static double sum_work(const weft_schedule *schedule,
                       const weft_stage_cost *stages, int rank)
{
    const weft_action *actions;
    size_t count = weft_schedule_get_actions(schedule, rank, &actions);
    double work = 0;
    for (size_t k = 0; k < count; k++) {
        const weft_stage_cost *own = &stages[actions[k].stage];
        work += actions[k].type == WEFT_ACTION_F    ? own->f
                : actions[k].type == WEFT_ACTION_I  ? own->i
                : actions[k].type == WEFT_ACTION_W  ? own->w
                : actions[k].type == WEFT_ACTION_B  ? own->b
                : actions[k].type == WEFT_ACTION_FB ? (double)NAN
                                                    : 0;
    }
    return work;
}

/* Of the idle time, what unequal stages leave to the least busy rank. */
static void check_idle(const weft_advice_config *config,
                       const weft_schedule_candidate *c,
                       const weft_schedule *schedule,
                       const weft_stage_cost *stages,
                       const weft_schedule_run *run)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    double most = 0, least = INFINITY;
    bool pairs = false;
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    for (int rank = 0; rank < info.ranks; rank++) {
        double work = sum_work(schedule, stages, rank);
        pairs |= isnan(work);
        most = fmax(most, work);
        least = fmin(least, work);
    }
    assert_true(same(c->idle, run->bubble));
    assert_true(same(c->bubble + c->imbalance, c->idle));
    assert_true(same(c->idle_ratio, c->idle / run->makespan));
    assert_true(same(c->bubble_ratio, c->bubble / run->makespan));
    assert_true(same(c->imbalance_ratio, c->imbalance / run->makespan));
    assert_true(c->imbalance >= 0 && c->bubble >= -1e-9);
    int each = info.stages / info.directions;
    if (!config->first && !config->last && config->layers % each == 0) {
        assert_true(c->imbalance == 0);
    } else if (!pairs) {
        assert_true(same(c->imbalance, most - least));
    }
}

static void check_one(const weft_advice_config *config,
                      const weft_schedule_candidate *c)
{
    weft_schedule_config shape =
        make_config(c->name, config->ranks, c->microbatches,
                    strcmp(c->name, "interleaved") == 0 ? c->chunks : 0);
    double by = (double)config->microbatches / c->microbatches;
    weft_schedule_cost cost = scaled(config->cost, by);
    weft_schedule *schedule;
    weft_schedule_run run;
    shape.overlap = c->overlap;
    ASSERT_OK(weft_schedule_create(&shape, &schedule));
    if (cost.reduce > 0 || cost.optimizer > 0) {
        ASSERT_OK(weft_schedule_reduce(schedule, true));
        ASSERT_OK(weft_schedule_optimize(schedule));
    }
    weft_stage_cost *stages = make_stages(config, schedule, &cost, by);
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    int each = info.stages / info.directions;
    double largest =
        (double)count_layers(config->layers, each, 0) * each / config->layers;
    cost.stages = stages;
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &run));
    assert_true(same(c->makespan, run.makespan));
    check_idle(config, c, schedule, stages, &run);
    assert_true(same(c->activations, run.activations * by * largest));
    assert_true(fabs(c->memory -
                     (c->activations + c->param_copies * config->copy_memory)) <
                1e-9);
    assert_int_equal(c->param_copies, strcmp(c->name, "dualpipe") ? 1 : 2);
    bool fits = config->memory_most <= 0 || c->memory <= config->memory_most;
    assert_int_equal(c->possible, fits);
    assert_int_equal(c->why[0] != '\0', !fits);
    free(stages);
    weft_schedule_run_fini(&run);
    weft_schedule_destroy(schedule);
}

static void check_order(const weft_advice *advice)
{
    for (size_t k = 2; k < advice->count; k++) { /* the first: check_tie */
        const weft_schedule_candidate *a = &advice->candidates[k - 1];
        const weft_schedule_candidate *b = &advice->candidates[k];
        assert_true(a->possible || !b->possible);
        if (a->possible == b->possible && !isnan(b->makespan)) {
            assert_true((float)a->makespan <= (float)b->makespan);
        }
    }
}

/* No other that is as quick costs less in one thing and no more in another. */
static void check_tie(const weft_advice_config *config,
                      const weft_advice *advice)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    for (size_t k = 1; k < advice->count; k++) {
        const weft_schedule_candidate *c = &advice->candidates[k];
        if (!c->possible) {
            continue;
        }
        assert_true(best->possible);
        assert_true(best->makespan <= c->makespan * (1 + WEFT_ADVICE_TIE));
        if (c->makespan > best->makespan) {
            continue;
        }
        assert_true(best->param_copies <= c->param_copies);
        if (best->param_copies == c->param_copies) {
            bool kept = best->microbatches == config->microbatches;
            assert_true(kept || best->microbatches <= c->microbatches);
            assert_true(best->microbatches != c->microbatches ||
                        (float)best->memory <= (float)c->memory);
        }
    }
}

static double real(uint64_t *seed, double least, double most)
{
    return least + (most - least) * (double)below(seed, 1000) / 1000;
}

static void test_advise_random_jobs_agree_with_simulations(void **state)
{
    uint64_t seed = random_seed();
    (void)state;
    for (int job = 0; job < 60; job++) {
        weft_schedule_cost cost = make_cost(
            real(&seed, 0.5, 2), real(&seed, 0.5, 2), real(&seed, 0.5, 2));
        int ranks = 1 + (int)below(&seed, 6);
        int choices[2] = {1 + (int)below(&seed, 24), 1 + (int)below(&seed, 24)};
        cost.p2p = below(&seed, 2) ? real(&seed, 0, 0.5) : 0;
        cost.fb = below(&seed, 2) ? real(&seed, 1, 4) : 0;
        cost.reduce = below(&seed, 2) ? real(&seed, 0, 4) : 0;
        cost.optimizer = below(&seed, 2) ? real(&seed, 0, 2) : 0;
        weft_advice_config config =
            make_job(ranks, 1 + (int)below(&seed, 24),
                     ranks * (1 + (int)below(&seed, 8)), &cost);
        weft_stage_cost first = {real(&seed, 0, 1), real(&seed, 0, 1),
                                 real(&seed, 0, 1), 0};
        weft_stage_cost last = {real(&seed, 0, 2), real(&seed, 0, 2),
                                real(&seed, 0, 2), real(&seed, 0, 3)};
        bool ends = below(&seed, 2);
        config.first = ends ? &first : NULL;
        config.last = ends ? &last : NULL;
        config.choices = choices;
        config.choice_count = (int)below(&seed, 3);
        config.memory_most = below(&seed, 2) ? real(&seed, 1, 20) : 0;
        config.copy_memory = below(&seed, 2) ? real(&seed, 0, 4) : 0;
        weft_advice advice = advise(&config);
        check_order(&advice);
        check_tie(&config, &advice);
        for (size_t k = 0; k < advice.count; k++) {
            const weft_schedule_candidate *c = &advice.candidates[k];
            if (!isnan(c->makespan)) {
                check_one(&config, c);
            } else {
                assert_false(c->possible);
                assert_int_not_equal(c->why[0], '\0');
            }
        }
        assert_true(advice.reason[0] != '\0');
        bool warned = advice.candidates[0].possible &&
                      advice.candidates[0].idle_ratio > 0.15;
        assert_int_equal(advice.warning[0] != '\0', warned);
        weft_advice_fini(&advice);
    }
}

/* ---- cases with known answers ---------------------------------------------
 */

static void test_advise_equal_costs_prefers_least_bubble(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    weft_advice_config config = make_job(8, 32, 64, &cost);
    weft_advice advice = advise(&config);
    assert_true(find(&advice, "1f1b", 32, 0)->bubble == 21);
    assert_true(find(&advice, "interleaved", 32, 4)->bubble == 5.25);
    assert_true(find(&advice, "interleaved", 32, 8)->bubble == 2.625);
    assert_true(find(&advice, "zbv", 32, 0)->bubble == 3.5);
    assert_string_equal(advice.candidates[0].name, "interleaved");
    assert_int_equal(advice.candidates[0].chunks, 8);
    assert_non_null(strstr(advice.reason, "interleaved with V = 8"));
    assert_non_null(strstr(advice.reason, "1f1b takes 117"));
    assert_string_equal(advice.warning, "");
    weft_advice_fini(&advice);
}

static void test_advise_overlap_that_pays_is_found(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    cost.fb = 2;
    weft_advice_config config = make_job(8, 32, 16, &cost);
    weft_advice advice = advise(&config);
    /* Less bubble, but fewer pairs: it is the step that counts. */
    assert_true(find(&advice, "dualpipe", 32, 0)->bubble == 3);
    assert_true(find(&advice, "dualpipev", 32, 0)->bubble == 3.5);
    assert_string_equal(advice.candidates[0].name, "dualpipev");
    weft_advice_fini(&advice);
    config.copy_memory = 3; /* 8.5 and one copy are too much then */
    config.memory_most = 11;
    advice = advise(&config);
    const weft_schedule_candidate *barred = find(&advice, "dualpipev", 32, 0);
    assert_false(barred->possible);
    assert_string_equal(barred->why,
                        "needs 11.5 units of memory; allowed is 11");
    assert_true(advice.candidates[0].possible);
    assert_non_null(strstr(advice.reason, "that fits"));
    assert_non_null(strstr(advice.reason, "dualpipev would take"));
    weft_advice_fini(&advice);
}

static void test_advise_limits_leave_what_fits(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    weft_advice_config config = make_job(4, 32, 4, &cost);
    config.memory_most = 4;
    weft_advice advice = advise(&config);
    assert_string_equal(advice.candidates[0].name, "zb_h1");
    assert_string_equal(find(&advice, "interleaved", 32, 0)->why,
                        "4 layers are too few for 8 stages");
    assert_string_equal(find(&advice, "zb_h2", 32, 0)->why,
                        "needs 7 units of memory; allowed is 4");
    weft_advice_fini(&advice);
    config.memory_most = 1;
    advice = advise(&config);
    assert_false(advice.candidates[0].possible);
    assert_non_null(strstr(advice.reason, "no schedule is possible"));
    assert_string_equal(advice.warning, "");
    weft_advice_fini(&advice);
}

/* 10 layers on 4 ranks: 3, 2, 3, 2; a rank's costs are of 2.5 of them. */
static void test_advise_layers_that_do_not_divide_are_spread(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    weft_advice_config config = make_job(4, 32, 10, &cost);
    weft_advice advice = advise(&config);
    const weft_schedule_candidate *usual = find(&advice, "1f1b", 32, 0);
    assert_true(usual->possible);
    assert_true(fabs(usual->ideal - 32 * 3 * 1.2) < 1e-9);
    assert_true(fabs(usual->activations - 4 * 1.2) < 1e-9);
    assert_true(find(&advice, "interleaved", 32, 2)->possible);
    weft_advice_fini(&advice);
}

static void test_advise_few_microbatches_are_warned_of(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    weft_advice_config config = make_job(8, 4, 8, &cost);
    weft_advice advice = advise(&config);
    assert_non_null(strstr(advice.warning, "of the step is bubble"));
    assert_non_null(strstr(find(&advice, "dualpipe", 4, 0)->why, "16"));
    weft_advice_fini(&advice);
    /* The same batch in 64 parts: shorter, and less memory each. */
    int choices[] = {64, 4};
    config.choices = choices;
    config.choice_count = 2;
    advice = advise(&config);
    assert_int_equal(advice.candidates[0].microbatches, 64);
    assert_string_equal(advice.warning, "");
    double work = find(&advice, "1f1b", 4, 0)->ideal;
    assert_true(fabs(find(&advice, "1f1b", 64, 0)->ideal - work) < 1e-9);
    assert_true(find(&advice, "1f1b", 64, 0)->activations == 8.0 / 16);
    weft_advice_fini(&advice);
}

static void test_advise_wrong_question_is_refused(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    weft_stage_cost stages[8] = {{1, 1, 1, 2}};
    int choices[] = {0};
    const weft_advice_config good = make_job(4, 8, 8, &cost);
    const weft_stage_cost less = {1, 1, -1, 2};
    weft_advice_config bad[12];
    const char *const error[] = {
        "size_bytes",  "ranks 0",     "microbatches -1", "layers 0",
        "memory_most", "copy_memory", "choices 0",       "choice_count",
        "first",       "last",        "chunks -1",       "group -2"};
    for (int k = 0; k < 12; k++) {
        bad[k] = good;
    }
    bad[0].size_bytes = 3;
    bad[1].ranks = 0;
    bad[2].microbatches = -1;
    bad[3].layers = 0;
    bad[4].memory_most = (double)NAN;
    bad[5].copy_memory = -1;
    bad[6].choices = choices;
    bad[6].choice_count = 1;
    bad[7].choice_count = 2;
    bad[8].first = &less;
    bad[9].last = &less;
    bad[10].chunks = -1;
    bad[11].group = -2;
    for (int k = 0; k < 12; k++) {
        weft_advice advice;
        assert_int_equal(weft_schedule_advise(&bad[k], &advice),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), error[k]));
    }
    weft_advice advice;
    cost.stages = stages;
    assert_int_equal(weft_schedule_advise(&good, &advice), WEFT_ERR_INVALID);
    cost.stages = NULL;
    cost.f = -1;
    assert_int_equal(weft_schedule_advise(&good, &advice), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "F"));
    assert_int_equal(weft_schedule_advise(&good, NULL), WEFT_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_advise_random_jobs_agree_with_simulations),
        cmocka_unit_test(test_advise_equal_costs_prefers_least_bubble),
        cmocka_unit_test(test_advise_overlap_that_pays_is_found),
        cmocka_unit_test(test_advise_limits_leave_what_fits),
        cmocka_unit_test(test_advise_layers_that_do_not_divide_are_spread),
        cmocka_unit_test(test_advise_few_microbatches_are_warned_of),
        cmocka_unit_test(test_advise_wrong_question_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
