/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/elementwise.h - the plain loops over flat ranges, and over rows.
 *
 *     fill:       dst[i] = value
 *     scale:      dst[i] = factor src[i]         dst may be src
 *     add:        dst[i] = a[i] + b[i]           dst may be a or b
 *     copy_rows:  dst[r][i] = src[r][i]          rows their strides apart
 *     add_rows:   dst[r][i] += src[r][i]
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
typedef void wefti_copy_rows_fn(real *dst, size_t dst_stride, const real *src,
                                size_t src_stride, size_t rows, size_t width);
typedef void wefti_add_rows_fn(real *dst, size_t dst_stride, const real *src,
                               size_t src_stride, size_t rows, size_t width);

#endif
