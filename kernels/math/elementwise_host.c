/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plain loops; simple enough for the compiler to vectorise.
 */
#include "kernels/math/elementwise.h"

#include "base/small_float.h"
#include "kernels/math/level.h"

#include <string.h>

void WEFTI_LEVEL(fill)(real *dst, real value, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        dst[i] = value;
}

void WEFTI_LEVEL(scale)(real *dst, const real *src, real factor, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        dst[i] = factor * src[i];
}

void WEFTI_LEVEL(add)(real *dst, const real *a, const real *b, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        dst[i] = a[i] + b[i];
}

void WEFTI_LEVEL(copy_rows)(real *dst, size_t dst_stride, const real *src,
                            size_t src_stride, size_t rows, size_t width)
{
    for (size_t row = 0; width > 0 && row < rows; row++)
        memcpy(dst + row * dst_stride, src + row * src_stride,
               width * sizeof(*dst));
}

void WEFTI_LEVEL(add_rows)(real *dst, size_t dst_stride, const real *src,
                           size_t src_stride, size_t rows, size_t width)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < width; i++)
            dst[row * dst_stride + i] += src[row * src_stride + i];
}

void WEFTI_LEVEL(widen_rows)(real *restrict dst, const uint16_t *restrict src,
                             size_t rows, size_t width, size_t stride)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < width; i++)
            dst[row * stride + i] =
                (real)wefti_bf16_widen(src[row * stride + i]);
}

void WEFTI_LEVEL(narrow_rows)(uint16_t *restrict dst, const real *restrict src,
                              size_t rows, size_t width, size_t stride)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < width; i++)
            dst[row * stride + i] =
                wefti_bf16_narrow((float)src[row * stride + i]);
}
