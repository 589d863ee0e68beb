/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_real.cuh - the element types of the CUDA kernels, and how a
 * launch of any shape shares rows out among its warps.
 */
#ifndef KERNELS_MATH_MATH_REAL_CUH
#define KERNELS_MATH_MATH_REAL_CUH

#include "kernels/math/math_launch.h"
#include "kernels/wire/device_float.cuh"

#include <math.h>

/*
 * memory   how an element lies in memory
 * wide     type of arithmetic and of sums
 * widen    memory to wide, exact
 * narrow   wide to memory, rounds once
 */
#define REAL_PLAIN(name, type)                                                 \
    struct name {                                                              \
        typedef type memory;                                                   \
        typedef type wide;                                                     \
        static __device__ inline wide widen(memory value)                      \
        {                                                                      \
            return value;                                                      \
        }                                                                      \
        static __device__ inline memory narrow(wide value)                     \
        {                                                                      \
            return value;                                                      \
        }                                                                      \
    };

REAL_PLAIN(real_f32, float)
REAL_PLAIN(real_f64, double)

struct real_bf16 {
    typedef uint16_t memory;
    typedef float wide;
    static __device__ inline wide widen(memory code)
    {
        return bf16_widen(code);
    }
    static __device__ inline memory narrow(wide value)
    {
        return bf16_narrow(value);
    }
};

/* The one whose memory is of a type of arithmetic. */
template <class Wide> struct real_of;
template <> struct real_of<float> {
    typedef real_f32 type;
};
template <> struct real_of<double> {
    typedef real_f64 type;
};

/* X(type) for each of them, and for each that is wide. */
#define REAL_LIST(X)      X(f32) X(bf16) X(f64)
#define REAL_WIDE_LIST(X) X(f32) X(f64)

/* Element i of an array of type Real. */
template <class Real>
static __device__ inline typename Real::wide load(const void *array, size_t i)
{
    typedef typename Real::memory memory;
    return Real::widen(static_cast<const memory *>(array)[i]);
}

template <class Real>
static __device__ inline void store(void *array, size_t i,
                                    typename Real::wide value)
{
    static_cast<typename Real::memory *>(array)[i] = Real::narrow(value);
}

/* C's functions by type. */
#define REAL_FUNCTION(name, of_float, of_double)                               \
    static __device__ inline float name(float x)                               \
    {                                                                          \
        return of_float(x);                                                    \
    }                                                                          \
    static __device__ inline double name(double x)                             \
    {                                                                          \
        return of_double(x);                                                   \
    }
REAL_FUNCTION(real_exp, expf, exp)
REAL_FUNCTION(real_log, logf, log)
REAL_FUNCTION(real_sqrt, sqrtf, sqrt)

static const unsigned WARP = 32;
static const unsigned WARP_WHOLE = 0xffffffffU;

static __device__ inline unsigned warp_lane()
{
    return threadIdx.x % WARP;
}

/* This warp among those of the launch, and how many these are. */
static __device__ inline size_t warp_first()
{
    return ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}

static __device__ inline size_t warp_count()
{
    return (size_t)gridDim.x * blockDim.x / WARP;
}

/* The sum over the lanes, in one balanced tree: all lanes get the same bits. */
template <class Wide> static __device__ inline Wide warp_sum(Wide value)
{
#pragma unroll
    for (unsigned step = WARP / 2; step != 0; step /= 2) {
        value += __shfl_xor_sync(WARP_WHOLE, value, step);
    }
    return value;
}

/*
 * Rows in pieces of some columns, one a warp at a time: where the columns of a
 * row need nothing of each other, few long rows keep a GPU busy too.
 */
struct row_pieces {
    size_t width, piece_width, a_row, count;

    __device__ inline row_pieces(size_t rows, size_t row_width,
                                 size_t columns = 8 * WARP)
        : width(row_width), piece_width(columns),
          a_row((row_width + columns - 1) / columns), count(rows * a_row)
    {
    }

    /* Calls work(row, column) for this thread's part of all rows: for each
     * column, or for each ELEMS of them that begin there. */
    template <unsigned ELEMS, class Work>
    __device__ inline void run_by(const Work &work) const
    {
        for (size_t piece = warp_first(); piece < count;
             piece += warp_count()) {
            size_t row = divide(piece);
            size_t first = (piece - row * a_row) * piece_width;
            size_t end =
                first + piece_width < width ? first + piece_width : width;
            for (size_t i = first + warp_lane() * ELEMS; i < end;
                 i += WARP * ELEMS) {
                work(row, i);
            }
        }
    }

    template <class Work> __device__ inline void run(const Work &work) const
    {
        run_by<1>(work);
    }

  private:
    /* In 32 bits where they do: 64 take as long as the elements. */
    __device__ inline size_t divide(size_t piece) const
    {
        return count >> 32 ? piece / a_row : (unsigned)piece / (unsigned)a_row;
    }
};

/* Calls work(i) for this thread's part of elems elements. */
template <class Work>
static __device__ inline void each_elem(size_t elems, const Work &work)
{
    size_t threads = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < elems; i += threads) {
        work(i);
    }
}

/* The kernel of math_launch.h that op<Real>(args) is the work of. */
#define MATH_KERNEL(op, type)                                                  \
    extern "C" __global__ void __launch_bounds__(WEFTI_MATH_THREADS, 1)        \
        wefti_math_##op##_##type(const __grid_constant__ wefti_math_##op args) \
    {                                                                          \
        op<real_##type>(args);                                                 \
    }

#endif
