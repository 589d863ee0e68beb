/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/track.h - the in-order lists of steps that an operation runs side
 * by side.
 */
#ifndef COMM_STEPS_TRACK_H
#define COMM_STEPS_TRACK_H

#include "comm/core/core.h"

/*
 * wefti_track_begin - before the first step of track t; the pattern is chosen.
 *
 * wefti_track_settle - goes on to the next block that has steps, unless there
 * is a step here; false: there is none any more.
 *
 * wefti_track_get_step - the step where settle has stopped.
 */
wefti_track_place wefti_track_begin(const wefti_op *op, int t);
bool wefti_track_settle(const wefti_op *op, int t, wefti_track_place *at);
void wefti_track_get_step(const wefti_op *op, int t,
                          const wefti_track_place *at, wefti_step *step_out);

/* All tracks before their first step; the pattern is chosen. */
void wefti_track_start_all(wefti_op *op);

/*
 * wefti_track_run_all - push every track; ends the operation after the last
 * step. Returns whether anything moved.
 */
bool wefti_track_run_all(weft_comm *comm, wefti_op *op);

#endif
