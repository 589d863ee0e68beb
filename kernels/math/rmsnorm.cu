/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RMSNorm, one row a warp (row_packs): a lane sums its elements in order, then
 * the lanes are summed by a tree. A row is read twice, the second time from a
 * cache. dweight takes two kernels: partial sums of rows, and their sum.
 */
#include "kernels/math/math_pack.cuh"

/* Packs of a row that a lane has under way. */
static const unsigned FORWARD_AHEAD = 8, BACKWARD_AHEAD = 4;

template <class Wide, class Pack>
static __device__ inline Wide add_squares(Wide sum, const Pack &x)
{
#pragma unroll
    for (unsigned k = 0; k < sizeof(x.at) / sizeof(x.at[0]); k++) {
        sum += x.get(k) * x.get(k);
    }
    return sum;
}

template <class Real, bool WHOLE>
static __device__ inline void
rmsnorm_forward_row(const wefti_math_rmsnorm_forward &args, size_t t)
{
    typedef row_packs<Real, WHOLE> packs;
    typedef typename Real::wide wide;
    size_t row = t * args.width;
    wide sum = 0;
    for (size_t i = packs::first(); i < args.width;
         i += FORWARD_AHEAD * packs::STEP) {
        typename packs::pack x[FORWARD_AHEAD];
        packs::load_ahead(x, args.x, row, i, args.width);
#pragma unroll
        for (unsigned a = 0; a < FORWARD_AHEAD; a++) {
            if (i + a * packs::STEP < args.width) {
                sum = add_squares(sum, x[a]);
            }
        }
    }
    sum = warp_sum(sum);
    wide rstd = 1 / real_sqrt(sum / (wide)args.width + (wide)args.eps);
    for (size_t i = packs::first(); i < args.width; i += packs::STEP) {
        typename packs::pack x = packs::load(args.x, row, i, args.width), y,
                             weight =
                                 packs::load(args.weight, 0, i, args.width);
#pragma unroll
        for (unsigned k = 0; k < packs::ELEMS; k++) {
            y.set(k, x.get(k) * rstd * weight.get(k));
        }
        packs::store(y, args.y, row, i, args.width);
    }
    if (args.rstd && warp_lane() == 0) {
        static_cast<wide *>(args.rstd)[t] = rstd;
    }
}

template <class Real>
static __device__ inline void
rmsnorm_forward(const wefti_math_rmsnorm_forward &args)
{
    bool whole = row_pack<Real>::fits(args.width, args.width) &&
                 is_packed(args.x) && is_packed(args.y) &&
                 is_packed(args.weight);
    for (size_t t = warp_first(); t < args.rows; t += warp_count()) {
        if (whole) {
            rmsnorm_forward_row<Real, true>(args, t);
        } else {
            rmsnorm_forward_row<Real, false>(args, t);
        }
    }
}

template <class Wide, class Pack>
static __device__ inline Wide add_products(Wide sum, const Pack &dy,
                                           const Pack &weight, const Pack &x)
{
#pragma unroll
    for (unsigned k = 0; k < sizeof(x.at) / sizeof(x.at[0]); k++) {
        sum += dy.get(k) * weight.get(k) * x.get(k);
    }
    return sum;
}

template <class Real, bool WHOLE>
static __device__ inline void
rmsnorm_backward_row(const wefti_math_rmsnorm_backward &args, size_t t)
{
    typedef row_packs<Real, WHOLE> packs;
    typedef typename packs::pack pack;
    typedef typename Real::wide wide;
    size_t row = t * args.width;
    wide rstd = static_cast<const wide *>(args.rstd)[t], sum = 0;
    for (size_t i = packs::first(); i < args.width;
         i += BACKWARD_AHEAD * packs::STEP) {
        pack x[BACKWARD_AHEAD], dy[BACKWARD_AHEAD], weight[BACKWARD_AHEAD];
        packs::load_ahead(x, args.x, row, i, args.width);
        packs::load_ahead(dy, args.dy, row, i, args.width);
        packs::load_ahead(weight, args.weight, 0, i, args.width);
#pragma unroll
        for (unsigned a = 0; a < BACKWARD_AHEAD; a++) {
            if (i + a * packs::STEP < args.width) {
                sum = add_products(sum, dy[a], weight[a], x[a]);
            }
        }
    }
    wide slope = warp_sum(sum) * (rstd * rstd * rstd / (wide)args.width);
    for (size_t i = packs::first(); i < args.width; i += packs::STEP) {
        pack x = packs::load(args.x, row, i, args.width);
        pack dy = packs::load(args.dy, row, i, args.width);
        pack weight = packs::load(args.weight, 0, i, args.width), dx;
        pack before =
            args.accumulate ? packs::load(args.dx, row, i, args.width) : pack();
#pragma unroll
        for (unsigned k = 0; k < packs::ELEMS; k++) {
            wide value = dy.get(k) * rstd * weight.get(k) - x.get(k) * slope;
            dx.set(k, args.accumulate ? value + before.get(k) : value);
        }
        packs::store(dx, args.dx, row, i, args.width);
    }
}

template <class Real>
static __device__ inline void
rmsnorm_backward(const wefti_math_rmsnorm_backward &args)
{
    bool whole = row_pack<Real>::fits(args.width, args.width) &&
                 is_packed(args.x) && is_packed(args.dy) &&
                 is_packed(args.dx) && is_packed(args.weight);
    for (size_t t = warp_first(); t < args.rows; t += warp_count()) {
        if (whole) {
            rmsnorm_backward_row<Real, true>(args, t);
        } else {
            rmsnorm_backward_row<Real, false>(args, t);
        }
    }
}

/* ELEMS columns of a partial sum, down its rows; few, as rows are long. */
template <class Real, unsigned ELEMS>
static __device__ inline void
rmsnorm_dweight_by(const wefti_math_rmsnorm_dweight &args)
{
    typedef typename Real::wide wide;
    const wide *rstd = static_cast<const wide *>(args.rstd);
    size_t count =
        (args.rows + WEFTI_MATH_DWEIGHT_ROWS - 1) / WEFTI_MATH_DWEIGHT_ROWS;
    row_pieces pieces(count, args.width, ELEMS * WARP);
    pieces.run_by<ELEMS>([&](size_t partial, size_t i) {
        size_t first = partial * WEFTI_MATH_DWEIGHT_ROWS;
        size_t end = first + WEFTI_MATH_DWEIGHT_ROWS < args.rows
                         ? first + WEFTI_MATH_DWEIGHT_ROWS
                         : args.rows;
        wide sum[ELEMS] = {};
#pragma unroll 8
        for (size_t t = first; t < end; t++) {
            real_pack<Real, ELEMS> dy, x;
            dy.template load<true>(args.dy, t * args.width + i, ELEMS);
            x.template load<true>(args.x, t * args.width + i, ELEMS);
#pragma unroll
            for (unsigned k = 0; k < ELEMS; k++) {
                sum[k] += dy.get(k) * rstd[t] * x.get(k);
            }
        }
#pragma unroll
        for (unsigned k = 0; k < ELEMS; k++) {
            static_cast<wide *>(args.partials)[partial * args.width + i + k] =
                sum[k];
        }
    });
}

template <class Real>
static __device__ inline void
rmsnorm_dweight(const wefti_math_rmsnorm_dweight &args)
{
    if (row_pack<Real>::fits(args.width, args.width) && is_packed(args.x) &&
        is_packed(args.dy)) {
        rmsnorm_dweight_by<Real, row_pack<Real>::ELEMS / 2>(args);
    } else {
        rmsnorm_dweight_by<Real, 1>(args);
    }
}

template <class Real>
static __device__ inline void sum_rows(const wefti_math_sum_rows &args)
{
    each_elem(args.width, [&](size_t i) {
        typename Real::wide sum = load<Real>(args.sum, i);
#pragma unroll 8
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
