/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/fault.h - one fault per communicator: the first to find it
 * publishes it, every rank acts on the same one.
 */
#ifndef COMM_CONTROL_FAULT_H
#define COMM_CONTROL_FAULT_H

#include "comm/core/core.h"

/*
 * wefti_fault_publish - write the communicator's fault, unless there is one,
 * and wake all ranks.
 *
 * rank        the rank it is about; -1: no rank in particular.
 * op_number   0: none.
 *
 * Threads     any, with or without the engine's lock.
 */
void wefti_fault_publish(weft_comm *comm, weft_status status, int rank,
                         uint64_t op_number, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* What another domain has published, unless there is a fault already. */
void wefti_fault_repeat(weft_comm *comm, const wefti_fault_page *fault);

/*
 * wefti_fault_recall - the published fault as this thread's error, before it is
 * learnt of: what fails because of it is told as the same. Threads: any.
 *
 * Returns     its status; WEFT_OK, and no text: there is none, or half of one.
 */
weft_status wefti_fault_recall(weft_comm *comm);

/* Whether a rank has begun to write one. */
bool wefti_fault_is_published(weft_comm *comm);

/*
 * wefti_fault_is_ripe - whether a published fault may be acted on: a fault can
 * be quicker than data that were sent over the network before it. An operation
 * that some rank has completed lacks nothing else, so they are waited for, for
 * a moment. moved: whether some came just now. Engine's lock held.
 */
bool wefti_fault_is_ripe(weft_comm *comm, bool moved);

/*
 * wefti_fault_learn - if a fault is published, it is comm's from now on
 * (comm->failed), and other domains are notified. Once; comm/engine/request.h
 * ends what is posted. Engine's lock held.
 *
 * Returns     whether there is one.
 */
bool wefti_fault_learn(weft_comm *comm);

/*
 * wefti_fault_blame - notifies weft-run, if it watches, that this rank fails
 * because of another one. Nothing where rank is -1, or this one. Threads: any.
 */
void wefti_fault_blame(weft_comm *comm, int rank);

/* Sets the thread's error text from the fault and returns its status. */
weft_status wefti_fault_status(weft_comm *comm);

#endif
