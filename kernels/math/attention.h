/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/attention.h - one block of softmax attention, mergeable.
 *
 * For each head h (its kv head g = h / (heads / kv_heads)), query i, key j:
 *
 *     s[i][j] = scale * sum_d q[i][h][d] k[j][g][d]
 *     lse[i][h] = log sum_j exp(s[i][j])            over the visible j
 *     o[i][h] = sum_j exp(s[i][j] - lse[i][h]) v[j][g]
 *
 * Causal: query i sees key j where j <= i + causal_offset; offset 0 is the
 * usual triangle, the key block's start behind the query block's is a positive
 * offset, -1 hides the diagonal too. The score matrix is never stored whole.
 *
 * One call handles one sequence (or the blocks of one) of any lengths.
 *
 * Blocks merge: a call with merge = true continues from the (o, lse) of an
 * earlier call over other keys, so that calls over a partition of the keys, in
 * any order, give what one call over all of them gives. A query that sees no
 * key of this block is left as it is; without merge it gets o = 0 and
 * lse = -INFINITY.
 *
 * Layouts are token-major with explicit strides, so a range of tokens, and a
 * part of a fused QKV row, is a pointer and a stride.
 *
 * Tolerance   float: 1e-5 + 2e-5 |x| against the double-precision formula for
 *             inputs of order one, head_size <= 256 and <= 4096 keys; double:
 *             1e-12 likewise.
 * Source      Dao, Fu, Ermon, Rudra, Re 2022 (FlashAttention, arXiv
 *             2205.14135) for tiles and the backward; Milakov, Gimelshein 2018
 *             (arXiv 1805.02867) for the online softmax; Liu, Zaharia, Abbeel
 *             2023 (arXiv 2310.01889) for blocks that merge.
 */
#ifndef KERNELS_MATH_ATTENTION_H
#define KERNELS_MATH_ATTENTION_H

#include "kernels/math/real.h"

typedef struct wefti_attention {
    size_t q_tokens;
    size_t kv_tokens;
    size_t heads;    /* of q and o; a multiple of kv_heads */
    size_t kv_heads; /* of k and v */
    size_t head_size;
    size_t q_stride;  /* elements from one token to the next: q, dq */
    size_t kv_stride; /* the same: k, v, dk, dv */
    size_t o_stride;  /* the same: o, dout */
    real scale;       /* usually 1 / sqrt(head_size) */
    bool causal;
    ptrdiff_t causal_offset; /* ignored unless causal */
} wefti_attention;

/* Elements of scratch that forward and backward need, whatever the level. */
static inline size_t wefti_attention_scratch_elems(const wefti_attention *shape)
{
    size_t keys = (shape->kv_tokens + 31) / 32 * 32;
    size_t row_elems = (shape->head_size + 15) / 16 * 16;

    return (2 * keys + 400) * row_elems + 4096;
}

/*
 * forward - o and lse of one block of keys, alone or merged into earlier ones.
 *
 * o           [q_tokens][heads][head_size], rows o_stride apart; read where
 *             merge, written.
 * lse         [q_tokens][heads], dense; read where merge, written.
 * q           [q_tokens][heads][head_size], rows q_stride apart.
 * k, v        [kv_tokens][kv_heads][head_size], rows kv_stride apart.
 * scratch     wefti_attention_scratch_elems(shape), any contents.
 */
typedef void wefti_attention_forward_fn(real *o, real *lse, const real *q,
                                        const real *k, const real *v,
                                        const wefti_attention *shape,
                                        bool merge, real *scratch);

/*
 * delta - delta[i][h] = sum_d dout[i][h][d] o[i][h][d], of the final o: what
 * every block's backward needs, once per query.
 *
 * delta       [q_tokens][heads], dense; written.
 */
typedef void wefti_attention_delta_fn(real *delta, const real *o,
                                      const real *dout,
                                      const wefti_attention *shape);

/*
 * backward - adds one block of keys' share of the gradients.
 *
 *     p = exp(s - lse)            dv[j] += sum_i p dout[i]
 *     ds = p (dout[i] . v[j] - delta[i]) scale
 *     dq[i] += sum_j ds k[j]      dk[j] += sum_i ds q[i]
 *
 * dq dk dv    laid out as q, k, v; read and written: zero them before the
 *             first block.
 * dout lse delta   of the final result over all blocks; a query whose lse is
 *             -INFINITY adds nothing.
 */
typedef void wefti_attention_backward_fn(real *dq, real *dk, real *dv,
                                         const real *dout, const real *q,
                                         const real *k, const real *v,
                                         const real *lse, const real *delta,
                                         const wefti_attention *shape,
                                         real *scratch);

#endif
