/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/linear.c - the three matrix products of a linear map.
 */
#include "trainer/model/linear.h"

void wefti_linear_forward(const wefti_linear *linear, const real *x,
                          const real *weight, real *y, bool add)
{
    linear->math->gemm(false, true, linear->rows, linear->outputs,
                       linear->inputs, WEFTI_REAL(1), x, linear->inputs, weight,
                       linear->inputs, add ? WEFTI_REAL(1) : WEFTI_REAL(0), y,
                       linear->outputs);
}

void wefti_linear_input_gradient(const wefti_linear *linear, const real *dy,
                                 const real *weight, real *dx)
{
    linear->math->gemm(false, false, linear->rows, linear->inputs,
                       linear->outputs, WEFTI_REAL(1), dy, linear->outputs,
                       weight, linear->inputs, WEFTI_REAL(0), dx,
                       linear->inputs);
}

void wefti_linear_weight_gradient(const wefti_linear *linear, const real *dy,
                                  const real *x, real *dweight)
{
    linear->math->gemm(true, false, linear->outputs, linear->inputs,
                       linear->rows, WEFTI_REAL(1), dy, linear->outputs, x,
                       linear->inputs, WEFTI_REAL(0), dweight, linear->inputs);
}
