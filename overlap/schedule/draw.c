/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/draw.c - what both painters need.
 */
#include "overlap/schedule/draw.h"

#include "base/error.h"

bool wefti_draw_is_encoder(const weft_schedule *schedule, int stage)
{
    return stage % wefti_stages_of_direction(schedule) <
           schedule->encoder_stages;
}

int wefti_draw_count_tints(const weft_schedule *schedule, bool encoder)
{
    const int ranks = schedule->ranks;
    const int own = (schedule->encoder_stages + ranks - 1) / ranks;
    return schedule->directions * (encoder ? own : schedule->chunks - own);
}

int wefti_draw_tint(const weft_schedule *schedule, int stage)
{
    int tint = 0;
    for (int s = 0; s < stage; s++) {
        tint += schedule->rank_of[s] == schedule->rank_of[stage] &&
                wefti_draw_is_encoder(schedule, s) ==
                    wefti_draw_is_encoder(schedule, stage);
    }
    return tint;
}

bool wefti_draw_has_box(const weft_action *action)
{
    return wefti_action_is_compute(action) || action->type == WEFT_ACTION_OPT ||
           action->type == WEFT_ACTION_RECOMPUTE;
}

weft_status wefti_draw_check(const weft_schedule *schedule,
                             const weft_schedule_run *run)
{
    if (!schedule || !run || run->rank_count != schedule->ranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "draw: schedule and run must be of as many ranks");
    }
    size_t actions = 0;
    for (int r = 0; r < schedule->ranks; r++) {
        actions += schedule->lists[r].count;
        if (!run->ranks[r].spans) {
            return wefti_error(WEFT_ERR_INVALID,
                               "draw: the run has no spans; simulate with "
                               "keep_spans");
        }
    }
    if (actions > WEFT_DRAW_ACTIONS_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "draw: %zu actions: allowed are up to %d", actions,
                           WEFT_DRAW_ACTIONS_MOST);
    }
    return WEFT_OK;
}

double wefti_draw_bubble_ratio(const weft_schedule_run *run)
{
    return run->makespan > 0 ? run->bubble / run->makespan : 0;
}
