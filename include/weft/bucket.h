/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/bucket.h - one collective for each bucket of a flat buffer, each bound
 * to the moment its data are made and to the moment they are used: gradients
 * that are reduced behind the backward pass, parameters that are gathered ahead
 * of the forward pass.
 *
 *   producer                    bucket set                       consumer
 *   ready(b) --> ready gate[b] --> op b on the stream --> arrived gate[b]
 *                                                            --> wait(b)
 *
 * A bucket is nranks equal shares. Reduce-scatter leaves the sum of rank r's
 * share at share r of rank r; all-gather copies every rank's share to all;
 * both work in place; with one rank nothing is sent. One set serves one buffer
 * for its whole life, each round (a step) being the next epoch of its two
 * gates: nothing is allocated after it has been made.
 *
 * Threads     one at a time for a set.
 */
#ifndef WEFT_BUCKET_H
#define WEFT_BUCKET_H

#include "weft/comm.h"
#include "weft/device.h"
#include "weft/op.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * weft_bucket_mode - how a round's operations run.
 *
 * OVERLAPPED   posted to the set's stream ahead of time; they start when their
 *              data are ready, behind the caller's back.
 * BLOCKING     done when ready() returns: nothing is hidden.
 * OFF          nothing is sent; what depends on a transfer goes on at once.
 *              The data are then wrong: for timing what compute costs alone.
 */
typedef enum weft_bucket_mode {
    WEFT_BUCKET_OVERLAPPED,
    WEFT_BUCKET_BLOCKING,
    WEFT_BUCKET_OFF
} weft_bucket_mode;

/* weft_bucket_extent - where a bucket lies in the buffer. */
typedef struct weft_bucket_extent {
    size_t start_elems; /* of the bucket in the buffer */
    size_t share_elems; /* of each rank; the bucket is nranks of them */
} weft_bucket_extent;

/* weft_bucket_set - the buckets of one buffer, with their gates and stream. */
typedef struct weft_bucket_set weft_bucket_set;

/*
 * weft_bucket_config - which buffer, in which buckets.
 *
 * comm, device   borrowed for the set's life; device gives gates and stream.
 * collective     REDUCESCATTER (sum) or ALLGATHER, nothing else.
 * buffer         memory the device and the communicator know; borrowed.
 * extents        [count], copied; at least one.
 * backwards      the order in which buckets get ready: last to first.
 * class_id, label   for the ledger and messages; label is borrowed.
 * compute        of device: the stream that makes the data and uses the
 *                results. Nothing of the set blocks then: ready is a signal in
 *                its order, wait a wait of what is queued there later, and a
 *                round's operations leave the buffer alone until compute has
 *                come to its beginning. NULL: the caller does, and blocks.
 *                Borrowed.
 */
typedef struct weft_bucket_config {
    size_t size_bytes; /* sizeof(weft_bucket_config) */
    weft_comm *comm;
    weft_device *device;
    weft_collective collective;
    weft_dtype dtype;
    void *buffer;
    const weft_bucket_extent *extents;
    size_t count;
    bool backwards;
    weft_class class_id;
    const char *label;
    weft_stream *compute;
} weft_bucket_config;

/*
 * weft_bucket_create - gates and a stream for the buckets of one buffer.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY | ERR_SYSTEM.
 * Blocks      no; not collective.  Allocates: all the set ever needs.
 */
WEFT_NODISCARD weft_status weft_bucket_create(const weft_bucket_config *config,
                                              weft_bucket_set **set_out);

/*
 * weft_bucket_destroy - drains its stream: after a failure, abort the
 * communicator first. A compute stream has drained before. NULL is legal.
 */
void weft_bucket_destroy(weft_bucket_set *set);

/*
 * weft_bucket_begin - start the next round. All ranks do so with the same mode,
 * and post nothing else to comm before the round's last bucket is ready
 * (overlapped: before it has been waited for).
 *
 * The round before must have been waited for, bucket by bucket.
 *
 * Returns     what weft_op_post returns | ERR_INVALID (buckets of the round
 *             before are not ready yet: nothing has begun).  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_bucket_begin(weft_bucket_set *set,
                                             weft_bucket_mode mode);

/*
 * weft_bucket_ready - this rank's data of a bucket are final. Buckets come in
 * the set's order.
 *
 * Returns     what weft_op_post returns | ERR_INVALID (another bucket is next,
 *             or all are ready: nothing has changed).
 * Blocks      in mode BLOCKING, until the operation is done; with a compute
 *             stream that waits, not the caller.
 */
WEFT_NODISCARD weft_status weft_bucket_ready(weft_bucket_set *set,
                                             size_t bucket);

/*
 * weft_bucket_wait - the result of a bucket in the current round is there;
 * true at once before the first round.
 *
 * Returns     OK | ERR_INVALID | the communicator's fault | with a compute
 *             stream as weft_gate_wait.  Blocks: unless there is one.
 */
WEFT_NODISCARD weft_status weft_bucket_wait(weft_bucket_set *set,
                                            size_t bucket);

/*
 * weft_bucket_test - the same, without waiting.
 *
 * Returns     OK | INPROGRESS | ERR_INVALID | the communicator's fault.
 * Blocks      no.
 */
WEFT_NODISCARD weft_status weft_bucket_test(weft_bucket_set *set,
                                            size_t bucket);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
