/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/vec_exp.h - exponentials of a vector.
 *
 * float: argument x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and
 * 2^n put into the exponent's bits. Within 1.5 units in the last place for
 * results that are normal numbers; smaller ones are 0, as for -INFINITY. x is
 * at most 88 (2^x: 127); a NaN stays one. Coefficients: weighted least squares
 * of exp's remainder at 400 Chebyshev points, relative error below 2e-8 before
 * rounding.
 *
 * double: the C library's, lane by lane; only tests use it.
 */
#ifndef KERNELS_MATH_VEC_EXP_H
#define KERNELS_MATH_VEC_EXP_H

#include "kernels/math/vec.h"

#ifdef WEFT_REAL_F64

static inline vec vec_exp(vec x)
{
    for (size_t l = 0; l < LANES; l++)
        x[l] = exp(x[l]);
    return x;
}

static inline vec vec_exp2(vec x)
{
    for (size_t l = 0; l < LANES; l++)
        x[l] = exp2(x[l]);
    return x;
}

#else

/* 1.5 * 2^23: added to |x| < 2^22 it leaves x's integer in the low bits. */
#define VEC_EXP_ROUND 12582912.0f

/* 2^n, where n is in the low bits of rounded = VEC_EXP_ROUND + n. */
static inline vec vec_exp_power(vec rounded)
{
    return (vec)(((vec_word)rounded << 23) + 0x3f800000u);
}

static inline vec vec_exp(vec x)
{
    const float least = -87.3f; /* below it the result is not normal */
    vec_bits gone = x < least;
    vec kept = vec_select(gone, (vec){0}, x);
    vec rounded = kept * 1.44269504f + VEC_EXP_ROUND;
    vec n = rounded - VEC_EXP_ROUND;
    vec r = kept - n * 0.693145752f - n * 1.42860677e-6f;
    vec p = 0.00139465614f * r + 0.00836922321f;

    p = p * r + 0.0416662619f;
    p = p * r + 0.166665152f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    return vec_select(gone, (vec){0}, p * vec_exp_power(rounded));
}

static inline vec vec_exp2(vec x)
{
    const float least = -126.0f;
    vec_bits gone = x < least;
    vec kept = vec_select(gone, (vec){0}, x);
    vec rounded = kept + VEC_EXP_ROUND;
    vec r = kept - (rounded - VEC_EXP_ROUND);
    vec p = 0.000153706351f * r + 0.00133999798f;

    p = p * r + 0.00961837452f;
    p = p * r + 0.0555032864f;
    p = p * r + 0.240226477f;
    p = p * r + 0.693147182f;
    p = p * r + 1.0f;
    return vec_select(gone, (vec){0}, p * vec_exp_power(rounded));
}

#endif

#endif
