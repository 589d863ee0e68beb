/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/interval.h - sets of moments as sorted lists of half-open intervals
 * [begin, end) in nanoseconds, and their algebra.
 *
 * A set is normal when its intervals are not empty, ascend, and neither
 * overlap nor touch. All functions but _add and _normalise take and return
 * normal sets. They are pure: no clock, no allocation; the output's memory is
 * the caller's and is never that of an input.
 *
 * Room: whatever is made from N intervals by these functions has at most N
 * intervals (+ 1 for gaps), because each of them begins at an end point of one
 * of the N and no two share an end point.
 */
#ifndef OVERLAP_INTERVAL_H
#define OVERLAP_INTERVAL_H

#include <stddef.h>
#include <stdint.h>

typedef struct wefti_interval {
    int64_t begin_ns;
    int64_t end_ns;
} wefti_interval;

typedef struct wefti_interval_set {
    wefti_interval *items; /* room for so many */
    size_t room;
    size_t count;
} wefti_interval_set;

/* Appends [begin, end) in any order; an empty or reversed one adds nothing. */
void wefti_interval_add(wefti_interval_set *set, int64_t begin_ns,
                        int64_t end_ns);

/* Sorts and merges what was added. O(n log n), in place. */
void wefti_interval_normalise(wefti_interval_set *set);

int64_t wefti_interval_length(const wefti_interval_set *set);

/* out = a or b; a and b; a without b. O(|a| + |b|). */
void wefti_interval_unite(const wefti_interval_set *a,
                          const wefti_interval_set *b, wefti_interval_set *out);
void wefti_interval_intersect(const wefti_interval_set *a,
                              const wefti_interval_set *b,
                              wefti_interval_set *out);
void wefti_interval_subtract(const wefti_interval_set *a,
                             const wefti_interval_set *b,
                             wefti_interval_set *out);

/* out = the parts of window that set leaves free. */
void wefti_interval_gaps(const wefti_interval_set *set, wefti_interval window,
                         wefti_interval_set *out);

#endif
