/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/ema_code.h - an average of weights in few bytes that still follows
 * them.
 *
 *   v = v + (1 - decay) (p - v)        computed in double, then stored
 *
 *   fp32   v rounded to the nearest
 *   bf16   v rounded up or down at random, so that the mean is v: to the
 * nearest it would stay where it is, unless p is 2 to 4 times |v| away at a
 *          decay of 0.999
 *   fp8    e4m3 of 64 v, to the nearest, and what that leaves out, as bf16 of
 *          the second kind: the error comes back in the next step. What is out
 *          of e4m3's range is in it too
 *
 * What is drawn depends on a stream, which the caller makes of seed, tensor and
 * step, and on an element's place in the tensor: not on who has it.
 */
#ifndef TRAINER_EMA_CODE_H
#define TRAINER_EMA_CODE_H

#include "kernels/math/real.h"

#include <stddef.h>
#include <stdint.h>

typedef enum wefti_ema_format {
    WEFTI_EMA_NONE,
    WEFTI_EMA_FP32,
    WEFTI_EMA_BF16,
    WEFTI_EMA_FP8
} wefti_ema_format;

/* Averages: those that the format has, else NULL. */
typedef struct wefti_ema_words {
    float *f32;
    uint16_t *bf16; /* of fp8: what is left out */
    uint8_t *f8;
} wefti_ema_words;

/* Bytes of an element. */
size_t wefti_ema_elem_bytes(wefti_ema_format format);

/* From an element on. */
wefti_ema_words wefti_ema_words_at(const wefti_ema_words *words, size_t first);

/*
 * wefti_ema_add - count averages move towards p; decay 0: they are p.
 *
 * offset   of the first in its tensor
 */
void wefti_ema_add(const wefti_ema_words *words, size_t count, const real *p,
                   double decay, uint64_t stream, uint64_t offset);

/* The averages as numbers. */
void wefti_ema_get(const wefti_ema_words *words, size_t count, real *out);

/* A stream of draws: of a tensor's name, in a step. */
uint64_t wefti_ema_stream(uint64_t seed, const char *tensor, uint64_t step);

/* e4m3 of x, to the nearest, the largest where x is larger; and back. */
uint8_t wefti_ema_f8(float x);
float wefti_ema_f8_value(uint8_t code);

#endif
