/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/seed.h - random inputs from a seed that is printed, so that a failure
 * can be run again: TEST_SEED=... build/dev/tests/test_...
 *
 * Source of the generator: Steele, Lea, Flood, "Fast splittable pseudorandom
 * number generators", 2014 (SplitMix64).
 */
#ifndef TESTS_SEED_H
#define TESTS_SEED_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t random_next(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A new seed, or the one in TEST_SEED; printed. */
static inline uint64_t random_seed(void)
{
    const char *given = getenv("TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed =
        given != NULL ? strtoull(given, NULL, 0)
                      : (uint64_t)now.tv_nsec * 1000003U + (uint64_t)now.tv_sec;
    printf("TEST_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    return seed;
}

#endif
