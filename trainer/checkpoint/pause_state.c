/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/pause_state.c - what the state in the middle of a step
 * consists of, as one list of arrays: copied, written, read and put back by it.
 *
 *   values.B first.B second.B   this rank's shares: the step's beginning
 *   losses                      of all sequences, as far as they are known here
 *   pipeline                    the executor's, see weft_pipeline_pack
 *   slot.N                      a live slot
 *   level.K.P                   of part P: the sum of 2^K micro-batches
 *   leaf.P                      all of them, before it is reduced
 *   reduced.B                   this rank's share of a bucket, reduced
 *
 * How far a part's gradients are follows from the list up to the cut: after w
 * micro-batches the tree's levels are the ones in w (trainer/gradient.h).
 */
#include "trainer/checkpoint/pause.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/pipe/pipe_reduce.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64 };

/* ---- how far a stage is ---------------------------------------------------
 */

/* W and B of a stage before position. */
static size_t count_weighed(const wefti_pause *pause, int number,
                            size_t position)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    const weft_action *actions;
    size_t sum = 0;
    (void)weft_schedule_get_actions(pipe->schedule, pipe->rank, &actions);
    for (size_t k = 0; k < position; k++) {
        sum += wefti_pipe_adds(&actions[k], number);
    }
    return sum;
}

bool wefti_pause_is_reduced(const wefti_pause *pause, size_t stage,
                            size_t position)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    const wefti_pipe_stage *own = &pipe->stages[stage];
    const weft_action *actions;
    if (pipe->reduces[own->part].early) {
        return count_weighed(pause, own->number, position) ==
               pause->replica->gradient.count;
    }
    (void)weft_schedule_get_actions(pipe->schedule, pipe->rank, &actions);
    for (size_t k = 0; k < position; k++) {
        if (actions[k].type == WEFT_ACTION_REDUCE_GRAD &&
            actions[k].stage == own->number) {
            return true;
        }
    }
    return false;
}

/* ---- the list -------------------------------------------------------------
 */

__attribute__((format(printf, 5, 6))) static void add(wefti_pause *pause,
                                                      weft_dtype dtype,
                                                      void *live, size_t elems,
                                                      const char *format, ...)
{
    wefti_pause_piece *piece = &pause->pieces[pause->piece_count];
    const wefti_pause_piece *before =
        pause->piece_count ? &pause->pieces[pause->piece_count - 1] : NULL;
    WEFTI_ASSERT(pause->piece_count < wefti_pause_count_pieces(pause));
    *piece = (wefti_pause_piece){.dtype = dtype, .live = live, .elems = elems};
    if (before) {
        size_t end =
            before->at_bytes + before->elems * weft_dtype_bytes(before->dtype);
        piece->at_bytes = (end + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(piece->name, sizeof(piece->name), format, args);
    va_end(args);
    pause->piece_count++;
}

/* From the first to the last bucket of a part, with what lies between. */
static void add_part(wefti_pause *pause, real *flat, size_t first_bucket,
                     size_t buckets_end, const char *name, size_t part)
{
    const wefti_parameters *plan = &pause->replica->plan;
    if (first_bucket < buckets_end) {
        const weft_bucket_extent *last = &plan->buckets[buckets_end - 1];
        size_t start = plan->buckets[first_bucket].start_elems;
        size_t end = last->start_elems + last->share_elems * plan->nranks;
        add(pause, WEFTI_REAL_DTYPE, flat + start, end - start, "%s.%zu", name,
            part);
    }
}

/* A part whose micro-batches are all summed up. */
static void add_sum(wefti_pause *pause, size_t stage)
{
    wefti_replica *replica = pause->replica;
    size_t part = replica->pipe.stages[stage].part;
    const wefti_layer_run *all = &replica->plan.parts[part];
    const wefti_pipe_reduce *reduce = &replica->pipe.reduces[part];
    real *leaf = replica->gradient.leaf;
    if (!wefti_pause_is_reduced(pause, stage, pause->mark.position)) {
        add_part(pause, leaf, all->first_bucket, all->buckets_end, "leaf",
                 part);
        return;
    }
    /* The ends of a tied embedding are reduced after the list. */
    add_part(pause, leaf, all->first_bucket, reduce->first_bucket, "leaf.first",
             part);
    add_part(pause, leaf, reduce->buckets_end, all->buckets_end, "leaf.last",
             part);
    for (size_t b = reduce->first_bucket; b < reduce->buckets_end; b++) {
        add(pause, WEFTI_REAL_DTYPE,
            leaf + wefti_parameters_share(&replica->plan, b, replica->share),
            replica->plan.buckets[b].share_elems, "reduced.%zu", b);
    }
}

static void add_gradients(wefti_pause *pause, size_t stage)
{
    wefti_replica *replica = pause->replica;
    wefti_gradient *gradient = &replica->gradient;
    const wefti_pipe_stage *own = &replica->pipe.stages[stage];
    const wefti_layer_run *part = &replica->plan.parts[own->part];
    size_t weighed = count_weighed(pause, own->number, pause->mark.position);
    if (weighed == gradient->count) {
        add_sum(pause, stage);
        return;
    }
    for (size_t k = 0; weighed >> k; k++) {
        if ((weighed >> k) & 1) {
            char name[32];
            snprintf(name, sizeof(name), "level.%zu", k);
            add_part(pause, gradient->levels[k], part->first_bucket,
                     part->buckets_end, name, own->part);
        }
    }
}

size_t wefti_pause_count_pieces(const wefti_pause *pause)
{
    const wefti_replica *replica = pause->replica;
    const wefti_pipe *pipe = &replica->pipe;
    /* of a stage: levels, or the two leaves; its buckets */
    return (WEFTI_SAVEPOINT_PARTS + 1) * replica->plan.bucket_count + 2 +
           pipe->slots +
           pipe->stage_count * (replica->gradient.level_count + 2);
}

void wefti_pause_list(wefti_pause *pause)
{
    wefti_replica *replica = pause->replica;
    wefti_pipe *pipe = &replica->pipe;
    pause->piece_count = 0;
    for (size_t i = 0; i < WEFTI_SAVEPOINT_PARTS * replica->plan.bucket_count;
         i++) {
        char name[WEFTI_CHECKPOINT_NAME_BYTES];
        size_t bucket = i / WEFTI_SAVEPOINT_PARTS;
        size_t part = i % WEFTI_SAVEPOINT_PARTS;
        wefti_savepoint_part_name(name, bucket, part);
        add(pause, WEFTI_REAL_DTYPE,
            wefti_savepoint_part(replica, bucket, part),
            replica->plan.buckets[bucket].share_elems, "%s", name);
    }
    pause->base_count = pause->piece_count; /* "losses" comes next */
    add(pause, WEFT_DTYPE_F64, wefti_replica_losses(replica),
        replica->config.global_batch, "losses");
    if (pause->mark.state_bytes > 0) {
        add(pause, WEFT_DTYPE_U8, NULL, pause->mark.state_bytes, "pipeline");
    }
    for (size_t i = 0; i < pipe->slots; i++) {
        if (pause->live[i]) {
            add(pause, WEFTI_REAL_DTYPE, pipe->arenas[i],
                pipe->slot_bytes / sizeof(real), "slot.%zu", i);
        }
    }
    for (size_t i = 0; i < pipe->stage_count; i++) {
        add_gradients(pause, i);
    }
}

static size_t bytes_of(const wefti_pause_piece *piece)
{
    return piece->elems * weft_dtype_bytes(piece->dtype);
}

size_t wefti_pause_count_bytes(const wefti_pause *pause)
{
    const wefti_pause_piece *last = &pause->pieces[pause->piece_count - 1];
    return last->at_bytes + bytes_of(last);
}

/* ---- the copy -------------------------------------------------------------
 */

weft_status wefti_pause_take(wefti_pause *pause)
{
    wefti_pipe *pipe = &pause->replica->pipe;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < pipe->slots; i++) {
        pause->live[i] = weft_pipeline_is_slot_live(pipe->pipeline, (int)i);
    }
    wefti_pause_list(pause);
    unsigned char *copies = pause->replica->saver->copy;
    WEFTI_ASSERT(wefti_pause_count_bytes(pause) <=
                 pause->replica->saver->copy_bytes);
    for (size_t i = 0; i < pause->piece_count && status == WEFT_OK; i++) {
        const wefti_pause_piece *piece = &pause->pieces[i];
        unsigned char *copy = copies + piece->at_bytes;
        if (piece->live) {
            memcpy(copy, piece->live, bytes_of(piece));
        } else {
            status = weft_pipeline_pack(pipe->pipeline, copy);
        }
    }
    return status;
}

/* What the executor has found out anew, beside what was copied. */
static weft_status check_applied(const wefti_pause *pause)
{
    const wefti_pipe *pipe = &pause->replica->pipe;
    bool same =
        pause->mark.state_bytes == 0 ||
        weft_pipeline_get_position(pipe->pipeline) == pause->mark.position;
    for (size_t i = 0; i < pipe->slots; i++) {
        same = same && (pause->live[i] != 0) ==
                           weft_pipeline_is_slot_live(pipe->pipeline, (int)i);
    }
    return same ? WEFT_OK
                : wefti_error(WEFT_ERR_INVALID,
                              "the snapshot's slots are not those of "
                              "action %zu of this rank's list",
                              pause->mark.position);
}

weft_status wefti_pause_apply(wefti_pause *pause)
{
    wefti_pipe *pipe = &pause->replica->pipe;
    weft_status status = WEFT_OK;
    for (size_t i = pause->base_count;
         i < pause->piece_count && status == WEFT_OK; i++) {
        const wefti_pause_piece *piece = &pause->pieces[i];
        const unsigned char *copy =
            pause->replica->saver->copy + piece->at_bytes;
        if (piece->live) {
            memcpy(piece->live, copy, bytes_of(piece));
        } else {
            status = weft_pipeline_unpack(pipe->pipeline, copy, piece->elems);
        }
    }
    for (size_t i = 0; i < pipe->stage_count; i++) {
        pipe->stages[i].weighed =
            count_weighed(pause, pipe->stages[i].number, pause->mark.position);
        if (wefti_pause_is_reduced(pause, i, pause->mark.position)) {
            wefti_pipe_reduce_skip(pipe, pipe->stages[i].part);
        }
    }
    return status == WEFT_OK ? check_applied(pause) : status;
}
