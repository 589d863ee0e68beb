/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/gemm_tile.cuh - matrix product in tiles: a block computes TILE x
 * TILE of C, a thread SIDE x SIDE of that, DEPTH columns of op(A) and rows of
 * op(B) at a time from shared memory. Each element is one sum in order of k, so
 * it depends on its row and column only.
 */
#ifndef KERNELS_MATH_GEMM_TILE_CUH
#define KERNELS_MATH_GEMM_TILE_CUH

#include "kernels/math/math_real.cuh"
#include "kernels/wire/dynamic_shared.cuh"

static const unsigned GEMM_TILE = WEFTI_MATH_GEMM_TILE;
static const unsigned GEMM_DEPTH = WEFTI_MATH_GEMM_DEPTH;
static const unsigned GEMM_STEP = GEMM_TILE + 1; /* no two lanes, one bank */
static const unsigned GEMM_EDGE = 16; /* threads along one side of a tile */
static const unsigned GEMM_SIDE = GEMM_TILE / GEMM_EDGE;
static_assert(GEMM_EDGE * GEMM_EDGE == WEFTI_MATH_THREADS, "a thread each");

/*
 * tile[k][line] of a matrix whose lines (rows of op(A), columns of op(B)) lie
 * apart by stride where by_line, else elements of one k do. Neighbouring
 * threads read neighbours in memory. Zeros past the edges.
 */
template <class Real>
static __device__ inline void
gemm_fill(typename Real::wide *tile, const void *from, size_t stride,
          bool by_line, size_t line, size_t lines, size_t first, size_t depth)
{
    for (unsigned n = threadIdx.x; n < GEMM_TILE * GEMM_DEPTH;
         n += WEFTI_MATH_THREADS) {
        unsigned at_k = by_line ? n % GEMM_DEPTH : n / GEMM_TILE;
        unsigned at_line = by_line ? n / GEMM_DEPTH : n % GEMM_TILE;
        size_t k = first + at_k, i = line + at_line;
        size_t at = by_line ? i * stride + k : k * stride + i;
        tile[at_k * GEMM_STEP + at_line] =
            i < lines && k < depth ? load<Real>(from, at) : 0;
    }
}

template <class Wide>
static __device__ inline void gemm_step(Wide (*sum)[GEMM_SIDE], const Wide *a,
                                        const Wide *b)
{
    Wide left[GEMM_SIDE], right[GEMM_SIDE];
#pragma unroll
    for (unsigned n = 0; n < GEMM_SIDE; n++) {
        left[n] = a[threadIdx.x / GEMM_EDGE * GEMM_SIDE + n];
        right[n] = b[threadIdx.x % GEMM_EDGE + n * GEMM_EDGE];
    }
#pragma unroll
    for (unsigned i = 0; i < GEMM_SIDE; i++) {
#pragma unroll
        for (unsigned j = 0; j < GEMM_SIDE; j++) {
            sum[i][j] += left[i] * right[j];
        }
    }
}

template <class Real, class Out>
static __device__ inline void gemm_tile(const wefti_math_gemm &args,
                                        typename Real::wide *a, size_t row,
                                        size_t column)
{
    typedef typename Real::wide wide;
    wide *b = a + GEMM_DEPTH * GEMM_STEP;
    wide sum[GEMM_SIDE][GEMM_SIDE] = {};
    for (size_t k = 0; k < args.k; k += GEMM_DEPTH) {
        gemm_fill<Real>(a, args.a, args.lda, !args.transpose_a, row, args.m, k,
                        args.k);
        gemm_fill<Real>(b, args.b, args.ldb, args.transpose_b != 0, column,
                        args.n, k, args.k);
        __syncthreads();
#pragma unroll
        for (unsigned n = 0; n < GEMM_DEPTH; n++) {
            gemm_step(sum, a + n * GEMM_STEP, b + n * GEMM_STEP);
        }
        __syncthreads();
    }
#pragma unroll
    for (unsigned i = 0; i < GEMM_SIDE; i++) {
        size_t at_row = row + threadIdx.x / GEMM_EDGE * GEMM_SIDE + i;
#pragma unroll
        for (unsigned j = 0; j < GEMM_SIDE; j++) {
            size_t at_column = column + threadIdx.x % GEMM_EDGE + j * GEMM_EDGE;
            if (at_row < args.m && at_column < args.n) {
                size_t at = at_row * args.ldc + at_column;
                wide value = (wide)args.alpha * sum[i][j];
                if (args.beta != 0) {
                    value += (wide)args.beta * load<Out>(args.c, at);
                }
                store<Out>(args.c, at, value);
            }
        }
    }
}

#endif
