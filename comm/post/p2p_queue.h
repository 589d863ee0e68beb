/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/p2p_queue.h - send and receive: operations between two ranks,
 * matched per ordered pair in the order of posting.
 *
 *   batch (a posted list) --< message --> queue of its pair and direction
 *
 * A message that can go, or has come, when it is posted is never queued. One
 * that waits is small. The first of a queue is carried out by the queue's own
 * wefti_op, so there are two of those per peer and queue, however many messages
 * wait, and a post never waits for room.
 */
#ifndef COMM_POST_P2P_QUEUE_H
#define COMM_POST_P2P_QUEUE_H

#include "comm/engine/request.h"

/* What has been posted together: it starts as one and is done as one. */
typedef struct wefti_batch {
    wefti_request request;
    wefti_p2p_message *messages;
    size_t count, left;
    weft_status status; /* of those that have ended */
} wefti_batch;

struct wefti_p2p_message {
    wefti_p2p_message *next;
    wefti_batch *batch;
    uint64_t epoch;
    weft_op desc;              /* SEND or RECV, checked */
    wefti_signature signature; /* once it is taken in */
    int queue;
    wefti_op_places places;
    uint8_t carried; /* digest of the route that carries it; 0: own steps */
    uint32_t behind; /* so many collectives that the route has before it */
};

static inline bool wefti_op_is_p2p(const weft_op *op)
{
    return op->collective == WEFT_COLLECTIVE_SEND ||
           op->collective == WEFT_COLLECTIVE_RECV;
}

/* After a failure too, fini frees what there is. */
WEFT_NODISCARD weft_status wefti_p2p_queues_init(weft_comm *comm);

/*
 * wefti_p2p_staging_open - before a message to peer is posted that goes in an
 * op slot of queues: where it is staged, if peer is of another domain. So a
 * rank has such memory for those that it sends to.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.  Threads: any.
 */
WEFT_NODISCARD weft_status wefti_p2p_staging_open(weft_comm *comm, int peer,
                                                  int op_slot, int channel);

/*
 * wefti_p2p_queues_open - before a message of that queue is posted.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.  Threads: any.
 */
WEFT_NODISCARD weft_status wefti_p2p_queues_open(weft_comm *comm, int queue);
void wefti_p2p_queues_fini(weft_comm *comm);

/* The kind of a batch; batch and messages stay where they are until it is done.
 */
extern const wefti_request_kind wefti_batch_kind;

#endif
