/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_math.c - nodes' kernels, queued on the pass' stream.
 */
#include "trainer/program/node_math.h"

#include "kernels/math/math_launch.h"
#include "kernels/math/math_stream.h"

typedef wefti_math_tensor tensor;

static weft_dtype dtype_of(const wefti_node_args *args)
{
    return wefti_value_dtype(args->pass->program->narrow, false);
}

/* Rows of width elements, the next stride elements on; and side by side. */
static tensor strided(const wefti_node_args *args, const void *at, size_t rows,
                      size_t width, size_t stride)
{
    return (tensor){(void *)at, dtype_of(args), rows, width, stride};
}

static tensor dense(const wefti_node_args *args, const void *at, size_t rows,
                    size_t width)
{
    return strided(args, at, rows, width, width);
}

/* Of real, side by side. */
static tensor wide(const void *at, size_t rows, size_t width)
{
    return (tensor){(void *)at, WEFTI_REAL_DTYPE, rows, width, width};
}

void *wefti_node_skip(const wefti_node_args *args, const void *at, size_t elems)
{
    return (char *)at + elems * weft_dtype_bytes(dtype_of(args));
}

weft_status wefti_node_copy(const wefti_node_args *args, void *dst,
                            const void *src, size_t elems)
{
    const wefti_program_pass *pass = args->pass;
    return weft_device_copy(pass->device, dst, src,
                            elems * weft_dtype_bytes(dtype_of(args)),
                            pass->compute);
}

weft_status wefti_node_copy_sum(const wefti_node_args *args, real *dst,
                                const real *src, size_t elems)
{
    const wefti_program_pass *pass = args->pass;
    return weft_device_copy(pass->device, dst, src, elems * sizeof(real),
                            pass->compute);
}

weft_status wefti_node_clear(const wefti_node_args *args, real *dst,
                             size_t elems)
{
    const tensor all = wide(dst, 1, elems);
    return wefti_stream_fill(args->pass->compute, &all, 0);
}

weft_status wefti_node_clear_values(const wefti_node_args *args, void *dst,
                                    size_t elems)
{
    const tensor all = dense(args, dst, 1, elems);
    return wefti_stream_fill(args->pass->compute, &all, 0);
}

weft_status wefti_node_add(const wefti_node_args *args, void *dst,
                           const void *a, const void *b, size_t elems)
{
    const tensor sum = dense(args, dst, 1, elems);
    const tensor left = dense(args, a, 1, elems);
    const tensor right = dense(args, b, 1, elems);
    return wefti_stream_add(args->pass->compute, &sum, &left, &right);
}

weft_status wefti_node_copy_rows(const wefti_node_args *args,
                                 const wefti_node_matrix *dst,
                                 const wefti_node_matrix *src, size_t rows,
                                 size_t width, bool add)
{
    const tensor to = strided(args, dst->at, rows, width, dst->stride);
    const tensor from = strided(args, src->at, rows, width, src->stride);
    return wefti_stream_copy_rows(args->pass->compute, &to, &from, add);
}

weft_status wefti_node_round_rows(const wefti_node_args *args,
                                  const wefti_node_matrix *dst,
                                  const wefti_node_matrix *src, size_t rows,
                                  size_t width, bool add)
{
    const tensor to = strided(args, dst->at, rows, width, dst->stride);
    const tensor from = {src->at, WEFTI_REAL_DTYPE, rows, width, src->stride};
    return wefti_stream_copy_rows(args->pass->compute, &to, &from, add);
}

weft_status wefti_node_linear_forward(const wefti_node_args *args,
                                      const wefti_node_linear *map,
                                      const void *x, void *y, bool y_is_wide,
                                      bool add)
{
    const tensor in = dense(args, x, args->rows, map->inputs);
    const tensor out = y_is_wide ? wide(y, args->rows, map->outputs)
                                 : dense(args, y, args->rows, map->outputs);
    const tensor weight = dense(args, map->weight, map->outputs, map->inputs);
    return wefti_stream_gemm(args->pass->compute, &out, &in, false, &weight,
                             true, 1, add ? 1 : 0);
}

weft_status wefti_node_linear_inputs(const wefti_node_args *args,
                                     const wefti_node_linear *map,
                                     const void *dy, void *dx)
{
    const tensor above = dense(args, dy, args->rows, map->outputs);
    const tensor below = dense(args, dx, args->rows, map->inputs);
    const tensor weight = dense(args, map->weight, map->outputs, map->inputs);
    return wefti_stream_gemm(args->pass->compute, &below, &above, false,
                             &weight, false, 1, 0);
}

weft_status wefti_node_linear_weights(const wefti_node_args *args,
                                      const wefti_node_linear *map,
                                      const void *dy, const void *x,
                                      void *dweight)
{
    const tensor above = dense(args, dy, args->rows, map->outputs);
    const tensor in = dense(args, x, args->rows, map->inputs);
    const tensor sum = wide(dweight, map->outputs, map->inputs);
    return wefti_stream_gemm(args->pass->compute, &sum, &above, true, &in,
                             false, 1, 0);
}

weft_status wefti_node_norm_forward(const wefti_node_args *args, void *y,
                                    void *rstd, const void *x,
                                    const void *weight, size_t width)
{
    const tensor out = dense(args, y, args->rows, width);
    const tensor scales = wide(rstd, 1, args->rows);
    const tensor in = dense(args, x, args->rows, width);
    const tensor weights = dense(args, weight, 1, width);
    return wefti_stream_rmsnorm_forward(args->pass->compute, &out, &scales, &in,
                                        &weights, WEFTI_NORM_EPSILON);
}

weft_status wefti_node_norm_backward(const wefti_node_args *args,
                                     const wefti_node_norm *norm, void *dx,
                                     const void *dy, const void *x,
                                     bool accumulate)
{
    const size_t rows = args->rows, width = norm->width;
    const tensor below = dense(args, dx, rows, width);
    const tensor sum = wide(norm->dweight, 1, width);
    const tensor above = dense(args, dy, rows, width);
    const tensor in = dense(args, x, rows, width);
    const tensor weights = dense(args, norm->weight, 1, width);
    const tensor scales = wide(norm->rstd, 1, rows);
    const tensor partials =
        wide(norm->partials, wefti_math_dweight_partials(rows), width);
    return wefti_stream_rmsnorm_backward(args->pass->compute, &below, &sum,
                                         &above, &in, &weights, &scales,
                                         accumulate, &partials);
}

weft_status wefti_node_swiglu_forward(const wefti_node_args *args, void *out,
                                      const void *gate_up, size_t width)
{
    const tensor product = dense(args, out, args->rows, width);
    const tensor gate = strided(args, gate_up, args->rows, width, 2 * width);
    const tensor up = strided(args, wefti_node_skip(args, gate_up, width),
                              args->rows, width, 2 * width);
    return wefti_stream_swiglu_forward(args->pass->compute, &product, &gate,
                                       &up);
}

weft_status wefti_node_swiglu_backward(const wefti_node_args *args,
                                       void *d_gate_up, const void *dout,
                                       const void *gate_up, size_t width)
{
    const size_t rows = args->rows;
    const tensor dgate = strided(args, d_gate_up, rows, width, 2 * width);
    const tensor dup = strided(args, wefti_node_skip(args, d_gate_up, width),
                               rows, width, 2 * width);
    const tensor above = dense(args, dout, rows, width);
    const tensor gate = strided(args, gate_up, rows, width, 2 * width);
    const tensor up = strided(args, wefti_node_skip(args, gate_up, width), rows,
                              width, 2 * width);
    return wefti_stream_swiglu_backward(args->pass->compute, &dgate, &dup,
                                        &above, &gate, &up);
}

/* The batch's tokens, of the call's rows. */
static tensor ids_of(const wefti_node_args *args)
{
    const int32_t *ids = args->pass->batch->tokens + args->first;
    return wefti_math_flat((int32_t *)ids, WEFT_DTYPE_I32, args->rows);
}

weft_status wefti_node_embedding_forward(const wefti_node_args *args, void *out,
                                         const void *table, size_t vocab,
                                         size_t width)
{
    const tensor rows = dense(args, out, args->rows, width);
    const tensor words = dense(args, table, vocab, width);
    const tensor ids = ids_of(args);
    return wefti_stream_embedding_forward(args->pass->compute, &rows, &words,
                                          &ids);
}

weft_status wefti_node_embedding_backward(const wefti_node_args *args,
                                          void *dtable, const void *dout,
                                          size_t vocab, size_t width)
{
    const tensor sum = wide(dtable, vocab, width);
    const tensor rows = dense(args, dout, args->rows, width);
    const tensor ids = ids_of(args);
    return wefti_stream_embedding_backward(args->pass->compute, &sum, &rows,
                                           &ids);
}
