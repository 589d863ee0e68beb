/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/random.h - a small repeatable source of random numbers: its state is
 * a value, so every use has its own and a checkpoint can hold it.
 *
 * Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
 * Generators", 2014 (SplitMix64).
 */
#ifndef TRAINER_RANDOM_H
#define TRAINER_RANDOM_H

#include <stdint.h>

typedef struct wefti_random {
    uint64_t state;
} wefti_random;

/* Streams of one seed are independent of each other. */
wefti_random wefti_random_make(uint64_t seed, uint64_t stream);

uint64_t wefti_random_next(wefti_random *random);  /* all 64 bits */
double wefti_random_uniform(wefti_random *random); /* [0, 1) */
double wefti_random_normal(wefti_random *random);  /* mean 0, deviation 1 */

#endif
