/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_evaluate.c - a micro-batch forwards through all stages, one
 * after the other: for validation and generated text.
 *
 * All ranks take the stages, and the micro-batches, in the same order, so that
 * blocking messages cannot wait for one another; a rank that has sent goes on
 * with the next micro-batch.
 *
 * A micro-batch may be smaller than a step's, which no rehearsal has had
 * (trainer/pipe/pipe_rehearsal.c): when it is queued nothing on the device
 * waits for parameters or for a message, and where ranks exchange rows inside
 * of it, it is rehearsed then.
 */
#include "trainer/replica.h"
#include "weft/p2p.h"

#include <stddef.h>

/* One message between stages, waited for. */
static weft_status pass_on(const wefti_replica *replica, weft_p2p_kind kind,
                           int peer, void *rows, size_t elems)
{
    weft_p2p message = {.size_bytes = sizeof(message),
                        .kind = kind,
                        .buffer = rows,
                        .count = elems,
                        .dtype = wefti_model_dtype(&replica->plan.shape),
                        .peer = peer,
                        .class_id = wefti_mesh_class(WEFTI_MESH_CHAIN),
                        .label = "evaluation"};
    weft_status status = weft_p2p_post(
        &message, 1, replica->mesh.comms[WEFTI_MESH_CHAIN], replica->compute);
    return status == WEFT_OK ? wefti_replica_wait(replica) : status;
}

static const wefti_pipe_stage *find_stage(const wefti_pipe *pipe, int number)
{
    const wefti_pipe_stage *stage = pipe->stages;
    while (stage->number != number) {
        stage++;
    }
    return stage;
}

/* Elements that a stage sends on of a micro-batch. */
static size_t count_elems(const wefti_replica *replica, int number,
                          const wefti_micro_batch *batch)
{
    const wefti_model_shape *shape = &replica->config.shape;
    const size_t length = number < replica->pipe.encoder_stages
                              ? shape->encoder_seq
                              : batch->length;
    return wefti_pipe_rows(replica, batch->sequences * length) * shape->hidden;
}

/* This rank's stage of direction 0, from rows[0] to rows[1]. */
static weft_status run_stage(wefti_replica *replica, int number,
                             const wefti_stage_pass *given)
{
    wefti_pipe *pipe = &replica->pipe;
    const wefti_pipe_stage *own = find_stage(pipe, number);
    const wefti_micro_batch batch = wefti_stage_batch(own->stage, given->batch);
    wefti_stage_pass part = *given;
    const wefti_stage_pass *pass = &part;
    part.batch = &batch;
    int before = number == 0
                     ? pipe->rank
                     : weft_schedule_get_rank(pipe->schedule, number - 1);
    weft_status status = WEFT_OK;
    if (before != pipe->rank) {
        status = pass_on(replica, WEFT_P2P_RECV, before, pass->input.rows,
                         count_elems(replica, number - 1, given->batch));
    }
    if (status == WEFT_OK) {
        wefti_replica_work_begin(replica, "forward");
        status = wefti_stage_forward(own->stage, pass);
        wefti_replica_work_end(replica);
    }
    if (status != WEFT_OK || wefti_stage_is_last(own->stage)) {
        return status;
    }
    int after = weft_schedule_get_rank(pipe->schedule, number + 1);
    return after == pipe->rank
               ? WEFT_OK
               : pass_on(replica, WEFT_P2P_SEND, after, pass->output.rows,
                         count_elems(replica, number, given->batch));
}

/* The losses of batch, which the last stage has in a slot. */
static weft_status read_losses(wefti_replica *replica,
                               const wefti_stage_pass *pass, double *losses_out)
{
    wefti_pipe *pipe = &replica->pipe;
    const wefti_pipe_batch *batch = &pipe->batch;
    int stages = pipe->info.stages / pipe->info.directions;
    wefti_stage *last = find_stage(pipe, stages - 1)->stage;
    weft_status status =
        wefti_stage_measure(last, pass, false, 0, batch->losses);
    if (status == WEFT_OK) {
        status = weft_device_copy(
            batch->device, batch->host_losses, batch->losses,
            pass->batch->sequences * pass->batch->length * sizeof(real),
            batch->compute);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_wait(replica);
    }
    for (size_t i = 0; i < pass->batch->sequences && status == WEFT_OK; i++) {
        losses_out[i] = wefti_pipe_batch_loss(batch, i);
    }
    return status;
}

/* The parameters; the host computes while they come, and its hook waits. */
static weft_status let_arrive(wefti_replica *replica)
{
    weft_status status =
        replica->compute ? wefti_replica_settle(replica) : WEFT_OK;
    return status == WEFT_OK ? wefti_replica_wait(replica) : status;
}

weft_status wefti_pipe_evaluate(wefti_replica *replica,
                                const wefti_micro_batch *batch,
                                double *losses_out, const void **logits_out)
{
    wefti_pipe *pipe = &replica->pipe;
    int stages = pipe->info.stages / pipe->info.directions;
    const wefti_model_hooks hooks = {replica, wefti_replica_use, NULL};
    wefti_stage_pass pass = {.batch = batch,
                             .hooks = &hooks,
                             .input.rows = pipe->rows[0],
                             .output.rows = pipe->rows[1]};
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        pass.values[g] = replica->groups[g].values;
    }
    if (logits_out) {
        *logits_out = NULL;
    }
    weft_status status = let_arrive(replica);
    if (status == WEFT_OK) {
        status = wefti_pipe_batch_send(&pipe->batch, 1);
    }
    if (status == WEFT_OK) {
        status = wefti_pipe_rehearse_pass(replica, &pass);
    }
    for (int i = 0; i < stages && status == WEFT_OK; i++) {
        if (weft_schedule_get_rank(pipe->schedule, i) != pipe->rank) {
            continue;
        }
        status = run_stage(replica, i, &pass);
        /* At the turn of a V the output is the next input. */
        void *written = pass.output.rows;
        pass.output.rows = pass.input.rows;
        pass.input.rows = written;
    }
    const bool last = wefti_pipe_last(pipe) == pipe->rank;
    if (status == WEFT_OK && last && logits_out) {
        *logits_out =
            wefti_stage_logits(find_stage(pipe, stages - 1)->stage, pass.slot);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return last && losses_out ? read_losses(replica, &pass, losses_out)
                              : wefti_replica_wait(replica);
}
