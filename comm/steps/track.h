/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/track.h - the in-order lists of steps that an operation runs side
 * by side.
 */
#ifndef COMM_STEPS_TRACK_H
#define COMM_STEPS_TRACK_H

#include "comm/core/core.h"

/* All tracks before their first step; the pattern is chosen. */
void wefti_track_start_all(wefti_op *op);

/*
 * wefti_track_run_all - push every track; ends the operation after the last
 * step. Returns whether anything moved.
 */
bool wefti_track_run_all(weft_comm *comm, wefti_op *op);

#endif
