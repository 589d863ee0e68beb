/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/pass.h - what passes have in common: all ranks' new lists
 * are made beside the old ones, and take their places when all are complete.
 */
#ifndef OVERLAP_SCHEDULE_PASS_H
#define OVERLAP_SCHEDULE_PASS_H

#include "overlap/schedule/schedule.h"

typedef struct wefti_pass {
    weft_schedule *schedule;
    wefti_actions *fresh; /* [ranks] */
} wefti_pass;

/* Returns OK | ERR_NO_MEMORY. Every pass that was begun is ended. */
WEFT_NODISCARD weft_status wefti_pass_begin(wefti_pass *pass,
                                            weft_schedule *schedule);

/* status OK and all lists complete: they replace the old ones. */
WEFT_NODISCARD weft_status wefti_pass_end(wefti_pass *pass, weft_status status);

/* Refuses a schedule that has messages; what: the pass. */
WEFT_NODISCARD weft_status
wefti_pass_need_compute(const weft_schedule *schedule, const char *what);

/*
 * Refuses a list too short for its numbers of stages and micro-batches, which
 * tables of them could make very large.
 */
WEFT_NODISCARD weft_status wefti_pass_need_whole(const weft_schedule *schedule,
                                                 const char *what);

/* The placement of DualPipe's authors. */
void wefti_lower_dual(wefti_pass *pass);

#endif
