/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/nccl_route.h - the route nccl: a collective is handed to NCCL as a
 * whole, on the stream that it was posted on.
 *
 *   stream:  ... | raise start | ready gates | NCCL | raise end | ...
 *   engine:            enters, compares with peers ...  ends it
 *
 * The engine carries no byte of it (comm/steps/nccl_op.h). It numbers the
 * operation as any other, shows it to the peers, compares what they have
 * entered, watches for time limits and lost ranks, and on a fault has NCCL
 * abort, so that no stream stands still for ever.
 *
 * Which operations take the route follows from what all ranks have in common,
 * and from where their buffers are, which is to be the same on all: a rank that
 * differs is found as any mismatch is.
 */
#ifndef COMM_POST_NCCL_ROUTE_H
#define COMM_POST_NCCL_ROUTE_H

#include "comm/post/collective.h"

/*
 * wefti_nccl_choose - makes NCCL the choice of what has been prepared, if comm
 * has a twin and the operation is for it.
 *
 * Returns     OK | ERR_UNSUPPORTED: it is for NCCL by what all ranks know, but
 *             gates of this rank's are not.
 */
WEFT_NODISCARD weft_status wefti_nccl_choose(const weft_comm *comm,
                                             wefti_prepared *prepared);

/* Why op takes NCCL or does not, if its buffers are the device's; NULL: no rank
 * asked for NCCL. Lives as long as comm. */
const char *wefti_nccl_why(const weft_comm *comm, const weft_op *op);

/* Whether op takes NCCL; buffers that are NULL count as the device's. Asks the
 * device: not under a lock. */
bool wefti_nccl_takes(const weft_comm *comm, const weft_op *op);

/* What a post hands to NCCL. */
typedef struct wefti_nccl_handed {
    weft_comm *comm;
    const wefti_prepared *prepared;
    uint64_t epoch;
} wefti_nccl_handed;

/* The stream of posts that have none. */
weft_stream *wefti_nccl_stream(const weft_comm *comm);

/*
 * wefti_nccl_carry - of a request (comm/engine/request.h): queues what handed,
 * a wefti_nccl_handed, says. What NCCL refuses fails the communicator.
 *
 * Returns     OK, also where comm has a fault already | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_nccl_carry(void *handed, weft_stream *stream);

#endif
