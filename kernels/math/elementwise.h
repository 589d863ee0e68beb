/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/elementwise.h - the plain loops over flat ranges.
 *
 *     fill:  dst[i] = value
 *     scale: dst[i] = factor src[i]              dst may be src
 *     add:   dst[i] = a[i] + b[i]                dst may be a or b
 *
 * Tolerance   one rounding.
 */
#ifndef KERNELS_MATH_ELEMENTWISE_H
#define KERNELS_MATH_ELEMENTWISE_H

#include "kernels/math/real.h"

typedef void wefti_fill_fn(real *dst, real value, size_t elems);
typedef void wefti_scale_fn(real *dst, const real *src, real factor,
                            size_t elems);
typedef void wefti_add_fn(real *dst, const real *a, const real *b,
                          size_t elems);

#endif
