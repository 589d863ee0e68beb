/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/random.c - a SplitMix64 sequence, and normal numbers by Box and
 * Muller (1958).
 */
#include "trainer/random.h"

#include "trainer/mix.h"

#include <math.h>

wefti_random wefti_random_make(uint64_t seed, uint64_t stream)
{
    return (wefti_random){wefti_mix_at(seed, stream)};
}

uint64_t wefti_random_next(wefti_random *random)
{
    random->state += UINT64_C(0x9E3779B97F4A7C15);
    return wefti_mix(random->state);
}

double wefti_random_uniform(wefti_random *random)
{
    return (double)(wefti_random_next(random) >> 11) * 0x1p-53;
}

double wefti_random_normal(wefti_random *random)
{
    double radius = sqrt(-2.0 * log(1.0 - wefti_random_uniform(random)));
    return radius * cos(6.283185307179586 * wefti_random_uniform(random));
}
