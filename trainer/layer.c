/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/layer.c - one decoder layer over the math kernels.
 */
#include "trainer/layer.h"

#include "trainer/linear.h"

#include <math.h>
#include <string.h>

weft_status wefti_pass_use(const wefti_pass *pass, size_t tensor)
{
    const wefti_model_hooks *hooks = pass->hooks;
    return hooks && hooks->use ? hooks->use(hooks->context, tensor) : WEFT_OK;
}

weft_status wefti_pass_finish(const wefti_pass *pass, size_t tensor)
{
    const wefti_model_hooks *hooks = pass->hooks;
    return hooks && hooks->finish ? hooks->finish(hooks->context, tensor)
                                  : WEFT_OK;
}

const real *wefti_pass_values(const wefti_pass *pass, size_t tensor)
{
    return pass->values + pass->plan->tensors[tensor].start_elems;
}

real *wefti_pass_gradients(const wefti_pass *pass, size_t tensor)
{
    return pass->gradients + pass->plan->tensors[tensor].start_elems;
}

static size_t qkv_width(const wefti_shape *shape)
{
    return (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
}

static wefti_attention attention_shape(const wefti_shape *shape, size_t length)
{
    return (wefti_attention){.q_tokens = length,
                             .kv_tokens = length,
                             .heads = shape->heads,
                             .kv_heads = shape->kv_heads,
                             .head_size = shape->head_dim,
                             .q_stride = qkv_width(shape),
                             .kv_stride = qkv_width(shape),
                             .o_stride = shape->heads * shape->head_dim,
                             .scale =
                                 (real)(1.0 / sqrt((double)shape->head_dim)),
                             .causal = true};
}

size_t wefti_layer_scratch_elems(const wefti_shape *shape, size_t length)
{
    wefti_attention attention = attention_shape(shape, length);
    return wefti_attention_scratch_elems(&attention);
}

/* The linear map of one of the layer's matrices. */
static wefti_linear linear_of(const wefti_pass *pass, size_t tensor)
{
    const wefti_tensor *row = &pass->plan->tensors[tensor];
    return (wefti_linear){pass->math, pass->sequences * pass->length, row->rows,
                          row->columns};
}

static weft_status apply(const wefti_pass *pass, size_t layer,
                         wefti_layer_tensor which, const real *x, real *y,
                         bool add)
{
    size_t tensor = wefti_tensor_of_layer(layer, which);
    weft_status status = wefti_pass_use(pass, tensor);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_linear linear = linear_of(pass, tensor);
    wefti_linear_forward(&linear, x, wefti_pass_values(pass, tensor), y, add);
    return WEFT_OK;
}

static weft_status normalise(const wefti_pass *pass, size_t layer,
                             wefti_layer_tensor which, const real *x, real *y,
                             real *rstd)
{
    size_t tensor = wefti_tensor_of_layer(layer, which);
    weft_status status = wefti_pass_use(pass, tensor);
    if (status != WEFT_OK) {
        return status;
    }
    pass->math->rmsnorm_forward(y, rstd, x, wefti_pass_values(pass, tensor),
                                pass->sequences * pass->length,
                                pass->plan->shape.hidden, WEFTI_NORM_EPSILON);
    return WEFT_OK;
}

static void attend(const wefti_pass *pass, const wefti_layer_state *state)
{
    const wefti_shape *shape = &pass->plan->shape;
    wefti_attention attention = attention_shape(shape, pass->length);
    size_t queries = shape->heads * shape->head_dim;
    size_t keys = shape->kv_heads * shape->head_dim;
    for (size_t i = 0; i < pass->sequences; i++) {
        size_t token = i * pass->length;
        real *q = state->qkv + token * qkv_width(shape);
        /* Queries and keys lie side by side: one turn for all their heads. */
        pass->math->rope_forward(q, pass->rope, pass->length,
                                 shape->heads + shape->kv_heads,
                                 shape->head_dim, qkv_width(shape));
        pass->math->attention_forward(
            state->attended + token * queries,
            state->lse + token * shape->heads, q, q + queries,
            q + queries + keys, &attention, false, pass->attention_scratch);
    }
}

weft_status wefti_layer_forward(const wefti_pass *pass, size_t layer,
                                const wefti_layer_state *state, real *output)
{
    const wefti_shape *shape = &pass->plan->shape;
    size_t tokens = pass->sequences * pass->length;
    size_t residual_bytes = tokens * shape->hidden * sizeof(real);
    weft_status status =
        normalise(pass, layer, WEFTI_LAYER_ATTENTION_NORM, state->input,
                  state->attention_normed, state->attention_rstd);
    if (status == WEFT_OK) {
        status = apply(pass, layer, WEFTI_LAYER_QKV, state->attention_normed,
                       state->qkv, false);
    }
    if (status == WEFT_OK) {
        attend(pass, state);
        memcpy(state->middle, state->input, residual_bytes);
        status = apply(pass, layer, WEFTI_LAYER_ATTENTION_OUT, state->attended,
                       state->middle, true);
    }
    if (status == WEFT_OK) {
        status = normalise(pass, layer, WEFTI_LAYER_FFN_NORM, state->middle,
                           state->ffn_normed, state->ffn_rstd);
    }
    if (status == WEFT_OK) {
        status = apply(pass, layer, WEFTI_LAYER_GATE_UP, state->ffn_normed,
                       state->gate_up, false);
    }
    if (status == WEFT_OK) {
        pass->math->swiglu_forward(state->gated, state->gate_up,
                                   state->gate_up + shape->ffn, tokens,
                                   shape->ffn, 2 * shape->ffn);
        memcpy(output, state->middle, residual_bytes);
        status =
            apply(pass, layer, WEFTI_LAYER_DOWN, state->gated, output, true);
    }
    return status;
}

/* dW from dy and x, told as finished; dx from dy. */
static weft_status unapply(const wefti_pass *pass, size_t layer,
                           wefti_layer_tensor which, const real *dy,
                           const real *x, real *dx)
{
    size_t tensor = wefti_tensor_of_layer(layer, which);
    wefti_linear linear = linear_of(pass, tensor);
    wefti_linear_input_gradient(&linear, dy, wefti_pass_values(pass, tensor),
                                dx);
    wefti_linear_weight_gradient(&linear, dy, x,
                                 wefti_pass_gradients(pass, tensor));
    return wefti_pass_finish(pass, tensor);
}

/* Adds the norm's input gradient to that of the residual beside it. */
static weft_status unnormalise(const wefti_pass *pass, size_t layer,
                               wefti_layer_tensor which, const real *dy,
                               const real *x, const real *rstd,
                               real *residual_gradient)
{
    size_t tensor = wefti_tensor_of_layer(layer, which);
    size_t hidden = pass->plan->shape.hidden;
    real *dweight = wefti_pass_gradients(pass, tensor);
    pass->math->fill(dweight, WEFTI_REAL(0), hidden);
    pass->math->rmsnorm_backward(residual_gradient, dweight, dy, x,
                                 wefti_pass_values(pass, tensor), rstd,
                                 pass->sequences * pass->length, hidden, true);
    return wefti_pass_finish(pass, tensor);
}

/* From the gradient of attended in narrow to that of qkv in wide. */
static void unattend(const wefti_pass *pass, const wefti_layer_state *state)
{
    const wefti_shape *shape = &pass->plan->shape;
    wefti_attention attention = attention_shape(shape, pass->length);
    size_t width = qkv_width(shape);
    size_t queries = shape->heads * shape->head_dim;
    size_t keys = shape->kv_heads * shape->head_dim;
    pass->math->fill(pass->wide, WEFTI_REAL(0),
                     pass->sequences * pass->length * width);
    for (size_t i = 0; i < pass->sequences; i++) {
        size_t token = i * pass->length;
        const real *dout = pass->narrow + token * queries;
        const real *q = state->qkv + token * width;
        real *dq = pass->wide + token * width;
        real *delta = pass->delta + token * shape->heads;
        pass->math->attention_delta(delta, state->attended + token * queries,
                                    dout, &attention);
        pass->math->attention_backward(dq, dq + queries, dq + queries + keys,
                                       dout, q, q + queries, q + queries + keys,
                                       state->lse + token * shape->heads, delta,
                                       &attention, pass->attention_scratch);
        pass->math->rope_backward(dq, pass->rope, pass->length,
                                  shape->heads + shape->kv_heads,
                                  shape->head_dim, width);
    }
}

static weft_status ffn_backward(const wefti_pass *pass, size_t layer,
                                const wefti_layer_state *state, real *gradient)
{
    const wefti_shape *shape = &pass->plan->shape;
    weft_status status = unapply(pass, layer, WEFTI_LAYER_DOWN, gradient,
                                 state->gated, pass->wide);
    if (status == WEFT_OK) {
        real *gate = state->gate_up;
        real *up = state->gate_up + shape->ffn;
        pass->math->swiglu_backward(gate, up, pass->wide, gate, up,
                                    pass->sequences * pass->length, shape->ffn,
                                    2 * shape->ffn);
        status = unapply(pass, layer, WEFTI_LAYER_GATE_UP, state->gate_up,
                         state->ffn_normed, pass->narrow);
    }
    if (status == WEFT_OK) {
        status = unnormalise(pass, layer, WEFTI_LAYER_FFN_NORM, pass->narrow,
                             state->middle, state->ffn_rstd, gradient);
    }
    return status;
}

weft_status wefti_layer_backward(const wefti_pass *pass, size_t layer,
                                 const wefti_layer_state *state, real *gradient)
{
    weft_status status = ffn_backward(pass, layer, state, gradient);
    if (status == WEFT_OK) {
        status = unapply(pass, layer, WEFTI_LAYER_ATTENTION_OUT, gradient,
                         state->attended, pass->narrow);
    }
    if (status == WEFT_OK) {
        unattend(pass, state);
        status = unapply(pass, layer, WEFTI_LAYER_QKV, pass->wide,
                         state->attention_normed, pass->narrow);
    }
    if (status == WEFT_OK) {
        status =
            unnormalise(pass, layer, WEFTI_LAYER_ATTENTION_NORM, pass->narrow,
                        state->input, state->attention_rstd, gradient);
    }
    return status;
}
