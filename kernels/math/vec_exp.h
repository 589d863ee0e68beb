/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/vec_exp.h - powers of two of a vector; exp(x) is 2^(x log2(e)).
 *
 * float: argument x = n + r with |r| <= 1/2, a polynomial in r, and 2^n made of
 * exponent bits. Within 1.5 units in the last place for results that are normal
 * numbers; smaller ones are 0, as for -INFINITY. x is at most 128, where the
 * result is infinite; a NaN stays one. Coefficients: weighted least squares of
 * (2^r - 1) / r at 400 Chebyshev points, relative error below 2e-8 before
 * rounding.
 *
 * double: the C library's, lane by lane; only tests use it.
 */
#ifndef KERNELS_MATH_VEC_EXP_H
#define KERNELS_MATH_VEC_EXP_H

#include "kernels/math/vec.h"

#define LOG2_E WEFTI_REAL(1.4426950408889634)
#define LN_2   WEFTI_REAL(0.6931471805599453)

#ifdef WEFT_REAL_F64

static inline vec vec_exp2(vec x)
{
    for (size_t l = 0; l < LANES; l++)
        x[l] = exp2(x[l]);
    return x;
}

#else

/* 1.5 * 2^23: added to |x| < 2^22 it leaves x's integer in the low bits. */
#define VEC_EXP_ROUND 12582912.0f

static inline vec vec_exp2(vec x)
{
    vec_bits normal = ~(x < -126.0f);
    vec kept = vec_keep(normal, x);
    vec rounded = kept + VEC_EXP_ROUND;
    vec r = kept - (rounded - VEC_EXP_ROUND);
    vec power = (vec)(((vec_word)rounded << 23) + 0x3f800000u);
    vec p = 0.000153706351f * r + 0.00133999798f;

    p = p * r + 0.00961837452f;
    p = p * r + 0.0555032864f;
    p = p * r + 0.240226477f;
    p = p * r + 0.693147182f;
    p = p * r + 1.0f;
    return vec_keep(normal, p * power);
}

#endif

#endif
