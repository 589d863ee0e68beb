/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/ring.h - blocks of all ranks that come round while they are used: the
 * exchange of keys and values of ring attention, and of their gradients.
 *
 *   READ    own --> r-1's --> r-2's ...   what each rank gave, to be read
 *   CARRY   r-1's --> r-2's ... --> own   sums, added to by all but their owner
 *
 *   weft_ring_post(ring, own, compute);
 *   while (weft_ring_next(ring, compute, &block, &owner) == WEFT_OK && block)
 *       ... queue on compute what reads (CARRY: adds to) owner's block ...
 *
 * While a block is used the next one arrives: a rank holds two of others, of
 * each direction, however many ranks there are. Nothing here waits for compute
 * on the host: next queues waits and signals on the stream.
 *
 * A CARRY ring goes one block behind a READ ring of one way, in the same order
 * of owners but without the first, who keeps what it would add to its own: post
 * both, in different queues, and from the READ ring's second block on call next
 * on both in turn.
 *
 * All ranks make the same calls in the same order.
 *
 * Source: Liu, Zaharia, Abbeel 2023 (ring attention, arXiv 2310.01889).
 */
#ifndef WEFT_RING_H
#define WEFT_RING_H

#include "weft/comm.h"
#include "weft/device.h"
#include "weft/types.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * weft_ring_kind - whether blocks are read as they come, or added to.
 *
 * READ    every rank has all blocks, its own first.
 * CARRY   every rank has all blocks but its own, and adds to them; its own
 *         comes last, into own_block, as the sum of what the others have added.
 *         What the owner would add it adds itself, after the round.
 */
typedef enum weft_ring_kind { WEFT_RING_READ, WEFT_RING_CARRY } weft_ring_kind;

/*
 * weft_ring_way - which way blocks go.
 *
 * ONE    from each rank to the next one: owners r, r-1, r-2, ...
 * BOTH   half of them to the one before: owners r, r-1, r+1, r-2, r+2, ...
 *        Links that carry both directions at once then have half as much to
 *        carry in each. READ only.
 */
typedef enum weft_ring_way { WEFT_RING_ONE, WEFT_RING_BOTH } weft_ring_way;

/* weft_ring - blocks going round the ranks of a communicator. */
typedef struct weft_ring weft_ring;

/*
 * weft_ring_config - what goes round.
 *
 * comm, device   borrowed for the ring's life; device gives memory, gates and
 *                streams, and is the one comm was made with.
 * count, dtype   of a block, the same on all ranks; at least 1.
 * class_id       for the ledger; 0 counts as WEFT_CLASS_CP.
 * label          for messages and the ledger; borrowed; NULL: "ring".
 * queue          of comm's messages (weft_p2p), the ring's own during a round:
 *                rings that take turns share one, others post nothing there
 *                meanwhile.
 */
typedef struct weft_ring_config {
    size_t size_bytes; /* sizeof(weft_ring_config) */
    weft_comm *comm;
    weft_device *device;
    weft_ring_kind kind;
    weft_ring_way way;
    size_t count;
    weft_dtype dtype;
    weft_class class_id;
    const char *label;
    int queue;
} weft_ring_config;

/*
 * weft_ring_create - collective over comm.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY | ERR_SYSTEM | where memory is
 *             shared, also comm's fault.
 * Blocks      until all have called.
 * Allocates   all it ever needs: four blocks at most.
 */
WEFT_NODISCARD weft_status weft_ring_create(const weft_ring_config *config,
                                            weft_ring **ring_out);

/*
 * weft_ring_destroy - waits for what its streams have queued: after a failure,
 * abort the communicator first. No round may be under way. NULL is legal.
 */
void weft_ring_destroy(weft_ring *ring);

/*
 * weft_ring_post - begin a round; the one before has come to its end.
 *
 * own_block   READ: this rank's, when compute comes here; read until the
 *             round's end. CARRY: gets the sum of what all other ranks have
 *             added, by the round's end; of a single rank it stays as it is.
 *             Memory that comm takes.
 * compute     of the ring's device; NULL: the caller, here and now. The same
 *             in all calls of a round.
 *
 * Returns     OK | ERR_INVALID (nothing has begun; also while another ring's
 *             round is under way in the queue) | as weft_p2p_post, and then
 *             the ring is of no more use.
 * Threads     one at a time for all of comm.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_ring_post(weft_ring *ring, void *own_block,
                                          weft_stream *compute);

/*
 * weft_ring_next - what has been queued on compute before has done with the
 * last block; what is queued from here on may use this one.
 *
 * block_out   NULL: the round is over, and own_block may be used again, or has
 *             the sum.
 * owner_out   whose it is, of CARRY never this rank. CARRY: the first one's
 *             contents are undefined: write it; add to the others.
 *
 * Returns     OK | ERR_INVALID (no round is under way) | ERR_NO_MEMORY,
 *             ERR_SYSTEM (as weft_gate_wait) | with a NULL compute the
 *             communicator's fault; else that shows where compute is waited
 *             for, or on comm.
 * Threads     one at a time for a ring.  Blocks: only if compute is NULL.
 */
WEFT_NODISCARD weft_status weft_ring_next(weft_ring *ring, weft_stream *compute,
                                          void **block_out, int *owner_out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
