/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/embedding.h - rows of a table by token id.
 *
 *     out[t] = table[ids[t]]            dtable[ids[t]] += dout[t]
 *
 * out dout    [tokens][width], dense.       ids   [tokens], id < vocab.
 * table dtable [vocab][width], dense.
 *
 * An id below 0 has no row here: out is 0, and dout goes nowhere.
 *
 * Backward adds in order of t, so the result does not depend on anything else.
 *
 * Tolerance   forward exact; backward one rounding per addition.
 */
#ifndef KERNELS_MATH_EMBEDDING_H
#define KERNELS_MATH_EMBEDDING_H

#include "kernels/math/real.h"

typedef void wefti_embedding_forward_fn(real *out, const real *table,
                                        const int32_t *ids, size_t tokens,
                                        size_t vocab, size_t width);

typedef void wefti_embedding_backward_fn(real *dtable, const real *dout,
                                         const int32_t *ids, size_t tokens,
                                         size_t vocab, size_t width);

#endif
