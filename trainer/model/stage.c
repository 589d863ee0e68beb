/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/stage.c - a stage's program, on the memory of its slots.
 */
#include "trainer/model/stage.h"

#include "base/check.h"
#include "base/error.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/math/math_stream.h"
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_comm.h"
#include "trainer/program/program_check.h"
#include "trainer/program/program_plan.h"

#include <stdint.h>
#include <stdlib.h>

struct wefti_stage {
    wefti_stage_config config;
    wefti_program program;
    wefti_node_flight *flights;
    size_t logits; /* the last stage's value */
};

bool wefti_stage_is_last(const wefti_stage *stage)
{
    return stage->config.layers_end ==
           wefti_model_layers(&stage->config.plan->shape);
}

size_t wefti_stage_length(const wefti_parameters *plan,
                          const wefti_layer_run *part)
{
    const wefti_model_shape *shape = &plan->shape;
    return wefti_layer_run_ends(shape, part).encoder
               ? shape->encoder_seq
               : wefti_context_length(&shape->context,
                                      wefti_model_positions(shape));
}

static size_t length_of(const wefti_stage_config *config)
{
    const wefti_layer_run part = {config->first_layer, config->layers_end};
    return wefti_stage_length(config->plan, &part);
}

wefti_micro_batch wefti_stage_batch(const wefti_stage *stage,
                                    const wefti_micro_batch *all)
{
    const wefti_stage_config *config = &stage->config;
    const wefti_model_shape *shape = &config->plan->shape;
    wefti_micro_batch own = *all;
    if (config->first_layer < shape->encoder_layers) {
        own.length = shape->encoder_seq;
    } else if (shape->encoder_seq > 0) {
        own.tokens += all->sequences * shape->encoder_seq;
    }
    return own;
}

size_t wefti_stage_chunk_rows(const weft_device *device)
{
    return weft_device_get_caps(device) & WEFT_CAP_LAUNCHES
               ? WEFTI_LAYER_CHUNK_ROWS_OF_GPU
               : WEFTI_LAYER_CHUNK_ROWS;
}

static weft_status describe(const wefti_stage_config *config,
                            wefti_stage *stage_out)
{
    const wefti_parameters *plan = config->plan;
    WEFTI_ASSERT(config->first_layer < config->layers_end);
    *stage_out = (wefti_stage){.config = *config,
                               .program = {.recompute = config->recompute,
                                           .chunk_rows = wefti_stage_chunk_rows(
                                               config->workspace->device),
                                           .together = config->together,
                                           .keeps = config->keeps}};
    wefti_stage_append(&stage_out->program, plan, config->first_layer,
                       config->layers_end, &stage_out->logits);
    return wefti_program_plan(&stage_out->program,
                              config->workspace->sequences * length_of(config));
}

size_t wefti_stage_slot_elems(const wefti_stage_config *config)
{
    wefti_stage stage;
    weft_status status = describe(config, &stage);
    size_t elems = stage.program.elems[WEFTI_REGION_SLOT];
    wefti_program_fini(&stage.program);
    return status == WEFT_OK ? elems : SIZE_MAX / (4 * sizeof(real));
}

weft_status wefti_stage_create(const wefti_stage_config *config,
                               wefti_stage **stage_out)
{
    wefti_stage *stage = malloc(sizeof(*stage));
    if (!stage) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a stage");
    }
    weft_status status = describe(config, stage);
    if (status == WEFT_OK) {
        status = wefti_program_check(&stage->program);
    }
    if (status == WEFT_OK) {
        status = wefti_workspace_reserve(config->workspace, &stage->program);
    }
    if (status == WEFT_OK) {
        status = wefti_node_flights_create(
            &stage->program, config->workspace->device, &stage->flights);
    }
    if (status != WEFT_OK) {
        wefti_stage_destroy(stage);
        return status;
    }
    *stage_out = stage;
    return WEFT_OK;
}

void wefti_stage_destroy(wefti_stage *stage)
{
    if (stage) {
        wefti_node_flights_destroy(&stage->program, stage->flights);
        wefti_program_fini(&stage->program);
        free(stage);
    }
}

weft_status wefti_stage_agree(const wefti_stage *stage, weft_comm *comm,
                              weft_class class_id)
{
    return wefti_program_agree(&stage->program, comm, class_id);
}

static wefti_program_pass begin(const wefti_stage *stage,
                                const wefti_stage_pass *how)
{
    wefti_workspace *space = stage->config.workspace;
    WEFTI_ASSERT(how->slot < stage->config.slots);
    WEFTI_ASSERT(how->batch->sequences <= space->sequences);
    WEFTI_ASSERT(how->batch->length <=
                 wefti_model_positions(&stage->config.plan->shape));
    WEFTI_ASSERT(!space->link ||
                 how->batch->length == length_of(&stage->config));
    wefti_program_pass pass = {.program = &stage->program,
                               .device = space->device,
                               .compute = space->compute,
                               .batch = how->batch,
                               .hooks = how->hooks,
                               .rope = space->rope,
                               .slot = how->slot,
                               .experts = space->experts,
                               .loads = space->loads,
                               .link = space->link,
                               .input = how->input,
                               .output = how->output,
                               .links = space->links,
                               .flights = stage->flights,
                               .idle = space->idle,
                               .again_ns =
                                   space->compute ? NULL : &space->again_ns};
    for (size_t i = 0; i < WEFTI_TENSOR_GROUPS_MOST; i++) {
        pass.parameters[i] = how->values[i];
        pass.gradients[i] = how->gradients[i];
    }
    for (size_t i = 0; i < WEFTI_REGIONS; i++) {
        pass.regions[i] = i == WEFTI_REGION_SLOT
                              ? stage->config.arenas[how->slot]
                              : space->regions[i];
    }
    return pass;
}

static weft_status run(const wefti_stage *stage, const wefti_stage_pass *how,
                       size_t order)
{
    const wefti_program_pass pass = begin(stage, how);
    return wefti_program_run(&pass, &stage->program.orders[order]);
}

weft_status wefti_stage_forward(wefti_stage *stage,
                                const wefti_stage_pass *pass)
{
    return run(stage, pass, WEFTI_CALL_FORWARD);
}

weft_status wefti_stage_backward_inputs(wefti_stage *stage,
                                        const wefti_stage_pass *pass)
{
    return run(stage, pass, WEFTI_CALL_INPUTS);
}

weft_status wefti_stage_backward_weights(wefti_stage *stage,
                                         const wefti_stage_pass *pass)
{
    return run(stage, pass, WEFTI_CALL_WEIGHTS);
}

weft_status wefti_stage_backward(wefti_stage *stage,
                                 const wefti_stage_pass *pass)
{
    return run(stage, pass, WEFTI_ORDER_BACKWARD);
}

weft_status wefti_stage_pair(wefti_stage *forward_stage,
                             const wefti_stage_pass *forward,
                             wefti_stage *backward_stage,
                             const wefti_stage_pass *backward)
{
    const wefti_program_pass up = begin(forward_stage, forward);
    const wefti_program_pass down = begin(backward_stage, backward);
    wefti_weave_step *woven = forward_stage->config.workspace->woven;
    WEFTI_ASSERT(forward_stage->config.workspace ==
                 backward_stage->config.workspace);
    wefti_weave_plan(up.program, down.program, wefti_weave_template,
                     wefti_weave_template_rows, woven);
    return wefti_weave_run(&up, &down, woven);
}

const void *wefti_stage_logits(const wefti_stage *stage, size_t slot)
{
    const wefti_program_pass pass = {
        .program = &stage->program,
        .regions = {[WEFTI_REGION_SLOT] = stage->config.arenas[slot]}};
    return wefti_program_at(&pass, stage->logits);
}

/* Of each token's logits what all ranks that share the vocabulary have. */
static weft_status share_summaries(const wefti_stage *stage,
                                   const wefti_program_pass *run,
                                   const wefti_math_tensor *logits,
                                   const wefti_math_tensor *targets,
                                   wefti_math_tensor *parts_out)
{
    const wefti_tensor_parallel *tensor = &stage->config.plan->tensor;
    const size_t elems = logits->rows * WEFTI_CROSS_ENTROPY_SUMMARY;
    real *all = stage->config.workspace->summaries;
    const wefti_math_tensor own =
        wefti_math_rows(all + tensor->part * elems, WEFTI_REAL_DTYPE,
                        logits->rows, WEFTI_CROSS_ENTROPY_SUMMARY);
    *parts_out = wefti_math_rows(all, WEFTI_REAL_DTYPE, tensor->parts, elems);
    weft_status status =
        run->idle
            ? WEFT_OK
            : wefti_stream_softmax_part(run->compute, &own, logits, targets);
    return status == WEFT_OK
               ? wefti_node_gather(run, WEFTI_LINK_TENSOR, all, elems)
               : status;
}

weft_status wefti_stage_measure(wefti_stage *stage,
                                const wefti_stage_pass *pass, bool trains,
                                double scale, real *losses_out)
{
    const wefti_micro_batch *batch = pass->batch;
    const wefti_program_pass run = begin(stage, pass);
    const size_t tokens = batch->sequences * batch->length;
    const wefti_math_tensor logits =
        wefti_math_rows(wefti_program_at(&run, stage->logits),
                        wefti_model_dtype(&stage->config.plan->shape), tokens,
                        stage->config.plan->own.vocab);
    const wefti_math_tensor losses =
        wefti_math_flat(losses_out, WEFTI_REAL_DTYPE, tokens);
    const wefti_math_tensor targets =
        wefti_math_flat((int32_t *)batch->targets, WEFT_DTYPE_I32, tokens);
    const wefti_math_tensor *dlogits = trains ? &logits : NULL;
    if (stage->config.plan->tensor.parts < 2) {
        return run.idle
                   ? WEFT_OK
                   : wefti_stream_cross_entropy(run.compute, &losses, dlogits,
                                                &logits, &targets, scale);
    }
    wefti_math_tensor parts;
    weft_status status =
        share_summaries(stage, &run, &logits, &targets, &parts);
    return status == WEFT_OK && !run.idle
               ? wefti_stream_cross_entropy_part(run.compute, &losses, dlogits,
                                                 &logits, &targets, &parts,
                                                 scale)
               : status;
}
