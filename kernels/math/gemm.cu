/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrix product, its tiles shared out among the blocks.
 */
#include "kernels/math/gemm_tile.cuh"

template <class Real, class Out>
static __device__ inline void gemm(const wefti_math_gemm &args,
                                   typename Real::wide *shared)
{
    size_t rows = (args.m + GEMM_TILE - 1) / GEMM_TILE;
    size_t columns = (args.n + GEMM_TILE - 1) / GEMM_TILE;
    for (size_t n = blockIdx.x; n < rows * columns; n += gridDim.x) {
        gemm_tile<Real, Out>(args, shared, n % rows * GEMM_TILE,
                             n / rows * GEMM_TILE);
    }
}

#define GEMM_KERNEL(name, type, out)                                           \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
        wefti_math_gemm_##name(const __grid_constant__ wefti_math_gemm args)   \
    {                                                                          \
        WEFTI_DYNAMIC_SHARED(real_##type::wide, shared);                       \
        gemm<real_##type, real_##out>(args, shared);                           \
    }
GEMM_KERNEL(f32, f32, f32)
GEMM_KERNEL(f64, f64, f64)
GEMM_KERNEL(bf16, bf16, bf16)
GEMM_KERNEL(bf16_f32, bf16, f32)
