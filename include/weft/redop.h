/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/redop.h - reductions of a program's own, on host memory.
 *
 * They stand wherever a weft_redop stands: all-reduce, reduce, reduce-scatter
 * and its v form, posted, planned, gated, in place, between any hosts.
 */
#ifndef WEFT_REDOP_H
#define WEFT_REDOP_H

#include "weft/comm.h"
#include "weft/types.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * weft_redop_function - inout[i] = inout[i] op in[i], i in [0, count).
 *
 * inout holds what came of lower ranks, in what came of higher ones, and both
 * are next to each other in rank order: op need not commute. Over n ranks the
 * calls make the balanced tree over the rank index, split at the largest power
 * of two below n: ((0 1)(2 3))(4 5). So results are the same bits on every
 * rank, in every run, for every size, chunk and algorithm, whether or not op
 * is associative.
 *
 * Element by element: a call gets some run of the elements, cut anywhere, and
 * calls come in any order. What must stay together (a small matrix, a value
 * with its index) is packed into one element, the bits of a u64 for instance.
 * Partial results have the type itself, also where it is a narrow float.
 *
 * inout, in  [count] elements of dtype, 64-byte aligned, apart from each other,
 *            valid during the call. count is 1 or more.
 *
 * Threads    any, one at a time for one communicator; with a stream mostly the
 *            rank's progress thread. It may not call weft. While it runs, other
 *            operations of its rank go on, but for those that need it too.
 */
typedef void (*weft_redop_function)(void *context, void *inout, const void *in,
                                    size_t count, weft_dtype dtype);

/*
 * weft_redop_create_user - a new reduction for this communicator; collective.
 *
 * All ranks create their reductions in the same order, between the same
 * operations; each call is an operation itself. It is known to comm alone, not
 * to communicators made from it.
 *
 * name      the same on all ranks, 1 to 31 bytes, copied; messages show it.
 * function  does the same on all ranks, which nobody can check.
 * context   handed to function; borrowed until the reduction is destroyed.
 *
 * Returns     OK, the same *redop_out on all ranks | ERR_INVALID (on all ranks
 *             if one passed something wrong, or all 64 are taken) |
 *             ERR_MISMATCH (the names differ; comm goes on) | ERR_NO_MEMORY
 *             (on all) | the communicator's fault.
 * Threads     one caller per comm at a time.  Blocks: until all have called.
 */
WEFT_NODISCARD weft_status weft_redop_create_user(weft_comm *comm,
                                                  const char *name,
                                                  weft_redop_function function,
                                                  void *context,
                                                  weft_redop *redop_out);

/*
 * weft_redop_destroy - give it back, on this rank alone.
 *
 * weft_comm_destroy does it for what is left; plans must be gone before that
 * comes to context.
 *
 * Returns     OK | ERR_INVALID (none of comm's; or still used by an operation
 *             or a plan: nothing has changed).
 * Threads     one caller per comm at a time.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_redop_destroy(weft_comm *comm,
                                              weft_redop redop);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
