/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/step.h - carry out one step of a track as far as it goes now.
 */
#ifndef COMM_STEP_H
#define COMM_STEP_H

#include "comm/core.h"

/*
 * wefti_step_advance - the track's current step; never blocks.
 *
 * Returns what it waits for; NOTHING: the step is done. Peers whose first
 * message is read for the first time are checked by wefti_op_check_peer; a
 * mismatch fails the communicator and counts as waiting.
 */
wefti_wait wefti_step_advance(weft_comm *comm, wefti_op *op,
                              wefti_track *track);

/* The first chunk of the send buffer that step reads and that is not ready;
 * false: none. */
bool wefti_step_find_shut(const wefti_op *op, const wefti_step *step,
                          size_t *chunk_out);

/* Whether everything op has staged has been read. */
bool wefti_step_drained(weft_comm *comm, const wefti_op *op);

#endif
