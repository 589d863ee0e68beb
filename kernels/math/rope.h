/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/rope.h - rotary position embedding, in place.
 *
 * Element i of the first half of a head and element i of its second half are
 * one pair, turned by the angle position * theta^(-2 i / head_size) (the
 * layout of Llama's and Qwen's published weights):
 *
 *     x[i]        <- x[i] cos - x[i + half] sin        half = head_size / 2
 *     x[i + half] <- x[i + half] cos + x[i] sin
 *
 * head_size is even.
 *
 * Tolerance   float: 2e-7 of the pair's length plus the table's half step;
 *             double: 4e-16 likewise. Angles are computed in double.
 * Source      Su et al. 2021, arXiv 2104.09864.
 */
#ifndef KERNELS_MATH_ROPE_H
#define KERNELS_MATH_ROPE_H

#include "kernels/math/real.h"

/*
 * table - cosines, then sines, of every token: table[t][0 .. half) and
 * table[t][half .. head_size).
 *
 * positions   [tokens], or NULL: token t stands at first + t.
 * first       position of token 0; ignored where positions is given.
 */
typedef void wefti_rope_table_fn(real *table, const int32_t *positions,
                                 int64_t first, size_t tokens, size_t head_size,
                                 double theta);

/*
 * forward - turns x; backward turns a gradient back (the transpose).
 *
 * x           [tokens][heads][head_size], rows x_stride apart; in place.
 * table       [tokens][head_size], from rope_table.
 */
typedef void wefti_rope_forward_fn(real *x, const real *table, size_t tokens,
                                   size_t heads, size_t head_size,
                                   size_t x_stride);
typedef void wefti_rope_backward_fn(real *x, const real *table, size_t tokens,
                                    size_t heads, size_t head_size,
                                    size_t x_stride);

#endif
