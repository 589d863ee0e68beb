/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: between schedules that were tried, chance chooses nothing: 1f1b stays
 * unless another was quicker in every step. Of a pipeline's last steps the one
 * in the middle is found, on all ranks the same.
 *
 * Method: times that were made up: drawn alike for all schedules, some of which
 * a slow machine stretches; clearly apart; one outlier; equally quick ones that
 * hold more or less. Logs on a communicator of one rank, with one slow step.
 */
#include "tests/overlap/schedules.h"
#include "trainer/pipe/step_log.h"
#include "trainer/pipe/trial.h"

#include <stdlib.h>

enum { TRIALS = 3 };

static const char *const tried[TRIALS] = {"1f1b", "zb_h1", "dualpipe"};

/* With settled times, in the order of tried. */
static void make_trials(wefti_trial items[TRIALS],
                        double times_ms[TRIALS][WEFTI_TRIAL_ROUNDS])
{
    for (int k = 0; k < TRIALS; k++) {
        weft_schedule_config shape = make_config(tried[k], 2, 4, 0);
        items[k] = (wefti_trial){.step_ms = 0};
        ASSERT_OK(weft_schedule_create(&shape, &items[k].schedule));
        snprintf(items[k].name, sizeof(items[k].name), "%s", tried[k]);
        items[k].planned.activations = 2 + k;
        items[k].least_ms = items[k].most_ms = times_ms[k][0];
        for (int r = 0; r < WEFTI_TRIAL_ROUNDS; r++) {
            double ms = times_ms[k][r];
            items[k].least_ms = ms < items[k].least_ms ? ms : items[k].least_ms;
            items[k].most_ms = ms > items[k].most_ms ? ms : items[k].most_ms;
            items[k].step_ms += ms / WEFTI_TRIAL_ROUNDS;
        }
    }
}

static int pick(double times_ms[TRIALS][WEFTI_TRIAL_ROUNDS])
{
    wefti_trial items[TRIALS];
    make_trials(items, times_ms);
    int picked = (int)(wefti_trial_pick(items, TRIALS) - items);
    for (int k = 0; k < TRIALS; k++) {
        weft_schedule_destroy(items[k].schedule);
    }
    return picked;
}

/* All alike: 5 of 5 before all of another's are 1 in 252, for each other one.
 */
static void test_pick_equal_schedules_leaves_1f1b(void **state)
{
    uint64_t seed = random_seed();
    int others = 0;
    (void)state;
    for (int job = 0; job < 2000; job++) {
        double times_ms[TRIALS][WEFTI_TRIAL_ROUNDS];
        for (int r = 0; r < WEFTI_TRIAL_ROUNDS; r++) {
            for (int k = 0; k < TRIALS; k++) {
                double slow = below(&seed, 3) == 0 ? 2.5 : 1;
                times_ms[k][r] = slow * (170 + (double)below(&seed, 1000) / 50);
            }
        }
        others += pick(times_ms) != 0;
    }
    print_message("%d of 2000 chose another\n", others);
    assert_true(others < 40);
}

static void test_pick_within_the_spread_leaves_1f1b(void **state)
{
    (void)state;
    double oversubscribed[TRIALS][WEFTI_TRIAL_ROUNDS] = {
        {455, 174, 460, 440, 210},
        {172, 170, 171, 173, 169},
        {210, 205, 200, 190, 180}};
    assert_int_equal(pick(oversubscribed), 1); /* none reaches 1f1b's least */
    oversubscribed[1][2] = 175;
    assert_int_equal(pick(oversubscribed), 0);
}

static void test_pick_what_is_quicker_in_every_step(void **state)
{
    (void)state;
    double apart[TRIALS][WEFTI_TRIAL_ROUNDS] = {
        {20, 21, 20, 22, 20}, {18, 19, 18, 19, 18}, {15, 16, 15, 16, 15}};
    assert_int_equal(pick(apart), 2);
    /* As quick, with one copy of the parameters. */
    apart[1][0] = 15.5;
    assert_int_equal(pick(apart), 1);
}

/* ---- steps ----------------------------------------------------------------
 */

static weft_comm *open_comm(void)
{
    weft_comm *comm;
    ASSERT_OK(weft_comm_create(NULL, &comm));
    return comm;
}

/* The one in the middle of the last ones, whatever the very last one took. */
static void test_log_finds_the_median_of_the_last_steps(void **state)
{
    (void)state;
    enum { ACTIONS = 3, MOST = 5, STEPS = 9 };
    /* The first four are forgotten. */
    const double times_ms[STEPS] = {1, 2, 3, 4, 210, 208, 209, 215, 466};
    weft_comm *comm = open_comm();
    wefti_step_log log;
    const weft_pipeline_span *found;
    uint64_t step;
    ASSERT_OK(wefti_step_log_init(&log, ACTIONS, MOST));
    for (uint64_t k = 0; k < STEPS; k++) {
        weft_pipeline_span spans[ACTIONS] = {{.begin_ns = (int64_t)k}};
        spans[ACTIONS - 1].end_ns = 100 + (int64_t)k;
        wefti_step_log_add(&log, k + 1, times_ms[k], spans);
    }
    ASSERT_OK(wefti_step_log_find(&log, comm, &step, &found));
    assert_int_equal(step, 5);
    assert_int_equal(found[0].begin_ns, 4);
    assert_int_equal(found[ACTIONS - 1].end_ns, 104);
    wefti_step_log_fini(&log);
    /* A list so long that one step is all there is room for. */
    ASSERT_OK(wefti_step_log_init(&log, 1000000, MOST));
    assert_int_equal(log.room, 1);
    weft_pipeline_span *many = calloc(1000000, sizeof(*many));
    wefti_step_log_add(&log, 7, 1, many);
    free(many);
    ASSERT_OK(wefti_step_log_find(&log, comm, &step, &found));
    assert_int_equal(step, 7);
    wefti_step_log_fini(&log);
    weft_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pick_equal_schedules_leaves_1f1b),
        cmocka_unit_test(test_pick_within_the_spread_leaves_1f1b),
        cmocka_unit_test(test_pick_what_is_quicker_in_every_step),
        cmocka_unit_test(test_log_finds_the_median_of_the_last_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
