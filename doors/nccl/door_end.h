/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_end.h - ending a communicator that the caller is inside of;
 * it has left afterwards.
 */
#ifndef DOORS_NCCL_DOOR_END_H
#define DOORS_NCCL_DOOR_END_H

#include "doors/nccl/door_comm.h"

/* Returns SUCCESS | INVALID_ARGUMENT (another thread ends it). */
int wefti_door_destroy(wefti_door_comm *comm);

/* Returns SUCCESS | INVALID_ARGUMENT (it was finalized already) | INVALID_USAGE
 * (it was revoked). */
int wefti_door_finalize(wefti_door_comm *comm);

#endif
