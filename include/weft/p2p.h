/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/p2p.h - lists of sends and receives that are one operation.
 *
 *   rank 0: {SEND a -> 1, RECV b <- 1}    rank 1: {SEND c -> 0, RECV d <- 0}
 *
 * All parts of a list progress together, so no order of its parts, nor of the
 * parts of the peers' lists, can make it wait for itself. What goes from one
 * rank to one other is matched in the order of posting: the n-th send there
 * with the n-th receive here, whichever lists they stand in.
 *
 * With WEFT_ROUTE=nccl messages of GPU memory in queue 0 go by NCCL, which has
 * one order: both sides post them in the same place among a communicator's
 * collectives, and a send may wait for its receive (docs/gpu.md). Those of
 * other queues go weft's own way.
 */
#ifndef WEFT_P2P_H
#define WEFT_P2P_H

#include "weft/op.h"
#include "weft/types.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Which way a part of a list goes. */
/* What the two ranks of a pair send each other stands in one of so many queues:
 * order is kept within a queue, and no queue waits for another. */
#define WEFT_P2P_QUEUES 3

typedef enum weft_p2p_kind { WEFT_P2P_SEND, WEFT_P2P_RECV } weft_p2p_kind;

/*
 * weft_p2p - one part of a list.
 *
 * size_bytes     sizeof(weft_p2p) of the caller; must be set, the same in all
 *                parts: it is also how far apart they lie. What it lacks, up
 *                from ready, counts as 0; what it has more must be 0.
 * buffer         host memory or that of the communicator's device, any
 *                alignment; borrowed until the list is done. Of a SEND it is
 *                only read; of a RECV it is undefined until then. May be NULL
 *                if count is 0.
 * count, dtype   elements; both sides name the same. 0 is legal, and matched
 *                like any other.
 * peer           the other rank, which may be this one.
 * ready          SEND: chunks may be sent when this gate says so; NULL: all.
 * arrived        RECV: chunks are announced here; NULL: none.
 * writable       RECV: chunks are overwritten only once this gate says so;
 *                NULL: all may be. One that stays shut holds the later messages
 *                of that peer up.
 * gate_elems     elements of the buffer per gate chunk; 0: one chunk. The same
 *                on both sides, also on one without a gate. What is sent to a
 *                peer keeps its order, so a part that is not ready holds the
 *                later ones to that peer up.
 * ready_chunk    the gates' chunks that belong to element 0.
 * arrived_chunk
 * writable_chunk
 * epoch          what the gates wait for and are raised to; 0 only without.
 * class_id       for the ledger; 0 counts as WEFT_CLASS_DP.
 * label          for messages and the ledger; borrowed until done; NULL: none.
 * timeout_ms     as weft_op's, from when it is the oldest of those between the
 *                same two ranks, in the same direction.
 * chunk_order    as weft_op's: the same on both sides.
 * queue          0 to WEFT_P2P_QUEUES - 1, the same on both sides: messages of
 *                one queue are matched in the order of posting, those of two
 *                hold each other up in nothing but the link. weft_send and
 *                weft_recv use queue 0.
 */
typedef struct weft_p2p {
    size_t size_bytes;
    weft_p2p_kind kind;
    void *buffer;
    size_t count;
    weft_dtype dtype;
    int peer;
    weft_gate *ready;
    weft_gate *arrived;
    size_t gate_elems;
    size_t ready_chunk;
    size_t arrived_chunk;
    uint64_t epoch;
    weft_class class_id;
    const char *label;
    uint64_t timeout_ms;
    weft_chunk_order chunk_order;
    weft_gate *writable;
    size_t writable_chunk;
    int queue;
} weft_p2p;

/*
 * weft_p2p_post - queue a list as one operation.
 *
 * list        list_count parts; copied, so it may go after the call.
 * list_count  any number; 0 is legal and does nothing.
 * stream      all parts start when the stream reaches the list, and later work
 *             on it runs when all are done; NULL: done on return.
 *
 * A SEND is done when its bytes have been taken over, which may be before the
 * peer has posted its receive: about a quarter of a MiB per ordered pair.
 *
 * Returns     OK | ERR_INVALID (the text names the part and the argument;
 *             also where a RECV's buffer overlaps another part's; nothing was
 *             queued) | ERR_NO_MEMORY (likewise) | with a NULL stream
 *             ERR_MISMATCH, ERR_PEER, ERR_TIMEOUT, ERR_ABORTED | one of these
 *             if the communicator has already failed.
 * Threads     one caller per comm at a time.
 * Blocks      only if stream is NULL; never for room. By NCCL, also where it
 *             must connect a pair of ranks first, until both have posted.
 * Allocates   about 200 bytes a part, returned when the list is done.
 */
WEFT_NODISCARD weft_status weft_p2p_post(const weft_p2p *list,
                                         size_t list_count, weft_comm *comm,
                                         weft_stream *stream);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
