/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of squares of blocks, in 32 double lanes.
 */
#include "kernels/math/sumsq.h"

#include "kernels/math/level.h"

#define SUM_LANES 32

static double sum_block(const real *x, size_t elems)
{
    double lane[SUM_LANES] = {0};
    size_t i = 0;

    for (; i + SUM_LANES <= elems; i += SUM_LANES)
        for (size_t l = 0; l < SUM_LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < elems; l++)
        lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t half = SUM_LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

void WEFTI_LEVEL(sumsq)(double *partials, const real *x, size_t elems)
{
    for (size_t at = 0; at < elems; at += WEFTI_SUMSQ_BLOCK) {
        size_t rest = elems - at;

        partials[at / WEFTI_SUMSQ_BLOCK] = sum_block(
            x + at, rest < WEFTI_SUMSQ_BLOCK ? rest : WEFTI_SUMSQ_BLOCK);
    }
}
