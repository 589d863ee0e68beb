/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/draw.h - what both painters ask of a schedule and its run.
 */
#ifndef OVERLAP_SCHEDULE_DRAW_H
#define OVERLAP_SCHEDULE_DRAW_H

#include "overlap/schedule/schedule.h"

/* Whether a stage is an encoder's. */
bool wefti_draw_is_encoder(const weft_schedule *schedule, int stage);

/* Which of its rank's stages of the same branch this is, from 0, in the order
 * of numbers; and of how many at most. */
int wefti_draw_tint(const weft_schedule *schedule, int stage);
int wefti_draw_count_tints(const weft_schedule *schedule, bool encoder);

/* Whether an action has a box: what takes a rank's time. */
bool wefti_draw_has_box(const weft_action *action);

/* Refuses runs that do not belong to the schedule, or have no spans. */
WEFT_NODISCARD weft_status wefti_draw_check(const weft_schedule *schedule,
                                            const weft_schedule_run *run);

/* The worst rank's bubble of the whole step, 0..1. */
double wefti_draw_bubble_ratio(const weft_schedule_run *run);

#endif
