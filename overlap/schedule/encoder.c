/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/encoder.c - which stages are an encoder's, and the groups
 * that suit them.
 */
#include "overlap/schedule/encoder.h"

#include "base/error.h"
#include "overlap/schedule/schedule.h"

static const double worthwhile = 0.99;

weft_status weft_schedule_mark_encoder(weft_schedule *schedule, int stages)
{
    if (!schedule) {
        return wefti_error(WEFT_ERR_INVALID, "schedule must not be NULL");
    }
    const int length = wefti_stages_of_direction(schedule);
    if (stages < 0 || stages >= length) {
        return wefti_error(WEFT_ERR_INVALID,
                           "an encoder of %d stages: allowed is 0 .. %d, so "
                           "that the other branch has one",
                           stages, length - 1);
    }
    schedule->encoder_stages = stages;
    return WEFT_OK;
}

static weft_status measure(const weft_schedule_config *config, int group,
                           const weft_schedule_cost *cost, double *time_out)
{
    weft_schedule_config own = *config;
    weft_schedule *schedule = NULL;
    weft_schedule_run run;
    own.group = group;
    weft_status status = weft_schedule_create(&own, &schedule);
    if (status == WEFT_OK) {
        status = weft_schedule_simulate(schedule, cost, false, &run);
    }
    if (status == WEFT_OK) {
        *time_out = run.makespan;
        weft_schedule_run_fini(&run);
    }
    weft_schedule_destroy(schedule);
    return status;
}

weft_status wefti_encoder_group(const weft_schedule_config *config,
                                const weft_schedule_cost *cost, int *group_out)
{
    const int ranks = config->ranks, twice = 2 * ranks;
    const int rest = config->microbatches % twice;
    double one = 0, two = 0;
    *group_out = ranks;
    if (ranks == 1 || config->microbatches < twice ||
        (rest != 0 && rest < ranks)) {
        return WEFT_OK;
    }
    weft_status status = measure(config, ranks, cost, &one);
    if (status == WEFT_OK) {
        status = measure(config, twice, cost, &two);
    }
    if (status == WEFT_OK && two <= worthwhile * one) {
        *group_out = twice;
    }
    return status;
}
