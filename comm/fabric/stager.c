/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/stager.c - timing what is written near, and what follows.
 *
 *   calls left   20 .. 11   10 .. 1                        0
 *   way          NEAR       PAST, if NEAR was that slow    as chosen
 */
#include "comm/fabric/stager.h"

#include "base/clock.h"
#include "kernels/wire/reduce.h"

#include <limits.h>

enum {
    /* The first calls of a way write lines that another left, and one that was
     * interrupted says nothing: the median of the last few counts. */
    WAY_CALLS = 2 * WEFTI_STAGER_TIMED,
    /* Near: faster, nothing is taken back from a reader's own cache; slower, it
     * is taken from where nothing is shared. 18, 45 to 140 and 200 to 430 were
     * measured, see above. */
    ONE_CORE_PS = 30,
    ONE_CACHE_PS = 160,
    AGAIN_LEAST_NS = 4 * 1000 * 1000, /* then twice as long each time */
    AGAIN_DOUBLINGS = 6
};

static int size_of(size_t bytes)
{
    int size = 0;
    while (size < WEFTI_STAGER_SIZES - 1 &&
           bytes >= (size_t)WEFTI_STAGER_LEAST_BYTES << (size + 1)) {
        size++;
    }
    return size;
}

static int load(const atomic_int *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void store(atomic_int *value, int to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

int wefti_stager_begin(void)
{
    return 2 * WAY_CALLS;
}

wefti_stager_way wefti_stager_find_way(const wefti_stager_size *size, int left)
{
    return left > WAY_CALLS ? WEFTI_STAGER_NEAR
           : left > 0       ? WEFTI_STAGER_PAST
                            : (wefti_stager_way)load(&size->way);
}

static int find_median(const atomic_int *ps)
{
    int sorted[WEFTI_STAGER_TIMED];
    for (int i = 0; i < WEFTI_STAGER_TIMED; i++) {
        const int it = load(&ps[i]);
        int at = i;
        for (; at > 0 && sorted[at - 1] > it; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = it;
    }
    return sorted[WEFTI_STAGER_TIMED / 2];
}

int wefti_stager_learn(wefti_stager_size *size, int left, int64_t ps)
{
    const bool near = left > WAY_CALLS;
    store(&(near ? size->near_ps : size->past_ps)[left % WEFTI_STAGER_TIMED],
          ps < INT_MAX ? (int)ps : INT_MAX);
    const int near_ps = find_median(size->near_ps);
    if (left == WAY_CALLS + 1 && near_ps < ONE_CACHE_PS) {
        store(&size->way,
              near_ps < ONE_CORE_PS ? WEFTI_STAGER_NEAR : WEFTI_STAGER_FAR);
        return 0;
    }
    if (left == 1) {
        store(&size->way, find_median(size->past_ps) < near_ps / 2
                              ? WEFTI_STAGER_PAST
                              : WEFTI_STAGER_FAR);
    }
    return left - 1;
}

bool wefti_stager_is_far(const wefti_stager *stager, size_t bytes)
{
    const wefti_stager_size *size = &stager->sizes[size_of(bytes)];
    return bytes >= WEFTI_STAGER_LEAST_BYTES &&
           wefti_stager_find_way(size, load(&size->left)) == WEFTI_STAGER_FAR;
}

/* How many calls are timed from now on: 0 until it is time again. */
static int begin_look(wefti_stager_size *size)
{
    const int64_t now_ns = wefti_clock_coarse_ns();
    if (now_ns < atomic_load_explicit(&size->due_ns, memory_order_relaxed)) {
        return 0;
    }
    const int looks = load(&size->looks);
    atomic_store_explicit(&size->due_ns,
                          now_ns + ((int64_t)AGAIN_LEAST_NS << looks),
                          memory_order_relaxed);
    store(&size->looks, looks < AGAIN_DOUBLINGS ? looks + 1 : AGAIN_DOUBLINGS);
    return wefti_stager_begin();
}

void wefti_stager_copy(wefti_stager *stager, void *dst, const void *src,
                       size_t bytes)
{
    if (bytes < WEFTI_STAGER_LEAST_BYTES) {
        wefti_copy(dst, src, bytes);
        return;
    }
    wefti_stager_size *size = &stager->sizes[size_of(bytes)];
    int left = load(&size->left);
    left = left > 0 ? left : begin_look(size);
    const int64_t begin_ns = left > 0 ? wefti_clock_ns() : 0;
    if (wefti_stager_find_way(size, left) == WEFTI_STAGER_PAST) {
        wefti_copy_past(dst, src, bytes);
    } else {
        wefti_copy(dst, src, bytes);
    }
    if (left > 0) {
        const int64_t took_ns = wefti_clock_ns() - begin_ns;
        store(&size->left,
              wefti_stager_learn(size, left, took_ns * 1000 / (int64_t)bytes));
    }
}
