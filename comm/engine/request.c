/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/request.c - posting, the same for all kinds.
 */
#include "comm/engine/request.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/control/fault.h"
#include "comm/engine/copies.h"
#include "comm/engine/engine.h"
#include "comm/engine/handle.h"
#include "comm/engine/held_work.h"
#include "comm/engine/ticket.h"
#include "comm/nccl/twin.h"
#include "comm/net/net.h"
#include "comm/streams/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES_MOST_NS = 1000000000 /* a device that takes longer is lost */ };

/* comm has failed: the request ends before it began. Lock held. */
static weft_status refuse(weft_comm *comm, const wefti_request *request)
{
    if (request->kind->refuse) {
        request->kind->refuse(comm, request);
    }
    return wefti_fault_status(comm);
}

/* The newest first (Treiber, "Coping with Parallelism", 1986). */
static void put_in(weft_comm *comm, wefti_request *request)
{
    wefti_request *top =
        atomic_load_explicit(&comm->inbox, memory_order_relaxed);
    do {
        request->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&comm->inbox, &top, request,
                                                    memory_order_release,
                                                    memory_order_relaxed));
}

void wefti_requests_take_in(weft_comm *comm)
{
    if (!atomic_load_explicit(&comm->inbox, memory_order_relaxed)) {
        return;
    }
    wefti_request *newest = atomic_exchange(&comm->inbox, NULL);
    wefti_request *oldest = NULL;
    while (newest) {
        wefti_request *before = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = before;
    }
    while (oldest) {
        wefti_request *request = oldest;
        oldest = oldest->next;
        if (comm->failed == WEFT_OK) {
            request->kind->submit(comm, request);
        } else {
            (void)refuse(comm, request);
            wefti_request_end(comm, request, comm->failed);
        }
    }
}

static bool advance(weft_comm *comm, bool urgent, int64_t budget_bytes)
{
    bool moved = false;
    comm->budget_bytes = budget_bytes;
    for (int i = 0; comm->kinds[i]; i++) {
        moved |= comm->kinds[i]->advance(comm, urgent);
    }
    return moved;
}

bool wefti_requests_advance(weft_comm *comm, int64_t budget_bytes)
{
    return advance(comm, false, budget_bytes);
}

bool wefti_requests_urge(weft_comm *comm, int64_t budget_bytes)
{
    wefti_requests_take_in(comm);
    return advance(comm, true, budget_bytes);
}

static void fail(weft_comm *comm)
{
    for (int i = 0; comm->kinds[i]; i++) {
        comm->kinds[i]->fail(comm);
    }
    /* Last: a thread that waited for a stream may now destroy its gates. */
    wefti_tickets_fail(comm);
}

/* Buffers are their owners' again when the requests have ended: no copy may be
 * under way then. It is looked for, not waited for. */
bool wefti_requests_release(weft_comm *comm)
{
    if (comm->released) {
        return false;
    }
    /* Asked whatever the others say: it lets streams go, again and again. */
    const bool streams_over = wefti_streams_are_over(comm->streams);
    if (comm->held > 0) { /* whoever is at it looks after */
        return false;
    }
    const bool over = streams_over && wefti_copies_are_over(comm) &&
                      wefti_twin_is_over(comm->twin);
    if (!wefti_copies_are_handed(comm) ||
        (!over && wefti_clock_ns() < comm->release_ns)) {
        comm->engine->looks = true;
        return false;
    }
    fail(comm);
    comm->released = true;
    if (comm->streams) {
        wefti_streams_unwatch(comm->streams);
    }
    atomic_fetch_sub(&comm->engine->pending, 1);
    return true;
}

bool wefti_requests_stop(weft_comm *comm)
{
    if (comm->failed != WEFT_OK) {
        return true;
    }
    if (!wefti_fault_learn(comm)) {
        return false;
    }
    wefti_copies_drop(comm);
    if (comm->fabric.net) { /* what was to come, and to go, may not */
        wefti_net_hurry(comm->fabric.net);
    }
    if (comm->twin) {
        wefti_tickets_fail_closed(comm);
        wefti_twin_abort(comm->twin);
    }
    if (comm->streams) {
        wefti_tickets_fail_closed(comm);
        wefti_streams_stop(comm->streams);
    }
    comm->release_ns = wefti_clock_ns() + COPIES_MOST_NS;
    /* Until the release, which is to come even if no request is left. */
    atomic_fetch_add(&comm->engine->pending, 1);
    if (!wefti_requests_release(comm)) {
        wefti_engine_wake(comm->engine);
    }
    return true;
}

bool wefti_requests_are_done(const weft_comm *comm)
{
    bool done = atomic_load(&comm->inbox) == NULL;
    for (int i = 0; done && comm->kinds[i]; i++) {
        done = comm->kinds[i]->are_done(comm);
    }
    return done;
}

static bool is_done(const void *context)
{
    return ((const wefti_request *)context)->done;
}

weft_status wefti_request_run(weft_comm *comm, wefti_request *request)
{
    pthread_mutex_lock(&comm->engine->lock);
    if (wefti_requests_stop(comm)) {
        weft_status status = refuse(comm, request);
        pthread_mutex_unlock(&comm->engine->lock);
        return status;
    }
    wefti_requests_take_in(comm);
    request->kind->submit(comm, request);
    request->kind->push(comm, request);
    const bool done = request->done;
    wefti_engine_unlock(comm->engine);
    if (!done) {
        wefti_engine_drive_idle(comm->engine, &comm->idle, is_done, request);
    }
    return request->status == WEFT_OK ? WEFT_OK : wefti_fault_status(comm);
}

weft_status wefti_request_check_out(weft_request **request_out)
{
    if (!request_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "request_out is NULL: allowed is a place for the "
                           "request");
    }
    *request_out = NULL;
    return WEFT_OK;
}

/* What a request does on a stream it does once, so graphs can not have it. */
static weft_status check_stream(const weft_comm *comm, weft_stream *stream)
{
    bool captured = false;
    weft_status status = wefti_stream_is_captured(stream, &captured);
    return captured && status == WEFT_OK
               ? wefti_error(WEFT_ERR_UNSUPPORTED,
                             "\"%s\": the stream is being captured into a "
                             "graph: allowed are collectives that the route "
                             "streams carries out",
                             comm->name)
               : status;
}

/* What a queued request needs to be posted; its block is freed if not. */
static weft_status equip(weft_comm *comm, wefti_request *request,
                         weft_stream *stream, bool handled)
{
    weft_status status =
        stream && !request->uncaptured ? check_stream(comm, stream) : WEFT_OK;
    if (status == WEFT_OK) {
        status = wefti_engine_start(comm->engine);
    }
    if (status == WEFT_OK && handled) {
        status = wefti_handle_create(comm, &request->handle);
    }
    if (status == WEFT_OK && stream) {
        status = wefti_ticket_take(comm, stream, &request->ticket);
    }
    if (status != WEFT_OK) {
        free(request->handle);
        free(request->block);
    }
    return status;
}

/* What is kept of a request that has been posted: it may have ended. */
typedef struct posted {
    wefti_ticket *ticket; /* NULL: on no stream */
    uint64_t turn;
    bool first; /* nothing was pending before, and its thread may sleep */
    weft_request *handle;
} posted;

/* As far as the inbox, but for its stream. */
static weft_status post(weft_comm *comm, wefti_request *request,
                        weft_stream *stream, bool handled, posted *posted_out)
{
    weft_status status = equip(comm, request, stream, handled);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_engine *engine = comm->engine;
    wefti_ticket *ticket = request->ticket;
    weft_request *handle = request->handle;
    if (wefti_fault_is_published(comm)) {
        pthread_mutex_lock(&engine->lock);
        const bool failed = wefti_requests_stop(comm);
        if (failed) {
            status = refuse(comm, request);
            if (ticket) {
                wefti_ticket_return(comm, ticket);
            }
        }
        pthread_mutex_unlock(&engine->lock);
        if (failed) {
            free(handle);
            free(request->block);
            return status;
        }
    }
    *posted_out =
        (posted){.ticket = ticket,
                 .turn = ticket ? ticket->turn : 0,
                 .first = atomic_fetch_add(&engine->pending, 1) == 0 &&
                          !atomic_load(&engine->driven),
                 .handle = handle};
    put_in(comm, request); /* from here on it may end at any time */
    return WEFT_OK;
}

weft_status wefti_request_queue(weft_comm *comm, wefti_request *request,
                                weft_stream *stream, weft_request **handle_out)
{
    posted made = {0};
    weft_status status = post(comm, request, stream, !stream, &made);
    if (status != WEFT_OK) {
        return status;
    }
    if (made.ticket) {
        return wefti_ticket_queue(comm, made.ticket, made.turn, stream,
                                  made.first);
    }
    *handle_out = made.handle;
    wefti_engine_posted(comm->engine, made.first);
    return WEFT_OK;
}

weft_status wefti_request_post(weft_comm *comm, wefti_request *request)
{
    posted made = {0};
    weft_status status = post(comm, request, NULL, false, &made);
    if (status == WEFT_OK) {
        wefti_engine_wake(comm->engine);
    }
    return status;
}

weft_status wefti_request_carry(
    weft_comm *comm, wefti_request *request, weft_stream *stream,
    weft_stream *own, weft_request **handle_out,
    weft_status (*carry)(void *context, weft_stream *stream), void *context)
{
    posted made = {0};
    const bool shared = request->shared;
    weft_status status =
        post(comm, request, stream ? stream : own, !stream, &made);
    if (status != WEFT_OK) {
        return status;
    }
    stream = stream ? stream : own;
    status = wefti_ticket_open(comm, made.ticket, made.turn, stream);
    if (status == WEFT_OK) {
        status = carry(context, stream);
    }
    char why[256];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    /* Also behind what was refused: there the stream meets the fault. */
    weft_status closed =
        wefti_ticket_close(comm, made.ticket, made.turn, stream, shared);
    status = status == WEFT_OK ? closed : wefti_error(status, "%s", why);
    wefti_engine_wake(comm->engine);
    if (status == WEFT_OK && handle_out) {
        *handle_out = made.handle;
        return WEFT_OK;
    }
    if (status == WEFT_OK && made.handle) {
        status = weft_request_wait(made.handle);
    }
    weft_request_destroy(made.handle);
    return status;
}

bool wefti_request_reached(weft_comm *comm, const wefti_request *request)
{
    const wefti_ticket *ticket = request->ticket;
    if (!ticket || wefti_ticket_reached(comm, request)) {
        return true;
    }
    if (ticket->stream) {
        comm->watch->stands(comm, request);
    }
    return false;
}

void wefti_request_end(weft_comm *comm, wefti_request *request,
                       weft_status status)
{
    request->status = status;
    request->done = true;
    if (comm->engine->worked) {
        wefti_held_work_tell(comm->engine);
    }
    if (request->ticket) {
        wefti_ticket_end(comm, request->ticket, status);
    }
    if (request->handle) {
        wefti_handle_end(comm, request->handle, status);
    }
    if (request->block) {
        atomic_fetch_sub(&comm->engine->pending, 1);
        free(request->block);
    }
}
