/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/merit.h - which of an advice's candidates is the better one
 * (weft/advice.h says what counts).
 */
#ifndef OVERLAP_SCHEDULE_MERIT_H
#define OVERLAP_SCHEDULE_MERIT_H

#include "weft/advice.h"

/*
 * wefti_merit_find - the one that is recommended to a job that has own
 * micro-batches; only_own: without changing that. NULL: none is possible.
 */
const weft_schedule_candidate *
wefti_merit_find(const weft_schedule_candidate *items, size_t count, int own,
                 bool only_own);

/* The recommended one first, then by the length of the step. */
void wefti_merit_sort(weft_schedule_candidate *items, size_t count, int own);

#endif
