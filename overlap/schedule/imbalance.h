/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/imbalance.h - the part of the idle time that the cut of the
 * model causes: ranks with less work than the busiest one wait for it however
 * many micro-batches a step has.
 *
 *   idle of the least busy rank = bubble + imbalance
 *   bubble                        until the pipeline is full and while it
 *                                 empties, and waits for messages
 *   imbalance                     what the busiest rank computes more
 */
#ifndef OVERLAP_SCHEDULE_IMBALANCE_H
#define OVERLAP_SCHEDULE_IMBALANCE_H

#include "overlap/schedule/schedule.h"

/*
 * time     what the busiest rank computes more than the least busy one, in a
 *          step; 0 where all stages are equal
 * busiest  that rank
 */
typedef struct wefti_imbalance {
    double time;
    int busiest;
} wefti_imbalance;

/*
 * wefti_imbalance_find - of a schedule with these costs, and its simulated run.
 *
 * Pairs that hide a share of their shorter half count as if all of a rank's
 * forwards were paired: how many are not depends on the number of micro-batches
 * and is bubble. Returns zeros where cost->stages is
 * NULL.
 */
wefti_imbalance wefti_imbalance_find(const weft_schedule *schedule,
                                     const weft_schedule_cost *cost,
                                     const weft_schedule_run *run);

#endif
