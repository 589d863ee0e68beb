/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RMSNorm by rows; a row's sum is taken in CHAINS vectors, reduced in order.
 */
#include "kernels/math/rmsnorm.h"

#include "kernels/math/level.h"
#include "kernels/math/vec.h"

#define CHAINS ((size_t)4)

/*
 * Rows whose backward shares loads and stores of dweight. Rows of a width near
 * a multiple of 4 KiB lie in the same lines of a first-level cache; with more
 * than two, those of dx, dy and x put each other out.
 */
#define GROUP_ROWS ((size_t)2)

static inline real reduce_chains(const vec sum[CHAINS])
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
    for (; i + LANES <= width; i += LANES)
        sum[0] += vec_load(x + i) * vec_load(x + i);
    if (i < width) {
        vec v = vec_load_part(x + i, width - i);

        sum[1] += v * v;
    }
    return reduce_chains(sum);
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
    return reduce_chains(sum);
}

void WEFTI_LEVEL(rmsnorm_forward)(real *y, real *rstd, const real *x,
                                  const real *weight, size_t rows, size_t width,
                                  real eps)
{
    for (size_t t = 0; t < rows; t++) {
        const real *row = x + t * width;
        real *out = y + t * width;
        real r = 1 / real_sqrt(row_squares(row, width) / (real)width + eps);
        size_t i = 0;

        for (; i + LANES <= width; i += LANES)
            vec_store(out + i, vec_load(row + i) * r * vec_load(weight + i));
        for (; i < width; i++)
            out[i] = row[i] * r * weight[i];
        if (rstd)
            rstd[t] = r;
    }
}

/*
 * Some lanes of one row: their dx, and their share added to dweight; rc is r
 * times c.
 */
ALWAYS_INLINE vec slope_lanes(vec *dweight, vec dy, vec x, vec weight, real r,
                              real rc)
{
    vec dyr = dy * r;

    *dweight += dyr * x;
    return dyr * weight - x * rc;
}

/* The columns of rows rows that make no whole vector. */
static void group_tail(real *dx, real *dweight, const real *dy, const real *x,
                       const real *weight, size_t rows, size_t width,
                       const real *r, const real *rc, bool accumulate)
{
    size_t i = width / LANES * LANES, rest = width - i;
    vec dw = vec_load_part(dweight + i, rest);
    vec w = vec_load_part(weight + i, rest);

    for (size_t t = 0; t < rows; t++) {
        size_t at = t * width + i;
        vec g = slope_lanes(&dw, vec_load_part(dy + at, rest),
                            vec_load_part(x + at, rest), w, r[t], rc[t]);

        vec_store_part(dx + at,
                       accumulate ? vec_load_part(dx + at, rest) + g : g, rest);
    }
    vec_store_part(dweight + i, dw, rest);
}

/*
 * rows rows by columns, so that dweight is loaded and stored once for all of
 * them; each column still adds in order of rows.
 */
ALWAYS_INLINE void group_backward(real *dx, real *dweight, const real *dy,
                                  const real *x, const real *weight,
                                  const size_t rows, size_t width,
                                  const real *r, const real *rc,
                                  const bool accumulate)
{
    for (size_t i = 0; i + LANES <= width; i += LANES) {
        vec dw = vec_load(dweight + i), w = vec_load(weight + i);

#pragma GCC unroll 2
        for (size_t t = 0; t < rows; t++) {
            size_t at = t * width + i;
            vec g = slope_lanes(&dw, vec_load(dy + at), vec_load(x + at), w,
                                r[t], rc[t]);

            vec_store(dx + at, accumulate ? vec_load(dx + at) + g : g);
        }
        vec_store(dweight + i, dw);
    }
    if (width % LANES != 0)
        group_tail(dx, dweight, dy, x, weight, rows, width, r, rc, accumulate);
}

void WEFTI_LEVEL(rmsnorm_backward)(real *dx, real *dweight, const real *dy,
                                   const real *x, const real *weight,
                                   const real *rstd, size_t rows, size_t width,
                                   bool accumulate)
{
    real share = 1 / (real)width;

    for (size_t t = 0; t < rows;) {
        size_t group = rows - t < GROUP_ROWS ? 1 : GROUP_ROWS, at = t * width;
        real rc[GROUP_ROWS];

        for (size_t n = 0; n < group; n++) {
            real r = rstd[t + n];

            rc[n] = row_product(dy + at + n * width, weight, x + at + n * width,
                                width) *
                    (r * r * r * share);
        }
        if (group == GROUP_ROWS && accumulate)
            group_backward(dx + at, dweight, dy + at, x + at, weight,
                           GROUP_ROWS, width, rstd + t, rc, true);
        else if (group == GROUP_ROWS)
            group_backward(dx + at, dweight, dy + at, x + at, weight,
                           GROUP_ROWS, width, rstd + t, rc, false);
        else
            group_backward(dx + at, dweight, dy + at, x + at, weight, 1, width,
                           rstd + t, rc, accumulate);
        t += group;
    }
}
