/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/op_check.h - is an operation allowed as it was posted?
 */
#ifndef COMM_OP_CHECK_H
#define COMM_OP_CHECK_H

#include "comm/core.h"

/*
 * wefti_check_op - every argument of weft_op_post; fills *op_out with a copy
 * in which buffers that this rank does not use are NULL.
 *
 * Returns     OK | ERR_INVALID: the text names the argument, its value and
 *             what is allowed.
 */
WEFT_NODISCARD weft_status wefti_check_op(const weft_op *op, uint64_t epoch,
                                          const weft_comm *comm,
                                          weft_op *op_out);

/*
 * wefti_check_stream - whether the communicator's gates can stand in it.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_check_stream(const weft_stream *stream,
                                              const weft_comm *comm);

#endif
