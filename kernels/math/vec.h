/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/vec.h - a vector of reals, as wide as the level's registers.
 *
 * Written with the compiler's vector extension, so every level and processor
 * compiles the same text. Only kernels include it.
 */
#ifndef KERNELS_MATH_VEC_H
#define KERNELS_MATH_VEC_H

#include "kernels/math/real.h"

#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

#define LANES ((size_t)VEC_BYTES / sizeof(real))

#ifdef WEFT_REAL_F64
typedef int64_t vec_bits_lane;
#else
typedef int32_t vec_bits_lane;
#endif

typedef real vec __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t vec_word __attribute__((vector_size(VEC_BYTES)));
typedef vec_bits_lane vec_bits __attribute__((vector_size(VEC_BYTES)));

/* A vec anywhere in memory. */
typedef real vec_at
    __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)), may_alias));

static inline vec vec_load(const real *from)
{
    return *(const vec_at *)from;
}

static inline void vec_store(real *to, vec value)
{
    *(vec_at *)to = value;
}

/* The first count < LANES elements; the rest are zero. */
static inline vec vec_load_part(const real *from, size_t count)
{
    vec value = {0};

    memcpy(&value, from, count * sizeof(real));
    return value;
}

static inline void vec_store_part(real *to, vec value, size_t count)
{
    memcpy(to, &value, count * sizeof(real));
}

static inline vec vec_splat(real value)
{
    return value - (vec){0};
}

static inline vec vec_select(vec_bits mask, vec yes, vec no)
{
    return (vec)((mask & (vec_bits)yes) | (~mask & (vec_bits)no));
}

/* The first count lanes of value; the others zero. */
static inline vec vec_first(vec value, size_t count)
{
    vec_bits lane;

    for (size_t l = 0; l < LANES; l++)
        lane[l] = (vec_bits_lane)l;
    return vec_select(lane < (vec_bits_lane)count, value, (vec){0});
}

/* Per lane; where a is NaN the result is b. */
static inline vec vec_max(vec a, vec b)
{
    return vec_select(a > b, a, b);
}

static inline vec vec_sqrt(vec value)
{
    vec root;

    for (size_t l = 0; l < LANES; l++)
#ifdef WEFT_REAL_F64
        root[l] = sqrt(value[l]);
#else
        root[l] = sqrtf(value[l]);
#endif
    return root;
}

/* All lanes added, in one balanced tree. */
static inline real vec_sum(vec value)
{
    real lane[LANES];

    vec_store(lane, value);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static inline real vec_top(vec value)
{
    real lane[LANES];

    vec_store(lane, value);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] = lane[l] > lane[l + half] ? lane[l] : lane[l + half];
    return lane[0];
}

#endif
