/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/whole_model.c - the whole decoder as one stage with one slot.
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
    wefti_stage *stage;
    real *arena;
    size_t arena_elems;
};

weft_status wefti_model_create(const wefti_parameters *plan, size_t sequences,
                               wefti_model **model_out)
{
    wefti_model *model = calloc(1, sizeof(*model));
    if (!model) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a model");
    }
    model->plan = plan;
    weft_status status = weft_device_open("host", 0, &model->device);
    if (status == WEFT_OK) {
        status = wefti_workspace_init(&model->workspace, model->device, NULL,
                                      &plan->shape, sequences);
    }
    if (status == WEFT_OK) {
        status =
            wefti_storage_alloc(sequences * plan->shape.seq, &model->losses);
    }
    if (status == WEFT_OK) {
        wefti_stage_config config = {.plan = plan,
                                     .workspace = &model->workspace,
                                     .layers_end = plan->shape.layers,
                                     .slots = 1,
                                     .arenas = &model->arena};
        model->arena_elems = wefti_stage_slot_elems(&config);
        status = wefti_storage_alloc(model->arena_elems, &model->arena);
        if (status == WEFT_OK) {
            status = wefti_stage_create(&config, &model->stage);
        }
        if (status == WEFT_OK) {
            status = wefti_workspace_alloc(&model->workspace);
        }
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
        wefti_stage_destroy(model->stage);
        wefti_storage_free(model->arena);
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

weft_status wefti_model_predict(wefti_model *model, const real *values,
                                const wefti_micro_batch *batch,
                                const wefti_model_hooks *hooks,
                                const real **logits_out)
{
    wefti_stage_pass pass = begin(model, values, batch, hooks);
    *logits_out = wefti_stage_logits(model->stage, pass.slot);
    return wefti_stage_forward(model->stage, &pass);
}

/* After F. */
static weft_status measure(wefti_model *model, const wefti_stage_pass *pass,
                           bool trains, double scale, double *losses_out)
{
    const wefti_micro_batch *batch = pass->batch;
    weft_status status =
        wefti_stage_measure(model->stage, pass, trains, scale, model->losses);
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
    weft_status status = wefti_stage_forward(model->stage, &pass);
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
    weft_status status = wefti_stage_forward(model->stage, &pass);
    if (status == WEFT_OK) {
        status = measure(model, &pass, true, scale, losses_out);
    }
    if (status == WEFT_OK) {
        status = wefti_stage_backward(model->stage, &pass);
    }
    return status;
}
