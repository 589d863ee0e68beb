/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: schedules are priced fast enough to try many: 64 ranks, 4 chunks and
 * 512 micro-batches in under 0.2 s, 1024 ranks and 4096 micro-batches in under
 * 20 s, the advice over all of the former in under 8 s. An order is planned by
 * cost in under 1 s for 16 ranks and 64 micro-batches, 3 s for 64 and 512.
 *
 * Method: the processor time of this thread alone, which other programs on the
 * machine do not add to: one simulation is one thread. Registered in release
 * only; the large shape with WEFT_TEST_LONG.
 */
#include "base/clock.h"
#include "tests/overlap/schedules.h"
#include "weft/advice.h"

#include <stdio.h>
#include <stdlib.h>

static weft_schedule_cost make_cost(void)
{
    return (weft_schedule_cost){.size_bytes = sizeof(weft_schedule_cost),
                                .f = 1,
                                .i = 1.1,
                                .w = 0.9,
                                .p2p = 0.05};
}

/* Seconds that one simulation takes. */
static double time_one(const char *name, int ranks, int microbatches,
                       int chunks)
{
    weft_schedule_cost cost = make_cost();
    weft_schedule *schedule = make_schedule(name, ranks, microbatches, chunks);
    weft_schedule_run run;
    int64_t begin_ns = wefti_clock_thread_ns();
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &run));
    double seconds = (double)(wefti_clock_thread_ns() - begin_ns) * 1e-9;
    assert_true(run.makespan > 3.0 * microbatches);
    print_message("%s, %d ranks, %d micro-batches, %d chunks: %.3f s\n", name,
                  ranks, microbatches, chunks, seconds);
    weft_schedule_run_fini(&run);
    weft_schedule_destroy(schedule);
    return seconds;
}

static void test_simulate_64_ranks_takes_under_200_ms(void **state)
{
    (void)state;
    double most = 0;
    for (int k = 0; k < NAMES; k++) {
        int chunks = k == INTERLEAVED ? 4 : 0;
        double seconds = time_one(names[k], 64, 512, chunks);
        most = seconds > most ? seconds : most;
    }
    assert_true(most < 0.2);
}

/* Seconds that one plan by cost takes. */
static double time_plan(const char *name, int ranks, int microbatches)
{
    weft_schedule_cost cost = make_cost();
    weft_schedule *schedule = make_schedule(name, ranks, microbatches, 0);
    int64_t begin_ns = wefti_clock_thread_ns();
    ASSERT_OK(weft_schedule_plan(schedule, &cost, 0));
    double seconds = (double)(wefti_clock_thread_ns() - begin_ns) * 1e-9;
    print_message("plan of %s, %d ranks, %d micro-batches: %.3f s\n", name,
                  ranks, microbatches, seconds);
    weft_schedule_destroy(schedule);
    return seconds;
}

static void test_plan_16_ranks_takes_under_1_s_and_64_under_3(void **state)
{
    (void)state;
    static const char *const planned[] = {"zb_h1", "zb_h2", "zbv"};
    for (size_t k = 0; k < 3; k++) {
        assert_true(time_plan(planned[k], 16, 64) < 1);
        assert_true(time_plan(planned[k], 64, 512) < 3);
    }
}

static void test_advise_64_ranks_takes_under_8_s(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost();
    weft_advice_config config = {.size_bytes = sizeof(config),
                                 .ranks = 64,
                                 .microbatches = 512,
                                 .layers = 1024,
                                 .cost = &cost};
    weft_advice advice;
    int64_t begin_ns = wefti_clock_thread_ns();
    ASSERT_OK(weft_schedule_advise(&config, &advice));
    double seconds = (double)(wefti_clock_thread_ns() - begin_ns) * 1e-9;
    print_message("advice, %zu candidates: %.3f s\n", advice.count, seconds);
    assert_true(advice.candidates[0].possible);
    assert_true(seconds < 8);
    weft_advice_fini(&advice);
}

static void test_simulate_1024_ranks_takes_under_20_s(void **state)
{
    (void)state;
    const char *wanted = getenv("WEFT_TEST_LONG");
    if (!wanted) {
        return; /* most of 2 GB, most of a minute */
    }
    assert_true(time_one("1f1b", 1024, 4096, 0) < 20);
    assert_true(time_one("zb_h2", 1024, 4096, 0) < 20);
    assert_true(time_one("dualpipev", 1024, 4096, 0) < 20);
    assert_true(time_one("interleaved", 1024, 4096, 4) < 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulate_64_ranks_takes_under_200_ms),
        cmocka_unit_test(test_plan_16_ranks_takes_under_1_s_and_64_under_3),
        cmocka_unit_test(test_advise_64_ranks_takes_under_8_s),
        cmocka_unit_test(test_simulate_1024_ranks_takes_under_20_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
