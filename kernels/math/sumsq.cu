/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums in double, in the host's order. Of squares a warp has its 32 lanes, and
 * the tree over them is the host's. f32 and bf16 have exact squares in double,
 * so the partial sums are the host's bits, as those of rows are. A gradient has
 * too many partial sums for one lane, which would add them one after the other,
 * as the host does: CLIP_LANES share them.
 */
#include "kernels/math/math_real.cuh"

static const size_t SUMSQ_BLOCK = 1024;

template <class Real>
static __device__ inline void sumsq(const wefti_math_sumsq &args)
{
    size_t count = (args.elems + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
    for (size_t n = warp_first(); n < count; n += warp_count()) {
        size_t first = n * SUMSQ_BLOCK;
        size_t rest = args.elems - first;
        size_t end = first + (rest < SUMSQ_BLOCK ? rest : SUMSQ_BLOCK);
        double sum = 0;
        for (size_t i = first + warp_lane(); i < end; i += WARP) {
            double x = (double)load<Real>(args.x, i);
            sum += x * x;
        }
        sum = warp_sum(sum);
        if (warp_lane() == 0) {
            args.partials[n] = sum;
        }
    }
}

#define SUMSQ_KERNEL(type) MATH_KERNEL(sumsq, type)
REAL_LIST(SUMSQ_KERNEL)

/* First to last; the warp's lanes fetch what the sum waits for. */
template <class Real>
static __device__ inline double sum_in_order(const void *x, size_t first,
                                             size_t count)
{
    double sum = 0;
    for (size_t n = 0; n < count; n += WARP) {
        size_t here = count - n < WARP ? count - n : WARP;
        double next = warp_lane() < here
                          ? (double)load<Real>(x, first + n + warp_lane())
                          : 0;
        for (unsigned lane = 0; lane < here; lane++) {
            sum += __shfl_sync(WARP_WHOLE, next, (int)lane);
        }
    }
    return sum;
}

template <class Real>
static __device__ inline void totals(const wefti_math_totals &args)
{
    for (size_t row = warp_first(); row < args.rows; row += warp_count()) {
        double sum = sum_in_order<Real>(args.x, row * args.width, args.width);
        if (warp_lane() == 0) {
            args.totals[row] = sum;
        }
    }
}

#define TOTALS_KERNEL(type) MATH_KERNEL(totals, type)
REAL_LIST(TOTALS_KERNEL)

static const unsigned CLIP_WARPS = 8, CLIP_AHEAD = 8;
static const unsigned CLIP_LANES = CLIP_WARPS * WARP;

/* Lane l of so many: partials l, l + CLIP_LANES and so on, in order. */
static __device__ inline double clip_lane(const wefti_math_clip &args,
                                          size_t lane)
{
    double sum = 0;
    for (size_t n = lane; n < args.count; n += CLIP_AHEAD * CLIP_LANES) {
        double next[CLIP_AHEAD];
#pragma unroll
        for (unsigned a = 0; a < CLIP_AHEAD; a++) {
            size_t at = n + a * CLIP_LANES;
            next[a] = at < args.count ? args.partials[at] : 0;
        }
#pragma unroll
        for (unsigned a = 0; a < CLIP_AHEAD; a++) {
            sum += next[a];
        }
    }
    return sum;
}

/* One block, whatever the launch, whose warps are CLIP_WARPS by turns. */
extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)
    wefti_math_clip_f64(const __grid_constant__ wefti_math_clip args)
{
    __shared__ double sums[CLIP_WARPS];
    if (blockIdx.x != 0) {
        return;
    }
    for (unsigned warp = threadIdx.x / WARP; warp < CLIP_WARPS;
         warp += blockDim.x / WARP) {
        double sum = warp_sum(clip_lane(args, warp * WARP + warp_lane()));
        if (warp_lane() == 0) {
            sums[warp] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (unsigned warp = 0; warp < CLIP_WARPS; warp++) {
            sum += sums[warp];
        }
        double norm = sqrt(sum) * args.scale;
        *args.norm = norm;
        *args.factor = args.most > 0 && norm > args.most ? args.most / norm : 1;
    }
}
