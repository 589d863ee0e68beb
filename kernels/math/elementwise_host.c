/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plain loops; simple enough for the compiler to vectorise.
 */
#include "kernels/math/elementwise.h"

#include "kernels/math/level.h"

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
