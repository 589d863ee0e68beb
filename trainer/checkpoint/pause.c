/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/pause.c - the cuts of a step, and the step that stops at
 * them.
 */
#include "trainer/checkpoint/pause.h"

#include "base/clock.h"
#include "base/error.h"
#include "overlap/schedule/cut.h"
#include "trainer/pipe/pipe_reduce.h"

#include <stdlib.h>
#include <string.h>

/* ---- life -----------------------------------------------------------------
 */

/* FNV-1a, a number at a time. */
static void mix(uint64_t *digest, int64_t number)
{
    *digest = (*digest ^ (uint64_t)number) * UINT64_C(1099511628211);
}

static uint64_t digest_lists(const weft_schedule *schedule, int ranks)
{
    uint64_t digest = UINT64_C(14695981039346656037);
    for (int rank = 0; rank < ranks; rank++) {
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(schedule, rank, &actions);
        mix(&digest, (int64_t)count);
        for (size_t k = 0; k < count; k++) {
            mix(&digest, actions[k].type);
            mix(&digest, actions[k].joined);
            mix(&digest, actions[k].stage);
            mix(&digest, actions[k].microbatch);
            mix(&digest, actions[k].pair_stage);
            mix(&digest, actions[k].pair_microbatch);
        }
    }
    return digest;
}

/* Ranks that have parts of the model, or of sequences, go on as they were. */
static void mix_parts(uint64_t *digest, const wefti_replica *replica)
{
    const wefti_mesh *mesh = &replica->mesh.mesh;
    const wefti_context *context = &replica->plan.shape.context;
    if (mesh->tp * mesh->cp * mesh->ep > 1) {
        mix(digest, mesh->tp);
        mix(digest, mesh->cp);
        mix(digest, mesh->ep);
        mix(digest, replica->plan.tensor.sequence);
        mix(digest, (int64_t)wefti_context_ulysses(context));
        mix(digest, context->layout);
        if (replica->plan.expert_slots != replica->plan.shape.experts) {
            mix(digest, (int64_t)replica->plan.expert_slots);
        }
    }
}

/*
 * Where ranks exchange rows of experts, those that have come are kept by the
 * exchange until a micro-batch is over: a cut moves behind the one at hand. All
 * ranks have the same list then.
 */
static void move_cuts(wefti_pause *pause)
{
    const weft_action *actions;
    size_t count =
        weft_schedule_get_actions(pause->replica->pipe.schedule, 0, &actions);
    size_t at = 0, kept = 0;
    int live = 0;
    for (size_t c = 0; c < pause->cut_count; c++) {
        for (; at < count && (at < pause->ends[c] || live > 0); at++) {
            live += actions[at].type == WEFT_ACTION_F;
            live -= actions[at].type == WEFT_ACTION_B ||
                    actions[at].type == WEFT_ACTION_W;
        }
        if (kept == 0 || pause->ends[kept - 1] < at) {
            pause->ends[kept] = pause->places[kept] = at;
            kept++;
        }
    }
    pause->cut_count = kept;
}

/* Of the cuts of all ranks what this one needs. */
static weft_status plan_cuts(wefti_pause *pause, size_t count)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    size_t ranks = (size_t)pipe->info.ranks;
    size_t *all = calloc(count * ranks, sizeof(*all));
    pause->ends = calloc(count, sizeof(*pause->ends));
    pause->places = calloc(count, sizeof(*pause->places));
    weft_status status =
        all && pause->ends && pause->places
            ? wefti_schedule_cut(pipe->schedule, count, all, &pause->cut_count)
            : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu cuts", count);
    for (size_t c = 0; status == WEFT_OK && c < pause->cut_count; c++) {
        pause->ends[c] = all[c * ranks + (size_t)pipe->rank];
        for (size_t rank = 0; rank < ranks; rank++) {
            pause->places[c] += all[c * ranks + rank];
        }
    }
    free(all);
    if (status == WEFT_OK && pause->replica->mesh.mesh.ep > 1) {
        move_cuts(pause);
    }
    return status;
}

/* Room for the largest copy there can be: the loop takes no memory. */
static weft_status reserve(wefti_pause *pause)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    weft_status status = WEFT_OK;
    memset(pause->live, 1, pipe->slots);
    pause->mark.state_bytes =
        weft_pipeline_get_state_bytes_most(pipe->pipeline);
    for (size_t c = 0; c < pause->cut_count && status == WEFT_OK; c++) {
        pause->mark.position = pause->ends[c];
        wefti_pause_list(pause);
        status = wefti_saver_reserve(pause->replica->saver,
                                     wefti_state_count_bytes(&pause->list));
    }
    return status;
}

static weft_status init(wefti_pause *pause, size_t count)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    const weft_action *actions;
    pause->actions =
        weft_schedule_get_actions(pipe->schedule, pipe->rank, &actions);
    pause->digest = digest_lists(pipe->schedule, pipe->info.ranks);
    mix(&pause->digest, pipe->recompute); /* of which slots are made */
    mix(&pause->digest, pipe->keeps_places);
    mix_parts(&pause->digest, pause->replica);
    pause->live = calloc(pipe->slots + 1, 1);
    pause->list.pieces =
        calloc(wefti_pause_count_pieces(pause), sizeof(*pause->list.pieces));
    weft_status status =
        pause->live && pause->list.pieces
            ? WEFT_OK
            : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a pause");
    if (status != WEFT_OK || count == 0) {
        return status;
    }
    status = plan_cuts(pause, count);
    return status == WEFT_OK ? reserve(pause) : status;
}

weft_status wefti_pause_create(wefti_replica *replica,
                               const wefti_savepoint *point, size_t count)
{
    wefti_pause *pause = calloc(1, sizeof(*pause));
    if (!pause) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a pause");
    }
    pause->replica = replica;
    pause->point = *point;
    weft_status status = init(pause, count);
    if (status != WEFT_OK) {
        wefti_pause_destroy(pause);
        return status;
    }
    replica->pause = pause;
    return WEFT_OK;
}

void wefti_pause_destroy(wefti_pause *pause)
{
    if (pause) {
        wefti_state_list_fini(&pause->list);
        free(pause->live);
        free(pause->places);
        free(pause->ends);
        free(pause);
    }
}

/* ---- the step -------------------------------------------------------------
 */

/* All reductions before the cut have ended, here and so everywhere. */
static weft_status await_reduced(const wefti_pause *pause, size_t position)
{
    const wefti_replica *replica = pause->replica;
    const wefti_pipe *pipe = &replica->pipe;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < pipe->stage_count; i++) {
        bool begun = wefti_pause_is_reduced(pause, i, position);
        for (size_t g = 0; begun && g < replica->plan.group_count; g++) {
            wefti_bucket_run run =
                wefti_pipe_find_reduce(replica, pipe->stages[i].part, g)->run;
            for (; run.first < run.end && status == WEFT_OK; run.first++) {
                status = wefti_pipe_reduced(replica, g, run.first);
            }
        }
    }
    return status;
}

/* This rank has come to a cut. */
static weft_status stop(wefti_pause *pause, size_t cut)
{
    wefti_replica *replica = pause->replica;
    weft_pipeline *pipeline = replica->pipe.pipeline;
    weft_status status = weft_pipeline_settle(pipeline);
    if (status == WEFT_OK) { /* parameters not used yet */
        status = wefti_replica_settle(replica);
    }
    if (status == WEFT_OK) {
        status = await_reduced(pause, pause->ends[cut]);
    }
    if (status == WEFT_OK) {
        status = wefti_pipe_total_losses(replica);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_wait(replica);
    }
    int64_t before_ns = wefti_clock_ns();
    if (status == WEFT_OK) {
        status = wefti_saver_settle(replica->saver);
    }
    if (status != WEFT_OK) {
        return status;
    }
    pause->mark = (wefti_pause_mark){.step = replica->step,
                                     .next_sequence = replica->next_sequence,
                                     .place = pause->places[cut],
                                     .position = pause->ends[cut]};
    if (pause->mark.position < pause->actions) {
        pause->mark.state_bytes = weft_pipeline_get_state_bytes(pipeline);
    }
    status = wefti_pause_take(pause);
    if (status == WEFT_OK) {
        wefti_pause_start(pause);
    }
    replica->save_ns += wefti_clock_ns() - before_ns;
    return status;
}

/* A list that has ended would begin anew. */
static weft_status advance(wefti_pause *pause, size_t *at, size_t end)
{
    weft_status status = WEFT_OK;
    if (*at < end) {
        status = weft_pipeline_run(pause->replica->pipe.pipeline, end);
        *at = end;
    }
    return status;
}

weft_status wefti_pause_run(wefti_pause *pause)
{
    size_t at = 0, place = 0;
    weft_status status = WEFT_OK;
    pause->partial = pause->pending;
    if (pause->pending) {
        pause->pending = false;
        at = pause->mark.position;
        place = pause->mark.place;
        status = wefti_replica_settle(pause->replica);
        if (status == WEFT_OK) {
            status = wefti_pause_apply(pause);
        }
    }
    for (size_t c = 0; c < pause->cut_count && status == WEFT_OK; c++) {
        if (pause->places[c] > place) {
            status = advance(pause, &at, pause->ends[c]);
            status = status == WEFT_OK ? stop(pause, c) : status;
        }
    }
    return status == WEFT_OK ? advance(pause, &at, pause->actions) : status;
}

size_t wefti_pause_set_cuts(wefti_pause *pause, size_t count)
{
    const size_t before = pause ? pause->cut_count : 0;
    if (pause) {
        pause->cut_count = count;
    }
    return before;
}

bool wefti_pause_is_partial(const wefti_pause *pause)
{
    return pause && pause->partial;
}
