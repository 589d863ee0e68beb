/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/pass_memory.c - less memory: outputs are released once sent,
 * activations are dropped and computed again.
 *
 * Sources: NVIDIA/Megatron-LM (release of sent outputs); Chen et al., arXiv
 * 1604.06174 (recompute).
 */
#include "overlap/schedule/pass.h"

/* Before an I or B, also of a pair. */
static void recompute_rank(const wefti_actions *list, wefti_actions *fresh)
{
    for (size_t k = 0; k < list->count; k++) {
        weft_action parts[2];
        int count = wefti_action_split(&list->items[k], parts);
        const weft_action *last = &parts[count - 1];
        if (last->type == WEFT_ACTION_I || last->type == WEFT_ACTION_B) {
            wefti_actions_add(fresh,
                              wefti_action(WEFT_ACTION_RECOMPUTE, last->stage,
                                           last->microbatch));
        }
        wefti_actions_add(fresh, list->items[k]);
    }
}

weft_status weft_schedule_recompute(weft_schedule *schedule)
{
    wefti_pass pass;
    weft_status status = wefti_pass_need_compute(schedule, "recompute");
    if (status == WEFT_OK) {
        status = wefti_pass_begin(&pass, schedule);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < schedule->ranks; r++) {
        recompute_rank(&schedule->lists[r], &pass.fresh[r]);
    }
    return wefti_pass_end(&pass, WEFT_OK);
}

/* Releases what was sent in the messages [begin, end) of list. */
static void release_sent(const wefti_actions *list, size_t begin, size_t end,
                         wefti_actions *fresh)
{
    for (size_t k = begin; k < end; k++) {
        const weft_action *message = &list->items[k];
        if (message->type == WEFT_ACTION_SEND_F) {
            wefti_actions_add(fresh,
                              wefti_action(WEFT_ACTION_RELEASE, message->stage,
                                           message->microbatch));
        }
    }
}

static void release_rank(const weft_schedule *schedule,
                         const wefti_actions *list, wefti_actions *fresh)
{
    size_t begin = 0; /* of the messages that end here */
    for (size_t k = 0; k < list->count; k++) {
        const weft_action *action = &list->items[k];
        if (!wefti_action_is_message(action)) {
            release_sent(list, begin, k, fresh);
            begin = k + 1;
        }
        wefti_actions_add(fresh, *action);
        bool forward =
            action->type == WEFT_ACTION_F || action->type == WEFT_ACTION_FB;
        if (forward && wefti_stage_after(schedule, action->stage) < 0) {
            wefti_actions_add(fresh,
                              wefti_action(WEFT_ACTION_RELEASE, action->stage,
                                           action->microbatch));
        }
    }
    release_sent(list, begin, list->count, fresh);
}

weft_status weft_schedule_release(weft_schedule *schedule)
{
    wefti_pass pass;
    weft_status status = wefti_pass_begin(&pass, schedule);
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < schedule->ranks; r++) {
        release_rank(schedule, &schedule->lists[r], &pass.fresh[r]);
    }
    return wefti_pass_end(&pass, WEFT_OK);
}
