/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/places.h - where in its rank's list each action of a
 * micro-batch stands.
 *
 * Tables of [stages][per_stage]; an entry is the index in the list + 1, and 0
 * says that there is none. As memory is per micro-batch and stage, places are
 * found only for lists that have as many F.
 */
#ifndef OVERLAP_SCHEDULE_PLACES_H
#define OVERLAP_SCHEDULE_PLACES_H

#include "overlap/schedule/schedule.h"

typedef enum wefti_places_table {
    WEFTI_PLACES_F,
    WEFTI_PLACES_BACK, /* I or B */
    WEFTI_PLACES_W,    /* W or B */
    WEFTI_PLACES_SEND_F,
    WEFTI_PLACES_RECV_F,
    WEFTI_PLACES_SEND_B,
    WEFTI_PLACES_RECV_B,
    WEFTI_PLACES_COUNT
} wefti_places_table;

typedef struct wefti_stage_places {
    const weft_schedule *schedule;
    uint32_t *tables[WEFTI_PLACES_COUNT]; /* of messages: NULL if not lowered */
    uint32_t *reduce;                     /* [stages] of REDUCE_GRAD */
} wefti_stage_places;

/* Called for an action that stands in the list a second time. */
typedef void wefti_places_twice(void *context, int rank, size_t index);

/* Returns OK | ERR_NO_MEMORY; places is to be finished in any case. */
WEFT_NODISCARD weft_status wefti_places_init(wefti_stage_places *places,
                                             const weft_schedule *schedule,
                                             wefti_places_twice *twice,
                                             void *context);
void wefti_places_fini(wefti_stage_places *places);

static inline uint32_t wefti_places_get(const wefti_stage_places *places,
                                        wefti_places_table table, int stage,
                                        int microbatch)
{
    return places
        ->tables[table][(size_t)stage * (size_t)places->schedule->per_stage +
                        (size_t)microbatch];
}

/* Of the other side of a message; 0: there is none. */
uint32_t wefti_places_counterpart(const wefti_stage_places *places,
                                  const weft_action *message);

/* The rank at the other side of a message; -1: none, or the same rank. */
static inline int wefti_message_peer(const weft_schedule *schedule,
                                     const weft_action *message)
{
    bool up = message->type == WEFT_ACTION_SEND_F ||
              message->type == WEFT_ACTION_RECV_B;
    int other = up ? wefti_stage_after(schedule, message->stage)
                   : wefti_stage_before(schedule, message->stage);
    int own_rank = schedule->rank_of[message->stage];
    int rank = other < 0 ? own_rank : schedule->rank_of[other];
    return rank == own_rank ? -1 : rank;
}

#endif
