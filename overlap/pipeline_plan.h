/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_plan.h - what one rank's list needs to be executed: for each
 * action its buffers and slots, for each message when it is posted. Arithmetic
 * on the list; nothing is executed, and no other rank is asked.
 *
 * A buffer holds one message. It is taken when a receive is posted, or when an
 * action begins that makes something for another stage; it is given back, and
 * goes to the end of the queue of free ones, so that a send that is still under
 * way has as long as possible to end.
 *
 *   k:  take outputs | post | run | release inputs and finished buffers
 *
 * A send is posted before the action that fills it, as far as the order of its
 * pair of ranks allows; its place in the list is where the rank counts it.
 */
#ifndef OVERLAP_PIPELINE_PLAN_H
#define OVERLAP_PIPELINE_PLAN_H

#include "overlap/schedule/schedule.h"
#include "weft/pipeline.h"

/* What one compute action, or half a pair, works with; -1: nothing. */
typedef struct wefti_pipeline_part {
    int32_t input, output; /* buffers */
    int32_t from;          /* the rank that sends the input */
    int32_t slot, stage_slot, kept;
} wefti_pipeline_part;

typedef struct wefti_pipeline_item {
    wefti_pipeline_part parts[2];
    int32_t buffer, peer; /* of a message */
    uint32_t post_at;     /* of a message: the action it is posted before */
    uint32_t posts;       /* first of those posted before this action */
    uint32_t releases;    /* first of the buffers released behind it */
} wefti_pipeline_item;

typedef struct wefti_pipeline_plan {
    const weft_schedule *schedule;
    const weft_action *actions; /* borrowed from it */
    size_t count;
    wefti_pipeline_item *items; /* [count + 1]; the last only ends ranges */
    uint32_t *posts;            /* messages, by post_at, then by index */
    int32_t *releases;          /* buffers */
    int *stage_slots;           /* [stages] */
    weft_pipeline_peaks peaks;  /* bytes: not set */
} wefti_pipeline_plan;

/*
 * wefti_pipeline_plan_init - plans rank's list, which has been checked.
 *
 * Returns     OK (fini it) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_pipeline_plan_init(wefti_pipeline_plan *plan,
                                                    const weft_schedule *s,
                                                    int rank, int receive_ahead,
                                                    int spare_buffers);
void wefti_pipeline_plan_fini(wefti_pipeline_plan *plan);

/*
 * wefti_pipeline_posts_init - a part of the above: fills plan->posts, and of
 * the items what is about posting. peers_out: to how many ranks this one sends.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_pipeline_posts_init(wefti_pipeline_plan *plan,
                                                     int receive_ahead,
                                                     int *peers_out);

static inline bool wefti_pipeline_is_send(const weft_action *message)
{
    return message->type == WEFT_ACTION_SEND_F ||
           message->type == WEFT_ACTION_SEND_B;
}

/* Works on a micro-batch's activations. */
static inline bool wefti_pipeline_has_parts(const weft_action *action)
{
    return wefti_action_is_compute(action) ||
           action->type == WEFT_ACTION_RECOMPUTE ||
           action->type == WEFT_ACTION_OFFLOAD ||
           action->type == WEFT_ACTION_RELOAD;
}

#endif
