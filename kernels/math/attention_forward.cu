/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention forward: a block takes some queries of one head through the keys,
 * a tile at a time.
 *
 *     scores = q K^T; top, sum and o follow the greatest score so far;
 *     o += exp(scores - top) V
 *
 * A query's result rests on its own row only, in order of keys.
 */
#include "kernels/math/attention_rows.cuh"

/* NaNs are passed over, if not all are: all lanes get the same. */
static __device__ inline float real_max(float a, float b)
{
    return fmaxf(a, b);
}

static __device__ inline double real_max(double a, double b)
{
    return fmax(a, b);
}

template <class Wide> static __device__ inline Wide warp_top(Wide value)
{
#pragma unroll
    for (unsigned step = WARP / 2; step != 0; step /= 2) {
        value = real_max(value, __shfl_xor_sync(WARP_WHOLE, value, step));
    }
    return value;
}

/* The queries of a warp on their way through the keys. */
template <class Real> struct attention_query {
    typedef typename Real::wide wide;
    typedef attention_rows<Real> rows;
    wide top[rows::ROWS], sum[rows::ROWS];
    wide o[rows::ROWS][ATTENTION_PARTS]; /* not yet divided */

    /* From nothing, or from what was merged before. */
    template <class Out>
    __device__ inline void start(const wefti_math_attention_forward &args,
                                 const attention_head &head, size_t first)
    {
        const wide *lse = static_cast<const wide *>(args.lse);
#pragma unroll
        for (unsigned r = 0; r < rows::ROWS; r++) {
            size_t i = rows::own_row(first) + r;
            bool more = args.merge && i < args.shape.q_tokens;
            top[r] =
                more ? lse[head.row + i * args.shape.heads] : -(wide)INFINITY;
            sum[r] = top[r] > -(wide)INFINITY ? 1 : 0;
            for (unsigned part = 0; part < ATTENTION_PARTS; part++) {
                o[r][part] = 0;
            }
        }
        if (args.merge) {
            rows::each(o, args.shape.head_size, first, args.shape.q_tokens,
                       [&](wide &value, unsigned r, size_t i, unsigned d) {
                           if (sum[r] > 0) {
                               value = load<Out>(
                                   args.o,
                                   head.o + i * args.shape.o_stride + d);
                           }
                       });
            __syncwarp(); /* all have read lse, which one of them writes */
        }
    }

    /* Turns row r's scores into weights; o and sum move to the new top. */
    __device__ inline wide rise(unsigned r, wide score)
    {
        wide above = warp_top(score);
        above = above > top[r] ? above : top[r];
        if (above == -(wide)INFINITY) { /* nothing seen yet, but for NaNs */
            wide weight = score != score ? score : 0;
            sum[r] += warp_sum(weight);
            return weight;
        }
        wide keep = real_exp(top[r] - above);
        wide weight = real_exp(score - above);
        top[r] = above;
        sum[r] = sum[r] * keep + warp_sum(weight);
#pragma unroll
        for (unsigned part = 0; part < ATTENTION_PARTS; part++) {
            o[r][part] *= keep;
        }
        return weight;
    }
};

template <class Real, class Out>
static __device__ inline void
attention_queries(const wefti_math_attention_forward &args,
                  const attention_rows<Real> &block, const attention_head &head,
                  size_t first)
{
    typedef typename Real::wide wide;
    typedef attention_rows<Real> rows;
    const wefti_math_attention_shape &shape = args.shape;
    attention_query<Real> query;
    query.template start<Out>(args, head, first);
    size_t last = first + rows::BLOCK_ROWS < shape.q_tokens
                      ? first + rows::BLOCK_ROWS
                      : shape.q_tokens;
    size_t seen = attention_visible(shape, last - 1);
    for (size_t key = 0; key < seen; key += ATTENTION_TILE) {
        wide score[rows::ROWS];
        block.fill(at_elem<Real>(args.k, head.kv), shape.kv_stride, key,
                   shape.kv_tokens);
        block.dots(score, at_elem<Real>(args.q, head.q), shape.q_stride, first,
                   shape.q_tokens);
#pragma unroll
        for (unsigned r = 0; r < rows::ROWS; r++) {
            size_t visible = attention_visible(shape, rows::own_row(first) + r);
            score[r] = query.rise(r, key + warp_lane() < visible
                                         ? score[r] * (wide)shape.scale
                                         : -(wide)INFINITY);
        }
        block.put_weights(score);
        block.fill(at_elem<Real>(args.v, head.kv), shape.kv_stride, key,
                   shape.kv_tokens);
        block.add(query.o);
    }
    rows::each(query.o, shape.head_size, first, shape.q_tokens,
               [&](wide &value, unsigned r, size_t i, unsigned d) {
                   if (!args.merge || attention_visible(shape, i) != 0) {
                       store<Out>(args.o, head.o + i * shape.o_stride + d,
                                  query.sum[r] == 0 ? 0 : value / query.sum[r]);
                   }
                   if (d == 0) {
                       static_cast<wide *>(
                           args.lse)[head.row + i * shape.heads] =
                           query.top[r] + real_log(query.sum[r]);
                   }
               });
}

template <class Real, class Out>
static __device__ inline void
attention_forward(const wefti_math_attention_forward &args,
                  typename Real::wide *shared)
{
    const wefti_math_attention_shape &shape = args.shape;
    attention_rows<Real> block(shared, shape.head_size);
    attention_bands<Real>(shape.q_tokens, shape.sequences, shape.heads,
                          [&](size_t sequence, size_t h, size_t first) {
                              attention_queries<Real, Out>(
                                  args, block,
                                  attention_head_at(shape, sequence, h), first);
                          });
}

#define FORWARD_KERNEL(name, type, out)                                        \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
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
