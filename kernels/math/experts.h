/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/experts.h - rows of tokens in the order of their experts, and
 * what experts compute of them.
 *
 *     tokens:  0      1      2           expert[t][s]
 *     rows:    | of expert 0 | of expert 1 | ...     counts[e] rows each,
 *                                                    by token, then slot
 *
 * How many rows an expert has is read when a kernel runs, so that whoever
 * queues it need not know.
 *
 * expert place weight   [tokens][slots]; expert -1: none, place -1
 * counts                [experts]
 * rows                  [rows][width], dense
 */
#ifndef KERNELS_MATH_EXPERTS_H
#define KERNELS_MATH_EXPERTS_H

#include "kernels/math/real.h"

#include <stddef.h>
#include <stdint.h>

/* order - counts, and in which row each slot of a token is. */
typedef void wefti_expert_order_fn(int32_t *counts, int32_t *place,
                                   const int32_t *expert, size_t tokens,
                                   size_t slots, size_t experts);

/* load - adds to load[e] how many slots go to expert e. */
typedef void wefti_expert_load_fn(double *load, const int32_t *expert,
                                  size_t tokens, size_t slots, size_t experts);

/* spread - rows[place[t][s]] = weight[t][s] x[t]; weight NULL: 1. */
typedef void wefti_expert_spread_fn(real *rows, const real *x,
                                    const int32_t *place, const real *weight,
                                    size_t tokens, size_t slots, size_t width);

/* collect - x[t] = sum over s of weight[t][s] rows[place[t][s]], in order of s;
 * weight NULL: 1. */
typedef void wefti_expert_collect_fn(real *x, const real *rows,
                                     const int32_t *place, const real *weight,
                                     size_t tokens, size_t slots, size_t width);

/* dots - dweight[t][s] = rows[place[t][s]] . dx[t]; without a place 0. */
typedef void wefti_expert_dots_fn(real *dweight, const real *rows,
                                  const real *dx, const int32_t *place,
                                  size_t tokens, size_t slots, size_t width);

/* Which product of an expert's rows x, y and its matrix. */
typedef enum wefti_expert_product {
    WEFTI_EXPERT_FORWARD, /* y = x W^T */
    WEFTI_EXPERT_INPUTS,  /* x = y W, their gradients */
    WEFTI_EXPERT_WEIGHTS  /* W = y^T x; 0 where there are no rows */
} wefti_expert_product;

/*
 * gemm - for each expert; the one of x, y and weight that is on the left of its
 * formula is written.
 *
 * x y      [rows][inputs], [rows][outputs]
 * weight   [experts][outputs][inputs]
 */
typedef void wefti_expert_gemm_fn(wefti_expert_product product, real *x,
                                  real *y, real *weight, const int32_t *counts,
                                  size_t experts, size_t inputs,
                                  size_t outputs);

/* gate, gate_backward - swiglu.h's, of all rows that there are. */
typedef void wefti_expert_gate_fn(real *out, const real *gate_up,
                                  const int32_t *counts, size_t experts,
                                  size_t width);
/* d_gate_up may be gate_up. */
typedef void wefti_expert_gate_backward_fn(real *d_gate_up, const real *dout,
                                           const real *gate_up,
                                           const int32_t *counts,
                                           size_t experts, size_t width);

#endif
