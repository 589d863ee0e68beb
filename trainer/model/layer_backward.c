/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/layer_backward.c - the two halves of a layer's backward.
 *
 * What the second half needs lies, after the first, where nothing else is
 * needed any more: the gradients of qkv, middle and gate_up in the place of
 * their values.
 */
#include "trainer/model/layer.h"

#include "trainer/model/layer_tensors.h"

#include <string.h>

/* dx = dy W of all rows. */
static void unapply(const wefti_model_pass *pass, size_t layer,
                    wefti_layer_tensor which, const real *dy, real *dx)
{
    size_t tensor = wefti_pass_tensor(pass, layer, which);
    wefti_linear linear = wefti_pass_linear(pass, tensor);
    wefti_linear_input_gradient(&linear, dy, wefti_pass_values(pass, tensor),
                                dx);
}

/* As the gradient of the output comes: kept, and on to that of gate_up. */
static weft_status enter(const wefti_model_pass *pass, size_t layer,
                         const wefti_layer_state *state, const real *gradient,
                         const wefti_row_hook *arriving)
{
    const wefti_model_shape *shape = &pass->plan->shape;
    size_t down = wefti_pass_tensor(pass, layer, WEFTI_LAYER_DOWN);
    size_t tokens = pass->sequences * pass->length;
    wefti_linear linear = wefti_pass_linear(pass, down);
    weft_status status = WEFT_OK;
    for (size_t row = 0; row < tokens && status == WEFT_OK;
         row += linear.rows) {
        linear.rows = wefti_pass_chunk(pass, row);
        status = wefti_row_hook_call(arriving, row + linear.rows);
        if (status != WEFT_OK) {
            break;
        }
        const real *dout = gradient + row * shape->hidden;
        real *dgated = pass->wide + row * shape->ffn;
        real *gate = state->gate_up + row * 2 * shape->ffn;
        memcpy(state->output_gradient + row * shape->hidden, dout,
               linear.rows * shape->hidden * sizeof(real));
        wefti_linear_input_gradient(&linear, dout,
                                    wefti_pass_values(pass, down), dgated);
        pass->math->swiglu_backward(gate, gate + shape->ffn, dgated, gate,
                                    gate + shape->ffn, linear.rows, shape->ffn,
                                    2 * shape->ffn);
    }
    return status;
}

/* Adds the norm's input gradient to that of the residual beside it. */
static void unnormalise_middle(const wefti_model_pass *pass, size_t layer,
                               const wefti_layer_state *state, real *gradient)
{
    size_t norm = wefti_pass_tensor(pass, layer, WEFTI_LAYER_FFN_NORM);
    size_t hidden = pass->plan->shape.hidden;
    pass->math->fill(state->ffn_norm_gradient, WEFTI_REAL(0), hidden);
    pass->math->rmsnorm_backward(gradient, state->ffn_norm_gradient,
                                 pass->narrow, state->middle,
                                 wefti_pass_values(pass, norm), state->ffn_rstd,
                                 pass->sequences * pass->length, hidden, true);
}

/* From the gradient of attended in narrow to that of qkv, in its place. */
static void unattend(const wefti_model_pass *pass,
                     const wefti_layer_state *state)
{
    const wefti_model_shape *shape = &pass->plan->shape;
    wefti_attention attention = wefti_layer_attention(shape, pass->length);
    size_t width = wefti_layer_qkv_width(shape);
    size_t queries = shape->heads * shape->head_dim;
    size_t keys = shape->kv_heads * shape->head_dim;
    size_t elems = pass->sequences * pass->length * width;
    pass->math->fill(pass->wide, WEFTI_REAL(0), elems);
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
    memcpy(state->qkv, pass->wide, elems * sizeof(real));
}

/* qkv and norm, and off with the gradient of the input. */
static weft_status leave(const wefti_model_pass *pass, size_t layer,
                         const wefti_layer_state *state, real *gradient,
                         const wefti_row_hook *leaving)
{
    const wefti_model_shape *shape = &pass->plan->shape;
    size_t norm = wefti_pass_tensor(pass, layer, WEFTI_LAYER_ATTENTION_NORM);
    size_t qkv = wefti_pass_tensor(pass, layer, WEFTI_LAYER_QKV);
    size_t tokens = pass->sequences * pass->length;
    wefti_linear linear = wefti_pass_linear(pass, qkv);
    weft_status status = WEFT_OK;
    pass->math->fill(state->attention_norm_gradient, WEFTI_REAL(0),
                     shape->hidden);
    for (size_t row = 0; row < tokens && status == WEFT_OK;
         row += linear.rows) {
        linear.rows = wefti_pass_chunk(pass, row);
        real *dnormed = pass->narrow + row * shape->hidden;
        wefti_linear_input_gradient(
            &linear, state->qkv + row * wefti_layer_qkv_width(shape),
            wefti_pass_values(pass, qkv), dnormed);
        pass->math->rmsnorm_backward(
            gradient + row * shape->hidden, state->attention_norm_gradient,
            dnormed, state->input + row * shape->hidden,
            wefti_pass_values(pass, norm), state->attention_rstd + row,
            linear.rows, shape->hidden, true);
        status = wefti_row_hook_call(leaving, row + linear.rows);
    }
    return status;
}

weft_status wefti_layer_backward_inputs(const wefti_model_pass *pass,
                                        size_t layer,
                                        const wefti_layer_state *state,
                                        real *gradient,
                                        const wefti_row_hook *arriving,
                                        const wefti_row_hook *leaving)
{
    size_t elems = pass->sequences * pass->length * pass->plan->shape.hidden;
    weft_status status = enter(pass, layer, state, gradient, arriving);
    if (status != WEFT_OK) {
        return status;
    }
    unapply(pass, layer, WEFTI_LAYER_GATE_UP, state->gate_up, pass->narrow);
    unnormalise_middle(pass, layer, state, gradient);
    memcpy(state->middle, gradient, elems * sizeof(real));
    unapply(pass, layer, WEFTI_LAYER_ATTENTION_OUT, gradient, pass->narrow);
    unattend(pass, state);
    return leave(pass, layer, state, gradient, leaving);
}

/* dW = dy^T x, reported as finished. */
static weft_status weigh(const wefti_model_pass *pass, size_t layer,
                         wefti_layer_tensor which, const real *dy,
                         const real *x)
{
    size_t tensor = wefti_pass_tensor(pass, layer, which);
    wefti_linear linear = wefti_pass_linear(pass, tensor);
    wefti_linear_weight_gradient(&linear, dy, x,
                                 wefti_pass_gradients(pass, tensor));
    return wefti_pass_finish(pass, tensor);
}

/* A norm's, which the first half has made. */
static weft_status hand_over(const wefti_model_pass *pass, size_t layer,
                             wefti_layer_tensor which, const real *gradient)
{
    size_t tensor = wefti_pass_tensor(pass, layer, which);
    memcpy(wefti_pass_gradients(pass, tensor), gradient,
           pass->plan->shape.hidden * sizeof(real));
    return wefti_pass_finish(pass, tensor);
}

weft_status wefti_layer_backward_weights(const wefti_model_pass *pass,
                                         size_t layer,
                                         const wefti_layer_state *state)
{
    weft_status status = weigh(pass, layer, WEFTI_LAYER_DOWN,
                               state->output_gradient, state->gated);
    if (status == WEFT_OK) {
        status = weigh(pass, layer, WEFTI_LAYER_GATE_UP, state->gate_up,
                       state->ffn_normed);
    }
    if (status == WEFT_OK) {
        status = hand_over(pass, layer, WEFTI_LAYER_FFN_NORM,
                           state->ffn_norm_gradient);
    }
    if (status == WEFT_OK) {
        status = weigh(pass, layer, WEFTI_LAYER_ATTENTION_OUT, state->middle,
                       state->attended);
    }
    if (status == WEFT_OK) {
        status = weigh(pass, layer, WEFTI_LAYER_QKV, state->qkv,
                       state->attention_normed);
    }
    if (status == WEFT_OK) {
        status = hand_over(pass, layer, WEFTI_LAYER_ATTENTION_NORM,
                           state->attention_norm_gradient);
    }
    return status;
}
