/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows by expert: their order, their way there and back, and products. A row is
 * known by its place, so that nobody waits for anybody.
 */
#include "kernels/math/experts.h"

#include "kernels/math/gemm_tile.cuh"

/* How many slots go to an expert below it, and to it, for all lanes. */
struct expert_counts {
    unsigned before, own;
};

static __device__ inline unsigned warp_total(unsigned value)
{
    for (unsigned step = WARP / 2; step != 0; step /= 2) {
        value += __shfl_xor_sync(WARP_WHOLE, value, step);
    }
    return value;
}

static __device__ inline expert_counts count_slots(const int32_t *expert,
                                                   size_t slots, int32_t number)
{
    expert_counts counts = {0, 0};
    for (size_t i = warp_lane(); i < slots; i += WARP) {
        counts.before += expert[i] >= 0 && expert[i] < number;
        counts.own += expert[i] == number;
    }
    counts.before = warp_total(counts.before);
    counts.own = warp_total(counts.own);
    return counts;
}

/* A warp has an expert at a time, and looks at all slots, 32 at a time. */
template <class Real>
static __device__ inline void expert_order(const wefti_math_expert_order &args)
{
    size_t slots = args.tokens * args.slots;
    for (size_t e = warp_first(); e < args.experts; e += warp_count()) {
        expert_counts counts = count_slots(args.expert, slots, (int32_t)e);
        unsigned next = counts.before;
        for (size_t i = 0; i < slots; i += WARP) {
            size_t at = i + warp_lane();
            int32_t own = at < slots ? args.expert[at] : -1;
            unsigned mine = __ballot_sync(WARP_WHOLE, own == (int32_t)e);
            unsigned below = mine & ((1U << warp_lane()) - 1);
            if (own == (int32_t)e) {
                args.place[at] = (int32_t)(next + (unsigned)__popc(below));
            } else if (e == 0 && at < slots && own < 0) {
                args.place[at] = -1;
            }
            next += (unsigned)__popc(mine);
        }
        if (warp_lane() == 0) {
            args.counts[e] = (int32_t)counts.own;
        }
    }
}

template <class Real>
static __device__ inline void expert_load(const wefti_math_expert_load &args)
{
    for (size_t e = warp_first(); e < args.experts; e += warp_count()) {
        expert_counts counts =
            count_slots(args.expert, args.tokens * args.slots, (int32_t)e);
        if (warp_lane() == 0) {
            args.load[e] += counts.own;
        }
    }
}

template <class Real>
static __device__ inline void
expert_spread(const wefti_math_expert_spread &args)
{
    typedef typename real_of<typename Real::wide>::type Wide;
    row_pieces pieces(args.tokens * args.slots, args.width);
    pieces.run([&](size_t slot, size_t i) {
        typename Real::wide factor =
            args.weight ? load<Wide>(args.weight, slot) : 1;
        if (args.place[slot] >= 0) {
            store<Real>(
                args.rows_at, (size_t)args.place[slot] * args.width + i,
                factor *
                    load<Real>(args.x, slot / args.slots * args.width + i));
        }
    });
}

template <class Real>
static __device__ inline void
expert_collect(const wefti_math_expert_collect &args)
{
    typedef typename real_of<typename Real::wide>::type Wide;
    row_pieces pieces(args.tokens, args.width);
    pieces.run([&](size_t t, size_t i) {
        typename Real::wide sum = 0;
        for (size_t slot = t * args.slots; slot < (t + 1) * args.slots;
             slot++) {
            typename Real::wide factor =
                args.weight ? load<Wide>(args.weight, slot) : 1;
            if (args.place[slot] >= 0) {
                sum += factor *
                       load<Real>(args.rows_at,
                                  (size_t)args.place[slot] * args.width + i);
            }
        }
        store<Real>(args.x, t * args.width + i, sum);
    });
}

template <class Real>
static __device__ inline void expert_dots(const wefti_math_expert_dots &args)
{
    typedef typename real_of<typename Real::wide>::type Wide;
    for (size_t slot = warp_first(); slot < args.tokens * args.slots;
         slot += warp_count()) {
        typename Real::wide sum = 0;
        size_t row = (size_t)args.place[slot] * args.width;
        size_t token = slot / args.slots * args.width;
        for (size_t i = warp_lane(); args.place[slot] >= 0 && i < args.width;
             i += WARP) {
            sum += load<Real>(args.rows_at, row + i) *
                   load<Real>(args.dx, token + i);
        }
        sum = warp_sum(sum);
        if (warp_lane() == 0) {
            store<Wide>(args.dweight, slot, sum);
        }
    }
}

/* ---- products -------------------------------------------------------------
 */

template <class Real>
static __device__ inline typename Real::memory *elem_at(const void *array,
                                                        size_t i)
{
    return (typename Real::memory *)array + i;
}

/* An expert's product as one of gemm.h, its rows beginning at first; Out: the
 * matrix's type. */
template <class Real, class Out>
static __device__ inline wefti_math_gemm
expert_product(const wefti_math_expert_gemm &args, size_t expert, size_t first)
{
    size_t rows = (size_t)args.counts[expert];
    void *x = elem_at<Real>(args.x, first * args.inputs);
    void *y = elem_at<Real>(args.y, first * args.outputs);
    void *weight =
        elem_at<Out>(args.weight, expert * args.outputs * args.inputs);
    if (args.product == WEFTI_EXPERT_FORWARD) {
        return {y,
                x,
                weight,
                rows,
                args.outputs,
                args.inputs,
                args.inputs,
                args.inputs,
                args.outputs,
                1,
                0,
                0,
                1};
    }
    if (args.product == WEFTI_EXPERT_INPUTS) {
        return {x,
                y,
                weight,
                rows,
                args.inputs,
                args.outputs,
                args.outputs,
                args.inputs,
                args.inputs,
                1,
                0,
                0,
                0};
    }
    return {weight,
            y,
            x,
            args.outputs,
            args.inputs,
            rows,
            args.outputs,
            args.inputs,
            args.inputs,
            1,
            0,
            1,
            0};
}

/* Blocks take the tiles of all experts in turn. */
template <class Real, class Out>
static __device__ inline void expert_gemm(const wefti_math_expert_gemm &args,
                                          typename Real::wide *shared)
{
    size_t next = blockIdx.x, begin = 0, first = 0;
    for (size_t e = 0; e < args.experts; e++) {
        wefti_math_gemm own = expert_product<Real, Out>(args, e, first);
        size_t rows = (own.m + GEMM_TILE - 1) / GEMM_TILE;
        size_t tiles = rows * ((own.n + GEMM_TILE - 1) / GEMM_TILE);
        for (; next < begin + tiles; next += gridDim.x) {
            gemm_tile<Real, Out>(own, shared, (next - begin) % rows * GEMM_TILE,
                                 (next - begin) / rows * GEMM_TILE);
        }
        begin += tiles;
        first += (size_t)args.counts[e];
    }
}

#define EXPERT_GEMM_KERNEL(name, type, out)                                    \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
        wefti_math_expert_gemm_##name(                                         \
            const __grid_constant__ wefti_math_expert_gemm args)               \
    {                                                                          \
        WEFTI_DYNAMIC_SHARED(real_##type::wide, shared);                       \
        expert_gemm<real_##type, real_##out>(args, shared);                    \
    }
EXPERT_GEMM_KERNEL(f32, f32, f32)
EXPERT_GEMM_KERNEL(f64, f64, f64)
EXPERT_GEMM_KERNEL(bf16, bf16, bf16)
EXPERT_GEMM_KERNEL(bf16_f32, bf16, f32)

/* ---- the gate -------------------------------------------------------------
 */

static __device__ inline size_t count_rows(const int32_t *counts,
                                           size_t experts)
{
    size_t rows = 0;
    for (size_t e = 0; e < experts; e++) {
        rows += (size_t)counts[e];
    }
    return rows;
}

template <class Wide> static __device__ inline Wide gate_sigmoid(Wide x)
{
    Wide e = real_exp(x < 0 ? x : -x);
    return (x < 0 ? e : 1) / (1 + e);
}

template <class Real>
static __device__ inline void expert_gate(const wefti_math_expert_gate &args)
{
    row_pieces pieces(count_rows(args.counts, args.experts), args.width);
    pieces.run([&](size_t t, size_t i) {
        size_t at = 2 * t * args.width + i;
        typename Real::wide gate = load<Real>(args.gate_up, at);
        store<Real>(args.out, t * args.width + i,
                    gate * gate_sigmoid(gate) *
                        load<Real>(args.gate_up, at + args.width));
    });
}

template <class Real>
static __device__ inline void
expert_gate_backward(const wefti_math_expert_gate_backward &args)
{
    typedef typename Real::wide wide;
    row_pieces pieces(count_rows(args.counts, args.experts), args.width);
    pieces.run([&](size_t t, size_t i) {
        size_t at = 2 * t * args.width + i;
        wide gate = load<Real>(args.gate_up, at);
        wide up = load<Real>(args.gate_up, at + args.width);
        wide y = gate_sigmoid(gate);
        wide dy = load<Real>(args.dout, t * args.width + i) * y;
        store<Real>(args.d_gate_up, at + args.width, dy * gate);
        store<Real>(args.d_gate_up, at, dy * up * (gate - gate * y + 1));
    });
}

#define EXPERT_KERNELS(type)                                                   \
    MATH_KERNEL(expert_spread, type)                                           \
    MATH_KERNEL(expert_collect, type)                                          \
    MATH_KERNEL(expert_dots, type)                                             \
    MATH_KERNEL(expert_gate, type)                                             \
    MATH_KERNEL(expert_gate_backward, type)
REAL_LIST(EXPERT_KERNELS)
MATH_KERNEL(expert_order, f64)
MATH_KERNEL(expert_load, f64)
