/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_call.h - what a program asks to be moved: one operation as it
 * was called, until its group ends.
 */
#ifndef DOORS_NCCL_DOOR_CALL_H
#define DOORS_NCCL_DOOR_CALL_H

#include "doors/nccl/door_comm.h"

/*
 * op       SEND and RECV have the peer as root
 * redop    a copy of the program's own; its op is 0: none
 * comm     while it is launched
 */
typedef struct wefti_door_call {
    struct ncclComm *handle;
    const char *name;
    void *native;
    weft_op op;
    wefti_door_redop redop;
    wefti_door_comm *comm;
    bool launched;
} wefti_door_call;

/*
 * wefti_door_call_submit - check it, and carry it out now or with the group
 * that is open.
 */
int wefti_door_call_submit(wefti_door_call *call);

/*
 * wefti_door_launch - carry out what a group has: messages first, those of one
 * communicator and stream together, then collectives in the order of calling.
 *
 * Returns     SUCCESS | IN_PROGRESS (of communicators that do not block) | the
 *             last error.
 */
int wefti_door_launch(wefti_door_call *calls, size_t count);

#endif
