/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/ticket.c - blocks of tickets, each with its gates.
 */
#include "comm/engine/ticket.h"

#include "base/check.h"
#include "base/error.h"
#include "comm/control/fault.h"
#include "comm/core/wake.h"
#include "comm/engine/engine.h"
#include "comm/engine/request.h"
#include "comm/fabric/signature.h"

#include <stdlib.h>

enum { BLOCK_TICKETS = 64 };

struct wefti_ticket_block {
    wefti_ticket_block *next;
    weft_gate *start, *done, *closed;
    wefti_gate_watcher watchers[2]; /* of start and closed */
    wefti_ticket tickets[BLOCK_TICKETS];
};

static void free_block(wefti_ticket_block *block)
{
    weft_gate *const watched[] = {block->start, block->closed};
    for (int i = 0; i < 2; i++) {
        if (block->watchers[i].watches) {
            wefti_gate_unwatch(watched[i], &block->watchers[i]);
        }
    }
    weft_gate_destroy(block->start);
    weft_gate_destroy(block->done);
    weft_gate_destroy(block->closed);
    free(block);
}

/* Its gates are the device's to make: without the lock. */
static weft_status make_block(const weft_comm *comm,
                              wefti_ticket_block **block_out)
{
    wefti_ticket_block *block = calloc(1, sizeof(*block));
    if (!block) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for more operations on streams");
    }
    weft_device *device = comm->device ? comm->device : comm->engine->host;
    weft_status status = weft_gate_create(device, BLOCK_TICKETS, &block->start);
    if (status == WEFT_OK) {
        status = weft_gate_create(device, BLOCK_TICKETS, &block->done);
    }
    if (status == WEFT_OK) {
        status = weft_gate_create(device, BLOCK_TICKETS, &block->closed);
    }
    if (status != WEFT_OK) {
        free_block(block);
        return status;
    }
    weft_gate *const watched[] = {block->start, block->closed};
    for (int i = 0; i < 2; i++) {
        block->watchers[i].woken = wefti_engine_signalled;
        block->watchers[i].context = comm->engine;
        wefti_gate_watch(watched[i], &block->watchers[i]);
    }
    *block_out = block;
    return WEFT_OK;
}

/* Lock held. */
static void add_block(weft_comm *comm, wefti_ticket_block *block)
{
    for (size_t i = BLOCK_TICKETS; i-- > 0;) {
        block->tickets[i] = (wefti_ticket){.start = block->start,
                                           .done = block->done,
                                           .closed = block->closed,
                                           .chunk = i,
                                           .next = comm->tickets_free};
        comm->tickets_free = &block->tickets[i];
    }
    block->next = comm->ticket_blocks;
    comm->ticket_blocks = block;
}

weft_status wefti_ticket_take(weft_comm *comm, weft_stream *stream,
                              wefti_ticket **ticket_out)
{
    pthread_mutex_lock(&comm->tickets_lock);
    while (!comm->tickets_free) {
        pthread_mutex_unlock(&comm->tickets_lock);
        wefti_ticket_block *block;
        weft_status status = make_block(comm, &block);
        if (status != WEFT_OK) {
            return status;
        }
        pthread_mutex_lock(&comm->tickets_lock);
        add_block(comm, block);
    }
    wefti_ticket *ticket = comm->tickets_free;
    comm->tickets_free = ticket->next;
    pthread_mutex_unlock(&comm->tickets_lock);
    ticket->turn++;
    ticket->stream = stream;
    ticket->unmet = 0;
    *ticket_out = ticket;
    return WEFT_OK;
}

void wefti_ticket_return(weft_comm *comm, wefti_ticket *ticket)
{
    pthread_mutex_lock(&comm->tickets_lock);
    ticket->next = comm->tickets_free;
    comm->tickets_free = ticket;
    pthread_mutex_unlock(&comm->tickets_lock);
}

static weft_status mark(weft_comm *comm, wefti_ticket *ticket,
                        weft_stream *stream, const wefti_mark *marks,
                        size_t count)
{
    weft_status status = wefti_stream_mark(stream, marks, count);
    if (status != WEFT_OK) {
        pthread_mutex_lock(&comm->engine->lock);
        ticket->stream = NULL; /* its owner may destroy it now */
        pthread_mutex_unlock(&comm->engine->lock);
        wefti_fault_publish(comm, status, comm->rank, 0,
                            "rank %d's stream refused an operation on \"%s\"",
                            comm->rank, comm->name);
    }
    return status;
}

weft_status wefti_ticket_queue(weft_comm *comm, wefti_ticket *ticket,
                               uint64_t turn, weft_stream *stream, bool first)
{
    const wefti_mark marks[] = {{ticket->start, ticket->chunk, turn, false},
                                {ticket->done, ticket->chunk, turn, true}};
    weft_status status = mark(comm, ticket, stream, marks, 2);
    /* Its start gate tells the thread when there is something to do. */
    if (first || status != WEFT_OK ||
        !wefti_device_can(wefti_stream_get_device(stream), WEFT_CAP_NOTIFIES)) {
        wefti_engine_posted(comm->engine, first);
    }
    return status;
}

weft_status wefti_ticket_open(weft_comm *comm, wefti_ticket *ticket,
                              uint64_t turn, weft_stream *stream)
{
    const wefti_mark start = {ticket->start, ticket->chunk, turn, false};
    weft_status status = mark(comm, ticket, stream, &start, 1);
    wefti_engine_wake(comm->engine);
    return status;
}

/* If nothing is shared the wait is over when it begins: it is for the error of
 * a failed gate. */
weft_status wefti_ticket_close(weft_comm *comm, wefti_ticket *ticket,
                               uint64_t turn, weft_stream *stream, bool shared)
{
    weft_gate *awaited = shared ? ticket->done : ticket->closed;
    const wefti_mark marks[] = {{ticket->closed, ticket->chunk, turn, false},
                                {awaited, ticket->chunk, turn, true}};
    weft_status status = mark(comm, ticket, stream, marks, 2);
    wefti_engine_wake(comm->engine);
    return status;
}

/* Whether the stream has raised that gate of its ticket; of: whose it is, NULL:
 * not known here. */
static bool has_raised(weft_comm *comm, const wefti_ticket *ticket,
                       const weft_gate *gate, const wefti_request *of)
{
    const bool reached = wefti_gate_reached(gate, ticket->chunk, ticket->turn);
    if (!reached) {
        wefti_engine_look(comm->engine, gate);
        return false;
    }
    /* It fails only with its device, and then counts as reached. */
    const char *text;
    weft_status failure = wefti_gate_get_failure(gate, &text);
    if (failure != WEFT_OK && of) {
        const wefti_title title = of->kind->describe(comm, of);
        wefti_fault_publish(comm, failure, comm->rank, title.number,
                            "%s #%llu on \"%s\": rank %d's stream has failed "
                            "before it: %s",
                            wefti_signature_name(title.kind),
                            (unsigned long long)title.number, comm->name,
                            comm->rank, text);
    } else if (failure != WEFT_OK) {
        wefti_fault_publish(comm, failure, comm->rank, 0,
                            "rank %d's stream on \"%s\" has failed: %s",
                            comm->rank, comm->name, text);
    }
    return failure == WEFT_OK;
}

bool wefti_ticket_reached(weft_comm *comm, const wefti_request *request)
{
    const wefti_ticket *ticket = request->ticket;
    return has_raised(comm, ticket, ticket->start, request);
}

bool wefti_ticket_passed(weft_comm *comm, const wefti_ticket *ticket)
{
    return has_raised(comm, ticket, ticket->closed, NULL);
}

void wefti_ticket_end(weft_comm *comm, wefti_ticket *ticket, weft_status status)
{
    if (status == WEFT_OK) {
        weft_status signalled =
            weft_gate_signal(ticket->done, ticket->chunk, ticket->turn, NULL);
        WEFTI_ASSERT(signalled == WEFT_OK);
        (void)signalled;
    }
    wefti_ticket_return(comm, ticket);
}

/* Blocks only come, until the end, so this one's successors stay. */
static wefti_ticket_block *newest_block(weft_comm *comm)
{
    pthread_mutex_lock(&comm->tickets_lock);
    wefti_ticket_block *newest = comm->ticket_blocks;
    pthread_mutex_unlock(&comm->tickets_lock);
    return newest;
}

void wefti_tickets_fail(weft_comm *comm)
{
    for (wefti_ticket_block *block = newest_block(comm); block;
         block = block->next) {
        wefti_gate_fail(block->done, comm->failed, comm->fault.text);
    }
}

void wefti_tickets_fail_closed(weft_comm *comm)
{
    for (wefti_ticket_block *block = newest_block(comm); block;
         block = block->next) {
        wefti_gate_fail(block->closed, comm->failed, comm->fault.text);
    }
}

bool wefti_tickets_own(weft_comm *comm, const weft_gate *gate)
{
    const wefti_ticket_block *block = newest_block(comm);
    while (block && block->done != gate) {
        block = block->next;
    }
    return block != NULL;
}

void wefti_tickets_init(weft_comm *comm)
{
    pthread_mutex_init(&comm->tickets_lock, NULL);
}

void wefti_tickets_fini(weft_comm *comm)
{
    pthread_mutex_destroy(&comm->tickets_lock);
    while (comm->ticket_blocks) {
        wefti_ticket_block *block = comm->ticket_blocks;
        comm->ticket_blocks = block->next;
        free_block(block);
    }
}
