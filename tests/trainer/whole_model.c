/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/whole_model.c - the whole decoder as one stage with one slot,
 * and before it, if there is one, the encoder as another.
 */
#include "tests/trainer/whole_model.h"

#include "base/error.h"
#include "trainer/model/storage.h"

#include <stdlib.h>

struct wefti_model {
    const wefti_parameters *plan;
    real *losses;        /* of tokens */
    weft_device *device; /* the host */
    wefti_workspace workspace;
    size_t stage_count;
    struct part {
        wefti_stage *stage;
        real *arena;
    } parts[2]; /* the last one is the decoder */
    real *rows; /* from the encoder, or back */
    size_t arena_elems;
};

static wefti_stage *last(const wefti_model *model)
{
    return model->parts[model->stage_count - 1].stage;
}

static weft_status make_stage(wefti_model *model, size_t first, size_t end)
{
    struct part *part = &model->parts[model->stage_count++];
    const wefti_stage_config config = {.plan = model->plan,
                                       .workspace = &model->workspace,
                                       .first_layer = first,
                                       .layers_end = end,
                                       .slots = 1,
                                       .arenas = &part->arena};
    const size_t elems = wefti_stage_slot_elems(&config);
    weft_status status = wefti_storage_alloc(elems, &part->arena);
    model->arena_elems += elems;
    return status == WEFT_OK ? wefti_stage_create(&config, &part->stage)
                             : status;
}

static weft_status make_stages(wefti_model *model)
{
    const wefti_model_shape *shape = &model->plan->shape;
    const size_t encoder = shape->encoder_layers;
    weft_status status = WEFT_OK;
    if (encoder > 0) {
        status = make_stage(model, 0, encoder);
    }
    return status == WEFT_OK
               ? make_stage(model, encoder, wefti_model_layers(shape))
               : status;
}

weft_status wefti_model_create(const wefti_parameters *plan, size_t sequences,
                               wefti_model **model_out)
{
    wefti_model *model = calloc(1, sizeof(*model));
    if (!model) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a model");
    }
    const size_t rows = sequences * wefti_model_positions(&plan->shape);
    model->plan = plan;
    weft_status status = weft_device_open("host", 0, &model->device);
    if (status == WEFT_OK) {
        status = wefti_workspace_init(&model->workspace, model->device, NULL,
                                      &plan->shape, sequences);
    }
    if (status == WEFT_OK) {
        status = wefti_storage_alloc(rows, &model->losses);
    }
    if (status == WEFT_OK) {
        status = wefti_storage_alloc(rows * plan->shape.hidden, &model->rows);
    }
    if (status == WEFT_OK) {
        status = make_stages(model);
    }
    if (status == WEFT_OK) {
        status = wefti_workspace_alloc(&model->workspace);
    }
    if (status != WEFT_OK) {
        wefti_model_destroy(model);
        return status;
    }
    *model_out = model;
    return WEFT_OK;
}

void wefti_model_destroy(wefti_model *model)
{
    if (model) {
        for (size_t i = 0; i < model->stage_count; i++) {
            wefti_stage_destroy(model->parts[i].stage);
            wefti_storage_free(model->parts[i].arena);
        }
        wefti_storage_free(model->rows);
        wefti_storage_free(model->losses);
        wefti_workspace_fini(&model->workspace);
        weft_device_close(model->device);
        free(model);
    }
}

size_t wefti_model_get_arena_bytes(const wefti_model *model)
{
    return (model->arena_elems + model->workspace.arena_elems) * sizeof(real);
}

size_t wefti_model_start(const wefti_parameters *plan, size_t group)
{
    size_t start = 0;
    for (size_t g = 0; g < group; g++) {
        start += plan->groups[g].flat_elems;
    }
    return start;
}

static wefti_stage_pass begin(const wefti_model *model, const real *values,
                              const wefti_micro_batch *batch,
                              const wefti_model_hooks *hooks)
{
    wefti_stage_pass pass = {.batch = batch, .hooks = hooks};
    for (size_t g = 0; g < model->plan->group_count; g++) {
        pass.values[g] = values + wefti_model_start(model->plan, g);
    }
    return pass;
}

typedef weft_status pass_of_stage(wefti_stage *stage,
                                  const wefti_stage_pass *pass);

/* One stage's part of a pass. */
static weft_status run(wefti_model *model, size_t stage,
                       const wefti_stage_pass *all, pass_of_stage *run_stage)
{
    wefti_stage *own = model->parts[stage].stage;
    const wefti_micro_batch batch = wefti_stage_batch(own, all->batch);
    wefti_stage_pass pass = *all;
    pass.batch = &batch;
    pass.input.rows = pass.output.rows = model->rows;
    return run_stage(own, &pass);
}

static weft_status forward(wefti_model *model, const wefti_stage_pass *pass)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < model->stage_count && status == WEFT_OK; i++) {
        status = run(model, i, pass, wefti_stage_forward);
    }
    return status;
}

static weft_status backward(wefti_model *model, const wefti_stage_pass *pass)
{
    weft_status status = WEFT_OK;
    for (size_t i = model->stage_count; i > 0 && status == WEFT_OK; i--) {
        status = run(model, i - 1, pass, wefti_stage_backward);
    }
    return status;
}

weft_status wefti_model_predict(wefti_model *model, const real *values,
                                const wefti_micro_batch *batch,
                                const wefti_model_hooks *hooks,
                                const real **logits_out)
{
    wefti_stage_pass pass = begin(model, values, batch, hooks);
    *logits_out = wefti_stage_logits(last(model), pass.slot);
    return forward(model, &pass);
}

/* After F. */
static weft_status measure(wefti_model *model, const wefti_stage_pass *pass,
                           bool trains, double scale, double *losses_out)
{
    const wefti_micro_batch *batch = pass->batch;
    weft_status status =
        wefti_stage_measure(last(model), pass, trains, scale, model->losses);
    for (size_t i = 0; i < batch->sequences; i++) {
        losses_out[i] = 0;
        for (size_t t = 0; t < batch->length; t++) {
            losses_out[i] += (double)model->losses[i * batch->length + t];
        }
    }
    return status;
}

weft_status wefti_model_evaluate(wefti_model *model, const real *values,
                                 const wefti_micro_batch *batch,
                                 const wefti_model_hooks *hooks,
                                 double *losses_out)
{
    wefti_stage_pass pass = begin(model, values, batch, hooks);
    weft_status status = forward(model, &pass);
    if (status == WEFT_OK) {
        status = measure(model, &pass, false, 0, losses_out);
    }
    return status;
}

weft_status wefti_model_train(wefti_model *model, const real *values,
                              const wefti_micro_batch *batch, double scale,
                              const wefti_model_hooks *hooks, real *gradients,
                              double *losses_out)
{
    wefti_stage_pass pass = begin(model, values, batch, hooks);
    for (size_t g = 0; g < model->plan->group_count; g++) {
        pass.gradients[g] = gradients + wefti_model_start(model->plan, g);
    }
    weft_status status = forward(model, &pass);
    if (status == WEFT_OK) {
        status = measure(model, &pass, true, scale, losses_out);
    }
    if (status == WEFT_OK) {
        status = backward(model, &pass);
    }
    return status;
}
