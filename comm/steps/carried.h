/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/carried.h - what the engine does beside an operation that its
 * stream carries out (comm/post/carried_route.h). One that is captured ends
 * when all ranks have been seen to capture the same.
 */
#ifndef COMM_STEPS_CARRIED_H
#define COMM_STEPS_CARRIED_H

#include "comm/core/core.h"

/* op shows itself to the peers; and one push: whether anything moved. Lock
 * held. */
void wefti_carried_enter(weft_comm *comm, wefti_op *op);
bool wefti_carried_advance(weft_comm *comm, wefti_op *op);

/* The same of a message: its sender sends its signature ahead, by weft's own
 * way, in its place among those of its queue. Lock held. */
void wefti_carried_enter_message(weft_comm *comm, wefti_op *op);
bool wefti_carried_advance_message(weft_comm *comm, wefti_op *op);

#endif
