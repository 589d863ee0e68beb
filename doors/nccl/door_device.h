/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_device.h - which GPU a communicator belongs to, and the
 * program's CUDA streams.
 */
#ifndef DOORS_NCCL_DOOR_DEVICE_H
#define DOORS_NCCL_DOOR_DEVICE_H

#include "doors/nccl/door_comm.h"

enum { WEFTI_DOOR_CURRENT = -1 };

/*
 * wefti_door_device_open - the GPU with that number, or CURRENT, that of the
 * calling thread's CUDA context, else the first.
 *
 * device_out, ordinal_out   NULL and the number asked for, or 0, where there is
 *                           no driver or no GPU: buffers are host memory then.
 *
 * Returns     SUCCESS | INVALID_ARGUMENT (there are GPUs, but not this one) |
 *             UNHANDLED_CUDA_ERROR (the driver does not work).
 */
int wefti_door_device_open(int ordinal, weft_device **device_out,
                           int *ordinal_out);

/*
 * wefti_door_stream_get - weft's stream for one of the program's; the
 * communicator keeps it.
 *
 * native      NULL: without a device NULL, with one CUDA's default stream.
 *
 * Returns     SUCCESS | INVALID_ARGUMENT (a stream where there is no GPU) | of
 *             weft_stream_wrap.
 */
int wefti_door_stream_get(wefti_door_comm *comm, void *native,
                          weft_stream **stream_out);

/* Whether the program is capturing this stream of its own into a graph. */
bool wefti_door_stream_is_captured(void *native);

#endif
