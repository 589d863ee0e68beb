/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_math.h - the kernels as nodes call them: of the rows of
 * a call, each sequence of them by itself where that matters. Nothing else of
 * a program calls kernels.
 *
 * x y dx dy   [rows][width] of the call, dense; of the program's type, as
 *             weights are; their gradients, and statistics, are real
 *
 * Each queues its work on the stream of the pass and returns as the calls of
 * kernels/math/math_stream.h do; nothing waits.
 */
#ifndef TRAINER_PROGRAM_NODE_MATH_H
#define TRAINER_PROGRAM_NODE_MATH_H

#include "kernels/math/math_launch.h"
#include "trainer/program/program_run.h"

#define WEFTI_NORM_EPSILON WEFTI_REAL(1e-6)

/* dst = src; sums, which are wide: dst = src; dst = 0. */
WEFT_NODISCARD weft_status wefti_node_copy(const wefti_node_args *args,
                                           void *dst, const void *src,
                                           size_t elems);
WEFT_NODISCARD weft_status wefti_node_copy_sum(const wefti_node_args *args,
                                               real *dst, const real *src,
                                               size_t elems);
WEFT_NODISCARD weft_status wefti_node_clear(const wefti_node_args *args,
                                            real *dst, size_t elems);

/* The same of values. */
WEFT_NODISCARD weft_status wefti_node_clear_values(const wefti_node_args *args,
                                                   void *dst, size_t elems);

/* What lies so many elements behind at. */
void *wefti_node_skip(const wefti_node_args *args, const void *at,
                      size_t elems);

/* dst = a + b. */
WEFT_NODISCARD weft_status wefti_node_add(const wefti_node_args *args,
                                          void *dst, const void *a,
                                          const void *b, size_t elems);
/* Rows, the next stride elements on. */
typedef struct wefti_node_matrix {
    void *at;
    size_t stride;
} wefti_node_matrix;

/* dst = src, or dst += src, of rows of width elements. */
WEFT_NODISCARD weft_status wefti_node_copy_rows(const wefti_node_args *args,
                                                const wefti_node_matrix *dst,
                                                const wefti_node_matrix *src,
                                                size_t rows, size_t width,
                                                bool add);

/* The same from rows that are wide. */
WEFT_NODISCARD weft_status wefti_node_round_rows(const wefti_node_args *args,
                                                 const wefti_node_matrix *dst,
                                                 const wefti_node_matrix *src,
                                                 size_t rows, size_t width,
                                                 bool add);

/* A linear map: weight [outputs][inputs]. */
typedef struct wefti_node_linear {
    const void *weight;
    size_t outputs, inputs;
} wefti_node_linear;

/* y = x W^T; with add: y += x W^T. y_is_wide: it is real. */
WEFT_NODISCARD weft_status wefti_node_linear_forward(
    const wefti_node_args *args, const wefti_node_linear *map, const void *x,
    void *y, bool y_is_wide, bool add);
/* dx = dy W. */
WEFT_NODISCARD weft_status wefti_node_linear_inputs(
    const wefti_node_args *args, const wefti_node_linear *map, const void *dy,
    void *dx);
/* dW = dy^T x. */
WEFT_NODISCARD weft_status wefti_node_linear_weights(
    const wefti_node_args *args, const wefti_node_linear *map, const void *dy,
    const void *x, void *dweight);

/* kernels/math/rmsnorm.h. */
WEFT_NODISCARD weft_status wefti_node_norm_forward(const wefti_node_args *args,
                                                   void *y, void *rstd,
                                                   const void *x,
                                                   const void *weight,
                                                   size_t width);

/* partials: scratch, a row of width for WEFTI_NODE_NORM_ROWS of the call's. */
typedef struct wefti_node_norm {
    const void *weight, *rstd;
    void *dweight, *partials;
    size_t width;
} wefti_node_norm;

enum { WEFTI_NODE_NORM_ROWS = WEFTI_MATH_DWEIGHT_ROWS };

WEFT_NODISCARD weft_status wefti_node_norm_backward(const wefti_node_args *args,
                                                    const wefti_node_norm *norm,
                                                    void *dx, const void *dy,
                                                    const void *x,
                                                    bool accumulate);

/* gate_up: [rows][2 width], gate then up; d_gate_up may be gate_up. */
WEFT_NODISCARD weft_status wefti_node_swiglu_forward(
    const wefti_node_args *args, void *out, const void *gate_up, size_t width);
WEFT_NODISCARD weft_status
wefti_node_swiglu_backward(const wefti_node_args *args, void *d_gate_up,
                           const void *dout, const void *gate_up, size_t width);

/* kernels/math/embedding.h, of the batch's tokens. */
WEFT_NODISCARD weft_status
wefti_node_embedding_forward(const wefti_node_args *args, void *out,
                             const void *table, size_t vocab, size_t width);
WEFT_NODISCARD weft_status
wefti_node_embedding_backward(const wefti_node_args *args, void *dtable,
                              const void *dout, size_t vocab, size_t width);

#endif
