/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RMSNorm, one row a warp: lane l sums elements l, l + 32 and so on, then the
 * lanes are summed by a tree. dweight takes two kernels: partial sums of rows,
 * and their sum.
 */
#include "kernels/math/math_real.cuh"

template <class Real>
static __device__ inline void
rmsnorm_forward(const wefti_math_rmsnorm_forward &args)
{
    typedef typename Real::wide wide;
    for (size_t t = warp_first(); t < args.rows; t += warp_count()) {
        size_t row = t * args.width;
        wide sum = 0;
        for (size_t i = warp_lane(); i < args.width; i += WARP) {
            wide x = load<Real>(args.x, row + i);
            sum += x * x;
        }
        sum = warp_sum(sum);
        wide rstd = 1 / real_sqrt(sum / (wide)args.width + (wide)args.eps);
        for (size_t i = warp_lane(); i < args.width; i += WARP) {
            store<Real>(args.y, row + i,
                        load<Real>(args.x, row + i) * rstd *
                            load<Real>(args.weight, i));
        }
        if (args.rstd && warp_lane() == 0) {
            static_cast<wide *>(args.rstd)[t] = rstd;
        }
    }
}

template <class Real>
static __device__ inline void
rmsnorm_backward(const wefti_math_rmsnorm_backward &args)
{
    typedef typename Real::wide wide;
    for (size_t t = warp_first(); t < args.rows; t += warp_count()) {
        size_t row = t * args.width;
        wide sum = 0;
        for (size_t i = warp_lane(); i < args.width; i += WARP) {
            sum += load<Real>(args.dy, row + i) * load<Real>(args.weight, i) *
                   load<Real>(args.x, row + i);
        }
        wide rstd = static_cast<const wide *>(args.rstd)[t];
        wide slope = warp_sum(sum) * (rstd * rstd * rstd / (wide)args.width);
        for (size_t i = warp_lane(); i < args.width; i += WARP) {
            wide dx = load<Real>(args.dy, row + i) * rstd *
                          load<Real>(args.weight, i) -
                      load<Real>(args.x, row + i) * slope;
            if (args.accumulate) {
                dx += load<Real>(args.dx, row + i);
            }
            store<Real>(args.dx, row + i, dx);
        }
    }
}

template <class Real>
static __device__ inline void
rmsnorm_dweight(const wefti_math_rmsnorm_dweight &args)
{
    typedef typename Real::wide wide;
    wide *partials = static_cast<wide *>(args.partials);
    const wide *rstd = static_cast<const wide *>(args.rstd);
    size_t count =
        (args.rows + WEFTI_MATH_DWEIGHT_ROWS - 1) / WEFTI_MATH_DWEIGHT_ROWS;
    row_pieces pieces(count, args.width);
    pieces.run([&](size_t partial, size_t i) {
        size_t first = partial * WEFTI_MATH_DWEIGHT_ROWS;
        size_t end = first + WEFTI_MATH_DWEIGHT_ROWS;
        wide sum = 0;
        for (size_t t = first; t < end && t < args.rows; t++) {
            size_t at = t * args.width + i;
            sum += load<Real>(args.dy, at) * rstd[t] * load<Real>(args.x, at);
        }
        partials[partial * args.width + i] = sum;
    });
}

template <class Real>
static __device__ inline void sum_rows(const wefti_math_sum_rows &args)
{
    row_pieces pieces(1, args.width);
    pieces.run([&](size_t, size_t i) {
        typename Real::wide sum = load<Real>(args.sum, i);
        for (size_t t = 0; t < args.rows; t++) {
            sum += load<Real>(args.summands, t * args.width + i);
        }
        store<Real>(args.sum, i, sum);
    });
}

#define RMSNORM_KERNELS(type)                                                  \
    MATH_KERNEL(rmsnorm_forward, type)                                         \
    MATH_KERNEL(rmsnorm_backward, type)                                        \
    MATH_KERNEL(rmsnorm_dweight, type)
REAL_LIST(RMSNORM_KERNELS)

#define SUM_ROWS_KERNEL(type) MATH_KERNEL(sum_rows, type)
REAL_WIDE_LIST(SUM_ROWS_KERNEL)
