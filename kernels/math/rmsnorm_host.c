/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RMSNorm by rows.
 */
#include "kernels/math/rmsnorm.h"

#include "kernels/math/level.h"

#include <math.h>

void WEFTI_LEVEL(rmsnorm_forward)(real *y, real *rstd, const real *x,
                                  const real *weight, size_t rows, size_t width,
                                  real eps)
{
    for (size_t t = 0; t < rows; t++) {
        const real *row = x + t * width;
        real sum = 0;

        for (size_t i = 0; i < width; i++)
            sum += row[i] * row[i];

        real r = 1 / (real)sqrt((double)(sum / (real)width + eps));

        for (size_t i = 0; i < width; i++)
            y[t * width + i] = row[i] * r * weight[i];
        if (rstd)
            rstd[t] = r;
    }
}

void WEFTI_LEVEL(rmsnorm_backward)(real *dx, real *dweight, const real *dy,
                                   const real *x, const real *weight,
                                   const real *rstd, size_t rows, size_t width,
                                   bool accumulate)
{
    for (size_t t = 0; t < rows; t++) {
        const real *row = x + t * width, *drow = dy + t * width;
        real *out = dx + t * width;
        real r = rstd[t], dot = 0;

        for (size_t i = 0; i < width; i++)
            dot += drow[i] * weight[i] * row[i];

        real c = r * r * dot / (real)width;

        for (size_t i = 0; i < width; i++) {
            real g = r * (drow[i] * weight[i] - row[i] * c);

            dweight[i] += drow[i] * row[i] * r;
            out[i] = accumulate ? out[i] + g : g;
        }
    }
}
