/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/dual.h - what DualPipe and DualPipeV have in common: two
 * phases that a rank runs against each other, and the steps of their recipes.
 *
 * Each phase counts its own forwards and backwards; W takes the oldest I of
 * either phase whose W has not run. A recipe reads as its steps do:
 *
 *     dual_f(d, 0);             F of phase 0
 *     dual_fb(d, 0, 1);         F of phase 0 with B of phase 1, overlapped
 *     dual_w(d);                the oldest W
 */
#ifndef OVERLAP_SCHEDULE_DUAL_H
#define OVERLAP_SCHEDULE_DUAL_H

#include "overlap/schedule/generator.h"

typedef struct wefti_dual {
    wefti_action_writer writer;
    int stage[2];  /* of each phase */
    int f[2];      /* forwards so far */
    int b[2];      /* backwards so far, full or I */
    size_t w_from; /* up to here in the list no W is outstanding */
    int pending;   /* W outstanding */
} wefti_dual;

void wefti_dual_f(wefti_dual *dual, int phase);
void wefti_dual_b(wefti_dual *dual, int phase);
void wefti_dual_i(wefti_dual *dual, int phase);
void wefti_dual_fb(wefti_dual *dual, int f_phase, int b_phase);
void wefti_dual_w(wefti_dual *dual);

/*
 * Step 6 of both recipes: backwards of phase 1 and 0 in turn, count times; from
 * the middle on only their I, beginning with phase 1 where odd is true, else
 * with phase 0.
 */
void wefti_dual_backwards(wefti_dual *dual, int count, bool odd);

#endif
