/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/nccl/nccl_call.h - an operation in NCCL's words.
 */
#ifndef COMM_NCCL_NCCL_CALL_H
#define COMM_NCCL_NCCL_CALL_H

#include "comm/nccl/twin.h"

/* Whether NCCL has the collective, and for one that reduces its type and its
 * reduction. */
bool wefti_nccl_has(const wefti_twin *twin, const weft_op *op,
                    const wefti_shape *shape);

/*
 * wefti_nccl_call - queue op on a stream, by as many calls as it takes, in one
 * group. The twin's calls is held, the device entered; op's counts are there.
 *
 * Returns     NCCL's result; IN_PROGRESS: comm has a fault.
 */
int wefti_nccl_call(wefti_twin *twin, const weft_op *op,
                    struct CUstream_st *stream);

/*
 * wefti_nccl_begin_messages, _call_message, _end_messages - the same of a list
 * of messages, which NCCL carries out together; result: of the calls before.
 *
 * Returns     as wefti_nccl_call; what is not well from _begin_messages ends
 *             the list.
 */
int wefti_nccl_begin_messages(wefti_twin *twin);
int wefti_nccl_call_message(wefti_twin *twin, const weft_op *op,
                            struct CUstream_st *stream, int result);
int wefti_nccl_end_messages(wefti_twin *twin, int result);

#endif
