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
 * Sums go in order of keys, and of heads and then queries. Heads of more
 * columns than a window has go through the other side again for the next
 * window.
 */
#include "kernels/math/attention_tiles.cuh"

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
attention_store(typename attention_tiles<Real>::sums_of &sum, void *to,
                size_t offset, size_t stride, size_t head_size, unsigned first,
                unsigned count, unsigned window, bool accumulate)
{
    typedef typename Real::wide wide;
    attention_tiles<Real>::each(
        sum, first, count, window, (unsigned)head_size,
        [&](wide &value, unsigned, size_t row, unsigned d) {
            size_t at = offset + row * stride + d;
            store<Grad>(to, at,
                        accumulate ? load<Grad>(to, at) + value : value);
        });
}

/* The arrays of one head. */
template <class Real> struct attention_sides {
    attention_side<Real> q, k, v, dout;

    __device__ inline attention_sides(const wefti_math_attention_backward &args,
                                      const attention_head &head)
        : q(attention_queries_of<Real>(args.shape, args.q, head.q,
                                       args.shape.q_stride)),
          k(attention_keys_of<Real>(args.shape, args.k, head.kv)),
          v(attention_keys_of<Real>(args.shape, args.v, head.kv)),
          dout(attention_queries_of<Real>(args.shape, args.dout, head.o,
                                          args.shape.o_stride))
    {
    }
};

template <class Real, class Grad>
static __device__ inline void
attention_dq_band(const wefti_math_attention_backward &args,
                  const attention_tiles<Real> &block,
                  const attention_head &head, unsigned first, unsigned window)
{
    typedef typename Real::wide wide;
    typedef attention_tiles<Real> tiles;
    const wefti_math_attention_shape &shape = args.shape;
    const attention_sides<Real> of(args, head);
    typename tiles::sums_of dq = {};
    size_t last = first + tiles::TILE < shape.q_tokens ? first + tiles::TILE
                                                       : shape.q_tokens;
    unsigned seen = attention_visible(shape, last - 1);
    for (unsigned key = 0; key < seen; key += tiles::TILE) {
        typename tiles::dots_of p, slope;
        block.dots(p, of.q, first, of.k, key);
#pragma unroll
        for (unsigned i = 0; i < tiles::SIDE; i++) {
            unsigned query = tiles::own_row(first) + i;
            wide lse = attention_row_at<Real>(args, head, query).lse;
#pragma unroll
            for (unsigned j = 0; j < tiles::SIDE; j++) {
                p[i][j] = attention_weight(
                    shape, query, key + attention_x() + ATTENTION_EDGE * j,
                    p[i][j], lse);
            }
        }
        block.put_weights(p);
        block.dots(slope, of.dout, first, of.v, key);
        block.get_weights(p); /* as registers are few */
#pragma unroll
        for (unsigned i = 0; i < tiles::SIDE; i++) {
            unsigned query = tiles::own_row(first) + i;
            wide delta = attention_row_at<Real>(args, head, query).delta;
#pragma unroll
            for (unsigned j = 0; j < tiles::SIDE; j++) {
                slope[i][j] =
                    p[i][j] * (slope[i][j] - delta) * (wide)shape.scale;
            }
        }
        block.put_weights(slope);
        block.add(dq, of.k, key, window);
    }
    attention_store<Grad, Real>(
        dq, args.dq, head.q, shape.q_stride, shape.head_size, first,
        (unsigned)shape.q_tokens, window, args.accumulate);
}

/* Adds one head's queries to a block of keys' sums. */
template <class Real>
static __device__ inline void
attention_dkdv_head(const wefti_math_attention_backward &args,
                    const attention_tiles<Real> &block,
                    const attention_head &head, unsigned first, unsigned window,
                    typename attention_tiles<Real>::sums_of &dk,
                    typename attention_tiles<Real>::sums_of &dv)
{
    typedef typename Real::wide wide;
    typedef attention_tiles<Real> tiles;
    const wefti_math_attention_shape &shape = args.shape;
    const attention_sides<Real> of(args, head);
    int64_t sees = shape.causal ? (int64_t)first - shape.causal_offset : 0;
    unsigned query = sees > 0 ? (unsigned)sees / tiles::TILE * tiles::TILE : 0;
    for (; query < shape.q_tokens; query += tiles::TILE) {
        typename tiles::dots_of p, slope;
        block.dots(p, of.k, first, of.q, query);
#pragma unroll
        for (unsigned j = 0; j < tiles::SIDE; j++) {
            unsigned i = query + attention_x() + ATTENTION_EDGE * j;
            wide lse = attention_row_at<Real>(args, head, i).lse;
#pragma unroll
            for (unsigned n = 0; n < tiles::SIDE; n++) {
                p[n][j] = attention_weight(shape, i, tiles::own_row(first) + n,
                                           p[n][j], lse);
            }
        }
        block.put_weights(p);
        block.add(dv, of.dout, query, window);
        block.dots(slope, of.v, first, of.dout, query);
        block.get_weights(p);
#pragma unroll
        for (unsigned j = 0; j < tiles::SIDE; j++) {
            unsigned i = query + attention_x() + ATTENTION_EDGE * j;
            wide delta = attention_row_at<Real>(args, head, i).delta;
#pragma unroll
            for (unsigned n = 0; n < tiles::SIDE; n++) {
                slope[n][j] =
                    p[n][j] * (slope[n][j] - delta) * (wide)shape.scale;
            }
        }
        block.put_weights(slope);
        block.add(dk, of.q, query, window);
    }
}

template <class Real, class Grad>
static __device__ inline void
attention_dkdv_band(const wefti_math_attention_backward &args,
                    const attention_tiles<Real> &block, size_t sequence,
                    size_t kv_head, unsigned first, unsigned window)
{
    typedef attention_tiles<Real> tiles;
    const wefti_math_attention_shape &shape = args.shape;
    size_t group = shape.heads / shape.kv_heads;
    typename tiles::sums_of dk = {}, dv = {};
    attention_head head = {};
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
        head = attention_head_at(shape, sequence, h);
        attention_dkdv_head<Real>(args, block, head, first, window, dk, dv);
    }
    attention_store<Grad, Real>(
        dk, args.dk, head.kv, shape.kv_stride, shape.head_size, first,
        (unsigned)shape.kv_tokens, window, args.accumulate);
    attention_store<Grad, Real>(
        dv, args.dv, head.kv, shape.kv_stride, shape.head_size, first,
        (unsigned)shape.kv_tokens, window, args.accumulate);
}

template <class Real, class Grad>
static __device__ inline void
attention_dq(const wefti_math_attention_backward &args,
             typename Real::wide *shared)
{
    const wefti_math_attention_shape &shape = args.shape;
    attention_tiles<Real> block(shared);
    attention_bands<Real>(
        shape.q_tokens, shape.sequences, shape.heads, true,
        [&](unsigned sequence, unsigned h, unsigned first) {
            for (unsigned window = 0; window < shape.head_size;
                 window += attention_tiles<Real>::WINDOW) {
                attention_dq_band<Real, Grad>(
                    args, block, attention_head_at(shape, sequence, h), first,
                    window);
            }
        });
}

template <class Real, class Grad>
static __device__ inline void
attention_dkdv(const wefti_math_attention_backward &args,
               typename Real::wide *shared)
{
    const wefti_math_attention_shape &shape = args.shape;
    attention_tiles<Real> block(shared);
    attention_bands<Real>(
        shape.kv_tokens, shape.sequences, shape.kv_heads, false,
        [&](unsigned sequence, unsigned h, unsigned first) {
            for (unsigned window = 0; window < shape.head_size;
                 window += attention_tiles<Real>::WINDOW) {
                attention_dkdv_band<Real, Grad>(args, block, sequence, h, first,
                                                window);
            }
        });
}

#define DELTA_KERNEL(name, type, out)                                          \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS,           \
                                                 ATTENTION_BLOCKS)             \
        wefti_math_attention_delta_##name(                                     \
            const __grid_constant__ wefti_math_attention_delta args)           \
    {                                                                          \
        attention_delta<real_##type, real_##out>(args);                        \
    }
#define BACKWARD_KERNEL(op, name, type, grad)                                  \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS,           \
                                                 ATTENTION_BLOCKS)             \
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
