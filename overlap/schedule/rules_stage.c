/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/rules_stage.c - the rules for what is done with a whole
 * stage, and for collectives: parameters are there while they are used,
 * gradients are complete before they are reduced, and ranks that reduce
 * together do so in one order.
 *
 * A reduction of a schedule with one direction is among the replicas of one
 * rank, which all run the same list. With two directions the two ranks that
 * have a stage take part in it too. A BARRIER is of all ranks.
 */
#include "overlap/schedule/verdict.h"

#include "base/error.h"

#include <stdlib.h>

int wefti_mirror_stage(const weft_schedule *schedule, int stage)
{
    int length = wefti_stages_of_direction(schedule);
    return schedule->directions == 1 ? -1 : (stage + length) % schedule->stages;
}

/* The rank that shares the stage's gradients: the other direction's; or -1. */
static int mirror_rank(const weft_schedule *schedule, int stage)
{
    int mirror = wefti_mirror_stage(schedule, stage);
    return mirror < 0 ? -1 : schedule->rank_of[mirror];
}

/* What has happened to a stage, so far in its rank's list. */
typedef struct stage_state {
    int64_t complete; /* micro-batches whose gradients are in */
    bool sharded;     /* the list has an UNSHARD of it somewhere */
    bool resident, reduced, stepped, used, gathered;
} stage_state;

static void use(wefti_schedule_trial *trial, int rank, size_t index,
                const weft_action *part, stage_state *state)
{
    if (state->sharded && !state->resident) {
        wefti_trial_find(trial, WEFT_RULE_ORDER, rank, index,
                         "the parameters of stage %d are not there: no "
                         "UNSHARD since the last RESHARD",
                         part->stage);
    }
    bool back = part->type == WEFT_ACTION_W || part->type == WEFT_ACTION_B;
    state->used = true;
    state->complete += back;
    if (back && state->reduced) {
        wefti_trial_find(trial, WEFT_RULE_ORDER, rank, index,
                         "the gradients of stage %d are being reduced already",
                         part->stage);
    }
}

/* What a step does once: its first time, as far as it may. */
static void once(wefti_schedule_trial *trial, int rank, size_t index,
                 bool *done)
{
    if (*done) {
        wefti_trial_find(trial, WEFT_RULE_COMPLETE, rank, index,
                         "stands in the list twice");
    }
    *done = true;
}

static void change(wefti_schedule_trial *trial, int rank, size_t index,
                   const weft_action *action, stage_state *state)
{
    switch (action->type) {
    case WEFT_ACTION_UNSHARD:
        state->resident = true;
        break;
    case WEFT_ACTION_RESHARD:
        state->resident = false;
        break;
    case WEFT_ACTION_REDUCE_GRAD:
        state->reduced = true;
        if (state->complete != trial->schedule->per_stage) {
            wefti_trial_find(trial, WEFT_RULE_ORDER, rank, index,
                             "only %lld of %d micro-batches have gradients",
                             (long long)state->complete,
                             trial->schedule->per_stage);
        }
        break;
    case WEFT_ACTION_OPT:
        if (state->complete != trial->schedule->per_stage ||
            (trial->places.reduce[action->stage] != 0 && !state->reduced)) {
            wefti_trial_find(trial, WEFT_RULE_ORDER, rank, index,
                             "the stage's gradients are not complete");
        }
        once(trial, rank, index, &state->stepped);
        break;
    case WEFT_ACTION_GATHER_PARAM:
        once(trial, rank, index, &state->gathered);
        if (state->used) {
            wefti_trial_find(trial, WEFT_RULE_ORDER, rank, index,
                             "the stage's parameters have been used already");
        }
        break;
    default:
        break;
    }
}

/* All stages are reduced, stepped, gathered, or none is. */
static void check_all_or_none(wefti_schedule_trial *trial,
                              const stage_state *states)
{
    int stages = trial->schedule->stages;
    int reduced = 0, stepped = 0, gathered = 0;
    for (int s = 0; s < stages; s++) {
        reduced += states[s].reduced;
        stepped += states[s].stepped;
        gathered += states[s].gathered;
    }
    for (int s = 0; s < stages; s++) {
        const char *lacks = reduced > 0 && !states[s].reduced   ? "REDUCE_GRAD"
                            : stepped > 0 && !states[s].stepped ? "OPT"
                            : gathered > 0 && !states[s].gathered
                                ? "GATHER_PARAM"
                                : NULL;
        if (lacks) {
            wefti_trial_find(trial, WEFT_RULE_COMPLETE, -1, 0,
                             "rank %d, stage %d: no %s, which other stages "
                             "have",
                             trial->schedule->rank_of[s], s, lacks);
        }
    }
}

weft_status wefti_rule_stages(wefti_schedule_trial *trial)
{
    const weft_schedule *schedule = trial->schedule;
    stage_state *states = calloc((size_t)schedule->stages, sizeof(*states));
    if (!states) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d stages", schedule->stages);
    }
    for (int r = 0; r < schedule->ranks; r++) {
        const wefti_actions *list = &schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            if (list->items[k].type == WEFT_ACTION_UNSHARD) {
                states[list->items[k].stage].sharded = true;
            }
        }
        for (size_t k = 0; k < list->count; k++) {
            const weft_action *action = &list->items[k];
            weft_action parts[2];
            int count = wefti_action_split(action, parts);
            for (int p = 0; p < count && wefti_action_is_compute(action); p++) {
                use(trial, r, k, &parts[p], &states[parts[p].stage]);
            }
            if (action->type != WEFT_ACTION_BARRIER) {
                change(trial, r, k, action, &states[action->stage]);
            }
        }
    }
    check_all_or_none(trial, states);
    free(states);
    return WEFT_OK;
}

/* ---- rule 6: collectives in one order -------------------------------------
 */

/* The next collective in rank's list that other is a member of, from index. */
static size_t next_shared(const weft_schedule *schedule, int rank, int other,
                          size_t index)
{
    const wefti_actions *list = &schedule->lists[rank];
    while (index < list->count) {
        const weft_action *action = &list->items[index];
        if (action->type == WEFT_ACTION_BARRIER ||
            (action->type == WEFT_ACTION_REDUCE_GRAD &&
             mirror_rank(schedule, action->stage) == other)) {
            break;
        }
        index++;
    }
    return index;
}

static bool same_collective(const weft_schedule *schedule, const weft_action *a,
                            const weft_action *b)
{
    if (a->type != b->type) {
        return false;
    }
    return a->stage == (a->type == WEFT_ACTION_BARRIER
                            ? b->stage
                            : wefti_mirror_stage(schedule, b->stage));
}

/* Both lists' shared collectives, one against the other. */
static void compare(wefti_schedule_trial *trial, int rank, int other)
{
    const weft_schedule *schedule = trial->schedule;
    const wefti_actions *own = &schedule->lists[rank];
    const wefti_actions *theirs = &schedule->lists[other];
    size_t a = 0, b = 0;
    for (;; a++, b++) {
        a = next_shared(schedule, rank, other, a);
        b = next_shared(schedule, other, rank, b);
        if (a == own->count && b == theirs->count) {
            return;
        }
        if (a == own->count || b == theirs->count ||
            !same_collective(schedule, &own->items[a], &theirs->items[b])) {
            break;
        }
    }
    char text[WEFT_ACTION_TEXT_BYTES] = "none";
    if (a < own->count) {
        if (b < theirs->count) {
            weft_action_pack(&theirs->items[b], text);
        }
        wefti_trial_find(trial, WEFT_RULE_COLLECTIVE, rank, a,
                         "rank %d enters %s instead", other, text);
    } else {
        wefti_trial_find(trial, WEFT_RULE_COLLECTIVE, other, b,
                         "rank %d never enters it", rank);
    }
}

/* A rank that agrees with rank 0 on barriers agrees with all ranks. */
void wefti_rule_collectives(wefti_schedule_trial *trial)
{
    const weft_schedule *schedule = trial->schedule;
    for (int r = 1; r < schedule->ranks; r++) {
        compare(trial, 0, r);
    }
    for (int s = 0; s < schedule->stages && schedule->directions == 2; s++) {
        int rank = schedule->rank_of[s];
        int other = mirror_rank(schedule, s);
        if (rank > 0 && rank < other) {
            compare(trial, rank, other);
        }
    }
}
