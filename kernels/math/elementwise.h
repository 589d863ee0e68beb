/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/elementwise.h - the plain loops over flat ranges, and over rows.
 *
 *     fill:       dst[i] = value
 *     scale:      dst[i] = factor src[i]         dst may be src
 *     add:        dst[i] = a[i] + b[i]           dst may be a or b
 *     copy_rows:  dst[r][i] = src[r][i]          rows their strides apart
 *     add_rows:   dst[r][i] += src[r][i]
 *     widen_rows, narrow_rows: from and to bf16, rounded once (base/
 *                 small_float.h); rows of both stride apart, of elements
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
typedef void wefti_widen_rows_fn(real *dst, const uint16_t *src, size_t rows,
                                 size_t width, size_t stride);
typedef void wefti_narrow_rows_fn(uint16_t *dst, const real *src, size_t rows,
                                  size_t width, size_t stride);

#endif
