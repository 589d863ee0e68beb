/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/deferred_parts.h - parts of four ranks whose counts are not known
 * when they are posted: what each may have, and has in a round. Empty and full
 * parts and ends at borders of messages are among them.
 */
#ifndef TESTS_COMM_DEFERRED_PARTS_H
#define TESTS_COMM_DEFERRED_PARTS_H

#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    NRANKS = 4,
    CHUNK = (128 << 10) / 4, /* elements of a large message at most */
    MOST = 3 * CHUNK,
    NEVER = 999 /* what a count is before it is known */
};

/* Elements that the part of rank `part` may have. */
static inline size_t capacity(int part)
{
    static const size_t capacities[NRANKS] = {MOST, 1000, 0, CHUNK + 1};
    return capacities[part];
}

/* And really has. */
static inline size_t count_in(int round, int part)
{
    const size_t most = capacity(part);
    switch ((round + 3 * part) % 5) {
    case 0:
        return most;
    case 1:
        return 0;
    case 2:
        return most < CHUNK ? most / 2 : CHUNK;
    case 3:
        return most < 2 * CHUNK ? most / 3 : 2 * CHUNK;
    default:
        return most ? most - 1 : 0;
    }
}

/* Where a part begins among all. */
static inline size_t place_of(int part)
{
    size_t at = 0;
    for (int p = 0; p < part; p++) {
        at += capacity(p);
    }
    return at;
}

#endif
