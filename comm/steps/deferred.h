/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/deferred.h - counts that are known only when a part is ready.
 *
 *   capacity   | chunk 0 | chunk 1 | chunk 2 | chunk 3 |
 *   count      |xxxxxxxxx|xxxx|
 *   messages     full      short     none      none
 *
 * The pattern's steps are those of the capacities, which both sides know. A
 * message that is shorter than its step ends the part, an empty one too, and
 * both sides pass over the part's later steps: so the count needs no word of
 * its own. A part that fills its capacity ends with its last step.
 *
 * To a sum all ranks have the same count, so whoever adds up goes by its own,
 * and tells by the length of a message who has another: of the first chunk in
 * which any two differ, both have sent a message.
 */
#ifndef COMM_STEPS_DEFERRED_H
#define COMM_STEPS_DEFERRED_H

#include "comm/core/core.h"

static inline bool wefti_op_is_deferred(const wefti_op *op)
{
    return op->desc.deferred_counts != NULL;
}

/* The operation is entered: nothing has gone or come. Fails it where a part
 * without capacity is to have elements. */
void wefti_deferred_start(weft_comm *comm, wefti_op *op);

/*
 * wefti_deferred_settle - make the list's step as long as what its part has;
 * false: there is nothing to carry out, now (*wait_out says why) or at all.
 */
bool wefti_deferred_settle(weft_comm *comm, wefti_op *op, wefti_step_list *list,
                           wefti_wait *wait_out);

/*
 * wefti_deferred_fits - a message from peer that step takes: where it may be
 * shorter, the end of its part, as much is expected. false: to a sum it has
 * another count than this rank, and op has failed.
 */
bool wefti_deferred_fits(weft_comm *comm, const wefti_op *op,
                         const wefti_step *step, int peer, size_t sent_bytes,
                         size_t *expected_bytes);

/* step, as short as it was, has written the receive buffer: whether its part is
 * complete, whose count is written then. */
bool wefti_deferred_arrived(wefti_op *op, const wefti_step *step);

#endif
