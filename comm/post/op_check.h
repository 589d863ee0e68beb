/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/op_check.h - is an operation allowed as it was posted?
 */
#ifndef COMM_POST_OP_CHECK_H
#define COMM_POST_OP_CHECK_H

#include "comm/core/core.h"

/*
 * wefti_check_op - every argument of weft_op_post but op's size; *op is this
 * rank's copy, and what has no meaning for its collective is cleared there.
 * Where its buffers are is asked here and nowhere else, so: not under a lock.
 *
 * Returns     OK, *role_out and *places_out filled in | ERR_INVALID with a text
 *             that names the argument.
 */
WEFT_NODISCARD weft_status wefti_check_op(weft_op *op, uint64_t epoch,
                                          const weft_comm *comm,
                                          wefti_role *role_out,
                                          wefti_op_places *places_out);

/*
 * wefti_check_place - whether pointer is memory of comm's device that the host
 * must not touch. A communicator without such a device takes all for the
 * host's. Not under a lock.
 *
 * name    of the argument
 *
 * Returns     OK | ERR_INVALID (it is another device's) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_check_place(const weft_comm *comm,
                                             const char *name,
                                             const void *pointer,
                                             bool *device_out);

/*
 * wefti_check_stream - whether the communicator's gates can stand in it.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_check_stream(const weft_stream *stream,
                                              const weft_comm *comm);

#endif
