/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step.h - carry out one step of a list as far as it goes now.
 */
#ifndef COMM_STEPS_STEP_H
#define COMM_STEPS_STEP_H

#include "comm/core/core.h"

/*
 * wefti_step_advance - the list's current step; never blocks.
 *
 * Returns what it waits for; NOTHING: the step is done. One that has just begun
 * to be fetched waits for the DEVICE, even if that is done already: now a later
 * one's fetch can be asked for. Peers whose first
 * message is read for the first time are checked by wefti_op_check_peer; a
 * mismatch fails the communicator and counts as waiting.
 */
wefti_wait wefti_step_advance(weft_comm *comm, wefti_op *op,
                              wefti_step_list *list);

/*
 * wefti_step_fetch_ahead - begin to bring the source of a later step of the
 * list to the host, if that can be done now.
 *
 * step     reads the send buffer, and is the next of the list that does
 * later    messages per channel that steps before it have yet to send
 */
void wefti_step_fetch_ahead(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list, const wefti_step *step,
                            const size_t later[WEFTI_CHANNELS]);

/* Whether its source lies where only a device reads it. */
bool wefti_step_fetches(const wefti_op *op, const wefti_step *step);

#endif
