/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/ema_code.c - rounding.
 *
 * Source: Micikevicius et al. 2022 (e4m3, arXiv 2209.05433); Gupta et al. 2015
 * (rounding at random, arXiv 1502.02551); Steele, Lea, Flood 2014 (SplitMix).
 */
#include "trainer/ema_code.h"

#include <math.h>
#include <string.h>

/* e4m3 has full precision from 2^-6 to 448: of weights, 2^-12 to 7. */
static const float f8_scale = 64;
static const float f8_most = 448;

size_t wefti_ema_elem_bytes(wefti_ema_format format)
{
    static const size_t bytes[] = {0, sizeof(float), sizeof(uint16_t),
                                   sizeof(uint8_t) + sizeof(uint16_t)};
    return bytes[format];
}

wefti_ema_words wefti_ema_words_at(const wefti_ema_words *words, size_t first)
{
    return (wefti_ema_words){words->f32 ? words->f32 + first : NULL,
                             words->bf16 ? words->bf16 + first : NULL,
                             words->f8 ? words->f8 + first : NULL};
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t wefti_ema_stream(uint64_t seed, const char *tensor, uint64_t step)
{
    uint64_t name = UINT64_C(14695981039346656037);
    for (; *tensor; tensor++) { /* FNV-1a */
        name = (name ^ (unsigned char)*tensor) * UINT64_C(1099511628211);
    }
    return mix(mix(mix(seed) ^ name) + step);
}

/* Of a place in a stream. */
static uint32_t draw(uint64_t stream, uint64_t place)
{
    return (uint32_t)(mix(stream + place * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

static uint16_t round_bf16(float x, uint32_t drawn)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (isfinite(x)) {
        bits += drawn & 0xffff;
    }
    return (uint16_t)(bits >> 16);
}

static float bf16_value(uint16_t code)
{
    uint32_t bits = (uint32_t)code << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

uint8_t wefti_ema_f8(float x)
{
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    const float size = fabsf(x);
    int exponent;
    if (!(size < f8_most)) {
        return sign | 0x7e;
    }
    (void)frexpf(size, &exponent); /* size < 2^exponent */
    exponent = exponent < -5 ? -5 : exponent;
    /* In steps of 1/8 of its power of 2; below 2^-6 in those of 2^-9. */
    int steps = (int)nearbyintf(ldexpf(size, 4 - exponent));
    if (steps == 16) {
        steps = 8;
        exponent++;
    }
    int code = steps < 8 ? steps : ((exponent + 6) << 3) + (steps - 8);
    return (uint8_t)(sign | code);
}

float wefti_ema_f8_value(uint8_t code)
{
    const int exponent = (code >> 3) & 15, digits = code & 7;
    const float size = exponent == 0
                           ? ldexpf((float)digits, -9)
                           : ldexpf((float)(8 + digits), exponent - 10);
    return code & 0x80 ? -size : size;
}

/* ---- one average ----------------------------------------------------------
 */

static double value_at(const wefti_ema_words *words, size_t i)
{
    return words->f32  ? (double)words->f32[i]
           : words->f8 ? (double)(wefti_ema_f8_value(words->f8[i]) / f8_scale) +
                             (double)bf16_value(words->bf16[i])
                       : (double)bf16_value(words->bf16[i]);
}

static void store(const wefti_ema_words *words, size_t i, double value,
                  uint32_t drawn)
{
    if (words->f32) {
        words->f32[i] = (float)value;
        return;
    }
    if (words->f8) {
        words->f8[i] = wefti_ema_f8((float)value * f8_scale);
        value -= (double)(wefti_ema_f8_value(words->f8[i]) / f8_scale);
    }
    words->bf16[i] = round_bf16((float)value, drawn);
}

void wefti_ema_add(const wefti_ema_words *words, size_t count, const real *p,
                   double decay, uint64_t stream, uint64_t offset)
{
    for (size_t i = 0; i < count; i++) {
        const double v = decay > 0 ? value_at(words, i) : (double)p[i];
        store(words, i, v + (1 - decay) * ((double)p[i] - v),
              words->f32 ? 0 : draw(stream, offset + i));
    }
}

void wefti_ema_get(const wefti_ema_words *words, size_t count, real *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (real)value_at(words, i);
    }
}
