/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/taking.h - the messages that a step reads, one or those of all
 * its sources: looking for them, and letting go of them.
 */
#ifndef COMM_STEPS_TAKING_H
#define COMM_STEPS_TAKING_H

#include "comm/core/core.h"
#include "comm/fabric/fabric.h"

/* Of an element in the buffer, or in a message that leaves or enters it. */
size_t wefti_elem_bytes(const wefti_op *op, wefti_buffer buffer);

/* A message of the step's size from peer, its signature checked; false: there
 * is none yet, or what came is a fault, and has been published. */
bool wefti_look_for(weft_comm *comm, wefti_op *op, const wefti_step *step,
                    int peer, wefti_incoming *message);

/* Its bytes have been read: peer may use their place again. */
void wefti_take(weft_comm *comm, wefti_op *op, const wefti_step *step, int peer,
                size_t bytes);

/*
 * wefti_sources_find - the elements of all that the list's step adds up, into
 * list->sources and list->begins; own: this rank's. false: not all are there
 * yet, and the next call goes on from where this one came to; list->peer is who
 * is waited for. _bring copies what lies in other processes to where it can be
 * added up, also without the lock; false: some could not be read. _take lets go
 * of them.
 */
bool wefti_sources_find(weft_comm *comm, wefti_op *op, wefti_step_list *list,
                        const void *own);
bool wefti_sources_bring(weft_comm *comm, const wefti_op *op,
                         wefti_step_list *list);
void wefti_sources_take(weft_comm *comm, wefti_op *op,
                        const wefti_step_list *list);

#endif
