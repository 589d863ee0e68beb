/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/ticket.h - a place in a stream for what the engine does there.
 *
 *   stream:  ... | raise start | wait for done | ...
 *   engine:        wefti_ticket_reached  ...  wefti_ticket_end
 *
 * or, of what the stream itself carries out (comm/post/carried_route.h),
 *
 *   stream:  ... | raise start | the operation | raise closed | ...
 *   engine:        wefti_ticket_reached ...  wefti_ticket_passed, _end
 *
 * Each request on a stream takes a ticket. Tickets come in blocks that stay
 * until the communicator ends: a stream may still be looking at a gate that has
 * been raised. So they cost as much as were ever out at once.
 */
#ifndef COMM_ENGINE_TICKET_H
#define COMM_ENGINE_TICKET_H

#include "comm/core/core.h"

struct wefti_ticket {
    weft_gate *start, *done, *closed; /* of the block */
    size_t chunk;
    uint64_t turn;       /* epoch of both; counts the uses */
    weft_stream *stream; /* that it is for */
    size_t unmet; /* messages that it carries whose other side is not there, or
                     whose own gate is shut */
    int64_t met_ns; /* since when there are none, on the coarse clock */
    wefti_ticket *next;
};

/*
 * wefti_ticket_take   - a free ticket for stream; without the engine's lock.
 * wefti_ticket_return - one that no stream will come to any more.
 *
 * Returns     OK | ERR_NO_MEMORY | what weft_gate_create says.
 */
WEFT_NODISCARD weft_status wefti_ticket_take(weft_comm *comm,
                                             weft_stream *stream,
                                             wefti_ticket **ticket_out);
void wefti_ticket_return(weft_comm *comm, wefti_ticket *ticket);

/*
 * wefti_ticket_queue - put it into the stream. What the stream refuses fails
 * the communicator, because peers count on it. Without the lock. first: nothing
 * was pending before its request; then the engine's thread is woken, which else
 * wakes when the stream has come there.
 */
WEFT_NODISCARD weft_status wefti_ticket_queue(weft_comm *comm,
                                              wefti_ticket *ticket,
                                              uint64_t turn,
                                              weft_stream *stream, bool first);

/*
 * wefti_ticket_open, _close - the same in two parts, with what the stream
 * carries out between them. It waits for nothing there but, where that is
 * shared, for the engine's part; from a failed communicator it takes the error.
 */
WEFT_NODISCARD weft_status wefti_ticket_open(weft_comm *comm,
                                             wefti_ticket *ticket,
                                             uint64_t turn,
                                             weft_stream *stream);
WEFT_NODISCARD weft_status wefti_ticket_close(weft_comm *comm,
                                              wefti_ticket *ticket,
                                              uint64_t turn,
                                              weft_stream *stream, bool shared);

/* Whether its stream has come to it, and whether to its close. Lock held. */
bool wefti_ticket_reached(weft_comm *comm, const wefti_request *request);
bool wefti_ticket_passed(weft_comm *comm, const wefti_ticket *ticket);

/* Lets the stream go on, unless failed: wefti_tickets_fail does it then. Lock
 * held. */
void wefti_ticket_end(weft_comm *comm, wefti_ticket *ticket,
                      weft_status status);

/* Releases all streams with the communicator's fault. */
void wefti_tickets_fail(weft_comm *comm);

/* What streams themselves still carry out will end with the fault: before it is
 * aborted, and they go on. Lock held. */
void wefti_tickets_fail_closed(weft_comm *comm);

/* Whether gate is one of its tickets'. */
bool wefti_tickets_own(weft_comm *comm, const weft_gate *gate);

void wefti_tickets_init(weft_comm *comm);
void wefti_tickets_fini(weft_comm *comm);

#endif
