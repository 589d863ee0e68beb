/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/sumsq.h - sum of squares, in double, in one fixed order.
 *
 *     partials[n] = sum of x[i]^2, i in [1024 n, min(1024 (n + 1), elems))
 *
 * A gradient norm must not depend on how many ranks share the gradient: cut it
 * between ranks at multiples of WEFTI_SUMSQ_BLOCK, put all partials in order,
 * and reduce them with wefti_sumsq_reduce. The order inside a block is the same
 * at every level; for float the products are exact in double, so the bits are
 * too.
 *
 * Order       32 lanes, lane l adds x[l], x[l + 32], ...; then lanes l and
 *             l + 16, l + 8, l + 4, l + 2, l + 1.
 * Tolerance   37 roundings of double a sum.
 */
#ifndef KERNELS_MATH_SUMSQ_H
#define KERNELS_MATH_SUMSQ_H

#include "kernels/math/real.h"

#define WEFTI_SUMSQ_BLOCK 1024

static inline size_t wefti_sumsq_blocks(size_t elems)
{
    return (elems + WEFTI_SUMSQ_BLOCK - 1) / WEFTI_SUMSQ_BLOCK;
}

/* partials    [wefti_sumsq_blocks(elems)]; written. */
typedef void wefti_sumsq_fn(double *partials, const real *x, size_t elems);

/*
 * wefti_sumsq_reduce - the sum of all partials, first to last.
 */
static inline double wefti_sumsq_reduce(const double *partials, size_t count)
{
    double sum = 0;

    for (size_t n = 0; n < count; n++)
        sum += partials[n];
    return sum;
}

#endif
