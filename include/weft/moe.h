/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/moe.h - rows of tokens to the ranks of their experts, and back.
 *
 *   dispatch   token t of rank s --> a row at the rank of each of its experts
 *   combine    out[t] = sum over its experts of weight * what they made of it
 *
 *   weft_moe_dispatch(moe, x, expert, weight, tokens, stream, &batch);
 *   ... queue on stream the experts: batch.rows -> y ...
 *   weft_moe_combine(moe, &batch, y, out, stream);
 *   weft_moe_batch_fini(moe, &batch);
 *
 * Expert e lives on rank e / (experts / nranks). A token goes once to a rank
 * that has any of its experts. Over two hops it goes once to each host: to the
 * rank that has this one's index there, which passes it on to the ranks of its
 * host; and what they made of it comes back the same way, summed there. Exactly
 * the rows that there are cross a link, however they are distributed: a rank
 * may have none, one expert may get all.
 *
 * Nothing here waits on the host: how many rows come is known when they have
 * come, on the device and, behind batch.counted, on the host.
 *
 * Sums are the same bits however many hops there are: those of a token's
 * experts on one rank in the order of its slots, of ranks of a host in their
 * order, and of hosts in that of their lowest ranks, all in f32; what a rank
 * and a host pass on is rounded to combine_dtype, so that with f32 a sum is
 * rounded once, to dtype.
 *
 * All ranks make the same calls in the same order.
 *
 * Source: DeepSeek-AI 2024 (DeepSeek-V3, arXiv 2412.19437, section 3.2.2).
 */
#ifndef WEFT_MOE_H
#define WEFT_MOE_H

#include "weft/comm.h"
#include "weft/device.h"
#include "weft/types.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* WEFT_MOE_SLOTS_MOST - the most experts of a token. */
#define WEFT_MOE_SLOTS_MOST 32

/* weft_moe - the exchange of one kind of rows among the ranks of comm. */
typedef struct weft_moe weft_moe;

/*
 * weft_moe_config - what is exchanged; the same on all ranks but for capacity
 * and batches.
 *
 * comm, device    borrowed for the object's life; device gives memory, gates
 *                 and streams, and is the one comm was made with.
 * hidden          elements of a row.
 * experts         of all ranks, a multiple of their number.
 * slots           experts of a token, at most WEFT_MOE_SLOTS_MOST.
 * tokens          the most that a rank dispatches at once.
 * capacity        the most rows that come to this rank at once: one for each
 *                 slot of a token that names an expert here.
 * dtype           of rows in memory: F32, BF16 or F16.
 * dispatch_dtype  of rows on their way to experts: dtype, or F8E4M3 with an f32
 *                 scale for each 128 elements.
 * combine_dtype   of sums on their way back: F32, or dtype.
 * hops            1, 2, or 0: 2 where hosts have several ranks; 1 where the
 *                 device computes by kernels.
 * node_ranks      0: ranks that share memory count as one host; else each so
 *                 many in order.
 * batches         how many may be in use at once; 0: 1.
 * class_id        for the ledger; 0 counts as WEFT_CLASS_EP.
 * label           for messages and the ledger; borrowed; NULL: "moe".
 */
typedef struct weft_moe_config {
    size_t size_bytes; /* sizeof(weft_moe_config) */
    weft_comm *comm;
    weft_device *device;
    size_t hidden;
    int experts;
    int slots;
    size_t tokens;
    size_t capacity;
    weft_dtype dtype;
    weft_dtype dispatch_dtype;
    weft_dtype combine_dtype;
    int hops;
    int node_ranks;
    int batches;
    weft_class class_id;
    const char *label;
} weft_moe_config;

/*
 * weft_moe_batch - what came of a dispatch; written by it.
 *
 * rows          device, [capacity][hidden] of dtype: those of this rank's first
 *               expert, then of the next; each expert's in the order of source
 *               rank, token, slot. Valid until the batch's end, the program may
 *               write there.
 * expert_rows   memory of both host and device, [experts of this rank]: how
 *               many rows each has. On the stream they are there behind the
 *               dispatch, on the host when counted says so.
 * counted       chunk counted_chunk is raised to counted_epoch when expert_rows
 *               may be read. It fails with the communicator, but where the
 *               device computes by kernels: there it is raised all the same,
 *               and weft_comm_get_fault says whether to believe the counts.
 * tokens        of this rank, as dispatched.
 */
typedef struct weft_moe_batch {
    size_t size_bytes; /* sizeof(weft_moe_batch), set by the caller */
    void *held;        /* the object's own */
    void *rows;
    const int32_t *expert_rows;
    weft_gate *counted;
    size_t counted_chunk;
    uint64_t counted_epoch;
    size_t tokens;
} weft_moe_batch;

/*
 * weft_moe_create - collective over comm.
 *
 * Returns     OK | ERR_INVALID (also: ranks differ, the text says in what) |
 *             ERR_UNSUPPORTED (two hops by kernels) |
 *             ERR_NO_MEMORY | ERR_SYSTEM | comm's fault.
 * Blocks      until all have called.
 * Allocates   all it ever needs but some bytes a call: for each rank room for
 *             tokens rows on both sides, of which only what is used is touched,
 *             unless it is a GPU's.
 */
WEFT_NODISCARD weft_status weft_moe_create(const weft_moe_config *config,
                                           weft_moe **moe_out);

/*
 * weft_moe_destroy - waits for what its calls have queued: after a failure,
 * abort the communicator first. Batches end with it. NULL is legal.
 */
void weft_moe_destroy(weft_moe *moe);

/*
 * weft_moe_dispatch - rows to the experts of their tokens.
 *
 * x          device, [tokens][hidden] of dtype; read-only, borrowed until done.
 * expert     device, [tokens][slots]: which experts, -1: none. Borrowed.
 * weight     device, [tokens][slots]; borrowed. NULL: all 1.
 * tokens     of this rank; 0 is legal.
 * stream     runs after work already queued on it; NULL: done on return.
 * batch_out  size_bytes is set by the caller.
 *
 * More rows than a rank has room for, or an expert that there is not, fail the
 * communicator with ERR_MISMATCH and a text that names the rank and how many:
 * there with this call, on others with their next at the latest. Where the
 * device computes by kernels, too many rows do so with the rank's next call,
 * and the text is an operation's: more bytes than it has room for.
 *
 * Returns     OK | ERR_INVALID (nothing was queued; also: all batches are in
 *             use) | as weft_op_post.
 * Threads     one caller per comm at a time.  Blocks: only if stream is NULL.
 * Allocates   some bytes, given back when it has run.
 */
WEFT_NODISCARD weft_status weft_moe_dispatch(weft_moe *moe, const void *x,
                                             const int32_t *expert,
                                             const float *weight, size_t tokens,
                                             weft_stream *stream,
                                             weft_moe_batch *batch_out);

/*
 * weft_moe_combine - what experts made of a batch's rows, summed by token.
 *
 * y          device, shaped as batch's rows; read-only, borrowed until done.
 * out        device, [tokens][hidden] of dtype: the weighted sum; 0 where a
 *            token has no expert.
 * stream     as of dispatch; another stream than the last call's waits for it.
 *
 * Returns, Threads, Blocks, Allocates: weft_moe_dispatch.
 */
WEFT_NODISCARD weft_status weft_moe_combine(weft_moe *moe,
                                            const weft_moe_batch *batch,
                                            const void *y, void *out,
                                            weft_stream *stream);

/*
 * weft_moe_dispatch_gradient - of x, from that of a batch's rows: the sum over
 * a token's experts without weights.
 *
 * drows, dx  as y and out of combine.
 *
 * Returns, Threads, Blocks, Allocates: weft_moe_dispatch.
 */
WEFT_NODISCARD weft_status
weft_moe_dispatch_gradient(weft_moe *moe, const weft_moe_batch *batch,
                           const void *drows, void *dx, weft_stream *stream);

/*
 * weft_moe_combine_gradient - of y, and of weights, from that of out.
 *
 * dout       device, [tokens][hidden] of dtype; read-only, borrowed until done.
 *            It goes to experts in dtype.
 * y          as of combine; not used where dweight is NULL.
 * dy         device, shaped as y: weight * the token's dout. May be y.
 * dweight    device, [tokens][slots]: the product of what the slot's expert
 *            made and dout; 0 where there is none. NULL on all ranks: not
 *            wanted.
 *
 * Returns, Threads, Blocks, Allocates: weft_moe_dispatch.
 */
WEFT_NODISCARD weft_status weft_moe_combine_gradient(
    weft_moe *moe, const weft_moe_batch *batch, const void *dout, const void *y,
    void *dy, float *dweight, weft_stream *stream);

/*
 * weft_moe_batch_fini - the batch may be given to another dispatch, which comes
 * behind the calls made so far. What else uses its rows has been queued before
 * that dispatch on its stream, or has run. NULL, or one that no dispatch has
 * written, is legal.
 *
 * Threads     one caller per comm at a time.  Blocks: no.
 */
void weft_moe_batch_fini(weft_moe *moe, weft_moe_batch *batch);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
