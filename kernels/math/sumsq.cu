/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of squares, in the host's order: a warp has its 32 lanes, and the tree
 * over them is the host's. f32 and bf16 have exact squares in double, so the
 * partial sums, and their sum first to last, are the host's bits.
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

/* One warp, whatever the launch: its lanes fetch what the sum waits for. */
extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)
    wefti_math_clip_f64(const __grid_constant__ wefti_math_clip args)
{
    if (warp_first() != 0) {
        return;
    }
    double sum = 0;
    for (size_t n = 0; n < args.count; n += WARP) {
        size_t here = args.count - n < WARP ? args.count - n : WARP;
        double partial =
            warp_lane() < here ? args.partials[n + warp_lane()] : 0;
        for (unsigned lane = 0; lane < here; lane++) {
            sum += __shfl_sync(WARP_WHOLE, partial, (int)lane);
        }
    }
    if (warp_lane() == 0) {
        double norm = sqrt(sum) * args.scale;
        *args.norm = norm;
        *args.factor = args.most > 0 && norm > args.most ? args.most / norm : 1;
    }
}
