/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-entropy and its gradient by rows of logits: the greatest logit, the
 * exponentials and their sum, the scaling, each one pass over rows in cache.
 */
#include "kernels/math/cross_entropy.h"

#include "base/check.h"
#include "kernels/math/level.h"
#include "kernels/math/vec_exp.h"

/*
 * Short rows go step by step in groups, so that what one row waits for the
 * others fill; a group stays in the first-level cache.
 */
#define GROUP_ROWS  ((size_t)8)
#define GROUP_ELEMS ((size_t)4096)

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
    if (j < vocab)
        top[1] = vec_max(vec_select(vec_lanes(vocab - j),
                                    vec_load_part(row + j, vocab - j), top[1]),
                         top[1]);
    return vec_top(vec_max(vec_max(top[0], top[1]), vec_max(top[2], top[3])));
}

/* The sum of exp(row[j] - top); each exp goes to out where store. */
ALWAYS_INLINE real row_exp(real *out, const real *row, size_t vocab, real top,
                           const bool store)
{
    vec sum = {0};
    size_t j = 0;

    for (; j + LANES <= vocab; j += LANES) {
        vec p = vec_exp2((vec_load(row + j) - top) * LOG2_E);

        sum += p;
        if (store)
            vec_store(out + j, p);
    }
    if (j < vocab) {
        vec x = vec_load_part(row + j, vocab - j);
        vec p = vec_first(vec_exp2((x - top) * LOG2_E), vocab - j);

        sum += p;
        if (store)
            vec_store_part(out + j, p, vocab - j);
    }
    return vec_sum(sum);
}

static void row_scale(real *row, size_t vocab, real factor)
{
    for (size_t j = 0; j < vocab; j++)
        row[j] *= factor;
}

/* A token that does not count. */
static void skip_row(real *loss, real *drow, size_t vocab)
{
    *loss = 0;
    if (drow)
        memset(drow, 0, vocab * sizeof(real));
}

/* rows <= GROUP_ROWS tokens that count or not, step by step. */
static void group_rows(real *loss, real *dlogits, const real *logits,
                       const int32_t *targets, size_t rows, size_t vocab,
                       real scale)
{
    real top[GROUP_ROWS], sum[GROUP_ROWS];

    for (size_t t = 0; t < rows; t++)
        top[t] = row_top(logits + t * vocab, vocab);
    for (size_t t = 0; t < rows; t++) {
        const real *row = logits + t * vocab;

        if (targets[t] >= 0)
            loss[t] = top[t] - row[targets[t]];
        sum[t] = dlogits
                     ? row_exp(dlogits + t * vocab, row, vocab, top[t], true)
                     : row_exp(NULL, row, vocab, top[t], false);
    }
    for (size_t t = 0; t < rows; t++) {
        real *drow = dlogits ? dlogits + t * vocab : NULL;

        if (targets[t] < 0) {
            skip_row(loss + t, drow, vocab);
            continue;
        }
        WEFTI_ASSERT((size_t)targets[t] < vocab);
        loss[t] += (real)log((double)sum[t]);
        if (drow) {
            row_scale(drow, vocab, scale / sum[t]);
            drow[targets[t]] -= scale;
        }
    }
}

void WEFTI_LEVEL(cross_entropy)(real *loss, real *dlogits, const real *logits,
                                const int32_t *targets, size_t tokens,
                                size_t vocab, real scale)
{
    size_t step = vocab * GROUP_ROWS <= GROUP_ELEMS ? GROUP_ROWS : 1;

    for (size_t t = 0; t < tokens; t += step)
        group_rows(loss + t, dlogits ? dlogits + t * vocab : NULL,
                   logits + t * vocab, targets + t,
                   tokens - t < step ? tokens - t : step, vocab, scale);
}

/* ---- a part of the vocabulary ---------------------------------------------
 */

/* Of logits that are all -INFINITY, 0; a NaN among them stays one. */
static real sum_below(const real *row, size_t vocab, real top)
{
    real sum = 0;

    if (top > -(real)INFINITY)
        return row_exp(NULL, row, vocab, top, false);
    for (size_t j = 0; j < vocab; j++)
        sum = isnan(row[j]) ? row[j] : sum;
    return sum;
}

void WEFTI_LEVEL(softmax_part)(real *summary, const real *logits,
                               const int32_t *targets, size_t tokens,
                               size_t vocab)
{
    for (size_t t = 0; t < tokens; t++) {
        const real *row = logits + t * vocab;
        real *own = summary + t * WEFTI_CROSS_ENTROPY_SUMMARY;

        WEFTI_ASSERT(targets[t] < 0 || (size_t)targets[t] < vocab);
        own[0] = row_top(row, vocab);
        own[1] = sum_below(row, vocab, own[0]);
        own[2] = targets[t] >= 0 ? row[targets[t]] : 0;
    }
}

/* A token's summary over all columns. */
static void join_parts(const wefti_cross_entropy_parts *all, size_t token,
                       real joined[WEFTI_CROSS_ENTROPY_SUMMARY])
{
    const real *first = all->parts + token * WEFTI_CROSS_ENTROPY_SUMMARY;

    joined[0] = -(real)INFINITY;
    joined[1] = joined[2] = 0;
    for (size_t p = 0; p < all->count; p++) {
        real top = first[p * all->part_elems];

        joined[0] = top > joined[0] ? top : joined[0];
    }
    for (size_t p = 0; p < all->count; p++) {
        const real *part = first + p * all->part_elems;
        bool none = !(part[0] > -(real)INFINITY);
        double weight = none ? 1 : exp((double)(part[0] - joined[0]));

        joined[1] += part[1] * (real)weight;
        joined[2] += part[2];
    }
}

void WEFTI_LEVEL(cross_entropy_part)(real *loss, real *dlogits,
                                     const real *logits, const int32_t *targets,
                                     const wefti_cross_entropy_parts *all,
                                     size_t tokens, size_t vocab, real scale)
{
    for (size_t t = 0; t < tokens; t++) {
        real *drow = dlogits ? dlogits + t * vocab : NULL;
        real joined[WEFTI_CROSS_ENTROPY_SUMMARY];

        if (targets[t] < WEFTI_CROSS_ENTROPY_ELSEWHERE) {
            skip_row(loss + t, drow, vocab);
            continue;
        }
        join_parts(all, t, joined);
        loss[t] = joined[0] - joined[2] + (real)log((double)joined[1]);
        if (drow) {
            (void)row_exp(drow, logits + t * vocab, vocab, joined[0], true);
            row_scale(drow, vocab, scale / joined[1]);
        }
        if (drow && targets[t] >= 0)
            drow[targets[t]] -= scale;
    }
}
