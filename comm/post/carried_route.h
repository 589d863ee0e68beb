/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/carried_route.h - the routes streams and nccl: a collective, or to
 * NCCL a list of messages, is queued as a whole on the stream that it was
 * posted on, which carries it out.
 *
 *   stream:  ... | raise start | ready gates | the operation | raise end | ...
 *   engine:            enters, compares with peers ...  ends it
 *
 * The engine carries no byte of it (comm/steps/carried.h). It numbers the
 * operation as any other, shows it to the peers, compares what they have
 * entered, watches for time limits and lost ranks, and on a fault ends what the
 * stream waits for, so that none stands still for ever.
 *
 * Which operations take the route follows from what all ranks have in common,
 * and from where their buffers are, which is to be the same on all: a rank that
 * differs is found as any mismatch is.
 */
#ifndef COMM_POST_CARRIED_ROUTE_H
#define COMM_POST_CARRIED_ROUTE_H

#include "comm/post/collective.h"
#include "comm/post/p2p_queue.h"

/* What a post hands to its stream. */
typedef struct wefti_carried {
    weft_comm *comm;
    const wefti_prepared *prepared;
    uint64_t epoch;
} wefti_carried;

/* And of a list those messages that the route carries. */
typedef struct wefti_carried_list {
    weft_comm *comm;
    const wefti_p2p_message *messages;
    size_t count;
} wefti_carried_list;

/*
 * One of the routes.
 *
 * name           of the route, and who carries operations out, in texts
 * digest         WEFTI_CHOICE_*
 * whole          why parts of an operation can not be tied to gates: "<name>
 *                <whole>"
 * taken          the words of weft-info --routes for what takes it
 * is_there       whether comm can take it at all
 * find_obstacle  by what all ranks know of op: why not, else NULL
 * stream         of posts that have none
 * carry          queues the operation; its gates have been waited for.
 *                Returns OK, also where comm has a fault already | ERR_SYSTEM,
 *                ERR_NO_MEMORY
 * capture        the same where the stream is being captured; NULL: it can not
 * count_handed   how many operations it was given to carry, all of which come
 *                before the next; NULL, and no carry_list: it has no messages
 * carry_list     carry of messages
 */
typedef struct wefti_carrier {
    const char *name, *by;
    uint8_t digest;
    const char *whole, *taken;
    bool (*is_there)(const weft_comm *comm);
    const char *(*find_obstacle)(const weft_comm *comm, const weft_op *op,
                                 const wefti_shape *shape);
    weft_stream *(*stream)(const weft_comm *comm);
    weft_status (*carry)(const wefti_carried *handed, weft_stream *stream);
    weft_status (*capture)(const wefti_carried *handed, weft_stream *stream);
    uint32_t (*count_handed)(const weft_comm *comm);
    weft_status (*carry_list)(const wefti_carried_list *list,
                              weft_stream *stream);
} wefti_carrier;

extern const wefti_carrier wefti_carrier_nccl, wefti_carrier_streams;

/* That of a wefti_route_kind; NULL: the engine's own. */
const wefti_carrier *wefti_carrier_of(int route);

/*
 * wefti_route_choose - makes comm's route the choice of what has been prepared,
 * if the operation is for it.
 *
 * Returns     OK | ERR_UNSUPPORTED: it is by what all ranks know, but gates of
 *             this rank's are not.
 */
WEFT_NODISCARD weft_status wefti_route_choose(const weft_comm *comm,
                                              wefti_prepared *prepared);

/*
 * wefti_route_choose_messages - the same of a list: marks the messages that the
 * route carries, by what both of their ranks know and by where their buffers
 * are; *carried_out is how many.
 */
WEFT_NODISCARD weft_status
wefti_route_choose_messages(const weft_comm *comm, wefti_p2p_message *messages,
                            size_t count, size_t *carried_out);

/* Why op takes the route that WEFT_ROUTE asks for, or does not, if its buffers
 * are the device's; NULL: rank 0 asks for none. Lives as long as comm. */
const char *wefti_route_why(const weft_comm *comm, const weft_op *op);

/* Whether op takes it; buffers that are NULL count as the device's. Asks the
 * device: not under a lock. */
bool wefti_route_takes(const weft_comm *comm, const weft_op *op);

/*
 * wefti_capture_check - whether handed can be captured into a graph, with each
 * launch of which all of it is done again.
 *
 * Returns     OK | ERR_UNSUPPORTED: the route does not take it, or it has
 * gates.
 */
WEFT_NODISCARD weft_status wefti_capture_check(const wefti_carried *handed);

/* wefti_capture_queue - queues it on a stream that is being captured. What is
 * refused fails the communicator. Returns as a carrier's carry. */
WEFT_NODISCARD weft_status wefti_capture_queue(const wefti_carried *handed,
                                               weft_stream *stream);

/*
 * wefti_carried_queue - of a request (comm/engine/request.h): queues what
 * handed, a wefti_carried, says. What is refused fails the communicator.
 *
 * Returns     as a carrier's carry.
 */
WEFT_NODISCARD weft_status wefti_carried_queue(void *handed,
                                               weft_stream *stream);

/* The same of a wefti_carried_list. */
WEFT_NODISCARD weft_status wefti_carried_queue_list(void *handed,
                                                    weft_stream *stream);

#endif
