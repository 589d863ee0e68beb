/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_math.c - nodes' kernels, queued on the pass' stream.
 */
#include "trainer/program/node_math.h"

#include "kernels/math/math_launch.h"
#include "kernels/math/math_stream.h"

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

weft_status wefti_node_copy_rows(const wefti_node_args *args,
                                 const wefti_node_matrix *dst,
                                 const wefti_node_matrix *src, size_t rows,
                                 size_t width, bool add)
{
    const tensor to = strided(dst->at, rows, width, dst->stride);
    const tensor from = strided(src->at, rows, width, src->stride);
    return wefti_stream_copy_rows(args->pass->compute, &to, &from, add);
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
