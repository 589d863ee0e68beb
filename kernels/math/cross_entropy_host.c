/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-entropy and its gradient, one row of logits at a time.
 */
#include "kernels/math/cross_entropy.h"

#include "base/check.h"
#include "kernels/math/level.h"

#include <math.h>

void WEFTI_LEVEL(cross_entropy)(real *loss, real *dlogits, const real *logits,
                                const int32_t *targets, size_t tokens,
                                size_t vocab, real scale)
{
    for (size_t t = 0; t < tokens; t++) {
        const real *row = logits + t * vocab;
        real *drow = dlogits ? dlogits + t * vocab : NULL;
        real top = row[0], sum = 0;

        if (targets[t] < 0) {
            loss[t] = 0;
            for (size_t j = 0; drow && j < vocab; j++)
                drow[j] = 0;
            continue;
        }
        WEFTI_ASSERT((size_t)targets[t] < vocab);
        for (size_t j = 1; j < vocab; j++)
            top = row[j] > top ? row[j] : top;
        for (size_t j = 0; j < vocab; j++)
            sum += (real)exp((double)(row[j] - top));
        loss[t] = top + (real)log((double)sum) - row[targets[t]];
        if (!drow)
            continue;
        for (size_t j = 0; j < vocab; j++)
            drow[j] = scale / sum * (real)exp((double)(row[j] - top));
        drow[targets[t]] -= scale;
    }
}
