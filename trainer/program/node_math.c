/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_math.c - nodes' kernels, from the table of the pass.
 */
#include "trainer/program/node_math.h"

#include <math.h>
#include <string.h>

void wefti_node_copy(const wefti_node_args *args, real *dst, const real *src,
                     size_t elems)
{
    (void)args;
    memcpy(dst, src, elems * sizeof(real));
}

void wefti_node_clear(const wefti_node_args *args, real *dst, size_t elems)
{
    args->pass->math->fill(dst, WEFTI_REAL(0), elems);
}

void wefti_node_linear_forward(const wefti_node_args *args,
                               const wefti_node_linear *map, const real *x,
                               real *y, bool add)
{
    args->pass->math->gemm(false, true, args->rows, map->outputs, map->inputs,
                           WEFTI_REAL(1), x, map->inputs, map->weight,
                           map->inputs, add ? WEFTI_REAL(1) : WEFTI_REAL(0), y,
                           map->outputs);
}

void wefti_node_linear_inputs(const wefti_node_args *args,
                              const wefti_node_linear *map, const real *dy,
                              real *dx)
{
    args->pass->math->gemm(false, false, args->rows, map->inputs, map->outputs,
                           WEFTI_REAL(1), dy, map->outputs, map->weight,
                           map->inputs, WEFTI_REAL(0), dx, map->inputs);
}

void wefti_node_linear_weights(const wefti_node_args *args,
                               const wefti_node_linear *map, const real *dy,
                               const real *x, real *dweight)
{
    args->pass->math->gemm(true, false, map->outputs, map->inputs, args->rows,
                           WEFTI_REAL(1), dy, map->outputs, x, map->inputs,
                           WEFTI_REAL(0), dweight, map->inputs);
}

void wefti_node_norm_forward(const wefti_node_args *args, real *y, real *rstd,
                             const real *x, const real *weight, size_t width)
{
    args->pass->math->rmsnorm_forward(y, rstd, x, weight, args->rows, width,
                                      WEFTI_NORM_EPSILON);
}

void wefti_node_norm_backward(const wefti_node_args *args, real *dx,
                              real *dweight, const real *dy, const real *x,
                              const real *weight, const real *rstd,
                              size_t width, bool accumulate)
{
    args->pass->math->rmsnorm_backward(dx, dweight, dy, x, weight, rstd,
                                       args->rows, width, accumulate);
}

void wefti_node_swiglu_forward(const wefti_node_args *args, real *out,
                               const real *gate_up, size_t width)
{
    args->pass->math->swiglu_forward(out, gate_up, gate_up + width, args->rows,
                                     width, 2 * width);
}

void wefti_node_swiglu_backward(const wefti_node_args *args, real *d_gate_up,
                                const real *dout, const real *gate_up,
                                size_t width)
{
    args->pass->math->swiglu_backward(d_gate_up, d_gate_up + width, dout,
                                      gate_up, gate_up + width, args->rows,
                                      width, 2 * width);
}

void wefti_node_embedding_forward(const wefti_node_args *args, real *out,
                                  const real *table, size_t vocab, size_t width)
{
    args->pass->math->embedding_forward(out, table,
                                        args->pass->batch->tokens + args->first,
                                        args->rows, vocab, width);
}

void wefti_node_embedding_backward(const wefti_node_args *args, real *dtable,
                                   const real *dout, size_t vocab, size_t width)
{
    args->pass->math->embedding_backward(
        dtable, dout, args->pass->batch->tokens + args->first, args->rows,
        vocab, width);
}

size_t wefti_node_heads_qkv(const wefti_node_heads *heads)
{
    return (heads->heads + 2 * heads->kv_heads) * heads->head_dim;
}

size_t wefti_node_heads_out(const wefti_node_heads *heads)
{
    return heads->heads * heads->head_dim;
}

/* The attention of one sequence. */
static wefti_attention attention_of(const wefti_node_heads *heads,
                                    size_t length)
{
    return (wefti_attention){.q_tokens = length,
                             .kv_tokens = length,
                             .heads = heads->heads,
                             .kv_heads = heads->kv_heads,
                             .head_size = heads->head_dim,
                             .q_stride = wefti_node_heads_qkv(heads),
                             .kv_stride = wefti_node_heads_qkv(heads),
                             .o_stride = wefti_node_heads_out(heads),
                             .scale =
                                 (real)(1.0 / sqrt((double)heads->head_dim)),
                             .causal = true};
}

size_t wefti_node_heads_scratch(const wefti_node_heads *heads, size_t length)
{
    wefti_attention attention = attention_of(heads, length);
    return wefti_attention_scratch_elems(&attention);
}

void wefti_node_attention_forward(const wefti_node_args *args,
                                  const wefti_node_heads *heads, real *out,
                                  real *lse, real *qkv, real *scratch)
{
    const wefti_program_pass *pass = args->pass;
    const size_t length = pass->batch->length;
    const size_t width = wefti_node_heads_qkv(heads);
    const size_t queries = wefti_node_heads_out(heads);
    const size_t keys = heads->kv_heads * heads->head_dim;
    const wefti_attention attention = attention_of(heads, length);
    for (size_t token = 0; token < args->rows; token += length) {
        real *q = qkv + token * width;
        /* Queries and keys lie side by side: one turn for all their heads. */
        pass->math->rope_forward(q, pass->rope, length,
                                 heads->heads + heads->kv_heads,
                                 heads->head_dim, width);
        pass->math->attention_forward(
            out + token * queries, lse + token * heads->heads, q, q + queries,
            q + queries + keys, &attention, false, scratch);
    }
}

void wefti_node_attention_backward(const wefti_node_args *args,
                                   const wefti_node_heads *heads, real *dqkv,
                                   const real *dout, const real *qkv,
                                   const real *out, const real *lse,
                                   real *delta, real *scratch)
{
    const wefti_program_pass *pass = args->pass;
    const size_t length = pass->batch->length;
    const size_t width = wefti_node_heads_qkv(heads);
    const size_t queries = wefti_node_heads_out(heads);
    const size_t keys = heads->kv_heads * heads->head_dim;
    const wefti_attention attention = attention_of(heads, length);
    wefti_node_clear(args, dqkv, args->rows * width);
    for (size_t token = 0; token < args->rows; token += length) {
        const real *dy = dout + token * queries;
        const real *q = qkv + token * width;
        real *dq = dqkv + token * width;
        real *dots = delta + token * heads->heads;
        pass->math->attention_delta(dots, out + token * queries, dy,
                                    &attention);
        pass->math->attention_backward(dq, dq + queries, dq + queries + keys,
                                       dy, q, q + queries, q + queries + keys,
                                       lse + token * heads->heads, dots,
                                       &attention, scratch);
        pass->math->rope_backward(dq, pass->rope, length,
                                  heads->heads + heads->kv_heads,
                                  heads->head_dim, width);
    }
}
