/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/breakdown.h - where the time of one step of one rank went.
 *
 *   recorded   compute   ======   =====      ===
 *              moving        ------     ---
 *              waiting                     ..
 *   the step             [compute][exposed][compute][exposed][skew][compute]
 *
 * What moves under compute is hidden and takes no time of its own.
 *
 * Each term is a set of intervals made from what was recorded: compute = C;
 * exposed of class k = X_k without C and the classes before k; bubble = waiting
 * for a pipeline message, skew = waiting for a late peer of any other class,
 * both where nothing computes or moves; idle = the gaps between everything
 * recorded, found from the recordings and not as what the others leave over.
 * So their lengths add up to the window only if all of them are right.
 */
#ifndef OVERLAP_BREAKDOWN_H
#define OVERLAP_BREAKDOWN_H

#include "overlap/interval.h"
#include "weft/ledger.h"

#include <stdbool.h>

/* What was recorded, cut to the window; index of the arrays: weft_class. */
typedef struct wefti_timeline {
    wefti_interval window;
    wefti_interval_set compute;
    wefti_interval_set xfer[WEFT_CLASS_COUNT];
    wefti_interval_set wait[WEFT_CLASS_COUNT];
} wefti_timeline;

/* The terms, and sets used on the way. */
typedef struct wefti_breakdown {
    wefti_interval window;
    wefti_interval_set compute;
    wefti_interval_set exposed[WEFT_CLASS_COUNT];
    wefti_interval_set bubble;
    wefti_interval_set skew;
    wefti_interval_set idle;
    wefti_interval_set xfer_all;
    wefti_interval_set hidden_all;
    wefti_interval_set scratch[2];
} wefti_breakdown;

/*
 * wefti_timeline_init, wefti_breakdown_init - empty sets with memory for a
 * timeline of up to room intervals in all; fini frees it.
 *
 * Returns     OK | ERR_NO_MEMORY (nothing to free).
 */
WEFT_NODISCARD weft_status wefti_timeline_init(wefti_timeline *timeline,
                                               size_t room);
void wefti_timeline_fini(wefti_timeline *timeline);
WEFT_NODISCARD weft_status wefti_breakdown_init(wefti_breakdown *breakdown,
                                                size_t room);
void wefti_breakdown_fini(wefti_breakdown *breakdown);

/* Empties the timeline and sets another window. */
void wefti_timeline_reset(wefti_timeline *timeline, wefti_interval window);

/* Adds the part of [begin, end) that lies in the window; its length. */
int64_t wefti_timeline_add(const wefti_timeline *timeline,
                           wefti_interval_set *set, int64_t begin_ns,
                           int64_t end_ns);

/*
 * wefti_breakdown_make - the terms of a timeline, which is normalised on the
 * way. No allocation.
 */
void wefti_breakdown_make(wefti_timeline *timeline, wefti_breakdown *out);

/*
 * wefti_breakdown_check - the sum check: how far the terms are from covering
 * the window exactly once. 0 when they do; else the greater of |sum of their
 * lengths - window| and |length of their union in the window - window|.
 */
int64_t wefti_breakdown_check(wefti_breakdown *breakdown);

/* Fills the time fields of a report; the other fields stay as they are. */
void wefti_breakdown_report(const wefti_timeline *timeline,
                            wefti_breakdown *breakdown,
                            weft_step_report *report_out);

#endif
