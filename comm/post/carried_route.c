/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/carried_route.c - which operations streams carry out, and how they
 * are queued.
 */
#include "comm/post/carried_route.h"

#include "base/error.h"
#include "comm/control/fault.h"
#include "comm/engine/op.h"

#include <stdio.h>

const wefti_carrier *wefti_carrier_of(int route)
{
    return route == WEFTI_ROUTE_NCCL      ? &wefti_carrier_nccl
           : route == WEFTI_ROUTE_STREAMS ? &wefti_carrier_streams
                                          : NULL;
}

/* ---- the choice -----------------------------------------------------------
 */

static const char *find_obstacle(const weft_comm *comm, const weft_op *op,
                                 const wefti_shape *shape)
{
    return comm->tuning.allowed[op->collective]
               ? "WEFT_ALGO asks for an algorithm of weft's own"
           : !shape->varied && op->count == 0
               ? "nothing to move: ranks only meet"
           : !shape->varied && op->gate_elems
               ? "gate chunks leave one by one, and the route moves all at once"
           : op->deferred_counts
               ? "its counts are deferred, and the route wants them at the post"
               : wefti_carrier_of(comm->tuning.route)
                     ->find_obstacle(comm, op, shape);
}

/* Whether comm has the route that was asked for. */
static bool is_there(const weft_comm *comm)
{
    const wefti_carrier *carrier = wefti_carrier_of(comm->tuning.route);
    return carrier && carrier->is_there(comm);
}

static bool has_elements(const size_t *counts, size_t count, int nranks)
{
    bool some = !counts && count > 0;
    for (int rank = 0; counts && !some && rank < nranks; rank++) {
        some = counts[rank] > 0;
    }
    return some;
}

/* Whether what this rank uses is the device's; a rank that uses nothing goes
 * with the others. */
static bool is_on_device(const weft_comm *comm, const wefti_prepared *prepared)
{
    const weft_op *op = &prepared->desc;
    const wefti_role *role = &prepared->role;
    const bool sends =
        role->sends && has_elements(op->send_counts, op->count, comm->nranks);
    const bool receives =
        role->receives && op->recv &&
        has_elements(op->recv_counts, op->count, comm->nranks);
    return (!sends || prepared->places.send) &&
           (!receives || prepared->places.recv);
}

/* The stream waits at these gates, so they have to be the device's own. */
static weft_status check_own_gate(const weft_comm *comm, const char *name,
                                  const weft_gate *gate)
{
    if (!gate ||
        wefti_device_is_same(wefti_gate_get_device(gate), comm->device)) {
        return WEFT_OK;
    }
    return wefti_error(
        WEFT_ERR_UNSUPPORTED,
        "%s is a gate of the %s device: allowed on \"%s\", by %s, is one of "
        "its own device, or WEFT_ROUTE=steps",
        name, wefti_device_get_table(wefti_gate_get_device(gate))->kind,
        comm->name, wefti_carrier_of(comm->tuning.route)->by);
}

static weft_status check_gates(const weft_comm *comm, const weft_op *op)
{
    if (op->gate_elems && wefti_op_is_gated(op)) {
        const wefti_carrier *carrier = wefti_carrier_of(comm->tuning.route);
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "gate_elems WEFT_GATE_PER_RANK in %s on \"%s\": "
                           "%s %s; allowed is 0, or WEFT_ROUTE=steps",
                           weft_collective_text(op->collective), comm->name,
                           carrier->by, carrier->whole);
    }
    weft_status status = check_own_gate(comm, "ready", op->ready);
    return status == WEFT_OK ? check_own_gate(comm, "writable", op->writable)
                             : status;
}

weft_status wefti_route_choose(const weft_comm *comm, wefti_prepared *prepared)
{
    const weft_op *op = &prepared->desc;
    if (!is_there(comm) || find_obstacle(comm, op, prepared->role.shape) ||
        !is_on_device(comm, prepared)) {
        return WEFT_OK;
    }
    prepared->choice =
        (wefti_choice){.chunk_elems = 1,
                       .digest = wefti_carrier_of(comm->tuning.route)->digest,
                       .route = comm->tuning.route};
    return check_gates(comm, op);
}

weft_status wefti_route_choose_messages(const weft_comm *comm,
                                        wefti_p2p_message *messages,
                                        size_t count, size_t *carried_out)
{
    const wefti_carrier *carrier = wefti_carrier_of(comm->tuning.route);
    weft_status status = WEFT_OK;
    *carried_out = 0;
    for (size_t i = 0; is_there(comm) && carrier->carry_list && i < count &&
                       status == WEFT_OK;
         i++) {
        wefti_p2p_message *message = &messages[i];
        const weft_op *op = &message->desc;
        const bool sends = op->collective == WEFT_COLLECTIVE_SEND;
        message->carried = 0;
        /* Other queues wait for nothing, and the route has one order. */
        if (message->queue == 0 &&
            !find_obstacle(comm, op, wefti_shape_get(op->collective)) &&
            (sends ? message->places.send : message->places.recv)) {
            message->carried = carrier->digest;
            message->behind = carrier->count_handed(comm);
            ++*carried_out;
            status = check_gates(comm, op);
        }
    }
    return status;
}

const char *wefti_route_why(const weft_comm *comm, const weft_op *op)
{
    const wefti_carrier *carrier = wefti_carrier_of(comm->tuning.route);
    if (!carrier) {
        return NULL;
    }
    if (!is_there(comm)) {
        return comm->route_why;
    }
    const char *obstacle =
        find_obstacle(comm, op, wefti_shape_get(op->collective));
    return obstacle ? obstacle : carrier->taken;
}

bool wefti_route_takes(const weft_comm *comm, const weft_op *op)
{
    return is_there(comm) &&
           !find_obstacle(comm, op, wefti_shape_get(op->collective)) &&
           (!op->send || wefti_device_owns(comm->device, op->send)) &&
           (!op->recv || wefti_device_owns(comm->device, op->recv));
}

/* ---- posting --------------------------------------------------------------
 */

/* What other streams make, or still use, comes first. */
static weft_status await_gates(const weft_op *op, bool sends, bool receives,
                               uint64_t epoch, weft_stream *stream)
{
    weft_status status = WEFT_OK;
    if (op->ready && sends) {
        status = weft_gate_wait(op->ready, op->ready_chunk, epoch, stream);
    }
    if (status == WEFT_OK && op->writable && receives && op->recv) {
        status =
            weft_gate_wait(op->writable, op->writable_chunk, epoch, stream);
    }
    return status;
}

/* Peers count on it. A rank that found the cause before, and whose calls now
 * fail of it, has that one to tell. */
static weft_status fail(weft_comm *comm, weft_collective collective,
                        const char *by, weft_status status)
{
    char text[256];
    snprintf(text, sizeof(text),
             "%s on \"%s\": rank %d could not hand it to %s: %s",
             weft_collective_text(collective), comm->name, comm->rank, by,
             weft_error_text());
    wefti_fault_publish(comm, status, comm->rank, 0, "%s", text);
    const weft_status first = wefti_fault_recall(comm);
    return first == WEFT_OK ? wefti_error(status, "%s", text) : first;
}

weft_status wefti_carried_queue(void *handed, weft_stream *stream)
{
    const wefti_carried *own = handed;
    const wefti_carrier *carrier =
        wefti_carrier_of(own->prepared->choice.route);
    const wefti_prepared *prepared = own->prepared;
    weft_status status =
        await_gates(&prepared->desc, prepared->role.sends,
                    prepared->role.receives, own->epoch, stream);
    if (status == WEFT_OK) {
        status = carrier->carry(own, stream);
    }
    return status == WEFT_OK ? WEFT_OK
                             : fail(own->comm, prepared->desc.collective,
                                    carrier->by, status);
}

weft_status wefti_carried_queue_list(void *handed, weft_stream *stream)
{
    const wefti_carried_list *own = handed;
    const wefti_carrier *carrier = wefti_carrier_of(own->comm->tuning.route);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < own->count && status == WEFT_OK; i++) {
        const wefti_p2p_message *message = &own->messages[i];
        status =
            await_gates(&message->desc, true, true, message->epoch, stream);
    }
    if (status == WEFT_OK) {
        status = carrier->carry_list(own, stream);
    }
    return status == WEFT_OK ? WEFT_OK
                             : fail(own->comm, own->messages[0].desc.collective,
                                    carrier->by, status);
}

/* ---- capture --------------------------------------------------------------
 */

static weft_status refuse_capture(const wefti_carried *handed, const char *why)
{
    return wefti_error(
        WEFT_ERR_UNSUPPORTED,
        "%s on \"%s\": the stream is being captured into a graph, and %s",
        weft_collective_text(handed->prepared->desc.collective),
        handed->comm->name, why);
}

/* Why it is carried out by weft's own steps. */
static const char *find_why_not(const weft_comm *comm,
                                const wefti_prepared *prepared)
{
    const char *obstacle =
        !wefti_carrier_of(comm->tuning.route) ? "rank 0 has another WEFT_ROUTE"
        : !is_there(comm)
            ? comm->route_why
            : find_obstacle(comm, &prepared->desc, prepared->role.shape);
    return obstacle ? obstacle
                    : "its buffers are not all in the device's memory";
}

weft_status wefti_capture_check(const wefti_carried *handed)
{
    weft_comm *comm = handed->comm;
    const weft_op *op = &handed->prepared->desc;
    const wefti_carrier *carrier =
        wefti_carrier_of(handed->prepared->choice.route);
    if (op->ready || op->writable || op->arrived) {
        return refuse_capture(handed, "gates are good for one time");
    }
    if (!carrier) {
        char text[320];
        snprintf(text, sizeof(text),
                 "only what WEFT_ROUTE=streams carries out can be: %s",
                 find_why_not(comm, handed->prepared));
        return refuse_capture(handed, text);
    }
    return carrier->capture
               ? WEFT_OK
               : refuse_capture(handed,
                                "NCCL's calls are not captured by weft: "
                                "allowed is WEFT_ROUTE=streams");
}

weft_status wefti_capture_queue(const wefti_carried *handed,
                                weft_stream *stream)
{
    const wefti_carrier *carrier =
        wefti_carrier_of(handed->prepared->choice.route);
    weft_status status = carrier->capture(handed, stream);
    return status == WEFT_OK
               ? WEFT_OK
               : fail(handed->comm, handed->prepared->desc.collective,
                      "the graph", status);
}
