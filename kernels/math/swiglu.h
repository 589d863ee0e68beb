/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/swiglu.h - the gate of a SwiGLU feed-forward.
 *
 *     out[t][i] = silu(gate[t][i]) up[t][i]      silu(x) = x / (1 + exp(-x))
 *
 * out dout    [rows][width], dense.
 * gate up     [rows][width], rows stride apart, so that both may be halves of
 *             one fused product (up = gate + width, stride = 2 width).
 *
 * Tolerance   float: 4e-7 relative to |gate up| (forward), to
 *             |dout| (|gate| + 1)(|up| + 1) (backward); double: 1e-15.
 * Source      Shazeer 2020, arXiv 2002.05202.
 */
#ifndef KERNELS_MATH_SWIGLU_H
#define KERNELS_MATH_SWIGLU_H

#include "kernels/math/real.h"

typedef void wefti_swiglu_forward_fn(real *out, const real *gate,
                                     const real *up, size_t rows, size_t width,
                                     size_t stride);

/*
 * backward - with y = 1 / (1 + exp(-gate)):
 *
 *     dgate = dout up y (1 + gate (1 - y))        dup = dout gate y
 *
 * dgate dup   laid out as gate and up; overwritten; may be gate and up.
 */
typedef void wefti_swiglu_backward_fn(real *dgate, real *dup, const real *dout,
                                      const real *gate, const real *up,
                                      size_t rows, size_t width, size_t stride);

#endif
