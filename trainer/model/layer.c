/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/layer.c - one decoder layer over the math kernels: forward, and
 * what both directions have in common.
 */
#include "trainer/model/layer.h"

#include "trainer/model/layer_tensors.h"

#include <math.h>
#include <string.h>

weft_status wefti_pass_use(const wefti_model_pass *pass, size_t tensor)
{
    const wefti_model_hooks *hooks = pass->hooks;
    return hooks && hooks->use ? hooks->use(hooks->context, tensor) : WEFT_OK;
}

weft_status wefti_pass_finish(const wefti_model_pass *pass, size_t tensor)
{
    const wefti_model_hooks *hooks = pass->hooks;
    return hooks && hooks->finish ? hooks->finish(hooks->context, tensor)
                                  : WEFT_OK;
}

const real *wefti_pass_values(const wefti_model_pass *pass, size_t tensor)
{
    return pass->values + pass->plan->tensors[tensor].start_elems;
}

real *wefti_pass_gradients(const wefti_model_pass *pass, size_t tensor)
{
    return pass->gradients + pass->plan->tensors[tensor].start_elems;
}

size_t wefti_layer_qkv_width(const wefti_model_shape *shape)
{
    return (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
}

wefti_attention wefti_layer_attention(const wefti_model_shape *shape,
                                      size_t length)
{
    return (wefti_attention){.q_tokens = length,
                             .kv_tokens = length,
                             .heads = shape->heads,
                             .kv_heads = shape->kv_heads,
                             .head_size = shape->head_dim,
                             .q_stride = wefti_layer_qkv_width(shape),
                             .kv_stride = wefti_layer_qkv_width(shape),
                             .o_stride = shape->heads * shape->head_dim,
                             .scale =
                                 (real)(1.0 / sqrt((double)shape->head_dim)),
                             .causal = true};
}

size_t wefti_layer_scratch_elems(const wefti_model_shape *shape, size_t length)
{
    wefti_attention attention = wefti_layer_attention(shape, length);
    return wefti_attention_scratch_elems(&attention);
}

size_t wefti_pass_tensor(const wefti_model_pass *pass, size_t layer,
                         size_t which)
{
    return wefti_tensor_of_layer(pass->plan, layer) + which;
}

wefti_linear wefti_pass_linear(const wefti_model_pass *pass, size_t tensor)
{
    const wefti_tensor_info *row = &pass->plan->tensors[tensor].info;
    return (wefti_linear){pass->math, pass->sequences * pass->length, row->rows,
                          row->columns};
}

size_t wefti_pass_chunk(const wefti_model_pass *pass, size_t first)
{
    size_t left = pass->sequences * pass->length - first;
    return left < WEFTI_LAYER_CHUNK_ROWS ? left : WEFTI_LAYER_CHUNK_ROWS;
}

weft_status wefti_row_hook_call(const wefti_row_hook *rows, size_t rows_end)
{
    return rows && rows->call ? rows->call(rows->context, rows_end) : WEFT_OK;
}

/* y = x W^T, or y += x W^T. */
static weft_status apply(const wefti_model_pass *pass, size_t layer,
                         wefti_layer_tensor which, const real *x, real *y,
                         bool add)
{
    size_t tensor = wefti_pass_tensor(pass, layer, which);
    weft_status status = wefti_pass_use(pass, tensor);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_linear linear = wefti_pass_linear(pass, tensor);
    wefti_linear_forward(&linear, x, wefti_pass_values(pass, tensor), y, add);
    return WEFT_OK;
}

/* Norm and qkv, as the input comes. */
static weft_status enter(const wefti_model_pass *pass, size_t layer,
                         const wefti_layer_state *state,
                         const wefti_row_hook *arriving)
{
    const wefti_model_shape *shape = &pass->plan->shape;
    size_t norm = wefti_pass_tensor(pass, layer, WEFTI_LAYER_ATTENTION_NORM);
    size_t qkv = wefti_pass_tensor(pass, layer, WEFTI_LAYER_QKV);
    size_t tokens = pass->sequences * pass->length;
    wefti_linear linear = wefti_pass_linear(pass, qkv);
    weft_status status = wefti_pass_use(pass, norm);
    if (status == WEFT_OK) {
        status = wefti_pass_use(pass, qkv);
    }
    for (size_t row = 0; row < tokens && status == WEFT_OK;
         row += linear.rows) {
        linear.rows = wefti_pass_chunk(pass, row);
        status = wefti_row_hook_call(arriving, row + linear.rows);
        if (status != WEFT_OK) {
            break;
        }
        real *normed = state->attention_normed + row * shape->hidden;
        pass->math->rmsnorm_forward(normed, state->attention_rstd + row,
                                    state->input + row * shape->hidden,
                                    wefti_pass_values(pass, norm), linear.rows,
                                    shape->hidden, WEFTI_NORM_EPSILON);
        wefti_linear_forward(&linear, normed, wefti_pass_values(pass, qkv),
                             state->qkv + row * wefti_layer_qkv_width(shape),
                             false);
    }
    return status;
}

static void attend(const wefti_model_pass *pass, const wefti_layer_state *state)
{
    const wefti_model_shape *shape = &pass->plan->shape;
    wefti_attention attention = wefti_layer_attention(shape, pass->length);
    size_t width = wefti_layer_qkv_width(shape);
    size_t queries = shape->heads * shape->head_dim;
    size_t keys = shape->kv_heads * shape->head_dim;
    for (size_t i = 0; i < pass->sequences; i++) {
        size_t token = i * pass->length;
        real *q = state->qkv + token * width;
        /* Queries and keys lie side by side: one turn for all their heads. */
        pass->math->rope_forward(q, pass->rope, pass->length,
                                 shape->heads + shape->kv_heads,
                                 shape->head_dim, width);
        pass->math->attention_forward(
            state->attended + token * queries,
            state->lse + token * shape->heads, q, q + queries,
            q + queries + keys, &attention, false, pass->attention_scratch);
    }
}

static weft_status normalise_middle(const wefti_model_pass *pass, size_t layer,
                                    const wefti_layer_state *state)
{
    size_t norm = wefti_pass_tensor(pass, layer, WEFTI_LAYER_FFN_NORM);
    weft_status status = wefti_pass_use(pass, norm);
    if (status == WEFT_OK) {
        pass->math->rmsnorm_forward(
            state->ffn_normed, state->ffn_rstd, state->middle,
            wefti_pass_values(pass, norm), pass->sequences * pass->length,
            pass->plan->shape.hidden, WEFTI_NORM_EPSILON);
    }
    return status;
}

/* SwiGLU and down, and off with the output. */
static weft_status leave(const wefti_model_pass *pass, size_t layer,
                         const wefti_layer_state *state, real *output,
                         const wefti_row_hook *leaving)
{
    const wefti_model_shape *shape = &pass->plan->shape;
    size_t down = wefti_pass_tensor(pass, layer, WEFTI_LAYER_DOWN);
    size_t tokens = pass->sequences * pass->length;
    wefti_linear linear = wefti_pass_linear(pass, down);
    weft_status status = wefti_pass_use(pass, down);
    for (size_t row = 0; row < tokens && status == WEFT_OK;
         row += linear.rows) {
        linear.rows = wefti_pass_chunk(pass, row);
        real *gate = state->gate_up + row * 2 * shape->ffn;
        real *gated = state->gated + row * shape->ffn;
        real *out = output + row * shape->hidden;
        pass->math->swiglu_forward(gated, gate, gate + shape->ffn, linear.rows,
                                   shape->ffn, 2 * shape->ffn);
        memcpy(out, state->middle + row * shape->hidden,
               linear.rows * shape->hidden * sizeof(real));
        wefti_linear_forward(&linear, gated, wefti_pass_values(pass, down), out,
                             true);
        status = wefti_row_hook_call(leaving, row + linear.rows);
    }
    return status;
}

weft_status wefti_layer_forward(const wefti_model_pass *pass, size_t layer,
                                const wefti_layer_state *state, real *output,
                                const wefti_row_hook *arriving,
                                const wefti_row_hook *leaving)
{
    weft_status status = enter(pass, layer, state, arriving);
    if (status == WEFT_OK) {
        attend(pass, state);
        memcpy(state->middle, state->input,
               pass->sequences * pass->length * pass->plan->shape.hidden *
                   sizeof(real));
        status = apply(pass, layer, WEFTI_LAYER_ATTENTION_OUT, state->attended,
                       state->middle, true);
    }
    if (status == WEFT_OK) {
        status = normalise_middle(pass, layer, state);
    }
    if (status == WEFT_OK) {
        status = apply(pass, layer, WEFTI_LAYER_GATE_UP, state->ffn_normed,
                       state->gate_up, false);
    }
    return status == WEFT_OK ? leave(pass, layer, state, output, leaving)
                             : status;
}
