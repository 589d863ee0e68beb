/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step_bytes.h - the bytes of a step: between what it needs and what
 * becomes of them (comm/steps/step.c), the host moves them or adds them up.
 */
#ifndef COMM_STEPS_STEP_BYTES_H
#define COMM_STEPS_STEP_BYTES_H

#include "comm/core/core.h"

/* Whether the buffer is memory that the host must not touch. */
static inline bool wefti_step_on_device(const wefti_op *op, wefti_buffer buffer)
{
    return buffer == WEFTI_BUFFER_SEND   ? op->places.send
           : buffer == WEFTI_BUFFER_RECV ? op->places.recv
                                         : false;
}

/* Whether the step reads this rank's own data to a pre-multiplied sum. */
static inline bool wefti_step_scales(const wefti_op *op, const wefti_step *step)
{
    return op->desc.scale && step->src == WEFTI_BUFFER_SEND;
}

/*
 * wefti_step_bytes - list->to = what the list's step makes of list->from,
 * list->sources and its scratch: here and now, or if they are many as work
 * without the lock (comm/engine/held_work.h).
 *
 * Returns     NOTHING: they are there | HOST: they will be, and the list's
 *             phase is HELD, then MADE | PEER: a peer's could not be read, and
 *             the step begins again.
 */
wefti_wait wefti_step_bytes(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list);

#endif
