/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_group.h - what a thread has called between ncclGroupStart and
 * the outermost ncclGroupEnd.
 */
#ifndef DOORS_NCCL_DOOR_GROUP_H
#define DOORS_NCCL_DOOR_GROUP_H

#include "doors/nccl/door_call.h"

bool wefti_door_group_is_open(void);

/* In a group, an error fails all of it. Hands the result through. */
int wefti_door_group_note(int result);

/*
 * wefti_door_group_add - keep a copy until the group ends.
 *
 * blocking    whether its communicator is one that blocks: all of a group are,
 *             or none.
 *
 * Returns     SUCCESS | INVALID_ARGUMENT | SYSTEM_ERROR.
 */
int wefti_door_group_add(const wefti_door_call *call, bool blocking);

#endif
