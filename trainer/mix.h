/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/mix.h - random numbers by counter: a number for each (key, counter),
 * with no state to carry or to save.
 *
 * Source      Steele, Lea, Flood, "Fast splittable pseudorandom number
 *             generators", OOPSLA 2014: SplitMix64's increment and finaliser.
 */
#ifndef TRAINER_MIX_H
#define TRAINER_MIX_H

#include <stdint.h>

/* A bijection of 64 bits that scatters neighbours. */
static inline uint64_t wefti_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

/* Number counter of the stream key. */
static inline uint64_t wefti_mix_at(uint64_t key, uint64_t counter)
{
    return wefti_mix(wefti_mix(key) +
                     (counter + 1) * UINT64_C(0x9E3779B97F4A7C15));
}

#endif
