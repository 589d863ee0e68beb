/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/slot.h - the places where an operation stages its messages.
 *
 * A channel has op->slots of them in the operation's staging, used in turn: a
 * slot is free again when every rank addressed has read the message before. A
 * message's are those of its pair, as many as messages may be unread.
 */
#ifndef COMM_STEPS_SLOT_H
#define COMM_STEPS_SLOT_H

#include "comm/core/core.h"

/* Where messages of the step go to, or come from. */
static inline wefti_fabric_path
wefti_slot_path(const wefti_op *op, const wefti_step *step, int peer)
{
    return (wefti_fabric_path){peer, op->op_slot, step->channel};
}

/*
 * wefti_slot_blocker - the first peer that keeps the slot of a SEND busy; -1:
 * it is free. Here and below step is a SEND or a RELAY.
 *
 * later   how many messages of the same channel have yet to be posted before
 */
int wefti_slot_blocker(weft_comm *comm, const wefti_op *op,
                       const wefti_step *step, size_t later);

/* The first addressee that has too many messages unread; -1: none. */
int wefti_slot_find_full(weft_comm *comm, const wefti_op *op,
                         const wefti_step *step);

/* Decides where the step's message of so many bytes is staged, which no device
 * writes: its slot is free. Before wefti_slot_stage; again until it is posted:
 * the same. */
void wefti_slot_choose(weft_comm *comm, wefti_op *op, const wefti_step *step,
                       size_t bytes);

/* Where the step's message is staged; later as above. */
void *wefti_slot_stage(weft_comm *comm, const wefti_op *op,
                       const wefti_step *step, size_t later);

/* Announces the step's message to whom it is for: what is staged, or what lies
 * at src, in the op's buffer (comm/steps/unstaged.h). */
void wefti_slot_post(weft_comm *comm, wefti_op *op, const wefti_step *step,
                     size_t bytes, const void *src);

/* The first peer that has not read all that op has sent it; -1: none. */
int wefti_slots_find_reader(weft_comm *comm, const wefti_op *op);

#endif
