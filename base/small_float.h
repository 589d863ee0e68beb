/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/small_float.h - floats of 8 and 16 bits, from and to f32.
 *
 *   type     sign  exponent  mantissa   largest   beyond the largest
 *   f16         1         5        10     65504   infinity
 *   bf16        1         8         7   3.39e38   infinity
 *   f8e5m2      1         5         2     57344   infinity
 *   f8e4m3      1         4         3       448   NaN: it has no infinity
 *
 * Narrowing rounds once, to nearest, ties to even. NaN becomes the canonical
 * one (positive, quiet, no payload). Nothing here is a branch or a denormal
 * f32, so loops over these become vector code that no flush-to-zero mode can
 * change.
 *
 * Source: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0, with its
 * non-saturating conversion.
 */
#ifndef BASE_SMALL_FLOAT_H
#define BASE_SMALL_FLOAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t wefti_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float wefti_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* a where the condition holds, else b; never a branch. */
static inline uint32_t wefti_select_bits(bool condition, uint32_t a, uint32_t b)
{
    uint32_t mask = 0U - (uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

/*
 * The value of a code with these many bits of exponent and mantissa; infinite:
 * the highest exponent means infinity or NaN, else only all ones means NaN.
 */
static inline float wefti_small_widen(uint32_t code, unsigned exponent,
                                      unsigned mantissa, bool infinite)
{
    unsigned shift = 23 - mantissa;
    uint32_t gap = 127U - ((1U << (exponent - 1)) - 1); /* of the biases */
    uint32_t most = (1U << (exponent + mantissa)) - 1;
    uint32_t special = infinite ? most >> mantissa << mantissa : most;
    uint32_t size = code & most;
    uint32_t sign = (code & (most + 1)) << (31 - exponent - mantissa);
    uint32_t moved = size << shift;
    uint32_t least = (gap + 1) << 23; /* the smallest normal number */
    uint32_t denormal = wefti_f32_bits(wefti_f32_of_bits(least | moved) -
                                       wefti_f32_of_bits(least));
    uint32_t bits = wefti_select_bits(size < (1U << mantissa), denormal,
                                      moved + (gap << 23));
    bits = wefti_select_bits(size >= special, 0x7f800000U | moved, bits);
    return wefti_f32_of_bits(bits | sign);
}

/*
 * The nearest code. Adding a power of two whose last bit is worth as much as
 * the code's rounds to it, to even on ties; the sum's low bits are then the
 * code's mantissa with the leading one, which carries into the exponent where
 * it must, and stays away where the code is denormal.
 */
static inline uint32_t wefti_small_narrow(float value, unsigned exponent,
                                          unsigned mantissa, bool infinite)
{
    unsigned shift = 23 - mantissa;
    uint32_t gap = 127U - ((1U << (exponent - 1)) - 1);
    uint32_t most = (1U << (exponent + mantissa)) - 1;
    uint32_t over = infinite ? most >> mantissa << mantissa : most;
    uint32_t nan = infinite ? over | 1U << (mantissa - 1) : over;
    uint32_t least = (gap + 1) << 23;                        /* normal */
    uint32_t beyond = (128U + (1U << (exponent - 1))) << 23; /* any code */
    uint32_t bits = wefti_f32_bits(value);
    uint32_t sign = bits >> 31 << (exponent + mantissa);
    uint32_t size = bits & 0x7fffffffU;
    bool is_nan = size > 0x7f800000U;
    size = size < beyond ? size : beyond;
    uint32_t power = size & 0x7f800000U;
    power = power > least ? power : least;
    uint32_t unit = power + (shift << 23);
    uint32_t low =
        wefti_f32_bits(wefti_f32_of_bits(size) + wefti_f32_of_bits(unit)) -
        unit;
    uint32_t code = low + ((power - least) >> shift);
    code = code < over ? code : over;
    is_nan |= !infinite && code == over;
    return wefti_select_bits(is_nan, nan, sign | code);
}

static inline float wefti_f16_widen(uint16_t code)
{
    return wefti_small_widen(code, 5, 10, true);
}

static inline uint16_t wefti_f16_narrow(float value)
{
    return (uint16_t)wefti_small_narrow(value, 5, 10, true);
}

static inline float wefti_f8e4m3_widen(uint8_t code)
{
    return wefti_small_widen(code, 4, 3, false);
}

static inline uint8_t wefti_f8e4m3_narrow(float value)
{
    return (uint8_t)wefti_small_narrow(value, 4, 3, false);
}

static inline float wefti_f8e5m2_widen(uint8_t code)
{
    return wefti_small_widen(code, 5, 2, true);
}

static inline uint8_t wefti_f8e5m2_narrow(float value)
{
    return (uint8_t)wefti_small_narrow(value, 5, 2, true);
}

/* bf16 is the upper half of an f32. */
static inline float wefti_bf16_widen(uint16_t code)
{
    return wefti_f32_of_bits((uint32_t)code << 16);
}

static inline uint16_t wefti_bf16_narrow(float value)
{
    uint32_t bits = wefti_f32_bits(value);
    uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    return (uint16_t)(value != value ? 0x7fc0U : rounded);
}

#endif
