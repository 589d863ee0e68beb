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
 * Tolerance   float: loss 4e-6 + 4e-7 of the largest |logit|, dlogits
 *             4e-7 scale; double: 1e-14 likewise. vocab <= 2^20.
 */
#ifndef KERNELS_MATH_CROSS_ENTROPY_H
#define KERNELS_MATH_CROSS_ENTROPY_H

#include "kernels/math/real.h"

typedef void wefti_cross_entropy_fn(real *loss, real *dlogits,
                                    const real *logits, const int32_t *targets,
                                    size_t tokens, size_t vocab, real scale);

#endif
