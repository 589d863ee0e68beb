/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/rules_count.c - rule 1 for compute: each stage has one
 * forward, one backward for inputs and one for weights of every micro-batch.
 *
 * Counts per stage say whether that is so; only a stage that they refute is
 * checked micro-batch by micro-batch, to name the actions.
 */
#include "overlap/schedule/verdict.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>

typedef struct stage_count {
    int64_t f, i, b, w;
} stage_count;

static void count_list(const wefti_actions *list, stage_count *counts)
{
    for (size_t k = 0; k < list->count; k++) {
        weft_action parts[2];
        int count = wefti_action_split(&list->items[k], parts);
        for (int p = 0; p < count; p++) {
            stage_count *c = &counts[parts[p].stage];
            c->f += parts[p].type == WEFT_ACTION_F;
            c->i += parts[p].type == WEFT_ACTION_I;
            c->b += parts[p].type == WEFT_ACTION_B;
            c->w += parts[p].type == WEFT_ACTION_W;
        }
    }
}

/* ---- one stage, by name ---------------------------------------------------
 */

/* The three pieces of work on a micro-batch; B is the last two. */
enum { FORWARD, INPUTS, WEIGHTS, PIECES };

static const weft_action_type piece_types[PIECES] = {
    WEFT_ACTION_F, WEFT_ACTION_I, WEFT_ACTION_W};

/* The actions of one stage: index in the list + 1; 0: none yet. */
typedef struct stage_view {
    wefti_schedule_trial *trial;
    int stage, rank;
    uint32_t *at[PIECES]; /* [per_stage] */
} stage_view;

static void note_piece(const stage_view *v, int piece, const weft_action *part,
                       size_t index)
{
    uint32_t *at = &v->at[piece][part->microbatch];
    char first[WEFTI_CELL_TEXT_BYTES];
    if (*at != 0) {
        wefti_trial_find(
            v->trial, WEFT_RULE_COMPLETE, v->rank, index,
            "stands in the list twice: its work is done by %s already",
            wefti_cell_text(v->trial->schedule, v->rank, *at - 1, first));
        return;
    }
    *at = (uint32_t)(index + 1);
}

static void note_part(const stage_view *v, const weft_action *part,
                      size_t index)
{
    uint8_t type = part->type;
    if (part->stage != v->stage || type > WEFT_ACTION_B) {
        return;
    }
    if (type == WEFT_ACTION_B && v->at[INPUTS][part->microbatch] == 0) {
        note_piece(v, WEIGHTS, part, index);
    }
    note_piece(v,
               type == WEFT_ACTION_F   ? FORWARD
               : type == WEFT_ACTION_W ? WEIGHTS
                                       : INPUTS,
               part, index);
}

/* One finding of a micro-batch that lacks a piece and has another. */
static void find_missing(const stage_view *v, int microbatch)
{
    int missing = 0, user = WEIGHTS; /* of what is missing, if it can be */
    while (v->at[missing][microbatch] != 0) {
        missing++;
        WEFTI_ASSERT(missing < PIECES); /* the caller has counted */
    }
    if (missing == FORWARD && v->at[INPUTS][microbatch] != 0) {
        user = INPUTS;
    }
    bool used = user != missing && v->at[user][microbatch] != 0;
    const int named = used ? user : missing - 1;
    char text[WEFT_ACTION_TEXT_BYTES];
    weft_action action =
        wefti_action(piece_types[missing], v->stage, microbatch);
    weft_action_pack(&action, text);
    wefti_trial_find(v->trial, WEFT_RULE_COMPLETE, v->rank,
                     v->at[named][microbatch] - 1,
                     used                ? "needs %s, which is nowhere"
                     : missing == INPUTS ? "its backward is nowhere: no %s, "
                                           "nor a B"
                                         : "its other half, %s, is nowhere",
                     text);
}

static void find_all_missing(const stage_view *v)
{
    int per_stage = v->trial->schedule->per_stage, absent = 0, first = 0;
    for (int i = 0; i < per_stage; i++) {
        int has = (v->at[FORWARD][i] != 0) + (v->at[INPUTS][i] != 0) +
                  (v->at[WEIGHTS][i] != 0);
        if (has > 0 && has < PIECES) {
            find_missing(v, i);
        } else if (has == 0) {
            first = absent++ == 0 ? i : first;
        }
    }
    if (absent > 0) {
        wefti_trial_find(v->trial, WEFT_RULE_COMPLETE, -1, 0,
                         "row %d, rank %d: stage %d has nothing of %d of the "
                         "%d micro-batches, the first is %d",
                         v->rank + 1, v->rank, v->stage, absent, per_stage,
                         first);
    }
}

static weft_status explain_stage(wefti_schedule_trial *trial, int stage)
{
    const weft_schedule *schedule = trial->schedule;
    stage_view v = {
        .trial = trial, .stage = stage, .rank = schedule->rank_of[stage]};
    bool enough = true;
    for (int piece = 0; piece < PIECES; piece++) {
        v.at[piece] = calloc((size_t)schedule->per_stage, sizeof(uint32_t));
        enough = enough && v.at[piece];
    }
    const wefti_actions *list = &schedule->lists[v.rank];
    for (size_t k = 0; k < list->count && enough; k++) {
        weft_action parts[2];
        int count = wefti_action_split(&list->items[k], parts);
        for (int p = 0; p < count; p++) {
            note_part(&v, &parts[p], k);
        }
    }
    if (enough) {
        find_all_missing(&v);
    }
    for (int piece = 0; piece < PIECES; piece++) {
        free(v.at[piece]);
    }
    return enough ? WEFT_OK
                  : wefti_error(WEFT_ERR_NO_MEMORY, "%d micro-batches",
                                schedule->per_stage);
}

/* ---- all stages -----------------------------------------------------------
 */

/* Stages beyond those whose findings are kept are only counted. */
static weft_status refute_stage(wefti_schedule_trial *trial, int stage)
{
    if (trial->verdict->finding_count < WEFT_FINDINGS_MOST) {
        return explain_stage(trial, stage);
    }
    wefti_trial_find(trial, WEFT_RULE_COMPLETE, -1, 0, "stage %d", stage);
    return WEFT_OK;
}

weft_status wefti_rule_counts(wefti_schedule_trial *trial)
{
    const weft_schedule *schedule = trial->schedule;
    stage_count *counts = calloc((size_t)schedule->stages, sizeof(*counts));
    weft_status status = WEFT_OK;
    if (!counts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d stages", schedule->stages);
    }
    for (int r = 0; r < schedule->ranks; r++) {
        count_list(&schedule->lists[r], counts);
    }
    for (int s = 0; s < schedule->stages && status == WEFT_OK; s++) {
        const stage_count *c = &counts[s];
        int64_t m = schedule->per_stage;
        if (c->f != m || c->b + c->i != m || c->i != c->w) {
            status = refute_stage(trial, s);
        }
    }
    free(counts);
    return status;
}
