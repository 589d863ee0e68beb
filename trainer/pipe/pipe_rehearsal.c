/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_rehearsal.c - every stage's work once, before any counts.
 *
 * The first launch of a kernel may wait until the GPU has done all that is
 * queued there, and hold up other threads' calls meanwhile; products and
 * attention have kernels by shape. Inside a step streams wait for rows and
 * buckets, which this thread has yet to post or the progress thread to copy:
 * such a launch would never end.
 */
#include "kernels/math/math_stream.h"
#include "trainer/replica.h"

#include <string.h>

/* Of zeros: tokens, targets. */
static weft_status send_zeros(const wefti_pipe_batch *batch)
{
    const size_t bytes = batch->sequences * batch->length * sizeof(int32_t);
    memset(wefti_pipe_batch_tokens(batch, 0), 0, bytes);
    memset(wefti_pipe_batch_targets(batch, 0), 0, bytes);
    return wefti_pipe_batch_send(batch, 1);
}

/* F, I and W, with their shapes in training; B and pairs have the same. */
static weft_status run_stage(const wefti_pipe *pipe, wefti_stage *stage,
                             const wefti_stage_pass *pass)
{
    weft_status status = wefti_stage_forward(stage, pass);
    if (status == WEFT_OK && wefti_stage_is_last(stage)) {
        status = wefti_stage_measure(stage, pass, true, 0, pipe->batch.losses);
    }
    if (status == WEFT_OK) {
        status = wefti_stage_backward_inputs(stage, pass);
    }
    return status == WEFT_OK ? wefti_stage_backward_weights(stage, pass)
                             : status;
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
    const wefti_pipe *pipe = &replica->pipe;
    if (!replica->compute) {
        return WEFT_OK;
    }
    const wefti_micro_batch batch = wefti_pipe_batch_get(&pipe->batch, 0);
    wefti_stage_pass pass = {.batch = &batch,
                             .input.rows = pipe->rows[0],
                             .output.rows = pipe->rows[1]};
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        pass.values[g] = replica->groups[g].values;
        pass.gradients[g] = replica->groups[g].gradient.leaf;
    }
    replica->pipe.link.alone = true;
    weft_status status = send_zeros(&pipe->batch);
    for (size_t i = 0; i < pipe->stage_count && status == WEFT_OK; i++) {
        status = run_stage(pipe, pipe->stages[i].stage, &pass);
    }
    replica->pipe.link.alone = false;
    if (status == WEFT_OK) {
        status = clear_gradients(replica);
    }
    return status == WEFT_OK ? wefti_replica_wait(replica) : status;
}
