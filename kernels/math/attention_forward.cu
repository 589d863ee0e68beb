/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention forward: a block takes some queries of one head through the keys,
 * a tile at a time.
 *
 *     scores = q K^T; top, sum and o follow the greatest score so far;
 *     o += exp(scores - top) V
 *
 * A query's result rests on its own row only, in order of keys. Heads of more
 * columns than a window has go through the keys again for the next window.
 */
#include "kernels/math/attention_tiles.cuh"

#include <limits.h>

/* NaNs are passed over, if not all are: all lanes get the same. */
static __device__ inline float real_max(float a, float b)
{
    return fmaxf(a, b);
}

static __device__ inline double real_max(double a, double b)
{
    return fmax(a, b);
}

/* Over the threads of a row. */
template <class Wide> static __device__ inline Wide row_top(Wide value)
{
#pragma unroll
    for (unsigned step = ATTENTION_EDGE / 2; step != 0; step /= 2) {
        value = real_max(value, __shfl_xor_sync(WARP_WHOLE, value, step));
    }
    return value;
}

template <class Wide> static __device__ inline Wide row_sum(Wide value)
{
#pragma unroll
    for (unsigned step = ATTENTION_EDGE / 2; step != 0; step /= 2) {
        value += __shfl_xor_sync(WARP_WHOLE, value, step);
    }
    return value;
}

/* The queries of a thread on their way through the keys. */
template <class Real> struct attention_query {
    typedef typename Real::wide wide;
    typedef attention_tiles<Real> tiles;
    wide top[tiles::SIDE];
    wide sum[tiles::SIDE];     /* of this thread's keys, at last of the row's */
    typename tiles::sums_of o; /* not yet divided */

    /* From nothing, or from what was merged before. */
    template <class Out>
    __device__ inline void start(const wefti_math_attention_forward &args,
                                 const attention_head &head, unsigned first,
                                 unsigned window)
    {
        const wide *lse = static_cast<const wide *>(args.lse);
#pragma unroll
        for (unsigned i = 0; i < tiles::SIDE; i++) {
            size_t row = tiles::own_row(first) + i;
            bool more = args.merge && row < args.shape.q_tokens;
            top[i] =
                more ? lse[head.row + row * args.shape.heads] : -(wide)INFINITY;
            sum[i] = top[i] > -(wide)INFINITY && attention_x() == 0 ? 1 : 0;
#pragma unroll
            for (unsigned n = 0; n < ATTENTION_GROUPS * tiles::SIDE; n++) {
                o[n / tiles::SIDE][i][n % tiles::SIDE] = 0;
            }
        }
        if (args.merge) {
            tiles::each(o, first, (unsigned)args.shape.q_tokens, window,
                        (unsigned)args.shape.head_size,
                        [&](wide &value, unsigned i, size_t row, unsigned d) {
                            if (top[i] > -(wide)INFINITY) {
                                value = load<Out>(
                                    args.o,
                                    head.o + row * args.shape.o_stride + d);
                            }
                        });
            __syncwarp(); /* all have read lse, which one of them writes */
        }
    }

    /* Turns row i's scores into weights; o and sum move to the new top. */
    __device__ inline void rise(unsigned i, wide *score)
    {
        wide above = top[i], share = 0;
#pragma unroll
        for (unsigned j = 0; j < tiles::SIDE; j++) {
            above = real_max(above, score[j]);
        }
        above = row_top(above);
        bool none = above == -(wide)INFINITY; /* seen yet, but for NaNs */
        wide keep = none ? 1 : real_exp(top[i] - above);
#pragma unroll
        for (unsigned j = 0; j < tiles::SIDE; j++) {
            score[j] = !none                  ? real_exp(score[j] - above)
                       : score[j] != score[j] ? score[j]
                                              : 0;
            share += score[j];
        }
        top[i] = above;
        sum[i] = sum[i] * keep + share;
#pragma unroll
        for (unsigned n = 0; n < ATTENTION_GROUPS * tiles::SIDE; n++) {
            o[n / tiles::SIDE][i][n % tiles::SIDE] *= keep;
        }
    }
};

/* Row i behind a query sees key j if j - i is less; all do where not causal. */
static __device__ inline int
attention_reach(const wefti_math_attention_shape &shape, unsigned query)
{
    const int64_t most = INT_MAX / 2;
    int64_t reach =
        shape.causal ? (int64_t)query + shape.causal_offset + 1 : most;
    return (int)(reach < -most ? -most : reach < most ? reach : most);
}

template <class Real, class Out>
static __device__ inline void
attention_queries(const wefti_math_attention_forward &args,
                  const attention_tiles<Real> &block,
                  const attention_head &head, unsigned first, unsigned window)
{
    typedef typename Real::wide wide;
    typedef attention_tiles<Real> tiles;
    const wefti_math_attention_shape &shape = args.shape;
    attention_side<Real> q =
        attention_queries_of<Real>(shape, args.q, head.q, shape.q_stride);
    attention_side<Real> k = attention_keys_of<Real>(shape, args.k, head.kv);
    attention_side<Real> v = attention_keys_of<Real>(shape, args.v, head.kv);
    q.whole = k.whole = v.whole = q.whole && k.whole && v.whole;
    attention_query<Real> query;
    query.template start<Out>(args, head, first, window);
    size_t last = first + tiles::TILE < shape.q_tokens ? first + tiles::TILE
                                                       : shape.q_tokens;
    const int reach = attention_reach(shape, tiles::own_row(first));
    unsigned seen = attention_visible(shape, last - 1);
    for (unsigned key = 0; key < seen; key += tiles::TILE) {
        typename tiles::dots_of score;
        block.dots(score, q, first, k, key);
#pragma unroll
        for (unsigned i = 0; i < tiles::SIDE; i++) {
#pragma unroll
            for (unsigned j = 0; j < tiles::SIDE; j++) {
                unsigned at = key + attention_x() + ATTENTION_EDGE * j;
                score[i][j] = at < k.count && (int)at - (int)i < reach
                                  ? score[i][j] * (wide)shape.scale
                                  : -(wide)INFINITY;
            }
            query.rise(i, score[i]);
        }
        block.put_weights(score);
        block.add(query.o, v, key, window);
    }
#pragma unroll
    for (unsigned i = 0; i < tiles::SIDE; i++) {
        query.sum[i] = row_sum(query.sum[i]);
    }
    const bool ends = window + tiles::WINDOW >= shape.head_size;
    tiles::each(
        query.o, first, (unsigned)shape.q_tokens, window,
        (unsigned)shape.head_size,
        [&](wide &value, unsigned i, size_t row, unsigned d) {
            if (!args.merge || attention_visible(shape, row) != 0) {
                store<Out>(args.o, head.o + row * shape.o_stride + d,
                           query.sum[i] == 0 ? 0 : value / query.sum[i]);
            }
            if (d == window && ends) {
                static_cast<wide *>(args.lse)[head.row + row * shape.heads] =
                    query.top[i] + real_log(query.sum[i]);
            }
        });
}

template <class Real, class Out>
static __device__ inline void
attention_forward(const wefti_math_attention_forward &args,
                  typename Real::wide *shared)
{
    const wefti_math_attention_shape &shape = args.shape;
    attention_tiles<Real> block(shared);
    attention_bands<Real>(
        shape.q_tokens, shape.sequences, shape.heads, true,
        [&](unsigned sequence, unsigned h, unsigned first) {
            for (unsigned window = 0; window < shape.head_size;
                 window += attention_tiles<Real>::WINDOW) {
                attention_queries<Real, Out>(
                    args, block, attention_head_at(shape, sequence, h), first,
                    window);
            }
        });
}

#define FORWARD_KERNEL(name, type, out)                                        \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS,           \
                                                 ATTENTION_BLOCKS)             \
        wefti_math_attention_forward_##name(                                   \
            const __grid_constant__ wefti_math_attention_forward args)         \
    {                                                                          \
        WEFTI_DYNAMIC_SHARED(real_##type::wide, shared);                       \
        attention_forward<real_##type, real_##out>(args, shared);              \
    }
FORWARD_KERNEL(f32, f32, f32)
FORWARD_KERNEL(f64, f64, f64)
FORWARD_KERNEL(bf16, bf16, bf16)
FORWARD_KERNEL(bf16_f32, bf16, f32)

/* Two results over different keys, one token's head a warp. */
template <class Real>
static __device__ inline void
attention_merge(const wefti_math_attention_merge &args)
{
    typedef typename Real::wide wide;
    wide *lse = static_cast<wide *>(args.lse);
    const wide *other = static_cast<const wide *>(args.other_lse);
    size_t count = args.tokens * args.heads;
    for (size_t n = warp_first(); n < count; n += warp_count()) {
        size_t row =
            n / args.heads * args.o_stride + n % args.heads * args.head_size;
        wide a = lse[n], b = other[n];
        wide top = a > b ? a : b;
        if (b == -(wide)INFINITY) {
            continue;
        }
        wide keep = real_exp(a - top), share = real_exp(b - top);
        wide sum = keep + share;
        for (size_t d = warp_lane(); d < args.head_size; d += WARP) {
            wide o = a == -(wide)INFINITY ? 0 : load<Real>(args.o, row + d);
            store<Real>(args.o, row + d,
                        (o * keep + load<Real>(args.other_o, row + d) * share) /
                            sum);
        }
        __syncwarp(); /* all have read lse */
        if (warp_lane() == 0) {
            lse[n] = top + real_log(sum);
        }
    }
}

#define MERGE_KERNEL(type) MATH_KERNEL(attention_merge, type)
REAL_LIST(MERGE_KERNEL)
