/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_rehearsal.c - every stage's work once, before any counts.
 *
 * The first launch of a kernel may wait until the GPU has done all that is
 * queued there, and hold up other threads' calls meanwhile; products and
 * attention have kernels by shape. Inside a step streams wait for rows and
 * buckets, which this thread has yet to post or the progress thread to copy:
 * such a launch would never end. Between steps they do so where ranks exchange
 * rows inside a pass, and a micro-batch may have fewer sequences, or fewer
 * tokens, than any before.
 */
#include "kernels/math/math_stream.h"
#include "trainer/replica.h"

#include <string.h>

/* Of zeros: tokens, targets. */
static weft_status send_zeros(const wefti_replica *replica)
{
    const wefti_pipe_batch *batch = &replica->pipe.batch;
    for (size_t i = 0; batch->stride > 0 && i < batch->sequences; i++) {
        wefti_documents_whole(replica->config.shape.seq,
                              wefti_pipe_batch_starts(batch, 0, i));
    }
    const size_t bytes = batch->sequences * batch->length * sizeof(int32_t);
    memset(wefti_pipe_batch_tokens(batch, 0), 0, bytes);
    memset(wefti_pipe_batch_targets(batch, 0), 0, bytes);
    return wefti_pipe_batch_send(batch, 1);
}

/* They may not have come so far. Returns what joins them again. */
static const wefti_node_link *part_from_others(wefti_pipe *pipe)
{
    const wefti_node_link *links = pipe->workspace.links;
    pipe->workspace.links = NULL;
    return links;
}

/* F and B, with their shapes in training; I, W and pairs have the same. */
static weft_status run_stage(const wefti_pipe *pipe, wefti_stage *stage,
                             const wefti_stage_pass *given)
{
    const wefti_micro_batch batch = wefti_stage_batch(stage, given->batch);
    wefti_stage_pass part = *given;
    const wefti_stage_pass *pass = &part;
    part.batch = &batch;
    weft_status status = wefti_stage_forward(stage, pass);
    if (status == WEFT_OK && wefti_stage_is_last(stage)) {
        status = wefti_stage_measure(stage, pass, true, 0, pipe->batch.losses);
    }
    return status == WEFT_OK ? wefti_stage_backward(stage, pass) : status;
}

/* As they were made. */
static weft_status clear_gradients(const wefti_replica *replica)
{
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        const wefti_math_tensor all =
            wefti_math_flat(replica->groups[g].gradient.leaf, WEFTI_REAL_DTYPE,
                            replica->plan.groups[g].flat_elems);
        status = wefti_stream_fill(replica->compute, &all, 0);
    }
    return status;
}

weft_status wefti_pipe_rehearse(wefti_replica *replica)
{
    wefti_pipe *pipe = &replica->pipe;
    if (!replica->compute) {
        return WEFT_OK;
    }
    const wefti_node_link *links = part_from_others(pipe);
    const wefti_micro_batch batch = wefti_pipe_batch_get(&pipe->batch, 0);
    wefti_stage_pass pass = {.batch = &batch,
                             .input.rows = pipe->rows[0],
                             .output.rows = pipe->rows[1]};
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        pass.values[g] = replica->groups[g].values;
        pass.gradients[g] = replica->groups[g].gradient.leaf;
    }
    weft_status status = send_zeros(replica);
    for (size_t i = 0; i < pipe->stage_count && status == WEFT_OK; i++) {
        status = run_stage(pipe, pipe->stages[i].stage, &pass);
    }
    pipe->workspace.links = links;
    if (status == WEFT_OK) {
        status = clear_gradients(replica);
    }
    return status == WEFT_OK ? wefti_replica_wait(replica) : status;
}

/* Whether ranks exchange anything inside a pass. */
static bool exchanges(const wefti_pipe *pipe)
{
    size_t i = 0;
    while (i < WEFTI_LINKS && !pipe->links[i].comm) {
        i++;
    }
    return i < WEFTI_LINKS;
}

/* As a step's micro-batches are, or the last that was not. */
static bool is_known(const wefti_pipe *pipe, const wefti_micro_batch *batch)
{
    const wefti_pipe_batch *all = &pipe->batch;
    return (batch->sequences == all->sequences &&
            batch->length == all->length) ||
           (batch->sequences == pipe->met_sequences &&
            batch->length == pipe->met_length);
}

weft_status wefti_pipe_rehearse_pass(wefti_replica *replica,
                                     const wefti_stage_pass *pass)
{
    wefti_pipe *pipe = &replica->pipe;
    wefti_stage_pass own = *pass;
    weft_status status = WEFT_OK;
    if (!replica->compute || !exchanges(pipe) || is_known(pipe, pass->batch)) {
        return WEFT_OK;
    }
    own.hooks = NULL;
    pipe->met_sequences = pass->batch->sequences;
    pipe->met_length = pass->batch->length;
    const wefti_node_link *links = part_from_others(pipe);
    for (size_t i = 0; i < pipe->stage_count && status == WEFT_OK; i++) {
        const wefti_micro_batch batch =
            wefti_stage_batch(pipe->stages[i].stage, pass->batch);
        own.batch = &batch;
        status = wefti_stage_forward(pipe->stages[i].stage, &own);
    }
    pipe->workspace.links = links;
    return status;
}
