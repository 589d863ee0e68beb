/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RMSNorm by rows; a row's sum is taken in CHAINS vectors, folded in order.
 */
#include "kernels/math/rmsnorm.h"

#include "kernels/math/level.h"
#include "kernels/math/vec.h"

#include <math.h>

#define CHAINS ((size_t)4)

static inline real fold_chains(const vec sum[CHAINS])
{
    return vec_sum((sum[0] + sum[2]) + (sum[1] + sum[3]));
}

static real row_squares(const real *x, size_t width)
{
    vec sum[CHAINS] = {{0}, {0}, {0}, {0}};
    size_t i = 0;

    for (; i + CHAINS * LANES <= width; i += CHAINS * LANES)
        for (size_t n = 0; n < CHAINS; n++) {
            vec v = vec_load(x + i + n * LANES);

            sum[n] += v * v;
        }
    for (; i < width; i += LANES) {
        vec v = width - i < LANES ? vec_load_part(x + i, width - i)
                                  : vec_load(x + i);

        sum[0] += v * v;
    }
    return fold_chains(sum);
}

/* sum_i dy[i] weight[i] x[i] */
static real row_product(const real *dy, const real *weight, const real *x,
                        size_t width)
{
    vec sum[CHAINS] = {{0}, {0}, {0}, {0}};
    size_t i = 0;

    for (; i + CHAINS * LANES <= width; i += CHAINS * LANES)
        for (size_t n = 0; n < CHAINS; n++) {
            size_t at = i + n * LANES;

            sum[n] +=
                vec_load(dy + at) * vec_load(weight + at) * vec_load(x + at);
        }
    for (; i + LANES <= width; i += LANES)
        sum[0] += vec_load(dy + i) * vec_load(weight + i) * vec_load(x + i);
    if (i < width)
        sum[1] += vec_load_part(dy + i, width - i) *
                  vec_load_part(weight + i, width - i) *
                  vec_load_part(x + i, width - i);
    return fold_chains(sum);
}

void WEFTI_LEVEL(rmsnorm_forward)(real *y, real *rstd, const real *x,
                                  const real *weight, size_t rows, size_t width,
                                  real eps)
{
    for (size_t t = 0; t < rows; t++) {
        const real *row = x + t * width;
        real *out = y + t * width;
        real mean = row_squares(row, width) / (real)width;
        real r = (real)(1 / sqrt((double)(mean + eps)));

        for (size_t i = 0; i < width; i++)
            out[i] = row[i] * r * weight[i];
        if (rstd)
            rstd[t] = r;
    }
}

/* One row's dx and its share of dweight; see rmsnorm.h for c. */
static inline void row_backward(real *dx, real *dweight, const real *dy,
                                const real *x, const real *weight, size_t width,
                                real r, real c, const bool accumulate)
{
    for (size_t i = 0; i < width; i++) {
        real d = dy[i];
        real g = r * (d * weight[i] - x[i] * c);

        dweight[i] += d * (x[i] * r);
        dx[i] = accumulate ? dx[i] + g : g;
    }
}

void WEFTI_LEVEL(rmsnorm_backward)(real *dx, real *dweight, const real *dy,
                                   const real *x, const real *weight,
                                   const real *rstd, size_t rows, size_t width,
                                   bool accumulate)
{
    for (size_t t = 0; t < rows; t++) {
        size_t at = t * width;
        real r = rstd[t];
        real c =
            r * r * row_product(dy + at, weight, x + at, width) / (real)width;

        if (accumulate)
            row_backward(dx + at, dweight, dy + at, x + at, weight, width, r, c,
                         true);
        else
            row_backward(dx + at, dweight, dy + at, x + at, weight, width, r, c,
                         false);
    }
}
