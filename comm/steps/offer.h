/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/offer.h - what comes over the network goes where it belongs, not
 * into a buffer first.
 *
 * A list offers the places of the next messages to the network. A message that
 * comes earlier than its step, or that has another length, goes into a buffer
 * as ever.
 *
 * A place may be written as soon as its message can come, before the list has
 * got to that step. That is safe: patterns receive an element of the receive
 * buffer once; and where an operation is in place, a result comes only after
 * what it was made of, this rank's own input among it, has been staged or sent.
 */
#ifndef COMM_STEPS_OFFER_H
#define COMM_STEPS_OFFER_H

#include "comm/core/core.h"

/* Before the list's current step goes on; few of its offers are left, or
 * nothing happens. */
void wefti_offer_places(weft_comm *comm, const wefti_op *op,
                        wefti_step_list *list);

/* The list's current step is done. */
static inline void wefti_offer_count(wefti_step_list *list)
{
    list->offered -= list->step.kind == WEFTI_STEP_RECV && list->offered > 0;
}

/* The operation ends before its time: its buffer is not written any more. */
void wefti_offers_withdraw(weft_comm *comm, const wefti_op *op);

#endif
