/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/pause_state.c - what the state in the middle of a step
 * consists of, as one list of arrays: copied, written, read and put back by it.
 *
 *   NAME NAME.first NAME.second     this rank's shares: the step's beginning
 *   inside.RANK.losses              of all sequences, as far as they are known
 *   inside.RANK.fields, .live       where it stands, which slots there are
 *   inside.RANK.pipeline            the executor's, see weft_pipeline_pack
 *   inside.RANK.slot.N              a live slot
 *   inside.RANK.level.K.NAME        the sum of 2^K micro-batches
 *   inside.RANK.leaf.NAME           all of them, before it is reduced
 *   inside.RANK.loads               of experts, as far as they are known
 *   reduced.NAME                    this rank's share, reduced; of a tensor of
 *                                   which ranks have parts reduced.PART.NAME
 *
 * How far a part's gradients are follows from the list up to the cut: after w
 * micro-batches the tree's levels are the ones in w (trainer/gradient.h).
 */
#include "trainer/checkpoint/pause.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/pipe/pipe_reduce.h"

#include <stdio.h>

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
    if (wefti_pipe_find_reduce(pause->replica, own->part, 0)->early) {
        return count_weighed(pause, own->number, position) ==
               wefti_replica_count_passes(pause->replica);
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

void wefti_pause_own(const wefti_pause *pause, const char *name,
                     weft_dtype dtype, void *live, size_t elems,
                     wefti_checkpoint_piece *piece_out)
{
    *piece_out = (wefti_checkpoint_piece){
        .dtype = dtype, .columns = elems, .elems = elems, .live = live};
    snprintf(piece_out->name, sizeof(piece_out->name), "inside.%u.%.44s",
             (unsigned)pause->replica->rank, name);
}

static void add(wefti_pause *pause, const char *name, weft_dtype dtype,
                void *live, size_t elems)
{
    wefti_checkpoint_piece piece;
    WEFTI_ASSERT(pause->list.count < wefti_pause_count_pieces(pause));
    wefti_pause_own(pause, name, dtype, live, elems, &piece);
    wefti_state_add(&pause->list, &piece);
}

static bool is_in(const wefti_tensor *tensor, size_t group,
                  wefti_bucket_run run)
{
    return tensor->here && tensor->info.group == group &&
           tensor->bucket >= run.first && tensor->bucket < run.end;
}

/* Gradients of the tensors in some buckets of a group, whole. */
static void add_tensors(wefti_pause *pause, size_t group, real *flat,
                        wefti_bucket_run run, const char *what)
{
    const wefti_parameters *plan = &pause->replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (is_in(tensor, group, run)) {
            char name[WEFTI_CHECKPOINT_NAME_BYTES];
            snprintf(name, sizeof(name), "%.16s.%s", what, tensor->info.name);
            add(pause, name, WEFTI_REAL_DTYPE, flat + tensor->start_elems,
                wefti_tensor_here_elems(tensor));
        }
    }
}

/* Which of the ranks that have parts of the model has reduced this one: each
 * part is reduced by itself, also of tensors that all of them have. */
static void name_reduced(const wefti_replica *replica,
                         const wefti_tensor *tensor,
                         wefti_checkpoint_piece *piece)
{
    const wefti_parameters *plan = &replica->plan;
    const bool spread = tensor->info.split == WEFTI_SPLIT_EXPERT;
    if (spread ? plan->expert_parts <= 1 : plan->tensor.parts <= 1) {
        snprintf(piece->name, sizeof(piece->name), "reduced.%s",
                 tensor->info.name);
        return;
    }
    piece->rows = 0;
    piece->columns = wefti_tensor_here_elems(tensor);
    snprintf(piece->name, sizeof(piece->name), "reduced.%d.%.44s",
             spread ? replica->mesh.at.ep : replica->mesh.at.tp,
             tensor->info.name);
}

/* The shares of those that have been reduced. */
static void add_reduced(wefti_pause *pause, const wefti_pipe_reduce *reduce)
{
    const wefti_replica *replica = pause->replica;
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_checkpoint_piece piece;
        if (is_in(tensor, reduce->group, reduce->run) &&
            wefti_state_cut(replica, tensor, &piece)) {
            name_reduced(replica, tensor, &piece);
            wefti_state_add(&pause->list, &piece);
        }
    }
}

/* A part's group whose micro-batches are all summed up. */
static void add_sum(wefti_pause *pause, size_t stage, size_t group)
{
    const wefti_replica *replica = pause->replica;
    size_t part = replica->pipe.stages[stage].part;
    wefti_bucket_run all = replica->plan.groups[group].parts[part];
    const wefti_pipe_reduce *reduce =
        wefti_pipe_find_reduce(replica, part, group);
    real *leaf = replica->groups[group].gradient.leaf;
    if (!wefti_pause_is_reduced(pause, stage, pause->mark.position)) {
        add_tensors(pause, group, leaf, all, "leaf");
        return;
    }
    /* The ends of a tied embedding are reduced after the list. */
    add_tensors(pause, group, leaf,
                (wefti_bucket_run){all.first, reduce->run.first}, "leaf");
    add_tensors(pause, group, leaf,
                (wefti_bucket_run){reduce->run.end, all.end}, "leaf");
    add_reduced(pause, reduce);
}

static void add_gradients(wefti_pause *pause, size_t stage, size_t group)
{
    const wefti_replica *replica = pause->replica;
    const wefti_gradient *gradient = &replica->groups[group].gradient;
    const wefti_pipe_stage *own = &replica->pipe.stages[stage];
    size_t weighed = count_weighed(pause, own->number, pause->mark.position);
    if (weighed == gradient->count) {
        add_sum(pause, stage, group);
        return;
    }
    for (size_t k = 0; weighed >> k; k++) {
        if ((weighed >> k) & 1) {
            char name[32];
            snprintf(name, sizeof(name), "level.%zu", k);
            add_tensors(pause, group, gradient->levels[k],
                        replica->plan.groups[group].parts[own->part], name);
        }
    }
}

size_t wefti_pause_count_pieces(const wefti_pause *pause)
{
    const wefti_replica *replica = pause->replica;
    const wefti_pipe *pipe = &replica->pipe;
    size_t levels =
        wefti_gradient_count_levels(wefti_replica_count_passes(replica));
    /* of a tensor: its state, levels, or leaf or share; of the rank: below */
    return wefti_state_count_pieces(replica, false) +
           (levels + 1) * replica->plan.tensor_count + 5 + pipe->slots;
}

void wefti_pause_list(wefti_pause *pause)
{
    wefti_replica *replica = pause->replica;
    wefti_pipe *pipe = &replica->pipe;
    pause->list.count = 0;
    wefti_state_add_shares(replica, false, &pause->list);
    pause->base_count = pause->list.count; /* "losses" comes next */
    wefti_pause_describe(pause, pause->fields);
    add(pause, "losses", WEFT_DTYPE_F64, replica->sums.losses,
        replica->config.global_batch);
    add(pause, "fields", WEFT_DTYPE_I64, pause->fields, WEFTI_PAUSE_FIELDS);
    add(pause, "live", WEFT_DTYPE_U8, pause->live, pipe->slots);
    if (replica->sums.experts > 0) {
        add(pause, "loads", WEFT_DTYPE_F64, replica->sums.loads,
            replica->sums.experts);
    }
    if (pause->mark.state_bytes > 0) {
        add(pause, "pipeline", WEFT_DTYPE_U8, NULL, pause->mark.state_bytes);
    }
    for (size_t i = 0; i < pipe->slots; i++) {
        if (pause->live[i]) {
            char name[32];
            snprintf(name, sizeof(name), "slot.%zu", i);
            add(pause, name, WEFTI_REAL_DTYPE, pipe->arenas[i],
                pipe->slot_bytes / sizeof(real));
        }
    }
    for (size_t i = 0; i < pipe->stage_count; i++) {
        for (size_t g = 0; g < replica->plan.group_count; g++) {
            add_gradients(pause, i, g);
        }
    }
}

static size_t bytes_of(const wefti_checkpoint_piece *piece)
{
    return piece->elems * weft_dtype_bytes(piece->dtype);
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
    WEFTI_ASSERT(wefti_state_count_bytes(&pause->list) <=
                 pause->replica->saver->copy_bytes);
    for (size_t i = 0; i < pause->list.count && status == WEFT_OK; i++) {
        const wefti_checkpoint_piece *piece = &pause->list.pieces[i];
        unsigned char *copy = copies + piece->at_bytes;
        if (piece->live) {
            status = wefti_replica_copy(pause->replica, copy, piece->live,
                                        bytes_of(piece));
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
         i < pause->list.count && status == WEFT_OK; i++) {
        const wefti_checkpoint_piece *piece = &pause->list.pieces[i];
        const unsigned char *copy =
            pause->replica->saver->copy + piece->at_bytes;
        if (piece->live) {
            status = wefti_replica_copy(pause->replica, piece->live, copy,
                                        bytes_of(piece));
        } else {
            status = weft_pipeline_unpack(pipe->pipeline, copy, piece->elems);
        }
    }
    for (size_t i = 0; i < pipe->stage_count; i++) {
        pipe->stages[i].weighed =
            count_weighed(pause, pipe->stages[i].number, pause->mark.position);
        if (wefti_pause_is_reduced(pause, i, pause->mark.position)) {
            wefti_pipe_reduce_skip(pause->replica, pipe->stages[i].part);
        }
    }
    return status == WEFT_OK ? check_applied(pause) : status;
}
