/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/rmsnorm.h - root-mean-square normalisation of rows.
 *
 *     rstd[t] = 1 / sqrt(mean_i x[t][i]^2 + eps)
 *     y[t][i] = x[t][i] rstd[t] weight[i]
 *
 * x y dx dy   [rows][width], dense.      weight dweight   [width].
 * rstd        [rows].
 *
 * Tolerance   float: 1e-6 (1 + |x|) times the size of the formula's terms,
 *             width <= 65536; double: 1e-14 likewise.
 * Source      Zhang, Sennrich 2019, arXiv 1910.07467.
 */
#ifndef KERNELS_MATH_RMSNORM_H
#define KERNELS_MATH_RMSNORM_H

#include "kernels/math/real.h"

/* y may be x. rstd may be NULL where no backward will follow. */
typedef void wefti_rmsnorm_forward_fn(real *y, real *rstd, const real *x,
                                      const real *weight, size_t rows,
                                      size_t width, real eps);

/*
 * backward - with c[t] = rstd[t]^2 mean_i (dy[t][i] weight[i] x[t][i]):
 *
 *     dx[t][i] (+)= rstd[t] (dy[t][i] weight[i] - x[t][i] c[t])
 *     dweight[i] += sum_t dy[t][i] x[t][i] rstd[t]          in order of t
 *
 * accumulate  true: dx is added to (the residual's gradient is there already);
 *             false: it is overwritten. dx may be dy where false.
 */
typedef void wefti_rmsnorm_backward_fn(real *dx, real *dweight, const real *dy,
                                       const real *x, const real *weight,
                                       const real *rstd, size_t rows,
                                       size_t width, bool accumulate);

#endif
