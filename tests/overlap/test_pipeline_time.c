/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a step takes as long as the simulator says: what the executor adds,
 *          and what it waits for too much, stays below a tenth.
 * Method   compute is replaced by timed waits, so that ranks need no core of
 *          their own; their lengths are the simulator's costs. Of every
 *          schedule the shortest of some steps, as a loaded machine makes waits
 *          longer and never shorter.
 */
#include "tests/overlap/pipelines.h"
#include "tests/overlap/schedules.h"

#include "base/clock.h"

#include <math.h>

enum { STEPS = 5 };

/* Of a stage; and of all steps the shortest, as rank 0 has seen it. */
static const double f_ms = 3, i_ms = 4, w_ms = 2;
static double shortest_ms;

/* For so long, to the point, whatever was slow before. */
static void pass_time(int64_t length_ns)
{
    int64_t end_ns = wefti_clock_ns() + length_ns;
    struct timespec end = {end_ns / 1000000000, end_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0) {
    }
}

static weft_status wait_work(void *context, const weft_pipeline_work *work)
{
    (void)context;
    double ms = work->type == WEFT_ACTION_F   ? f_ms
                : work->type == WEFT_ACTION_I ? i_ms
                : work->type == WEFT_ACTION_W ? w_ms
                                              : i_ms + w_ms;
    pass_time((int64_t)(ms * 1e6));
    return WEFT_OK;
}

static int timed_rank(weft_comm *comm, void *context)
{
    job *it = context;
    int rank = weft_comm_get_rank(comm);
    weft_pipeline *pipeline = NULL;
    weft_pipeline_config config = job_config(it, comm, NULL);
    weft_status status = weft_pipeline_create(&config, &pipeline);
    for (int step = 0; step < STEPS && status == WEFT_OK; step++) {
        weft_schedule_run run;
        status = weft_pipeline_run(pipeline, SIZE_MAX);
        if (status == WEFT_OK) {
            status = weft_pipeline_measure(pipeline, NULL, 1e6, &run, NULL);
        }
        if (status == WEFT_OK) {
            if (rank == 0) {
                shortest_ms = fmin(shortest_ms, run.makespan);
            }
            weft_schedule_run_fini(&run);
        }
    }
    weft_pipeline_destroy(pipeline);
    return status != WEFT_OK;
}

static double simulate(const weft_schedule *schedule)
{
    weft_schedule_cost cost = {.size_bytes = sizeof(cost),
                               .f = f_ms * schedule->chunks,
                               .i = i_ms * schedule->chunks,
                               .w = w_ms * schedule->chunks};
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &run));
    double makespan = run.makespan;
    weft_schedule_run_fini(&run);
    return makespan;
}

static void compare(const char *name, int ranks, int microbatches)
{
    weft_schedule *schedule =
        make_lowered(name, ranks, microbatches, WEFT_LOWERING_SENDER);
    ASSERT_OK(weft_schedule_release(schedule));
    job it = {.schedule = schedule,
              .chunk_rows = TOY_CHUNK_ROWS,
              .calls = {.size_bytes = sizeof(weft_pipeline_calls),
                        .forward = wait_work,
                        .backward = wait_work,
                        .backward_input = wait_work,
                        .backward_weight = wait_work}};
    shortest_ms = INFINITY;
    assert_int_equal(job_run(&it, timed_rank, 60000), 0);
    double planned_ms = simulate(schedule);
    double excess = shortest_ms / planned_ms - 1;
    printf("%-12s P %d: planned %6.2f ms, measured %6.2f ms, %+5.1f%%\n", name,
           ranks, planned_ms, shortest_ms, 100 * excess);
    assert_true(fabs(excess) < 0.1);
    weft_schedule_destroy(schedule);
}

static void test_pipeline_step_takes_as_long_as_simulated(void **state)
{
    (void)state;
    for (int ranks = 4; ranks <= 8; ranks *= 2) {
        for (int n = 0; n < NAMES; n++) {
            int m = n >= DUALPIPE ? 2 * ranks : ranks;
            compare(names[n], ranks, m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_step_takes_as_long_as_simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
