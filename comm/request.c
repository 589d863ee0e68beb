/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/request.c - posting, the same for all kinds.
 */
#include "comm/request.h"

#include "comm/control/fault.h"
#include "comm/engine.h"
#include "comm/ticket.h"

#include <stdlib.h>

/* Lock held. */
static weft_status admit(weft_comm *comm, const wefti_request *request)
{
    const wefti_request_kind *kind = request->kind;
    if (comm->failed == WEFT_OK && !wefti_fault_act(comm)) {
        return kind->admit ? kind->admit(comm, request) : WEFT_OK;
    }
    if (kind->refuse) {
        kind->refuse(comm, request);
    }
    return wefti_fault_status(comm);
}

static bool is_done(const void *context)
{
    return ((const wefti_request *)context)->done;
}

weft_status wefti_request_run(weft_comm *comm, wefti_request *request)
{
    pthread_mutex_lock(&comm->engine->lock);
    weft_status status = admit(comm, request);
    if (status != WEFT_OK) {
        pthread_mutex_unlock(&comm->engine->lock);
        return status;
    }
    request->kind->submit(comm, request);
    request->kind->push(comm, request);
    const bool done = request->done;
    wefti_engine_unlock(comm->engine);
    if (!done) {
        wefti_engine_drive(comm->engine, is_done, request);
    }
    return request->status == WEFT_OK ? WEFT_OK : wefti_fault_status(comm);
}

weft_status wefti_request_queue(weft_comm *comm, wefti_request *request,
                                weft_stream *stream)
{
    wefti_ticket *ticket;
    weft_status status = wefti_engine_start(comm->engine);
    if (status == WEFT_OK) {
        status = wefti_ticket_take(comm, stream, &ticket);
    }
    if (status != WEFT_OK) {
        free(request->block);
        return status;
    }
    pthread_mutex_lock(&comm->engine->lock);
    status = admit(comm, request);
    if (status != WEFT_OK) {
        wefti_ticket_return(comm, ticket);
        pthread_mutex_unlock(&comm->engine->lock);
        free(request->block);
        return status;
    }
    request->ticket = ticket;
    const uint64_t turn = ticket->turn;
    request->kind->submit(comm, request);
    pthread_mutex_unlock(&comm->engine->lock);
    return wefti_ticket_queue(comm, ticket, turn, stream);
}

bool wefti_request_reached(weft_comm *comm, const wefti_request *request)
{
    const wefti_ticket *ticket = request->ticket;
    if (!ticket || wefti_ticket_reached(comm, ticket)) {
        return true;
    }
    if (ticket->stream) {
        wefti_wait_record found = {0};
        request->kind->describe(comm, request, &found);
        wefti_waits_note_stream(comm, ticket->stream, &found);
    }
    return false;
}

void wefti_request_end(weft_comm *comm, wefti_request *request,
                       weft_status status)
{
    request->status = status;
    request->done = true;
    if (request->ticket) {
        wefti_ticket_end(comm, request->ticket, status);
        free(request->block);
    }
}
