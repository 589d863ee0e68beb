/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/stager.h - writing what another core reads next, in the way
 * that costs least on this machine now.
 *
 * Memory that is used again for the next message still lies in the cache of
 * whoever read the last one, and a store takes each line back from there first.
 * Threads of one core do that in no time; cores that share a cache do it
 * faster when the reader's own cache has let go of the line meanwhile; cores
 * of different caches do it at 2 GB/s. A store past the cache takes nothing
 * back, but then the reader finds the bytes farther away. us of 128 KiB,
 * written + read, two cores of an EPYC:
 *
 *                   near, the same     far, 2 MiB in    past the
 *                   memory again       turn             cache
 *   one core        2.3 + 2.3          not measured     6.6 + 9.2
 *   one cache       15  + 3.0          3.1 + 2.9        4.4 + 7.3
 *   two caches      56  + 7.5          51  + 6.4        4.3 + 7.5
 *
 * Where a virtual machine's cores lie changes within seconds, so a few messages
 * are written near, and timed, again and again: what that took a byte says
 * which of the three it is. Past the cache must also have been much faster
 * then.
 *
 * Nobody else need know which way it was: the bytes may be published by a
 * release store after any.
 *
 * Threads     any, with any stager.
 */
#ifndef COMM_FABRIC_STAGER_H
#define COMM_FABRIC_STAGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Shorter ones are written near: reading them again costs more. */
    WEFTI_STAGER_LEAST_BYTES = 8 << 10,
    WEFTI_STAGER_SIZES = 6, /* each up to twice the one before, then all */
    WEFTI_STAGER_TIMED = 5,
    /* That take turns, so that no reader's own cache holds them all. */
    WEFTI_STAGER_FAR_BYTES = 2 << 20
};

typedef enum wefti_stager_way {
    WEFTI_STAGER_NEAR,
    WEFTI_STAGER_FAR,
    WEFTI_STAGER_PAST
} wefti_stager_way;

/* What is known of messages of about one length. Zero: nothing. */
typedef struct wefti_stager_size {
    atomic_int way;  /* a wefti_stager_way: how they are written */
    atomic_int left; /* of the calls that are timed */
    /* A byte, of the last few calls, near and past the cache. */
    atomic_int near_ps[WEFTI_STAGER_TIMED], past_ps[WEFTI_STAGER_TIMED];
    atomic_int looks;       /* how often they have been timed */
    _Atomic int64_t due_ns; /* when they are again */
} wefti_stager_size;

typedef struct wefti_stager {
    wefti_stager_size sizes[WEFTI_STAGER_SIZES];
} wefti_stager;

/* Whether the next message of that length is better put where none was for a
 * while: memory that takes turns. */
bool wefti_stager_is_far(const wefti_stager *stager, size_t bytes);

/* dst = src, which do not overlap. */
void wefti_stager_copy(wefti_stager *stager, void *dst, const void *src,
                       size_t bytes);

/*
 * Its parts, for tests.
 *
 * wefti_stager_begin - so many calls are timed now.
 * wefti_stager_learn - the call with so many left, itself included, took ps a
 * byte. Returns how many are left; 0: the way is chosen.
 * wefti_stager_find_way - of a call with so many left; 0: as was chosen.
 */
int wefti_stager_begin(void);
int wefti_stager_learn(wefti_stager_size *size, int left, int64_t ps);
wefti_stager_way wefti_stager_find_way(const wefti_stager_size *size, int left);

#endif
