/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SwiGLU's gate.
 */
#include "kernels/math/swiglu.h"

#include "kernels/math/level.h"

#include <math.h>

static inline real sigmoid(real x)
{
    return 1 / (1 + (real)exp((double)-x));
}

void WEFTI_LEVEL(swiglu_forward)(real *out, const real *gate, const real *up,
                                 size_t rows, size_t width, size_t stride)
{
    for (size_t t = 0; t < rows; t++)
        for (size_t i = 0; i < width; i++) {
            real g = gate[t * stride + i];

            out[t * width + i] = g * sigmoid(g) * up[t * stride + i];
        }
}

void WEFTI_LEVEL(swiglu_backward)(real *dgate, real *dup, const real *dout,
                                  const real *gate, const real *up, size_t rows,
                                  size_t width, size_t stride)
{
    for (size_t t = 0; t < rows; t++)
        for (size_t i = 0; i < width; i++) {
            size_t at = t * stride + i;
            real g = gate[at], u = up[at], d = dout[t * width + i];
            real y = sigmoid(g);

            dgate[at] = d * u * y * (1 + g * (1 - y));
            dup[at] = d * g * y;
        }
}
