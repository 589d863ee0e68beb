/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: from steps of one schedule come the costs that it ran with, and from
 * those of 1f1b what every other schedule takes.
 *
 * Method: steps are simulated with random costs of a layer and of the model's
 * ends, so that what must be found is known. 1f1b does not split its backward:
 * inputs and weights take the same there.
 */
#include "tests/overlap/schedules.h"
#include "trainer/pipe/pipe_cost.h"

#include <math.h>
#include <stdlib.h>

static double real(uint64_t *seed, double least, double most)
{
    return least + (most - least) * (double)below(seed, 1000) / 1000;
}

static weft_stage_cost random_cost(uint64_t *seed, double most)
{
    double i = real(seed, most / 10, most);
    return (weft_stage_cost){real(seed, most / 10, most), i, i, 2 * i};
}

static void check_same(const weft_stage_cost *found, const weft_stage_cost *ran)
{
    assert_true(fabs(found->f - ran->f) < 1e-9);
    assert_true(fabs(found->i - ran->i) < 1e-9);
    assert_true(fabs(found->w - ran->w) < 1e-9);
    assert_true(fabs(found->b - ran->b) < 1e-9);
}

/* The step of a schedule with these costs. */
static double simulate(const weft_schedule *schedule,
                       const wefti_layer_cost *cost, int layers, double p2p,
                       weft_schedule_run *run_out)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_schedule_cost all = {.size_bytes = sizeof(all), .p2p = p2p};
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    weft_stage_cost *stages = calloc((size_t)info.stages, sizeof(*stages));
    wefti_layer_cost_apply(cost, schedule, layers, stages);
    all.stages = stages;
    ASSERT_OK(weft_schedule_simulate(schedule, &all, true, &run));
    free(stages);
    double makespan = run.makespan;
    if (run_out) {
        *run_out = run;
    } else {
        weft_schedule_run_fini(&run);
    }
    return makespan;
}

/* Costs from two steps of 1f1b. */
static wefti_layer_cost find(const wefti_layer_cost *ran, int ranks, int layers,
                             int microbatches, double p2p, double *p2p_out)
{
    weft_schedule_config shape = make_config("1f1b", ranks, microbatches, 0);
    weft_schedule *schedule;
    weft_schedule_run runs[2];
    wefti_pipe_cost cost;
    ASSERT_OK(weft_schedule_create(&shape, &schedule));
    for (int k = 0; k < 2; k++) {
        (void)simulate(schedule, ran, layers, p2p, &runs[k]);
    }
    ASSERT_OK(wefti_pipe_cost_init(&cost, schedule, runs, 2));
    wefti_layer_cost found = wefti_layer_cost_fit(&cost, schedule, layers);
    *p2p_out = cost.p2p;
    wefti_pipe_cost_fini(&cost);
    for (int k = 0; k < 2; k++) {
        weft_schedule_run_fini(&runs[k]);
    }
    weft_schedule_destroy(schedule);
    return found;
}

static void check_others(const wefti_layer_cost *ran,
                         const wefti_layer_cost *found, int ranks, int layers,
                         int microbatches, double p2p, double p2p_found)
{
    for (int k = 0; weft_schedule_name(k); k++) {
        weft_schedule_config shape =
            make_config(weft_schedule_name(k), ranks, microbatches, 0);
        weft_schedule *schedule;
        shape.chunks = strcmp(shape.name, "interleaved") == 0 ? 2 : 0;
        if (weft_schedule_create(&shape, &schedule) != WEFT_OK) {
            continue;
        }
        double planned = simulate(schedule, found, layers, p2p_found, NULL);
        double took = simulate(schedule, ran, layers, p2p, NULL);
        if (fabs(planned - took) > 1e-9 * took) {
            fail_msg("%s on %d ranks: planned %.17g, took %.17g", shape.name,
                     ranks, planned, took);
        }
        weft_schedule_destroy(schedule);
    }
}

static void test_layer_cost_of_1f1b_is_that_of_all_others(void **state)
{
    uint64_t seed = random_seed();
    (void)state;
    for (int job = 0; job < 40; job++) {
        int ranks = 2 + (int)below(&seed, 5);
        int layers = ranks * 2 * (1 + (int)below(&seed, 3)) +
                     (int)below(&seed, (size_t)ranks);
        int microbatches = 2 * ranks * (1 + (int)below(&seed, 3));
        double p2p = below(&seed, 2) ? real(&seed, 0, 0.5) : 0, p2p_found;
        wefti_layer_cost ran = {random_cost(&seed, 2), random_cost(&seed, 1),
                                random_cost(&seed, 4)};
        if (ranks == 2) { /* no stage has nothing but layers */
            memset(&ran.first, 0, sizeof(ran.first));
        }
        wefti_layer_cost found =
            find(&ran, ranks, layers, microbatches, p2p, &p2p_found);
        check_same(&found.layer, &ran.layer);
        check_same(&found.first, &ran.first);
        check_same(&found.last, &ran.last);
        assert_true(fabs(p2p_found - p2p) < 1e-9);
        check_others(&ran, &found, ranks, layers, microbatches, p2p, p2p_found);
    }
}

/* With two ranks an embedding that counts is in the layers. */
static void test_layer_cost_of_two_stages_keeps_their_sum(void **state)
{
    uint64_t seed = random_seed();
    (void)state;
    wefti_layer_cost ran = {random_cost(&seed, 2), random_cost(&seed, 0.1),
                            random_cost(&seed, 20)};
    double p2p, expected = 4 * ran.layer.f + ran.first.f + ran.last.f;
    wefti_layer_cost found = find(&ran, 2, 4, 8, 0, &p2p);
    check_same(&found.first, &(weft_stage_cost){0, 0, 0, 0});
    assert_true(fabs(4 * found.layer.f + found.last.f - expected) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_cost_of_1f1b_is_that_of_all_others),
        cmocka_unit_test(test_layer_cost_of_two_stages_keeps_their_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
