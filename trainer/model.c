/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model.c - the decoder's two passes, and the arena they live in.
 *
 * The residual stream of layer l is the input of its state; the output of the
 * last layer has its own place. Backward carries one gradient of the residual,
 * changed in place from layer to layer.
 */
#include "trainer/model.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/linear.h"
#include "trainer/storage.h"

#include <stdlib.h>

struct wefti_model {
    const wefti_math *math;
    const wefti_parameters *plan;
    size_t sequences; /* at most, of plan->shape.seq tokens */
    real *arena;
    size_t arena_elems;
    wefti_layer_state *layers;
    real *rope;       /* [seq][head_dim] */
    real *output;     /* [tokens][hidden]: of the last layer */
    real *normed;     /* [tokens][hidden]: what the head reads */
    real *rstd;       /* [tokens] */
    real *logits;     /* [tokens][vocab]; backward: their gradient */
    real *token_loss; /* [tokens] */
    real *gradient;   /* [tokens][hidden]: of the residual */
    real *wide, *narrow, *delta, *attention_scratch;
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Takes elems from the arena; without one it only counts. */
static real *carve(wefti_model *model, size_t elems)
{
    const size_t align = WEFTI_STORAGE_ALIGN_BYTES / sizeof(real);
    real *start = model->arena ? model->arena + model->arena_elems : NULL;
    model->arena_elems += (elems + align - 1) / align * align;
    return start;
}

static void carve_layer(wefti_model *model, wefti_layer_state *state)
{
    const wefti_shape *shape = &model->plan->shape;
    size_t tokens = model->sequences * shape->seq;
    size_t queries = shape->heads * shape->head_dim;
    size_t qkv = queries + 2 * shape->kv_heads * shape->head_dim;
    state->input = carve(model, tokens * shape->hidden);
    state->attention_normed = carve(model, tokens * shape->hidden);
    state->attention_rstd = carve(model, tokens);
    state->qkv = carve(model, tokens * qkv);
    state->attended = carve(model, tokens * queries);
    state->lse = carve(model, tokens * shape->heads);
    state->middle = carve(model, tokens * shape->hidden);
    state->ffn_normed = carve(model, tokens * shape->hidden);
    state->ffn_rstd = carve(model, tokens);
    state->gate_up = carve(model, tokens * 2 * shape->ffn);
    state->gated = carve(model, tokens * shape->ffn);
}

static void carve_all(wefti_model *model)
{
    const wefti_shape *shape = &model->plan->shape;
    size_t tokens = model->sequences * shape->seq;
    size_t queries = shape->heads * shape->head_dim;
    size_t qkv = queries + 2 * shape->kv_heads * shape->head_dim;
    model->arena_elems = 0;
    for (size_t i = 0; i < shape->layers; i++) {
        carve_layer(model, &model->layers[i]);
    }
    model->rope = carve(model, shape->seq * shape->head_dim);
    model->output = carve(model, tokens * shape->hidden);
    model->normed = carve(model, tokens * shape->hidden);
    model->rstd = carve(model, tokens);
    model->logits = carve(model, tokens * shape->vocab);
    model->token_loss = carve(model, tokens);
    model->gradient = carve(model, tokens * shape->hidden);
    model->wide = carve(model, tokens * larger(2 * shape->ffn, qkv));
    model->narrow = carve(model, tokens * larger(shape->hidden, queries));
    model->delta = carve(model, tokens * shape->heads);
    model->attention_scratch =
        carve(model, wefti_layer_scratch_elems(shape, shape->seq));
}

weft_status wefti_model_create(const wefti_parameters *plan, size_t sequences,
                               wefti_model **model_out)
{
    const wefti_shape *shape = &plan->shape;
    wefti_model *model = calloc(1, sizeof(*model));
    if (!model) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a model");
    }
    model->math = wefti_math_get();
    model->plan = plan;
    model->sequences = sequences;
    model->layers = calloc(shape->layers, sizeof(*model->layers));
    if (model->layers) {
        carve_all(model);
        model->arena = aligned_alloc(WEFTI_STORAGE_ALIGN_BYTES,
                                     model->arena_elems * sizeof(real));
    }
    if (!model->arena) {
        size_t bytes = wefti_model_get_arena_bytes(model);
        wefti_model_destroy(model);
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for %zu bytes of activations", bytes);
    }
    carve_all(model);
    model->math->rope_table(model->rope, NULL, 0, shape->seq, shape->head_dim,
                            shape->rope_theta);
    *model_out = model;
    return WEFT_OK;
}

void wefti_model_destroy(wefti_model *model)
{
    if (model) {
        wefti_storage_free(model->arena);
        free(model->layers);
        free(model);
    }
}

size_t wefti_model_get_arena_bytes(const wefti_model *model)
{
    return model->arena_elems * sizeof(real);
}

static wefti_pass begin_pass(const wefti_model *model, const real *values,
                             real *gradients, const wefti_batch *batch,
                             const wefti_model_hooks *hooks)
{
    WEFTI_ASSERT(batch->sequences <= model->sequences);
    WEFTI_ASSERT(batch->length <= model->plan->shape.seq);
    return (wefti_pass){.math = model->math,
                        .plan = model->plan,
                        .values = values,
                        .gradients = gradients,
                        .sequences = batch->sequences,
                        .length = batch->length,
                        .hooks = hooks,
                        .rope = model->rope,
                        .wide = model->wide,
                        .narrow = model->narrow,
                        .delta = model->delta,
                        .attention_scratch = model->attention_scratch};
}

static wefti_linear head_of(const wefti_pass *pass)
{
    const wefti_shape *shape = &pass->plan->shape;
    return (wefti_linear){pass->math, pass->sequences * pass->length,
                          shape->vocab, shape->hidden};
}

/* The last layer's output to logits. */
static weft_status head_forward(const wefti_model *model,
                                const wefti_pass *pass)
{
    size_t norm = wefti_tensor_final_norm(model->plan);
    size_t head = wefti_tensor_head(model->plan);
    weft_status status = wefti_pass_use(pass, norm);
    if (status == WEFT_OK && !model->plan->shape.tied) {
        status = wefti_pass_use(pass, head);
    }
    if (status != WEFT_OK) {
        return status;
    }
    pass->math->rmsnorm_forward(model->normed, model->rstd, model->output,
                                wefti_pass_values(pass, norm),
                                pass->sequences * pass->length,
                                model->plan->shape.hidden, WEFTI_NORM_EPSILON);
    wefti_linear linear = head_of(pass);
    wefti_linear_forward(&linear, model->normed, wefti_pass_values(pass, head),
                         model->logits, false);
    return WEFT_OK;
}

static weft_status forward(const wefti_model *model, const wefti_pass *pass,
                           const wefti_batch *batch)
{
    const wefti_shape *shape = &model->plan->shape;
    size_t embedding = wefti_tensor_embedding();
    weft_status status = wefti_pass_use(pass, embedding);
    if (status != WEFT_OK) {
        return status;
    }
    pass->math->embedding_forward(model->layers[0].input,
                                  wefti_pass_values(pass, embedding),
                                  batch->tokens, pass->sequences * pass->length,
                                  shape->vocab, shape->hidden);
    for (size_t i = 0; i < shape->layers; i++) {
        real *output =
            i + 1 < shape->layers ? model->layers[i + 1].input : model->output;
        status = wefti_layer_forward(pass, i, &model->layers[i], output);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return head_forward(model, pass);
}

/* From the gradient of the logits to that of the last layer's output. */
static weft_status head_backward(const wefti_model *model,
                                 const wefti_pass *pass)
{
    size_t norm = wefti_tensor_final_norm(model->plan);
    size_t head = wefti_tensor_head(model->plan);
    size_t hidden = model->plan->shape.hidden;
    wefti_linear linear = head_of(pass);
    wefti_linear_input_gradient(&linear, model->logits,
                                wefti_pass_values(pass, head), model->narrow);
    wefti_linear_weight_gradient(&linear, model->logits, model->normed,
                                 wefti_pass_gradients(pass, head));
    if (!model->plan->shape.tied) {
        weft_status status = wefti_pass_finish(pass, head);
        if (status != WEFT_OK) {
            return status;
        }
    }
    real *dweight = wefti_pass_gradients(pass, norm);
    pass->math->fill(dweight, WEFTI_REAL(0), hidden);
    pass->math->rmsnorm_backward(model->gradient, dweight, model->narrow,
                                 model->output, wefti_pass_values(pass, norm),
                                 model->rstd, pass->sequences * pass->length,
                                 hidden, false);
    return wefti_pass_finish(pass, norm);
}

static weft_status backward(const wefti_model *model, const wefti_pass *pass,
                            const wefti_batch *batch)
{
    const wefti_shape *shape = &model->plan->shape;
    weft_status status = head_backward(model, pass);
    for (size_t i = shape->layers; i > 0 && status == WEFT_OK; i--) {
        status = wefti_layer_backward(pass, i - 1, &model->layers[i - 1],
                                      model->gradient);
    }
    if (status != WEFT_OK) {
        return status;
    }
    size_t embedding = wefti_tensor_embedding();
    real *dtable = wefti_pass_gradients(pass, embedding);
    if (!shape->tied) { /* else the head's share is in it already */
        pass->math->fill(dtable, WEFTI_REAL(0), shape->vocab * shape->hidden);
    }
    pass->math->embedding_backward(dtable, model->gradient, batch->tokens,
                                   pass->sequences * pass->length, shape->vocab,
                                   shape->hidden);
    return wefti_pass_finish(pass, embedding);
}

weft_status wefti_model_predict(wefti_model *model, const real *values,
                                const wefti_batch *batch,
                                const wefti_model_hooks *hooks,
                                const real **logits_out)
{
    wefti_pass pass = begin_pass(model, values, NULL, batch, hooks);
    weft_status status = forward(model, &pass, batch);
    *logits_out = model->logits;
    return status;
}

/* Losses by sequence and, with a scale, the logits' gradient in their place. */
static void measure_loss(const wefti_model *model, const wefti_batch *batch,
                         real *gradient, double scale, double *losses_out)
{
    size_t vocab = model->plan->shape.vocab;
    model->math->cross_entropy(model->token_loss, gradient, model->logits,
                               batch->targets, batch->sequences * batch->length,
                               vocab, (real)scale);
    for (size_t i = 0; i < batch->sequences; i++) {
        losses_out[i] = 0;
        for (size_t t = 0; t < batch->length; t++) {
            losses_out[i] += (double)model->token_loss[i * batch->length + t];
        }
    }
}

weft_status wefti_model_evaluate(wefti_model *model, const real *values,
                                 const wefti_batch *batch,
                                 const wefti_model_hooks *hooks,
                                 double *losses_out)
{
    wefti_pass pass = begin_pass(model, values, NULL, batch, hooks);
    weft_status status = forward(model, &pass, batch);
    if (status == WEFT_OK) {
        measure_loss(model, batch, NULL, 0, losses_out);
    }
    return status;
}

weft_status wefti_model_train(wefti_model *model, const real *values,
                              const wefti_batch *batch, double scale,
                              const wefti_model_hooks *hooks, real *gradients,
                              double *losses_out)
{
    wefti_pass pass = begin_pass(model, values, gradients, batch, hooks);
    weft_status status = forward(model, &pass, batch);
    if (status == WEFT_OK) {
        measure_loss(model, batch, model->logits, scale, losses_out);
        status = backward(model, &pass, batch);
    }
    return status;
}
