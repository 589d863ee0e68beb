/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-entropy and its gradient, one row of logits at a time: the greatest
 * logit, the exponentials and their sum, and the scaling, each one pass over a
 * row that stays in cache.
 */
#include "kernels/math/cross_entropy.h"

#include "base/check.h"
#include "kernels/math/level.h"
#include "kernels/math/vec_exp.h"

/* The greatest of the row; NaNs are passed over (their exp is not). */
static real row_top(const real *row, size_t vocab)
{
    vec top[4];
    size_t j = 0;

    for (size_t n = 0; n < 4; n++)
        top[n] = vec_splat(-(real)INFINITY);
    for (; j + 4 * LANES <= vocab; j += 4 * LANES)
        for (size_t n = 0; n < 4; n++)
            top[n] = vec_max(vec_load(row + j + n * LANES), top[n]);
    for (; j + LANES <= vocab; j += LANES)
        top[0] = vec_max(vec_load(row + j), top[0]);

    real most =
        vec_top(vec_max(vec_max(top[0], top[1]), vec_max(top[2], top[3])));

    for (; j < vocab; j++)
        most = row[j] > most ? row[j] : most;
    return most;
}

/* The sum of exp(row[j] - top); each exp goes to out unless that is NULL. */
static real row_exp(real *out, const real *row, size_t vocab, real top)
{
    vec sum[2] = {{0}, {0}};
    size_t j = 0;

    for (; j + LANES <= vocab; j += LANES) {
        vec p = vec_exp(vec_load(row + j) - top);

        sum[j / LANES % 2] += p;
        if (out)
            vec_store(out + j, p);
    }
    if (j < vocab) {
        vec p = vec_exp(vec_load_part(row + j, vocab - j) - top);

        sum[0] += vec_first(p, vocab - j);
        if (out)
            vec_store_part(out + j, p, vocab - j);
    }
    return vec_sum(sum[0] + sum[1]);
}

static void row_scale(real *row, size_t vocab, real factor)
{
    for (size_t j = 0; j < vocab; j++)
        row[j] *= factor;
}

void WEFTI_LEVEL(cross_entropy)(real *loss, real *dlogits, const real *logits,
                                const int32_t *targets, size_t tokens,
                                size_t vocab, real scale)
{
    for (size_t t = 0; t < tokens; t++) {
        const real *row = logits + t * vocab;
        real *drow = dlogits ? dlogits + t * vocab : NULL;

        if (targets[t] < 0) {
            loss[t] = 0;
            if (drow)
                memset(drow, 0, vocab * sizeof(real));
            continue;
        }
        WEFTI_ASSERT((size_t)targets[t] < vocab);

        real top = row_top(row, vocab), hit = row[targets[t]];
        real sum = row_exp(drow, row, vocab, top);

        loss[t] = top - hit + (real)log((double)sum);
        if (drow) {
            row_scale(drow, vocab, scale / sum);
            drow[targets[t]] -= scale;
        }
    }
}
