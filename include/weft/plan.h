/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/plan.h - operations that are posted again and again: everything that
 * does not depend on the post is done once.
 */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "weft/op.h"
#include "weft/p2p.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct weft_plan weft_plan;

/*
 * weft_op_plan, weft_p2p_plan - check an operation or a list, choose how it is
 * done and sign it, for any number of posts. Local: the ranks need not all use
 * plans, only post the same.
 *
 * op, list   as in weft_op_post and weft_p2p_post; copied, op->scale's element
 *            and the counts of a v form too. Buffers, gates, labels and what
 *            is deferred are borrowed while posts are pending, not longer.
 *
 * Returns     OK | ERR_INVALID (as the post would) | ERR_NO_MEMORY.
 * Threads     any.  Blocks: no.  Allocates: the plan.
 */
WEFT_NODISCARD weft_status weft_op_plan(const weft_op *op, weft_comm *comm,
                                        weft_plan **plan_out);
WEFT_NODISCARD weft_status weft_p2p_plan(const weft_p2p *list,
                                         size_t list_count, weft_comm *comm,
                                         weft_plan **plan_out);

/*
 * weft_plan_post - post it once more, on the communicator it was made for;
 * plans and plain posts may alternate as they like.
 *
 * epoch    of all its gates, those of a list's parts too; 0 only without.
 *
 * Returns, Threads, Blocks, Allocates: as weft_op_post, or weft_p2p_post. Not
 * after the communicator was destroyed.
 */
WEFT_NODISCARD weft_status weft_plan_post(weft_plan *plan, uint64_t epoch,
                                          weft_stream *stream);

/*
 * weft_plan_destroy - NULL is legal; so is a plan whose posts are pending
 * (they go on), and one whose communicator is gone.
 */
void weft_plan_destroy(weft_plan *plan);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
