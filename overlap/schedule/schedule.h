/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/schedule.h - a schedule from inside: its lists, where stages
 * are, and which message ties which two actions.
 *
 * A list that ran out of memory drops what is added from then on and sets
 * failed; a caller that fills lists asks once, at the end
 * (wefti_schedule_settle).
 */
#ifndef OVERLAP_SCHEDULE_SCHEDULE_H
#define OVERLAP_SCHEDULE_SCHEDULE_H

#include "weft/schedule_cost.h"

typedef struct wefti_actions {
    weft_action *items;
    size_t count, room;
    bool failed;       /* memory ran out: items is incomplete */
    uint32_t *columns; /* [count] in the text it was read from; NULL: none */
} wefti_actions;

struct weft_schedule {
    char name[32];
    int ranks, stages, directions, chunks;
    int per_stage;      /* micro-batches that pass through a stage */
    int encoder_stages; /* of a direction, the first ones */
    bool lowered;
    int32_t *rank_of;     /* [stages] */
    wefti_actions *lists; /* [ranks] */
};

/*
 * wefti_schedule_make - an empty schedule; stage s is on rank s modulo ranks
 * until wefti_schedule_place says otherwise.
 */
WEFT_NODISCARD weft_status wefti_schedule_make(const char *name, int ranks,
                                               int stages, int directions,
                                               int per_stage,
                                               weft_schedule **schedule_out);

/* Rank r has stages r and 2P-1-r: the V of ZBV, and DualPipe's directions. */
void wefti_schedule_place_v(weft_schedule *schedule);

/* The place of the index-th action of rank's list. */
weft_place wefti_schedule_place(const weft_schedule *schedule, int rank,
                                size_t index);

/* OK, or ERR_NO_MEMORY where a list is incomplete. */
WEFT_NODISCARD weft_status wefti_schedule_settle(const weft_schedule *schedule);

void wefti_actions_add(wefti_actions *list, weft_action action);
/* The same for an action of a text; all of the list are, or none is. */
void wefti_actions_add_cell(wefti_actions *list, weft_action action,
                            uint32_t column);
void wefti_actions_fini(wefti_actions *list);
/* Puts fresh in the place of list, which is freed; fresh is empty then. */
void wefti_actions_replace(wefti_actions *list, wefti_actions *fresh);

static inline weft_action wefti_action(weft_action_type type, int stage,
                                       int microbatch)
{
    return (weft_action){.type = (uint8_t)type,
                         .stage = stage,
                         .microbatch = microbatch,
                         .pair_stage = -1,
                         .pair_microbatch = -1};
}

static inline weft_action wefti_action_pair(int f_stage, int f_microbatch,
                                            int b_stage, int b_microbatch)
{
    return (weft_action){.type = WEFT_ACTION_FB,
                         .stage = f_stage,
                         .microbatch = f_microbatch,
                         .pair_stage = b_stage,
                         .pair_microbatch = b_microbatch};
}

static inline bool wefti_action_is_message(const weft_action *action)
{
    return action->type >= WEFT_ACTION_SEND_F &&
           action->type <= WEFT_ACTION_RECV_B;
}

static inline bool wefti_action_is_compute(const weft_action *action)
{
    return action->type <= WEFT_ACTION_FB;
}

/* FB as its F and its B; any other action as itself. Returns how many. */
static inline int wefti_action_split(const weft_action *action,
                                     weft_action parts[2])
{
    if (action->type != WEFT_ACTION_FB) {
        parts[0] = *action;
        return 1;
    }
    parts[0] = wefti_action(WEFT_ACTION_F, action->stage, action->microbatch);
    parts[1] = wefti_action(WEFT_ACTION_B, action->pair_stage,
                            action->pair_microbatch);
    return 2;
}

static inline int wefti_stages_of_direction(const weft_schedule *schedule)
{
    return schedule->stages / schedule->directions;
}

/*
 * Layers of a model before a stage of a direction. What is left over of an even
 * share is spread over the stages; the last, which has the head too, gets none.
 */
static inline int wefti_layers_before(int layers, int stages, int stage)
{
    return (int)(((int64_t)layers * stage + stages - 1) / stages);
}

static inline int wefti_layers_of(int layers, int stages, int stage)
{
    return wefti_layers_before(layers, stages, stage + 1) -
           wefti_layers_before(layers, stages, stage);
}

/* The stages a micro-batch sees next and saw last; -1 at the ends. */
static inline int wefti_stage_after(const weft_schedule *schedule, int stage)
{
    bool two = schedule->directions == 2;
    bool last = stage == schedule->stages - 1 ||
                (two && stage == schedule->stages / 2 - 1);
    return last ? -1 : stage + 1;
}

static inline int wefti_stage_before(const weft_schedule *schedule, int stage)
{
    bool two = schedule->directions == 2;
    bool first = stage == 0 || (two && stage == schedule->stages / 2);
    return first ? -1 : stage - 1;
}

/*
 * wefti_edge - the data that flow between two neighbouring stages for one
 * micro-batch; a message where they are on two ranks.
 */
typedef struct wefti_edge {
    bool exists; /* false: the end of the model */
    bool remote; /* the stages are on two ranks */
    int from_rank, to_rank;
    int from_stage, to_stage;
    int microbatch;
} wefti_edge;

static inline wefti_edge wefti_edge_make(const weft_schedule *schedule,
                                         int from_stage, int to_stage,
                                         int microbatch)
{
    if (from_stage < 0 || to_stage < 0) {
        return (wefti_edge){0};
    }
    int from_rank = schedule->rank_of[from_stage];
    int to_rank = schedule->rank_of[to_stage];
    return (wefti_edge){.exists = true,
                        .remote = from_rank != to_rank,
                        .from_rank = from_rank,
                        .to_rank = to_rank,
                        .from_stage = from_stage,
                        .to_stage = to_stage,
                        .microbatch = microbatch};
}

/* What the F, I or B part makes for another stage. */
static inline wefti_edge wefti_edge_out(const weft_schedule *schedule,
                                        const weft_action *part)
{
    int stage = part->stage;
    if (part->type == WEFT_ACTION_F) {
        return wefti_edge_make(schedule, stage,
                               wefti_stage_after(schedule, stage),
                               part->microbatch);
    }
    if (part->type == WEFT_ACTION_I || part->type == WEFT_ACTION_B) {
        return wefti_edge_make(schedule, stage,
                               wefti_stage_before(schedule, stage),
                               part->microbatch);
    }
    return (wefti_edge){0};
}

/* What it needs from another. */
static inline wefti_edge wefti_edge_in(const weft_schedule *schedule,
                                       const weft_action *part)
{
    int stage = part->stage;
    if (part->type == WEFT_ACTION_F) {
        return wefti_edge_make(schedule, wefti_stage_before(schedule, stage),
                               stage, part->microbatch);
    }
    if (part->type == WEFT_ACTION_I || part->type == WEFT_ACTION_B) {
        return wefti_edge_make(schedule, wefti_stage_after(schedule, stage),
                               stage, part->microbatch);
    }
    return (wefti_edge){0};
}

/* The two sides of its message, if it is remote. */
weft_action wefti_edge_send(const wefti_edge *edge);
weft_action wefti_edge_recv(const wefti_edge *edge);

/* The edge that a SEND or RECV belongs to. */
wefti_edge wefti_edge_of_message(const weft_schedule *schedule,
                                 const weft_action *message);

#endif
