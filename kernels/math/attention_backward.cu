/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention backward, in kernels that share no sum: each block computes the
 * weights again that it needs.
 *
 *     p = exp(q K^T scale - lse)        ds = p (dout V^T - delta) scale
 *     dq    a block's queries through the keys:       dq += ds K
 *     dkdv  a block's keys through all queries of the heads that share them:
 *           dv += p^T dout,  dk += ds^T q
 *
 * Sums go in order of keys, and of heads and then queries.
 */
#include "kernels/math/attention_rows.cuh"

template <class Real, class Out>
static __device__ inline void
attention_delta(const wefti_math_attention_delta &args)
{
    typedef typename Real::wide wide;
    size_t count = args.tokens * args.heads;
    for (size_t n = warp_first(); n < count; n += warp_count()) {
        size_t row =
            n / args.heads * args.o_stride + n % args.heads * args.head_size;
        wide sum = 0;
        for (size_t d = warp_lane(); d < args.head_size; d += WARP) {
            sum += load<Out>(args.o, row + d) * load<Real>(args.dout, row + d);
        }
        sum = warp_sum(sum);
        if (warp_lane() == 0) {
            static_cast<wide *>(args.delta)[n] = sum;
        }
    }
}

/* What a query's scores need beside them. */
template <class Wide> struct attention_row {
    Wide lse, delta;
};

template <class Real>
static __device__ inline attention_row<typename Real::wide>
attention_row_at(const wefti_math_attention_backward &args,
                 const attention_head &head, size_t i)
{
    typedef typename Real::wide wide;
    attention_row<wide> row = {-(wide)INFINITY, 0};
    if (i < args.shape.q_tokens) {
        size_t at = head.row + i * args.shape.heads;
        row.lse = static_cast<const wide *>(args.lse)[at];
        row.delta = static_cast<const wide *>(args.delta)[at];
    }
    return row;
}

/* The weight of key j for query i; a query that has seen no key has none. */
template <class Wide>
static __device__ inline Wide
attention_weight(const wefti_math_attention_shape &shape, size_t i, size_t j,
                 Wide dot, Wide lse)
{
    return j < attention_visible(shape, i) && lse != -(Wide)INFINITY
               ? real_exp(dot * (Wide)shape.scale - lse)
               : 0;
}

template <class Grad, class Real>
static __device__ inline void
attention_store(typename Real::wide (*sum)[ATTENTION_PARTS], void *to,
                size_t offset, size_t stride, size_t head_size, size_t first,
                size_t count, bool accumulate)
{
    typedef typename Real::wide wide;
    attention_rows<Real>::each(
        sum, head_size, first, count,
        [&](wide &value, unsigned, size_t i, unsigned d) {
            size_t at = offset + i * stride + d;
            store<Grad>(to, at,
                        accumulate ? load<Grad>(to, at) + value : value);
        });
}

template <class Real, class Grad>
static __device__ inline void
attention_dq_band(const wefti_math_attention_backward &args,
                  const attention_rows<Real> &block, const attention_head &head,
                  size_t first)
{
    typedef typename Real::wide wide;
    typedef attention_rows<Real> rows;
    const wefti_math_attention_shape &shape = args.shape;
    wide dq[rows::ROWS][ATTENTION_PARTS] = {};
    attention_row<wide> row[rows::ROWS];
#pragma unroll
    for (unsigned r = 0; r < rows::ROWS; r++) {
        row[r] = attention_row_at<Real>(args, head, rows::own_row(first) + r);
    }
    size_t last = first + rows::BLOCK_ROWS < shape.q_tokens
                      ? first + rows::BLOCK_ROWS
                      : shape.q_tokens;
    size_t seen = attention_visible(shape, last - 1);
    for (size_t key = 0; key < seen; key += ATTENTION_TILE) {
        wide dot[rows::ROWS], slope[rows::ROWS];
        block.fill(at_elem<Real>(args.v, head.kv), shape.kv_stride, key,
                   shape.kv_tokens);
        block.dots(slope, at_elem<Real>(args.dout, head.o), shape.o_stride,
                   first, shape.q_tokens);
        block.fill(at_elem<Real>(args.k, head.kv), shape.kv_stride, key,
                   shape.kv_tokens);
        block.dots(dot, at_elem<Real>(args.q, head.q), shape.q_stride, first,
                   shape.q_tokens);
#pragma unroll
        for (unsigned r = 0; r < rows::ROWS; r++) {
            wide p = attention_weight(shape, rows::own_row(first) + r,
                                      key + warp_lane(), dot[r], row[r].lse);
            slope[r] = p * (slope[r] - row[r].delta) * (wide)shape.scale;
        }
        block.put_weights(slope);
        block.add(dq);
    }
    attention_store<Grad, Real>(dq, args.dq, head.q, shape.q_stride,
                                shape.head_size, first, shape.q_tokens,
                                args.accumulate);
}

/* Adds one head's queries to a block of keys' sums. */
template <class Real>
static __device__ inline void
attention_dkdv_head(const wefti_math_attention_backward &args,
                    const attention_rows<Real> &block,
                    const attention_head &head, size_t first,
                    typename Real::wide (*dk)[ATTENTION_PARTS],
                    typename Real::wide (*dv)[ATTENTION_PARTS])
{
    typedef typename Real::wide wide;
    typedef attention_rows<Real> rows;
    const wefti_math_attention_shape &shape = args.shape;
    int64_t sees = shape.causal ? (int64_t)first - shape.causal_offset : 0;
    size_t query =
        sees > 0 ? (size_t)sees / ATTENTION_TILE * ATTENTION_TILE : 0;
    for (; query < shape.q_tokens; query += ATTENTION_TILE) {
        size_t i = query + warp_lane();
        attention_row<wide> row = attention_row_at<Real>(args, head, i);
        wide p[rows::ROWS], slope[rows::ROWS];
        block.fill(at_elem<Real>(args.q, head.q), shape.q_stride, query,
                   shape.q_tokens);
        block.dots(p, at_elem<Real>(args.k, head.kv), shape.kv_stride, first,
                   shape.kv_tokens);
#pragma unroll
        for (unsigned r = 0; r < rows::ROWS; r++) {
            p[r] = attention_weight(shape, i, rows::own_row(first) + r, p[r],
                                    row.lse);
        }
        block.fill(at_elem<Real>(args.dout, head.o), shape.o_stride, query,
                   shape.q_tokens);
        block.dots(slope, at_elem<Real>(args.v, head.kv), shape.kv_stride,
                   first, shape.kv_tokens);
        block.put_weights(p);
        block.add(dv);
#pragma unroll
        for (unsigned r = 0; r < rows::ROWS; r++) {
            slope[r] = p[r] * (slope[r] - row.delta) * (wide)shape.scale;
        }
        block.put_weights(slope);
        block.fill(at_elem<Real>(args.q, head.q), shape.q_stride, query,
                   shape.q_tokens);
        block.add(dk);
    }
}

template <class Real, class Grad>
static __device__ inline void
attention_dkdv_band(const wefti_math_attention_backward &args,
                    const attention_rows<Real> &block, size_t sequence,
                    size_t kv_head, size_t first)
{
    typedef typename Real::wide wide;
    typedef attention_rows<Real> rows;
    const wefti_math_attention_shape &shape = args.shape;
    size_t group = shape.heads / shape.kv_heads;
    wide dk[rows::ROWS][ATTENTION_PARTS] = {};
    wide dv[rows::ROWS][ATTENTION_PARTS] = {};
    attention_head head = {};
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
        head = attention_head_at(shape, sequence, h);
        attention_dkdv_head<Real>(args, block, head, first, dk, dv);
    }
    attention_store<Grad, Real>(dk, args.dk, head.kv, shape.kv_stride,
                                shape.head_size, first, shape.kv_tokens,
                                args.accumulate);
    attention_store<Grad, Real>(dv, args.dv, head.kv, shape.kv_stride,
                                shape.head_size, first, shape.kv_tokens,
                                args.accumulate);
}

template <class Real, class Grad>
static __device__ inline void
attention_dq(const wefti_math_attention_backward &args,
             typename Real::wide *shared)
{
    const wefti_math_attention_shape &shape = args.shape;
    attention_rows<Real> block(shared, shape.head_size);
    attention_bands<Real>(shape.q_tokens, shape.sequences, shape.heads,
                          [&](size_t sequence, size_t h, size_t first) {
                              attention_dq_band<Real, Grad>(
                                  args, block,
                                  attention_head_at(shape, sequence, h), first);
                          });
}

template <class Real, class Grad>
static __device__ inline void
attention_dkdv(const wefti_math_attention_backward &args,
               typename Real::wide *shared)
{
    const wefti_math_attention_shape &shape = args.shape;
    attention_rows<Real> block(shared, shape.head_size);
    attention_bands<Real>(shape.kv_tokens, shape.sequences, shape.kv_heads,
                          [&](size_t sequence, size_t h, size_t first) {
                              attention_dkdv_band<Real, Grad>(
                                  args, block, sequence, h, first);
                          });
}

#define DELTA_KERNEL(name, type, out)                                          \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
        wefti_math_attention_delta_##name(                                     \
            const __grid_constant__ wefti_math_attention_delta args)           \
    {                                                                          \
        attention_delta<real_##type, real_##out>(args);                        \
    }
#define BACKWARD_KERNEL(op, name, type, grad)                                  \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
        wefti_math_attention_##op##_##name(                                    \
            const __grid_constant__ wefti_math_attention_backward args)        \
    {                                                                          \
        WEFTI_DYNAMIC_SHARED(real_##type::wide, shared);                       \
        attention_##op<real_##type, real_##grad>(args, shared);                \
    }
#define BACKWARD_KERNELS(name, type, other)                                    \
    DELTA_KERNEL(name, type, other)                                            \
    BACKWARD_KERNEL(dq, name, type, other)                                     \
    BACKWARD_KERNEL(dkdv, name, type, other)
BACKWARD_KERNELS(f32, f32, f32)
BACKWARD_KERNELS(f64, f64, f64)
BACKWARD_KERNELS(bf16, bf16, bf16)
BACKWARD_KERNELS(bf16_f32, bf16, f32)
