/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_posts.c - before which action each message is posted.
 *
 * A receive where the list has it, or some compute actions earlier. A send
 * before the action that fills it, so that its first chunk leaves when it is
 * there; but never before an earlier one of its pair of ranks, as the order of
 * posting is what messages are matched by. A send that was posted early holds
 * up later ones to the same peer until it is filled: the list has them behind
 * it too, so no rank waits for more than it would anyway.
 */
#include "overlap/pipeline_plan.h"

#include "overlap/schedule/places.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>

typedef struct scribe {
    wefti_pipeline_plan *plan;
    wefti_stage_places places;
    uint32_t *computes; /* [actions] where compute actions stand */
    size_t compute_count;
    uint32_t *last_post; /* [ranks] when the last send there is posted, + 1 */
    size_t receive_ahead;
    int peers; /* that are sent to */
} scribe;

static void never_twice(void *context, int rank, size_t index)
{
    (void)context;
    (void)rank;
    (void)index;
    WEFTI_ASSERT(false); /* the schedule has been checked */
}

static uint32_t time_of_send(scribe *s, const weft_action *send, int peer)
{
    wefti_places_table table =
        send->type == WEFT_ACTION_SEND_B ? WEFTI_PLACES_BACK : WEFTI_PLACES_F;
    uint32_t at = wefti_places_get(&s->places, table, send->stage,
                                   send->microbatch); /* + 1, as is last */
    uint32_t *last = &s->last_post[peer];
    s->peers += *last == 0;
    *last = at > *last ? at : *last;
    return *last - 1;
}

static uint32_t time_of_receive(const scribe *s, uint32_t index)
{
    if (s->receive_ahead == 0 || s->compute_count == 0) {
        return index;
    }
    bool first = s->compute_count < s->receive_ahead;
    return s->computes[first ? 0 : s->compute_count - s->receive_ahead];
}

static void time_all(scribe *s)
{
    wefti_pipeline_plan *plan = s->plan;
    for (uint32_t k = 0; k < plan->count; k++) {
        const weft_action *action = &plan->actions[k];
        wefti_pipeline_item *item = &plan->items[k];
        if (wefti_action_is_message(action)) {
            item->peer = wefti_message_peer(plan->schedule, action);
            item->post_at = wefti_pipeline_is_send(action)
                                ? time_of_send(s, action, item->peer)
                                : time_of_receive(s, k);
        } else if (wefti_action_is_compute(action)) {
            s->computes[s->compute_count++] = k;
        }
    }
}

/* By post_at; equal ones keep the list's order. */
static void sort_posts(wefti_pipeline_plan *plan)
{
    for (size_t k = 0; k < plan->count; k++) {
        if (wefti_action_is_message(&plan->actions[k])) {
            plan->items[plan->items[k].post_at].posts++;
        }
    }
    uint32_t end = 0;
    for (size_t k = 0; k <= plan->count; k++) { /* the end of each range */
        end += plan->items[k].posts;
        plan->items[k].posts = end;
    }
    for (size_t k = plan->count; k > 0; k--) { /* and down to its beginning */
        if (wefti_action_is_message(&plan->actions[k - 1])) {
            uint32_t at = plan->items[k - 1].post_at;
            plan->posts[--plan->items[at].posts] = (uint32_t)(k - 1);
        }
    }
}

weft_status wefti_pipeline_posts_init(wefti_pipeline_plan *plan,
                                      int receive_ahead, int *peers_out)
{
    scribe s = {.plan = plan,
                .receive_ahead = (size_t)receive_ahead,
                .computes = calloc(plan->count + 1, sizeof(uint32_t)),
                .last_post =
                    calloc((size_t)plan->schedule->ranks, sizeof(uint32_t))};
    plan->posts = calloc(plan->count + 1, sizeof(*plan->posts));
    weft_status status =
        s.computes && s.last_post && plan->posts
            ? wefti_places_init(&s.places, plan->schedule, never_twice, NULL)
            : wefti_error(WEFT_ERR_NO_MEMORY, "%zu actions", plan->count);
    if (status == WEFT_OK) {
        time_all(&s);
        sort_posts(plan);
    }
    wefti_places_fini(&s.places);
    free(s.computes);
    free(s.last_post);
    *peers_out = s.peers;
    return status;
}
