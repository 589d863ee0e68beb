/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/pass.c - what passes have in common, and the two that need
 * no more than two neighbours: merge and group.
 */
#include "overlap/schedule/pass.h"

#include "base/error.h"

#include <stdlib.h>

weft_status wefti_pass_begin(wefti_pass *pass, weft_schedule *schedule)
{
    pass->schedule = schedule;
    pass->fresh = calloc((size_t)schedule->ranks, sizeof(*pass->fresh));
    return pass->fresh ? WEFT_OK
                       : wefti_error(WEFT_ERR_NO_MEMORY, "lists of %d ranks",
                                     schedule->ranks);
}

weft_status wefti_pass_end(wefti_pass *pass, weft_status status)
{
    int ranks = pass->schedule->ranks;
    for (int r = 0; r < ranks && status == WEFT_OK; r++) {
        if (pass->fresh[r].failed) {
            status = wefti_error(WEFT_ERR_NO_MEMORY,
                                 "the list of rank %d, after %zu actions", r,
                                 pass->fresh[r].count);
        }
    }
    for (int r = 0; r < ranks; r++) {
        if (status == WEFT_OK) {
            wefti_actions_replace(&pass->schedule->lists[r], &pass->fresh[r]);
        } else {
            wefti_actions_fini(&pass->fresh[r]);
        }
    }
    free(pass->fresh);
    return status;
}

weft_status wefti_pass_need_compute(const weft_schedule *schedule,
                                    const char *what)
{
    if (schedule->lowered) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: the schedule has messages already", what);
    }
    return WEFT_OK;
}

weft_status wefti_pass_need_whole(const weft_schedule *schedule,
                                  const char *what)
{
    uint64_t actions = 0;
    uint64_t need = (uint64_t)schedule->stages * (uint64_t)schedule->per_stage;
    for (int r = 0; r < schedule->ranks; r++) {
        actions += schedule->lists[r].count;
    }
    if (actions < need) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %d stages and %d micro-batches need more than "
                           "the %llu actions there are",
                           what, schedule->stages, schedule->per_stage,
                           (unsigned long long)actions);
    }
    return WEFT_OK;
}

weft_status weft_schedule_merge(weft_schedule *schedule)
{
    weft_status status = wefti_pass_need_compute(schedule, "merge");
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < schedule->ranks; r++) {
        wefti_actions *list = &schedule->lists[r];
        size_t kept = 0;
        for (size_t k = 0; k < list->count; k++) {
            const weft_action *next = &list->items[k];
            weft_action *last = kept > 0 ? &list->items[kept - 1] : NULL;
            if (last && last->type == WEFT_ACTION_I &&
                next->type == WEFT_ACTION_W && last->stage == next->stage &&
                last->microbatch == next->microbatch) {
                last->type = WEFT_ACTION_B;
            } else {
                if (list->columns) {
                    list->columns[kept] = list->columns[k];
                }
                list->items[kept++] = *next;
            }
        }
        list->count = kept;
    }
    return WEFT_OK;
}

weft_status weft_schedule_group(weft_schedule *schedule, int most)
{
    if (most < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "group, most %d: allowed is 0 (any number) or more",
                           most);
    }
    for (int r = 0; r < schedule->ranks; r++) {
        wefti_actions *list = &schedule->lists[r];
        int size = 0;
        for (size_t k = 0; k < list->count; k++) {
            weft_action *action = &list->items[k];
            bool message = wefti_action_is_message(action);
            action->joined = message && size > 0 && (most == 0 || size < most);
            size = action->joined ? size + 1 : message;
        }
    }
    return WEFT_OK;
}
