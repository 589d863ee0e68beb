/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_call.c - the actions of a list on this rank's stages, and
 * the step that they make.
 *
 * The executor declares compute to the ledger; of what is here only a step's
 * beginning does.
 */
#include "trainer/pipe/pipe_call.h"

#include "base/check.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/pipe/pipe_reduce.h"
#include "trainer/replica.h"

/* An action on the way: its stage, and what the stage is to do. */
typedef struct operation {
    wefti_replica *replica;
    wefti_pipe_stage *own;
    wefti_micro_batch batch;
    wefti_stage_pass pass;
    wefti_model_hooks hooks;
    size_t micro; /* of the batch */
} operation;

static weft_status wait_rows(void *context, size_t rows_end)
{
    return weft_rows_wait(context, rows_end);
}

static weft_status signal_rows(void *context, size_t rows_end)
{
    return weft_rows_signal(context, rows_end);
}

static wefti_stage_port
port_of(weft_rows *rows, weft_status (*hook)(void *context, size_t rows_end))
{
    return rows ? (wefti_stage_port){rows->data, {rows, hook}}
                : (wefti_stage_port){0};
}

static wefti_pipe_stage *find_stage(wefti_pipe *pipe, int number)
{
    size_t i = 0;
    while (i < pipe->stage_count && pipe->stages[i].number != number) {
        i++;
    }
    WEFTI_ASSERT(i < pipe->stage_count);
    return &pipe->stages[i];
}

static weft_status use(void *context, size_t tensor)
{
    operation *act = context;
    return wefti_replica_use(act->replica, tensor);
}

/*
 * Gradients come last tensor first; a bucket is done with its first tensor: it
 * joins those of the micro-batches before, and after the last one it is final.
 */
static weft_status finish(void *context, size_t tensor)
{
    operation *act = context;
    wefti_replica *replica = act->replica;
    const wefti_tensor *own = &replica->plan.tensors[tensor];
    const wefti_gradient *sum = &replica->groups[own->info.group].gradient;
    if (!own->opens) {
        return WEFT_OK;
    }
    weft_status status =
        replica->pipe.workspace.idle
            ? WEFT_OK
            : wefti_gradient_add(sum, own->bucket, act->own->weighed);
    return status == WEFT_OK && act->own->weighed + 1 == sum->count
               ? wefti_pipe_reduce_final(replica, act->own->part,
                                         own->info.group, own->bucket)
               : status;
}

static void begin(operation *act, void *context, const weft_pipeline_work *work)
{
    wefti_replica *replica = context;
    wefti_pipe *pipe = &replica->pipe;
    wefti_pipe_stage *own = find_stage(pipe, work->stage);
    const bool joins = work->model_stage == pipe->encoder_stages;
    size_t micro = work->first || work->last || joins || replica->config.packs
                       ? own->first_micro + (size_t)work->microbatch
                       : 0; /* it is not read */
    const wefti_micro_batch all = wefti_pipe_batch_get(&pipe->batch, micro);
    *act = (operation){.replica = replica,
                       .own = own,
                       .batch = wefti_stage_batch(own->stage, &all),
                       .pass = {.slot = (size_t)work->slot,
                                .input = port_of(work->input, wait_rows),
                                .output = port_of(work->output, signal_rows)},
                       .hooks = {act, use, finish},
                       .micro = micro};
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        act->pass.values[g] = replica->groups[g].values;
        act->pass.gradients[g] =
            wefti_gradient_place(&replica->groups[g].gradient, own->weighed);
    }
    act->pass.batch = &act->batch;
    act->pass.hooks = &act->hooks;
}

static weft_status copy(const wefti_replica *replica, void *dst,
                        const void *src, size_t bytes)
{
    return weft_device_copy(replica->config.device, dst, src, bytes,
                            replica->compute);
}

static size_t input_bytes(const wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    return wefti_pipe_rows(replica, config->micro_batch *
                                        wefti_replica_length(replica)) *
           config->shape.hidden *
           weft_dtype_bytes(wefti_model_dtype(&config->shape));
}

/* The last stage's F ends with losses, and with the gradient of the logits. */
static weft_status end_forward(const operation *act, weft_status status)
{
    const wefti_replica_config *config = &act->replica->config;
    if (status == WEFT_OK && wefti_stage_is_last(act->own->stage)) {
        status = wefti_stage_measure(
            act->own->stage, &act->pass, true,
            1.0 / ((double)config->global_batch * (double)config->shape.seq),
            wefti_pipe_batch_measure(&act->replica->pipe.batch, act->micro));
    }
    return status;
}

/* What RECOMPUTE will begin with; the first stage's tokens are read again. */
static weft_status keep_input(const operation *act,
                              const weft_pipeline_work *work)
{
    return work->kept >= 0 && act->pass.input.rows
               ? copy(act->replica, act->replica->pipe.kept[work->kept],
                      act->pass.input.rows, input_bytes(act->replica))
               : WEFT_OK;
}

static weft_status end_weights(const operation *act, weft_status status)
{
    act->own->weighed += status == WEFT_OK;
    return status;
}

static weft_status forward(void *context, const weft_pipeline_work *work)
{
    operation act;
    begin(&act, context, work);
    weft_status status =
        end_forward(&act, wefti_stage_forward(act.own->stage, &act.pass));
    return status == WEFT_OK ? keep_input(&act, work) : status;
}

/* The output was sent long ago: what is written now is not used. */
static weft_status recompute(void *context, const weft_pipeline_work *work)
{
    operation act;
    begin(&act, context, work);
    if (!work->first) {
        act.pass.input.rows = act.replica->pipe.kept[work->kept];
    }
    if (!work->last) {
        act.pass.output.rows = act.replica->pipe.rows[1];
    }
    return end_forward(&act, wefti_stage_forward(act.own->stage, &act.pass));
}

static weft_status offload(void *context, const weft_pipeline_work *work)
{
    const wefti_pipe *pipe = &((wefti_replica *)context)->pipe;
    return copy(context, pipe->kept[work->kept], pipe->arenas[work->slot],
                pipe->slot_bytes);
}

static weft_status reload(void *context, const weft_pipeline_work *work)
{
    const wefti_pipe *pipe = &((wefti_replica *)context)->pipe;
    return copy(context, pipe->arenas[work->slot], pipe->kept[work->kept],
                pipe->slot_bytes);
}

static weft_status backward_input(void *context, const weft_pipeline_work *work)
{
    operation act;
    begin(&act, context, work);
    return wefti_stage_backward_inputs(act.own->stage, &act.pass);
}

static weft_status backward_weight(void *context,
                                   const weft_pipeline_work *work)
{
    operation act;
    begin(&act, context, work);
    return end_weights(&act,
                       wefti_stage_backward_weights(act.own->stage, &act.pass));
}

static weft_status backward(void *context, const weft_pipeline_work *work)
{
    operation act;
    begin(&act, context, work);
    return end_weights(&act, wefti_stage_backward(act.own->stage, &act.pass));
}

static weft_status pair(void *context, const weft_pipeline_work *up,
                        const weft_pipeline_work *down)
{
    operation f, b;
    begin(&f, context, up);
    begin(&b, context, down);
    weft_status status =
        wefti_stage_pair(f.own->stage, &f.pass, b.own->stage, &b.pass);
    status = end_weights(&b, end_forward(&f, status));
    return status == WEFT_OK ? keep_input(&f, up) : status;
}

weft_status wefti_pipe_reduce_stage(wefti_replica *replica, int stage)
{
    return wefti_pipe_reduce_rest(replica,
                                  find_stage(&replica->pipe, stage)->part);
}

static weft_status whole(void *context, weft_action_type type, int stage)
{
    wefti_replica *replica = context;
    (void)type; /* the list has REDUCE_GRAD and no other */
    WEFTI_ASSERT(find_stage(&replica->pipe, stage)->weighed ==
                 wefti_replica_count_passes(replica));
    return wefti_pipe_reduce_stage(replica, stage);
}

const weft_pipeline_calls wefti_pipe_calls = {
    .size_bytes = sizeof(wefti_pipe_calls),
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .backward = backward,
    .pair = pair,
    .recompute = recompute,
    .offload = offload,
    .reload = reload,
    .whole = whole};

/* The step's micro-batches; nothing is queued that reads the last one's. */
static weft_status send_batch(wefti_replica *replica)
{
    const wefti_pipe_batch *batch = &replica->pipe.batch;
    const size_t count = wefti_replica_count_micro(replica);
    if (batch->count < count || replica->pipe.workspace.idle) {
        return WEFT_OK; /* what is here needs none, or nothing is read */
    }
    wefti_replica_work_begin(replica, "batch");
    uint64_t first = wefti_replica_first_micro(replica, replica->copy);
    for (size_t i = 0; i < count; i++) {
        wefti_replica_load(
            replica, replica->next_sequence + (first + i) * batch->sequences,
            i);
    }
    weft_status status = wefti_pipe_batch_send(batch, count);
    wefti_replica_work_end(replica);
    return status;
}

weft_status wefti_pipe_total_losses(wefti_replica *replica)
{
    wefti_pipe_batch *batch = &replica->pipe.batch;
    size_t first = wefti_replica_first_micro(replica, replica->copy);
    /* Of ranks that share the layers, the first says what all have. */
    return wefti_pipe_batch_total(batch, replica->mesh.at.tp > 0
                                             ? NULL
                                             : replica->sums.losses +
                                                   first * batch->sequences);
}

weft_status wefti_pipe_train(wefti_replica *replica, weft_bucket_mode reduce)
{
    wefti_pipe *pipe = &replica->pipe;
    weft_status status = send_batch(replica);
    if (status != WEFT_OK) {
        return status;
    }
    pipe->mode = reduce;
    for (size_t i = 0; i < pipe->stage_count; i++) {
        pipe->stages[i].weighed = 0;
    }
    wefti_pipe_reduce_begin(pipe);
    status = replica->pause ? wefti_pause_run(replica->pause)
                            : weft_pipeline_run(pipe->pipeline, SIZE_MAX);
    return status == WEFT_OK && replica->plan.copies_head
               ? wefti_pipe_reduce_tied(replica)
               : status;
}
