/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/request.h - operations begun on the host, without a stream: tested and
 * waited for while the caller does something else.
 */
#ifndef WEFT_REQUEST_H
#define WEFT_REQUEST_H

#include "weft/op.h"
#include "weft/p2p.h"
#include "weft/plan.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct weft_request weft_request;

/*
 * weft_op_begin, weft_p2p_begin, weft_plan_begin - queue an operation or a
 * list, which starts as soon as those before it let it; weft's own thread moves
 * it. Any number may be pending. They keep their order with posts on streams
 * and without.
 *
 * op, list     as in weft_op_post and weft_p2p_post; copied, with the counts of
 *              a v form and the scalar of PREMULSUM. Buffers, gates and labels
 *              are borrowed until it is done.
 * request_out  to be destroyed by the caller; NULL after an error.
 *
 * Returns     OK | ERR_INVALID (nothing was queued) | ERR_NO_MEMORY |
 *             ERR_SYSTEM | the fault of a communicator that has failed.
 * Threads     one caller per comm at a time.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_op_begin(const weft_op *op, uint64_t epoch,
                                         weft_comm *comm,
                                         weft_request **request_out);
WEFT_NODISCARD weft_status weft_p2p_begin(const weft_p2p *list,
                                          size_t list_count, weft_comm *comm,
                                          weft_request **request_out);
WEFT_NODISCARD weft_status weft_plan_begin(weft_plan *plan, uint64_t epoch,
                                           weft_request **request_out);

/*
 * weft_request_test     whether it is done, and how it ended.
 * weft_request_wait     the same when it is done.
 * weft_request_destroy  NULL is legal; so is one that is pending: the operation
 *                       goes on.
 *
 * All are legal after the communicator was destroyed, and while another thread
 * destroys it: that ends what is pending, and returns when the calls here that
 * were under way have, or will without it.
 *
 * Returns     OK | INPROGRESS (test: not yet) | ERR_INVALID (request is NULL) |
 *             ERR_MISMATCH, ERR_PEER, ERR_TIMEOUT, ERR_ABORTED: the
 *             communicator's fault, with its text.
 * Threads     test, wait: any.  Blocks: wait.
 */
WEFT_NODISCARD weft_status weft_request_test(weft_request *request);
WEFT_NODISCARD weft_status weft_request_wait(weft_request *request);
void weft_request_destroy(weft_request *request);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
