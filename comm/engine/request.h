/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/request.h - what has been posted and is not yet done: a
 * collective, a list of messages, a put, a signal or a wait alike.
 *
 *   posted -> taken in (its kind's queue) -> its stream has come to it -> moved
 *   by the engine -> done: its poster, or its stream, goes on
 *
 * Each kind has a struct that begins with its request. One that its caller
 * waits for lies with the caller; one on a stream, or with a handle
 * (weft/request.h), in a block of its own, which its end frees. Posting never
 * waits for room, so there may be any number.
 */
#ifndef COMM_ENGINE_REQUEST_H
#define COMM_ENGINE_REQUEST_H

#include "comm/core/core.h"
#include "weft/request.h"

/* What texts name a request by. */
typedef struct wefti_title {
    uint64_t kind; /* as in its signature */
    uint64_t number;
} wefti_title;

/*
 * Of one request:
 *
 * submit    put it into its queue.
 * push      move what can move now, while its caller has the processor.
 * refuse    comm has failed and it will not be submitted: a thread that waits
 *           for its chunks must not wait for ever. NULL: none can.
 * describe  what waits while its stream has not come to it.
 *
 * Of all of the kind on a communicator:
 *
 * advance   move them once, as far as comm->budget_bytes lasts; whether
 *           anything moved. urgent: only those that compute waits for soon.
 * fail      end them with the communicator's fault.
 * are_done  whether none is pending.
 *
 * The engine's lock is held in all.
 */
typedef struct wefti_request_kind {
    void (*submit)(weft_comm *comm, wefti_request *request);
    void (*push)(weft_comm *comm, wefti_request *request);
    void (*refuse)(weft_comm *comm, const wefti_request *request);
    wefti_title (*describe)(const weft_comm *comm,
                            const wefti_request *request);
    bool (*advance)(weft_comm *comm, bool urgent);
    void (*fail)(weft_comm *comm);
    bool (*are_done)(const weft_comm *comm);
} wefti_request_kind;

struct wefti_request {
    const wefti_request_kind *kind;
    wefti_request *next;  /* posted before it, and not yet taken in */
    wefti_ticket *ticket; /* its place in a stream; NULL: in none */
    weft_request *handle; /* that shows its end; NULL: there is none */
    void *block;          /* what its end frees; NULL: it is its caller's */
    weft_status status;   /* once done */
    bool done;
    bool uncaptured; /* its stream is known to be */
    bool shared;     /* the engine moves a part of what the stream carries out,
                        which waits for the end of both */
};

/*
 * wefti_request_run - post a request that lies with the caller, and wait for
 * its end.
 *
 * Returns     OK | the fault of a failed communicator.
 */
WEFT_NODISCARD weft_status wefti_request_run(weft_comm *comm,
                                             wefti_request *request);

/*
 * wefti_request_queue - post a request on a stream; with NULL for a handle,
 * which is *handle_out then. request->block is from malloc and taken over,
 * whatever the outcome.
 *
 * Returns     as wefti_request_run | ERR_SYSTEM, ERR_NO_MEMORY |
 *             ERR_UNSUPPORTED: stream is being captured; comm goes on.
 */
WEFT_NODISCARD weft_status wefti_request_queue(weft_comm *comm,
                                               wefti_request *request,
                                               weft_stream *stream,
                                               weft_request **handle_out);

/*
 * wefti_request_carry - the same for what stream itself carries out: carry
 * queues it there, once the request is posted. stream NULL: one of own, behind
 * a handle, and with NULL for that until it is done.
 *
 * Returns     as wefti_request_queue | what carry does, which has failed comm
 *             then; there is no handle.
 */
WEFT_NODISCARD weft_status wefti_request_carry(
    weft_comm *comm, wefti_request *request, weft_stream *stream,
    weft_stream *own, weft_request **handle_out,
    weft_status (*carry)(void *context, weft_stream *stream), void *context);

/*
 * wefti_request_post - the same for what is on no stream and nobody waits for.
 *
 * Returns     as wefti_request_queue.
 */
WEFT_NODISCARD weft_status wefti_request_post(weft_comm *comm,
                                              wefti_request *request);

/* Whether there is a place for a handle; there is none in it then.
 * Returns OK | ERR_INVALID. */
WEFT_NODISCARD weft_status wefti_request_check_out(weft_request **request_out);

/*
 * wefti_requests_take_in  - what has been posted goes to the queues of its
 *                           kinds, in the order of posting.
 * wefti_requests_advance  - one turn of all kinds; at most budget_bytes move,
 *                           and one step more. Whether anything moved.
 * wefti_requests_urge     - one more for those that compute waits for soon.
 * wefti_requests_stop     - if a fault is published, end all with it, and let
 *                           the streams go on: now, or where a device still
 *                           copies for them, by wefti_requests_release. Whether
 *                           comm has failed.
 * wefti_requests_release  - comm has failed: ends them as soon as no copy is
 *                           under way for them, or after a second. Whether that
 *                           has happened just now.
 * wefti_requests_are_done - whether none is pending.
 *
 * Lock held.
 */
void wefti_requests_take_in(weft_comm *comm);
bool wefti_requests_advance(weft_comm *comm, int64_t budget_bytes);
bool wefti_requests_urge(weft_comm *comm, int64_t budget_bytes);
bool wefti_requests_stop(weft_comm *comm);
bool wefti_requests_release(weft_comm *comm);
bool wefti_requests_are_done(const weft_comm *comm);

/* Whether it may begin: its stream has come to it. Lock held. */
bool wefti_request_reached(weft_comm *comm, const wefti_request *request);

/* It is done; on a stream, it is gone after. Lock held. */
void wefti_request_end(weft_comm *comm, wefti_request *request,
                       weft_status status);

#endif
