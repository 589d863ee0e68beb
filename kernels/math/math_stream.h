/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_stream.h - the kernels as work of a stream, on any device:
 * the same calls whether the host computes (host, shadow: math_job.h) or a GPU
 * (cuda: math_launch.h).
 *
 *     tensor, tensor, ... --check--> argument of math_launch.h --post--> stream
 *                                                               |  launch
 *                                                               |  or job
 *
 * The formulas are those of rmsnorm.h and so on. Each call checks what it is
 * given, queues its work and returns. Tensors are borrowed for the call, their
 * memory until the stream has come past the work; it is the device's, and
 * arrays do not overlap unless it says so.
 *
 * Types: all arrays of a call are of one, f32, bf16 or f64, which is that of
 * the first tensor after those that are "wide": f32 beside bf16, else the same.
 * "mixed" may be bf16 or f32 beside bf16. bf16 is computed in f32 and rounded
 * once. A host has kernels for one wide type (real.h), a GPU for all.
 *
 * A NULL stream is the host's own, here and now: the calling thread has
 * computed when the call returns.
 *
 * Flat tensors are one row. Strides are free where it says "strided", else
 * rows follow each other.
 *
 * Returns, all of them: OK | ERR_INVALID (a tensor that does not fit: the text
 *             names it, and what fits; memory that is not the device's) |
 *             ERR_UNSUPPORTED (no kernels: of that type on the host, or the
 *             file with those for GPUs is missing) | ERR_NO_MEMORY | ERR_SYSTEM
 *             | otherwise nothing is queued, but for calls of several kernels.
 * Threads     any, of one stream one at a time.  Blocks: the first call on a
 *             GPU, and of gemm and attention the first of each
 *             shape, may wait for all that is queued there (device/device.h).
 *             A program that has gates fills no elements, and makes each shape
 *             once, before it raises any.
 */
#ifndef KERNELS_MATH_MATH_STREAM_H
#define KERNELS_MATH_MATH_STREAM_H

#include "device/device.h"
#include "kernels/math/adamw.h"
#include "kernels/math/experts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of width elements, stride elements from one row to the next. */
typedef struct wefti_math_tensor {
    void *at;
    weft_dtype dtype;
    size_t rows, width, stride;
} wefti_math_tensor;

static inline wefti_math_tensor wefti_math_rows(void *at, weft_dtype dtype,
                                                size_t rows, size_t width)
{
    return (wefti_math_tensor){at, dtype, rows, width, width};
}

static inline wefti_math_tensor wefti_math_flat(void *at, weft_dtype dtype,
                                                size_t elems)
{
    return wefti_math_rows(at, dtype, 1, elems);
}

/* ---- elementwise.h: all flat but rows -------------------------------------
 */

WEFT_NODISCARD weft_status wefti_stream_fill(weft_stream *stream,
                                             const wefti_math_tensor *dst,
                                             double value);
/* dst may be src; in add, a or b. */
WEFT_NODISCARD weft_status wefti_stream_scale(weft_stream *stream,
                                              const wefti_math_tensor *dst,
                                              const wefti_math_tensor *src,
                                              double factor);
WEFT_NODISCARD weft_status wefti_stream_add(weft_stream *stream,
                                            const wefti_math_tensor *dst,
                                            const wefti_math_tensor *a,
                                            const wefti_math_tensor *b);
/* dst, src: strided, each by its own; src: mixed; add: added to what is there.
 */
WEFT_NODISCARD weft_status wefti_stream_copy_rows(weft_stream *stream,
                                                  const wefti_math_tensor *dst,
                                                  const wefti_math_tensor *src,
                                                  bool add);

/* ---- rmsnorm.h --------------------------------------------------------------
 */

/*
 * y x        [rows][width]; y may be x.
 * rstd       wide, flat [rows]; or NULL.
 * weight     flat [width].
 */
WEFT_NODISCARD weft_status wefti_stream_rmsnorm_forward(
    weft_stream *stream, const wefti_math_tensor *y,
    const wefti_math_tensor *rstd, const wefti_math_tensor *x,
    const wefti_math_tensor *weight, double eps);

/*
 * dx dy x    [rows][width]; dx may be dy unless accumulate.
 * dweight    wide, flat [width]; added to.
 * scratch    wide, [wefti_math_dweight_partials(rows)][width].
 */
WEFT_NODISCARD weft_status wefti_stream_rmsnorm_backward(
    weft_stream *stream, const wefti_math_tensor *dx,
    const wefti_math_tensor *dweight, const wefti_math_tensor *dy,
    const wefti_math_tensor *x, const wefti_math_tensor *weight,
    const wefti_math_tensor *rstd, bool accumulate,
    const wefti_math_tensor *scratch);

/* ---- rope.h
 * ------------------------------------------------------------------
 */

/* table: wide, [tokens][head_size]. positions: i32, flat [tokens]; or NULL. */
WEFT_NODISCARD weft_status wefti_stream_rope_table(
    weft_stream *stream, const wefti_math_tensor *table,
    const wefti_math_tensor *positions, int64_t first, double theta);

/* x: [tokens][heads head_size], strided; backward turns it back. */
WEFT_NODISCARD weft_status wefti_stream_rope(weft_stream *stream,
                                             const wefti_math_tensor *x,
                                             const wefti_math_tensor *table,
                                             bool backward);

/* ---- swiglu.h: gate, up and their gradients strided, one stride -------------
 */

WEFT_NODISCARD weft_status wefti_stream_swiglu_forward(
    weft_stream *stream, const wefti_math_tensor *out,
    const wefti_math_tensor *gate, const wefti_math_tensor *up);

/* dgate and dup may be gate and up. */
WEFT_NODISCARD weft_status wefti_stream_swiglu_backward(
    weft_stream *stream, const wefti_math_tensor *dgate,
    const wefti_math_tensor *dup, const wefti_math_tensor *dout,
    const wefti_math_tensor *gate, const wefti_math_tensor *up);

/* ---- embedding.h: ids i32, flat [tokens] ------------------------------------
 */

WEFT_NODISCARD weft_status wefti_stream_embedding_forward(
    weft_stream *stream, const wefti_math_tensor *out,
    const wefti_math_tensor *table, const wefti_math_tensor *ids);

/* dtable: wide; added to. */
WEFT_NODISCARD weft_status wefti_stream_embedding_backward(
    weft_stream *stream, const wefti_math_tensor *dtable,
    const wefti_math_tensor *dout, const wefti_math_tensor *ids);

/* ---- cross_entropy.h
 * ---------------------------------------------------------
 */

/*
 * loss       wide, flat [tokens].
 * dlogits    [tokens][vocab]; may be logits; or NULL.
 * targets    i32, flat [tokens].
 */
WEFT_NODISCARD weft_status wefti_stream_cross_entropy(
    weft_stream *stream, const wefti_math_tensor *loss,
    const wefti_math_tensor *dlogits, const wefti_math_tensor *logits,
    const wefti_math_tensor *targets, double scale);

/* summary: wide, [tokens][WEFTI_CROSS_ENTROPY_SUMMARY]. */
WEFT_NODISCARD weft_status wefti_stream_softmax_part(
    weft_stream *stream, const wefti_math_tensor *summary,
    const wefti_math_tensor *logits, const wefti_math_tensor *targets);

/* parts: wide, a row for each rank's summary; what is behind the summary in it
 * is not read. The others as for cross_entropy. */
WEFT_NODISCARD weft_status wefti_stream_cross_entropy_part(
    weft_stream *stream, const wefti_math_tensor *loss,
    const wefti_math_tensor *dlogits, const wefti_math_tensor *logits,
    const wefti_math_tensor *targets, const wefti_math_tensor *parts,
    double scale);

/* ---- adamw.h, sumsq.h: all flat
 * ----------------------------------------------
 */

/*
 * param        rounded from master; NULL: there are only masters, of grad's
 *              type or, beside bf16, wide.
 * master m v   wide.
 * grad         mixed.
 * grad_factor  f64 [1], times config's grad_scale; NULL: 1.
 */
WEFT_NODISCARD weft_status wefti_stream_adamw(
    weft_stream *stream, const wefti_math_tensor *param,
    const wefti_math_tensor *master, const wefti_math_tensor *m,
    const wefti_math_tensor *v, const wefti_math_tensor *grad,
    const wefti_math_tensor *grad_factor, const wefti_adamw_config *config);

/* partials: f64 [wefti_sumsq_blocks(elems)]. */
WEFT_NODISCARD weft_status wefti_stream_sumsq(weft_stream *stream,
                                              const wefti_math_tensor *partials,
                                              const wefti_math_tensor *x);

/* norm, factor: f64 [1], as wefti_math_clip has them; partials: f64. */
WEFT_NODISCARD weft_status wefti_stream_clip(weft_stream *stream,
                                             const wefti_math_tensor *norm,
                                             const wefti_math_tensor *factor,
                                             const wefti_math_tensor *partials,
                                             double scale, double most);

/* totals: f64, flat [rows], the sum of each of x's; x: [rows][width]. */
WEFT_NODISCARD weft_status wefti_stream_totals(weft_stream *stream,
                                               const wefti_math_tensor *totals,
                                               const wefti_math_tensor *x);

/* ---- attention.h, for several sequences of one length
 * ------------------------
 */

typedef struct wefti_math_heads {
    size_t sequences, heads, kv_heads;
    double scale;
    bool causal;
    int64_t causal_offset;
    bool once; /* lengths that hardly come again: a library, which makes a plan
                  for them, is not asked */
} wefti_math_heads;

/*
 * o          mixed, [sequences q_tokens][heads head_size], strided.
 * lse        wide, [sequences q_tokens][heads].
 * q          as o;  k v   [sequences kv_tokens][kv_heads head_size], strided,
 *            one stride.
 */
WEFT_NODISCARD weft_status wefti_stream_attention_forward(
    weft_stream *stream, const wefti_math_tensor *o,
    const wefti_math_tensor *lse, const wefti_math_tensor *q,
    const wefti_math_tensor *k, const wefti_math_tensor *v,
    const wefti_math_heads *heads, bool merge);

/* o and lse become those over the keys of both results; one stride of both. */
WEFT_NODISCARD weft_status wefti_stream_attention_merge(
    weft_stream *stream, const wefti_math_tensor *o,
    const wefti_math_tensor *lse, const wefti_math_tensor *other_o,
    const wefti_math_tensor *other_lse);

/* delta: wide, [tokens][heads]. o: mixed; of dout's stride. */
WEFT_NODISCARD weft_status wefti_stream_attention_delta(
    weft_stream *stream, const wefti_math_tensor *delta,
    const wefti_math_tensor *o, const wefti_math_tensor *dout);

/*
 * dq dk dv   mixed, laid out as q, k and v, strides too.
 * dout       as o.
 * o          as attention's forward left it: of q's type then; or NULL.
 * delta      wide, [sequences q_tokens][heads]: with o scratch, else as
 *            attention_delta has written it. On a GPU a library may do it all,
 *            given o.
 * accumulate true: added to; false: written.
 */
WEFT_NODISCARD weft_status wefti_stream_attention_backward(
    weft_stream *stream, const wefti_math_tensor *dq,
    const wefti_math_tensor *dk, const wefti_math_tensor *dv,
    const wefti_math_tensor *dout, const wefti_math_tensor *q,
    const wefti_math_tensor *k, const wefti_math_tensor *v,
    const wefti_math_tensor *o, const wefti_math_tensor *lse,
    const wefti_math_tensor *delta, const wefti_math_heads *heads,
    bool accumulate);

/* ---- route.h, experts.h: routes, and weights of slots, are wide ------------
 */

typedef struct wefti_math_routing {
    size_t groups, group_limit; /* 1 or more */
} wefti_math_routing;

/*
 * affinity   [tokens][experts], as logits.
 * expert     i32, [tokens][slots].
 * weight     [tokens][slots].
 * bias       flat [experts]; or NULL.
 */
WEFT_NODISCARD weft_status wefti_stream_route_forward(
    weft_stream *stream, const wefti_math_tensor *affinity,
    const wefti_math_tensor *expert, const wefti_math_tensor *weight,
    const wefti_math_tensor *logits, const wefti_math_tensor *bias,
    const wefti_math_routing *how);
WEFT_NODISCARD weft_status wefti_stream_route_backward(
    weft_stream *stream, const wefti_math_tensor *dlogits,
    const wefti_math_tensor *dweight, const wefti_math_tensor *affinity,
    const wefti_math_tensor *expert);

/*
 * counts     i32, flat [experts].
 * place      i32, [tokens][slots], as expert; rows has room for all.
 * load       f64, flat [experts]; added to.
 * weight     [tokens][slots]; or NULL.
 */
WEFT_NODISCARD weft_status wefti_stream_expert_order(
    weft_stream *stream, const wefti_math_tensor *counts,
    const wefti_math_tensor *place, const wefti_math_tensor *expert);
WEFT_NODISCARD weft_status
wefti_stream_expert_load(weft_stream *stream, const wefti_math_tensor *load,
                         const wefti_math_tensor *expert);
WEFT_NODISCARD weft_status wefti_stream_expert_spread(
    weft_stream *stream, const wefti_math_tensor *rows,
    const wefti_math_tensor *x, const wefti_math_tensor *place,
    const wefti_math_tensor *weight);
WEFT_NODISCARD weft_status wefti_stream_expert_collect(
    weft_stream *stream, const wefti_math_tensor *x,
    const wefti_math_tensor *rows, const wefti_math_tensor *place,
    const wefti_math_tensor *weight);
WEFT_NODISCARD weft_status wefti_stream_expert_dots(
    weft_stream *stream, const wefti_math_tensor *dweight,
    const wefti_math_tensor *rows, const wefti_math_tensor *dx,
    const wefti_math_tensor *place);

/*
 * x y        [rows][inputs], [rows][outputs]: room for at least the sum of
 *            counts.
 * weight     [experts outputs][inputs]; mixed where it is written.
 * gate_up    [rows][2 width]; d_gate_up may be it.
 */
WEFT_NODISCARD weft_status wefti_stream_expert_gemm(
    weft_stream *stream, wefti_expert_product product,
    const wefti_math_tensor *x, const wefti_math_tensor *y,
    const wefti_math_tensor *weight, const wefti_math_tensor *counts);
WEFT_NODISCARD weft_status wefti_stream_expert_gate(
    weft_stream *stream, const wefti_math_tensor *out,
    const wefti_math_tensor *gate_up, const wefti_math_tensor *counts);
WEFT_NODISCARD weft_status wefti_stream_expert_gate_backward(
    weft_stream *stream, const wefti_math_tensor *d_gate_up,
    const wefti_math_tensor *dout, const wefti_math_tensor *gate_up,
    const wefti_math_tensor *counts);

/* ---- gemm.h: all strided
 * -------------------------------------------------------
 */

/* c: mixed, [m][n]. a, b: as stored, [k][m] and [n][k] where transposed. */
WEFT_NODISCARD weft_status wefti_stream_gemm(
    weft_stream *stream, const wefti_math_tensor *c, const wefti_math_tensor *a,
    bool transpose_a, const wefti_math_tensor *b, bool transpose_b,
    double alpha, double beta);

#endif
