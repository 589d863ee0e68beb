/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/cross_entropy.h - softmax cross-entropy, forward and backward
 * in one pass over the logits.
 *
 *     loss[t] = log sum_j exp(logits[t][j]) - logits[t][target[t]]
 *     dlogits[t][j] = scale (softmax(logits[t])[j] - [j == target[t]])
 *
 * loss        [tokens], in nats, not scaled; written.
 * dlogits     [tokens][vocab], dense; written; may be logits; NULL: loss only.
 * logits      [tokens][vocab], dense.
 * targets     [tokens]; an id in [0, vocab), or negative: the token does not
 *             count (loss 0, gradient 0).
 * scale       usually 1 / (tokens of the whole batch).
 *
 * Where ranks share the vocabulary, each has some columns of the logits. A
 * summary of its own goes to all of them, and the loss is that of all columns:
 *
 *     parts[p][t] = {top, sum of exp(x - top), logit of the target}
 *
 * softmax_part        writes this rank's summary, [tokens][SUMMARY]
 * cross_entropy_part  loss and dlogits as above, of its own columns
 *
 * targets     numbers of own columns; ELSEWHERE: the token counts, and another
 *             rank has its target (the summary's logit is 0); below that: it
 *             does not count.
 * parts       all ranks' summaries, in their order, part_elems from one to the
 *             next; added up in that order.
 *
 * Tolerance   float: loss 4e-6 + 4e-7 of the largest |logit|, dlogits
 *             4e-7 scale; double: 1e-14 likewise. vocab <= 2^20.
 */
#ifndef KERNELS_MATH_CROSS_ENTROPY_H
#define KERNELS_MATH_CROSS_ENTROPY_H

#include "kernels/math/real.h"

enum {
    WEFTI_CROSS_ENTROPY_SUMMARY = 3, /* elements of a token's */
    WEFTI_CROSS_ENTROPY_ELSEWHERE = -1,
    WEFTI_CROSS_ENTROPY_NO_TARGET = -2
};

typedef void wefti_cross_entropy_fn(real *loss, real *dlogits,
                                    const real *logits, const int32_t *targets,
                                    size_t tokens, size_t vocab, real scale);

typedef void wefti_softmax_part_fn(real *summary, const real *logits,
                                   const int32_t *targets, size_t tokens,
                                   size_t vocab);

/* Of the summaries there are count. */
typedef struct wefti_cross_entropy_parts {
    const real *parts;
    size_t count, part_elems;
} wefti_cross_entropy_parts;

typedef void wefti_cross_entropy_part_fn(real *loss, real *dlogits,
                                         const real *logits,
                                         const int32_t *targets,
                                         const wefti_cross_entropy_parts *all,
                                         size_t tokens, size_t vocab,
                                         real scale);

#endif
