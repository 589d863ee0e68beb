/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/vec.h - a vector of reals, as wide as the level's registers.
 *
 * Written with the compiler's vector extension, so every level and processor
 * compiles the same text, but for three things that it cannot say. Only
 * kernels include it.
 */
#ifndef KERNELS_MATH_VEC_H
#define KERNELS_MATH_VEC_H

#include "kernels/math/real.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VEC_BYTES 64
#elif defined(__AVX2__)
#define VEC_BYTES 32
#else
#define VEC_BYTES 16
#endif

#ifdef WEFT_REAL_F64
#define VEC_LANES (VEC_BYTES / 8)
#else
#define VEC_LANES (VEC_BYTES / 4)
#endif
#define LANES ((size_t)VEC_LANES)

#define ALWAYS_INLINE static inline __attribute__((always_inline))

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

/*
 * What the extension cannot say, as intrinsics of the level: the maximum, and
 * loads and stores of the first lanes only. Elsewhere it is spelt out below.
 */
#if defined(__AVX512F__) && defined(WEFT_REAL_F64)
#define VEC_MAX(a, b) _mm512_max_pd((__m512d)(a), (__m512d)(b))
#define VEC_LOAD_PART(p, n)                                                    \
    _mm512_maskz_loadu_pd((__mmask8)((1u << (n)) - 1), p)
#define VEC_STORE_PART(p, v, n)                                                \
    _mm512_mask_storeu_pd(p, (__mmask8)((1u << (n)) - 1), (__m512d)(v))
#elif defined(__AVX512F__)
#define VEC_MAX(a, b) _mm512_max_ps((__m512)(a), (__m512)(b))
#define VEC_LOAD_PART(p, n)                                                    \
    _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p)
#define VEC_STORE_PART(p, v, n)                                                \
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#elif defined(__AVX2__) && defined(WEFT_REAL_F64)
#define VEC_MAX(a, b)       _mm256_max_pd((__m256d)(a), (__m256d)(b))
#define VEC_LOAD_PART(p, n) _mm256_maskload_pd(p, (__m256i)vec_lanes(n))
#define VEC_STORE_PART(p, v, n)                                                \
    _mm256_maskstore_pd(p, (__m256i)vec_lanes(n), (__m256d)(v))
#elif defined(__AVX2__)
#define VEC_MAX(a, b)       _mm256_max_ps((__m256)(a), (__m256)(b))
#define VEC_LOAD_PART(p, n) _mm256_maskload_ps(p, (__m256i)vec_lanes(n))
#define VEC_STORE_PART(p, v, n)                                                \
    _mm256_maskstore_ps(p, (__m256i)vec_lanes(n), (__m256)(v))
#elif defined(__x86_64__) && defined(WEFT_REAL_F64)
#define VEC_MAX(a, b) _mm_max_pd((__m128d)(a), (__m128d)(b))
#elif defined(__x86_64__)
#define VEC_MAX(a, b) _mm_max_ps((__m128)(a), (__m128)(b))
#endif

/* All ones in the first count lanes. */
static inline vec_bits vec_lanes(size_t count)
{
    vec_bits lane;

    for (size_t l = 0; l < LANES; l++)
        lane[l] = (vec_bits_lane)l;
    return lane < (vec_bits_lane)count;
}

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
#ifdef VEC_LOAD_PART
    return (vec)VEC_LOAD_PART(from, count);
#else
    vec value = {0};

    memcpy(&value, from, count * sizeof(real));
    return value;
#endif
}

static inline void vec_store_part(real *to, vec value, size_t count)
{
#ifdef VEC_STORE_PART
    VEC_STORE_PART(to, value, count);
#else
    memcpy(to, &value, count * sizeof(real));
#endif
}

static inline vec vec_splat(real value)
{
    return value - (vec){0};
}

static inline vec vec_select(vec_bits mask, vec yes, vec no)
{
    return (vec)((mask & (vec_bits)yes) | (~mask & (vec_bits)no));
}

/* The lanes of value where keep's are all ones; zero where they are zero. */
static inline vec vec_keep(vec_bits keep, vec value)
{
    return (vec)(keep & (vec_bits)value);
}

/* The first count lanes of value; the others zero. */
static inline vec vec_first(vec value, size_t count)
{
    return vec_keep(vec_lanes(count), value);
}

/* a where a > b, else b (so b where a is NaN): one instruction on x86. */
static inline vec vec_max(vec a, vec b)
{
#if defined(VEC_MAX)
    return (vec)VEC_MAX(a, b);
#else
    return vec_select(a > b, a, b);
#endif
}

static inline real real_sqrt(real value)
{
#ifdef WEFT_REAL_F64
    return sqrt(value);
#else
    return sqrtf(value);
#endif
}

static inline vec vec_sqrt(vec value)
{
    vec root;

    for (size_t l = 0; l < LANES; l++)
        root[l] = real_sqrt(value[l]);
    return root;
}

/* v with its lanes turned by n: lane l of the result is lane l + n of v. */
#define VEC_AT(l, n) (((l) + (n)) % VEC_LANES)
#if VEC_LANES == 16
#define VEC_TURN(v, n)                                                         \
    __builtin_shufflevector(                                                   \
        v, v, VEC_AT(0, n), VEC_AT(1, n), VEC_AT(2, n), VEC_AT(3, n),          \
        VEC_AT(4, n), VEC_AT(5, n), VEC_AT(6, n), VEC_AT(7, n), VEC_AT(8, n),  \
        VEC_AT(9, n), VEC_AT(10, n), VEC_AT(11, n), VEC_AT(12, n),             \
        VEC_AT(13, n), VEC_AT(14, n), VEC_AT(15, n))
#elif VEC_LANES == 8
#define VEC_TURN(v, n)                                                         \
    __builtin_shufflevector(v, v, VEC_AT(0, n), VEC_AT(1, n), VEC_AT(2, n),    \
                            VEC_AT(3, n), VEC_AT(4, n), VEC_AT(5, n),          \
                            VEC_AT(6, n), VEC_AT(7, n))
#elif VEC_LANES == 4
#define VEC_TURN(v, n)                                                         \
    __builtin_shufflevector(v, v, VEC_AT(0, n), VEC_AT(1, n), VEC_AT(2, n),    \
                            VEC_AT(3, n))
#else
#define VEC_TURN(v, n) __builtin_shufflevector(v, v, VEC_AT(0, n), VEC_AT(1, n))
#endif

/* All lanes added, in one balanced tree. */
static inline real vec_sum(vec value)
{
#if VEC_LANES > 8
    value += VEC_TURN(value, 8);
#endif
#if VEC_LANES > 4
    value += VEC_TURN(value, 4);
#endif
#if VEC_LANES > 2
    value += VEC_TURN(value, 2);
#endif
    value += VEC_TURN(value, 1);
    return value[0];
}

/* The greatest lane; NaNs may be passed over. */
static inline real vec_top(vec value)
{
#if VEC_LANES > 8
    value = vec_max(value, VEC_TURN(value, 8));
#endif
#if VEC_LANES > 4
    value = vec_max(value, VEC_TURN(value, 4));
#endif
#if VEC_LANES > 2
    value = vec_max(value, VEC_TURN(value, 2));
#endif
    value = vec_max(value, VEC_TURN(value, 1));
    return value[0];
}

#endif
