/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/bucket.h - one collective per bucket of a flat buffer, each bound to
 * the moment its data are made and to the moment they are used.
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
 */
#ifndef OVERLAP_BUCKET_H
#define OVERLAP_BUCKET_H

#include "weft/weft.h"

#include <stdbool.h>

/*
 * How a round's operations run.
 *
 * OVERLAPPED   posted to the set's stream ahead of time; they start when their
 *              data are ready, behind the caller's back.
 * BLOCKING     done when ready() returns: nothing is hidden.
 * OFF          nothing is sent; what depends on a transfer goes on at once.
 *              The data are then wrong: for timing what compute costs alone.
 */
typedef enum wefti_bucket_mode {
    WEFTI_BUCKET_OVERLAPPED,
    WEFTI_BUCKET_BLOCKING,
    WEFTI_BUCKET_OFF
} wefti_bucket_mode;

typedef struct wefti_bucket_extent {
    size_t start_elems; /* of the bucket in the buffer */
    size_t share_elems; /* of each rank; the bucket is nranks of them */
} wefti_bucket_extent;

typedef struct wefti_bucket_set wefti_bucket_set;

/*
 * comm, device   borrowed for the set's life; device gives gates and stream.
 * collective     REDUCESCATTER (sum) or ALLGATHER, nothing else.
 * buffer         memory the device and the communicator know; borrowed.
 * extents        [count], copied; at least one.
 * backwards      the order in which buckets get ready: last to first.
 * class_id, label   for the ledger and messages; label is borrowed.
 */
typedef struct wefti_bucket_config {
    weft_comm *comm;
    weft_device *device;
    weft_collective collective;
    void *buffer;
    weft_dtype dtype;
    const wefti_bucket_extent *extents;
    size_t count;
    bool backwards;
    weft_class class_id;
    const char *label;
} wefti_bucket_config;

/*
 * wefti_bucket_create - gates and stream for the buckets of one buffer.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_bucket_create(
    const wefti_bucket_config *config, wefti_bucket_set **set_out);

/* Drains its stream: after a failure, abort the communicator first. */
void wefti_bucket_destroy(wefti_bucket_set *set); /* NULL is legal */

/*
 * wefti_bucket_begin - start the next round. All ranks do so with the same
 * mode, and post nothing else to comm before the round's last bucket is ready
 * (overlapped: before it has been waited for).
 *
 * The round before must have been waited for, bucket by bucket.
 *
 * Returns     what weft_op_post returns.  Blocks: no.
 */
WEFT_NODISCARD weft_status wefti_bucket_begin(wefti_bucket_set *set,
                                              wefti_bucket_mode mode);

/*
 * wefti_bucket_ready - this rank's data of a bucket are final. Buckets come in
 * the set's order.
 *
 * Returns     what weft_op_post returns.
 * Blocks      in mode BLOCKING, until the operation is done.
 */
WEFT_NODISCARD weft_status wefti_bucket_ready(wefti_bucket_set *set,
                                              size_t bucket);

/*
 * wefti_bucket_wait - the result of a bucket in the current round is there;
 * true at once before the first round.
 *
 * Returns     OK | the communicator's fault.  Blocks: yes.
 */
WEFT_NODISCARD weft_status wefti_bucket_wait(wefti_bucket_set *set,
                                             size_t bucket);

/*
 * wefti_bucket_test - the same, without waiting.
 *
 * Returns     OK | INPROGRESS | the communicator's fault.  Blocks: no.
 */
WEFT_NODISCARD weft_status wefti_bucket_test(wefti_bucket_set *set,
                                             size_t bucket);

#endif
