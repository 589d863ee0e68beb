/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/linear.h - a linear map over the rows of an activation.
 *
 *     y = x W^T        x [rows][inputs], W [outputs][inputs], y [rows][outputs]
 */
#ifndef TRAINER_MODEL_LINEAR_H
#define TRAINER_MODEL_LINEAR_H

#include "kernels/math/math_table.h"

typedef struct wefti_linear {
    const wefti_math *math;
    size_t rows, outputs, inputs;
} wefti_linear;

/* y = x W^T; with add: y += x W^T. */
void wefti_linear_forward(const wefti_linear *linear, const real *x,
                          const real *weight, real *y, bool add);

/* dx = dy W; overwritten. */
void wefti_linear_input_gradient(const wefti_linear *linear, const real *dy,
                                 const real *weight, real *dx);

/* dW = dy^T x; overwritten. */
void wefti_linear_weight_gradient(const wefti_linear *linear, const real *dy,
                                  const real *x, real *dweight);

#endif
