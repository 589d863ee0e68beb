/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_math.c - nodes' kernels, queued on the pass' stream.
 */
#include "trainer/program/node_math.h"

#include "kernels/math/math_launch.h"
#include "kernels/math/math_stream.h"

#include <math.h>

typedef wefti_math_tensor tensor;

/* Rows of width elements, the next stride elements on; and side by side. */
static tensor strided(const real *at, size_t rows, size_t width, size_t stride)
{
    return (tensor){(real *)at, WEFTI_REAL_DTYPE, rows, width, stride};
}

static tensor dense(const real *at, size_t rows, size_t width)
{
    return strided(at, rows, width, width);
}

weft_status wefti_node_copy(const wefti_node_args *args, real *dst,
                            const real *src, size_t elems)
{
    const wefti_program_pass *pass = args->pass;
    return weft_device_copy(pass->device, dst, src, elems * sizeof(real),
                            pass->compute);
}

weft_status wefti_node_clear(const wefti_node_args *args, real *dst,
                             size_t elems)
{
    const tensor all = dense(dst, 1, elems);
    return wefti_stream_fill(args->pass->compute, &all, 0);
}

weft_status wefti_node_add(const wefti_node_args *args, real *dst,
                           const real *a, const real *b, size_t elems)
{
    const tensor sum = dense(dst, 1, elems);
    const tensor left = dense(a, 1, elems), right = dense(b, 1, elems);
    return wefti_stream_add(args->pass->compute, &sum, &left, &right);
}

weft_status wefti_node_linear_forward(const wefti_node_args *args,
                                      const wefti_node_linear *map,
                                      const real *x, real *y, bool add)
{
    const tensor in = dense(x, args->rows, map->inputs);
    const tensor out = dense(y, args->rows, map->outputs);
    const tensor weight = dense(map->weight, map->outputs, map->inputs);
    return wefti_stream_gemm(args->pass->compute, &out, &in, false, &weight,
                             true, 1, add ? 1 : 0);
}

weft_status wefti_node_linear_inputs(const wefti_node_args *args,
                                     const wefti_node_linear *map,
                                     const real *dy, real *dx)
{
    const tensor above = dense(dy, args->rows, map->outputs);
    const tensor below = dense(dx, args->rows, map->inputs);
    const tensor weight = dense(map->weight, map->outputs, map->inputs);
    return wefti_stream_gemm(args->pass->compute, &below, &above, false,
                             &weight, false, 1, 0);
}

weft_status wefti_node_linear_weights(const wefti_node_args *args,
                                      const wefti_node_linear *map,
                                      const real *dy, const real *x,
                                      real *dweight)
{
    const tensor above = dense(dy, args->rows, map->outputs);
    const tensor in = dense(x, args->rows, map->inputs);
    const tensor sum = dense(dweight, map->outputs, map->inputs);
    return wefti_stream_gemm(args->pass->compute, &sum, &above, true, &in,
                             false, 1, 0);
}

weft_status wefti_node_norm_forward(const wefti_node_args *args, real *y,
                                    real *rstd, const real *x,
                                    const real *weight, size_t width)
{
    const tensor out = dense(y, args->rows, width);
    const tensor scales = dense(rstd, 1, args->rows);
    const tensor in = dense(x, args->rows, width);
    const tensor weights = dense(weight, 1, width);
    return wefti_stream_rmsnorm_forward(args->pass->compute, &out, &scales, &in,
                                        &weights, WEFTI_NORM_EPSILON);
}

weft_status wefti_node_norm_backward(const wefti_node_args *args,
                                     const wefti_node_norm *norm, real *dx,
                                     const real *dy, const real *x,
                                     bool accumulate)
{
    const size_t rows = args->rows, width = norm->width;
    const tensor below = dense(dx, rows, width);
    const tensor sum = dense(norm->dweight, 1, width);
    const tensor above = dense(dy, rows, width);
    const tensor in = dense(x, rows, width);
    const tensor weights = dense(norm->weight, 1, width);
    const tensor scales = dense(norm->rstd, 1, rows);
    const tensor partials =
        dense(norm->partials, wefti_math_dweight_partials(rows), width);
    return wefti_stream_rmsnorm_backward(args->pass->compute, &below, &sum,
                                         &above, &in, &weights, &scales,
                                         accumulate, &partials);
}

weft_status wefti_node_swiglu_forward(const wefti_node_args *args, real *out,
                                      const real *gate_up, size_t width)
{
    const tensor product = dense(out, args->rows, width);
    const tensor gate = strided(gate_up, args->rows, width, 2 * width);
    const tensor up = strided(gate_up + width, args->rows, width, 2 * width);
    return wefti_stream_swiglu_forward(args->pass->compute, &product, &gate,
                                       &up);
}

weft_status wefti_node_swiglu_backward(const wefti_node_args *args,
                                       real *d_gate_up, const real *dout,
                                       const real *gate_up, size_t width)
{
    const size_t rows = args->rows;
    const tensor dgate = strided(d_gate_up, rows, width, 2 * width);
    const tensor dup = strided(d_gate_up + width, rows, width, 2 * width);
    const tensor above = dense(dout, rows, width);
    const tensor gate = strided(gate_up, rows, width, 2 * width);
    const tensor up = strided(gate_up + width, rows, width, 2 * width);
    return wefti_stream_swiglu_backward(args->pass->compute, &dgate, &dup,
                                        &above, &gate, &up);
}

/* The batch's tokens, of the call's rows. */
static tensor ids_of(const wefti_node_args *args)
{
    const int32_t *ids = args->pass->batch->tokens + args->first;
    return wefti_math_flat((int32_t *)ids, WEFT_DTYPE_I32, args->rows);
}

weft_status wefti_node_embedding_forward(const wefti_node_args *args, real *out,
                                         const real *table, size_t vocab,
                                         size_t width)
{
    const tensor rows = dense(out, args->rows, width);
    const tensor words = dense(table, vocab, width);
    const tensor ids = ids_of(args);
    return wefti_stream_embedding_forward(args->pass->compute, &rows, &words,
                                          &ids);
}

weft_status wefti_node_embedding_backward(const wefti_node_args *args,
                                          real *dtable, const real *dout,
                                          size_t vocab, size_t width)
{
    const tensor sum = dense(dtable, vocab, width);
    const tensor rows = dense(dout, args->rows, width);
    const tensor ids = ids_of(args);
    return wefti_stream_embedding_backward(args->pass->compute, &sum, &rows,
                                           &ids);
}

/* ---- attention -------------------------------------------------------------
 */

size_t wefti_node_heads_qkv(const wefti_node_heads *heads)
{
    return (heads->heads + 2 * heads->kv_heads) * heads->head_dim;
}

size_t wefti_node_heads_out(const wefti_node_heads *heads)
{
    return heads->heads * heads->head_dim;
}

/* Rows of q, k and v, each a tensor of the same stride. */
typedef struct parts {
    tensor q, k, v;
} parts;

static parts parts_of(const real *qkv, const wefti_node_heads *heads,
                      size_t rows)
{
    const size_t width = wefti_node_heads_qkv(heads);
    const size_t queries = wefti_node_heads_out(heads);
    const size_t keys = heads->kv_heads * heads->head_dim;
    return (parts){strided(qkv, rows, queries, width),
                   strided(qkv + queries, rows, keys, width),
                   strided(qkv + queries + keys, rows, keys, width)};
}

/* Causal attention of each of the call's sequences. */
static wefti_math_heads heads_of(const wefti_node_args *args,
                                 const wefti_node_heads *heads)
{
    return (wefti_math_heads){.sequences =
                                  args->rows / args->pass->batch->length,
                              .heads = heads->heads,
                              .kv_heads = heads->kv_heads,
                              .scale = 1.0 / sqrt((double)heads->head_dim),
                              .causal = true};
}

/* Queries and keys lie side by side: one turn for all heads of a sequence. */
weft_status wefti_node_rope(const wefti_node_args *args,
                            const wefti_node_heads *heads, real *qkv, bool back)
{
    const wefti_program_pass *pass = args->pass;
    const size_t length = pass->batch->length;
    const size_t width = wefti_node_heads_qkv(heads);
    const size_t turned = (heads->heads + heads->kv_heads) * heads->head_dim;
    const tensor table = dense(pass->rope, length, heads->head_dim);
    weft_status status = WEFT_OK;
    for (size_t row = 0; row < args->rows && status == WEFT_OK; row += length) {
        const tensor x = strided(qkv + row * width, length, turned, width);
        status = wefti_stream_rope(pass->compute, &x, &table, back);
    }
    return status;
}

weft_status wefti_node_attention_forward(const wefti_node_args *args,
                                         const wefti_node_heads *heads,
                                         real *out, real *lse, const real *qkv)
{
    const parts in = parts_of(qkv, heads, args->rows);
    const tensor o = dense(out, args->rows, wefti_node_heads_out(heads));
    const tensor sums = dense(lse, args->rows, heads->heads);
    const wefti_math_heads how = heads_of(args, heads);
    return wefti_stream_attention_forward(args->pass->compute, &o, &sums, &in.q,
                                          &in.k, &in.v, &how, false);
}

weft_status wefti_node_attention_backward(const wefti_node_args *args,
                                          const wefti_node_heads *heads,
                                          real *dqkv, const real *dout,
                                          const real *qkv, const real *out,
                                          const real *lse, real *delta)
{
    const size_t rows = args->rows;
    const parts in = parts_of(qkv, heads, rows);
    const parts d = parts_of(dqkv, heads, rows);
    const tensor o = dense(out, rows, wefti_node_heads_out(heads));
    const tensor above = dense(dout, rows, wefti_node_heads_out(heads));
    const tensor sums = dense(lse, rows, heads->heads);
    const tensor dots = dense(delta, rows, heads->heads);
    const wefti_math_heads how = heads_of(args, heads);
    weft_status status = wefti_stream_attention_backward(
        args->pass->compute, &d.q, &d.k, &d.v, &above, &in.q, &in.k, &in.v, &o,
        &sums, &dots, &how, false);
    return status == WEFT_OK ? wefti_node_rope(args, heads, dqkv, true)
                             : status;
}
