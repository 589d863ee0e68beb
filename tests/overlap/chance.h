/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/chance.h - repeatable random numbers for the tests of overlap:
 * SEED=... in the environment repeats a run.
 * Source: Steele, Lea, Flood 2014, SplitMix64.
 */
#ifndef TESTS_OVERLAP_CHANCE_H
#define TESTS_OVERLAP_CHANCE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t chance_seed(void)
{
    const char *given = getenv("SEED");
    uint64_t seed =
        given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
    printf("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* 0 .. bound-1 */
static inline int64_t chance_below(uint64_t *state, int64_t bound)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)bound);
}

#endif
