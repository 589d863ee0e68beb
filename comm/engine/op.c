/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/op.c - what one operation is: its texts, its buffers, its gates.
 */
#include "comm/engine/op.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/control/fault.h"
#include "comm/engine/extent.h"
#include "comm/pattern/shape.h"

#include <stdio.h>
#include <string.h>

size_t wefti_op_recv_elems(const wefti_op *op)
{
    return op->recv_elems;
}

static size_t index_of_queue(const weft_comm *comm, const wefti_op *op)
{
    const int queue = op->op_slot - WEFTI_OP_SLOT_P2P;
    return 2 * (size_t)comm->nranks * (size_t)queue +
           (size_t)(op - comm->queues[queue].ops);
}

size_t wefti_op_index(const weft_comm *comm, const wefti_op *op)
{
    return wefti_op_slot_is_p2p(op->op_slot)
               ? WEFTI_OP_SLOTS + index_of_queue(comm, op)
               : (size_t)(op - comm->ops);
}

const wefti_op *wefti_op_at(const weft_comm *comm, size_t index)
{
    const size_t queues = 2 * (size_t)comm->nranks;
    if (index < WEFTI_OP_SLOTS) {
        return &comm->ops[index];
    }
    index -= WEFTI_OP_SLOTS;
    return &comm->queues[index / queues].ops[index % queues];
}

size_t wefti_op_count(const weft_comm *comm)
{
    return WEFTI_OP_SLOTS + WEFT_P2P_QUEUES * 2 * (size_t)comm->nranks;
}

const char *wefti_op_queue_text(const wefti_op *op, char *text_out,
                                size_t text_bytes)
{
    text_out[0] = '\0';
    if (op->op_slot > WEFTI_OP_SLOT_P2P) {
        snprintf(text_out, text_bytes, " in queue %d",
                 op->op_slot - WEFTI_OP_SLOT_P2P);
    }
    return text_out;
}

void wefti_op_text(const weft_comm *comm, const wefti_op *op, char *text_out,
                   size_t text_bytes)
{
    const char *name = weft_collective_text(op->desc.collective);
    if (wefti_op_slot_is_p2p(op->op_slot)) {
        char queue[24];
        snprintf(text_out, text_bytes, "%s #%llu %s rank %d%s on \"%s\"", name,
                 (unsigned long long)op->number,
                 op->desc.collective == WEFT_COLLECTIVE_SEND ? "to" : "from",
                 op->desc.root, wefti_op_queue_text(op, queue, sizeof(queue)),
                 comm->name);
    } else {
        snprintf(text_out, text_bytes, "%s #%llu on \"%s\"",
                 wefti_signature_name(op->signature.kind),
                 (unsigned long long)op->number, comm->name);
    }
}

static size_t send_part(const wefti_op *op, int rank)
{
    return op->role.shape->send_parts && op->desc.send_counts
               ? op->desc.send_counts[rank]
               : op->send_elems;
}

size_t wefti_op_send_chunk(const wefti_op *op, int rank)
{
    return op->role.shape->send_parts ? (size_t)rank : 0;
}

size_t wefti_op_recv_chunk(const wefti_op *op, int rank)
{
    return op->role.shape->recv_parts ? (size_t)rank : 0;
}

size_t wefti_op_recv_part(const wefti_op *op, int rank)
{
    return op->role.shape->recv_parts && op->desc.recv_counts
               ? op->desc.recv_counts[rank]
               : op->recv_elems;
}

/* Also of nothing there is one. */
static size_t gate_chunks(const wefti_op *op, size_t elems, bool parts)
{
    if (op->gate_per_rank) {
        return parts ? (size_t)op->problem.nranks : 1;
    }
    return elems <= op->gate_elems ? 1 : (elems - 1) / op->gate_elems + 1;
}

size_t wefti_op_send_chunks(const wefti_op *op)
{
    return gate_chunks(op, op->send_elems, op->role.shape->send_parts);
}

size_t wefti_op_recv_chunks(const wefti_op *op)
{
    return gate_chunks(op, op->recv_elems, op->role.shape->recv_parts);
}

bool wefti_op_find_shut(const wefti_op *op, size_t *chunk_out)
{
    if (!op->desc.ready || !op->role.sends) {
        return false;
    }
    size_t chunks = wefti_op_send_chunks(op);
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        const bool empty = op->gate_per_rank && !send_part(op, (int)chunk);
        if (!empty &&
            !wefti_gate_reached(op->desc.ready, op->desc.ready_chunk + chunk,
                                op->epoch)) {
            *chunk_out = chunk;
            return true;
        }
    }
    return false;
}

bool wefti_op_find_unwritable(const wefti_op *op, size_t *chunk_out)
{
    if (!op->desc.writable || !op->role.receives || !op->desc.recv) {
        return false;
    }
    const size_t chunks = wefti_op_recv_chunks(op);
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        const bool empty =
            op->gate_per_rank && !wefti_op_recv_part(op, (int)chunk);
        if (!empty &&
            !wefti_gate_reached(op->desc.writable,
                                op->desc.writable_chunk + chunk, op->epoch)) {
            *chunk_out = chunk;
            return true;
        }
    }
    return false;
}

bool wefti_op_all_ready(const wefti_op *op)
{
    size_t chunk;
    return !wefti_op_find_shut(op, &chunk);
}

void wefti_op_raise_arrived(const wefti_op *op, size_t chunk)
{
    weft_status status = weft_gate_signal(
        op->desc.arrived, op->desc.arrived_chunk + chunk, op->epoch, NULL);
    WEFTI_ASSERT(status == WEFT_OK);
    (void)status;
}

void wefti_op_all_arrived(wefti_op *op)
{
    if (!op->desc.arrived) {
        return;
    }
    size_t chunks = wefti_op_recv_chunks(op);
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        wefti_op_raise_arrived(op, chunk);
    }
}

void wefti_op_piece_open(wefti_op *op)
{
    if (!op->piece.open) {
        op->piece.open = true;
        op->piece.posted_ns = wefti_clock_ns();
        op->piece.ready_ns = op->piece.posted_ns;
    }
}

void wefti_op_piece_close(weft_comm *comm, wefti_op *op, int64_t end_ns)
{
    wefti_op_piece piece = op->piece;
    op->piece.open = false;
    op->piece.bytes = 0;
    if (!piece.open || !comm->observer.moved) {
        return;
    }
    if (piece.ready_ns > end_ns) {
        piece.ready_ns = end_ns;
    }
    wefti_transfer transfer = {
        op->desc.collective, op->desc.class_id, op->desc.label, op->number,
        piece.bytes,         piece.posted_ns,   piece.ready_ns, end_ns};
    comm->observer.moved(comm->observer.context, &transfer);
}

void wefti_op_fail(weft_comm *comm, const wefti_op *op, weft_status status,
                   const char *what)
{
    char text[160];
    wefti_op_text(comm, op, text, sizeof(text));
    wefti_fault_publish(comm, status, comm->rank, op->number, "%s: %s", text,
                        what);
}

bool wefti_op_find_failed(weft_comm *comm, const wefti_op *op,
                          const weft_gate *gate)
{
    const char *text;
    weft_status status = gate ? wefti_gate_get_failure(gate, &text) : WEFT_OK;
    if (status != WEFT_OK) {
        char what[300];
        snprintf(what, sizeof(what), "the work it waits for has failed: %s",
                 text);
        wefti_op_fail(comm, op, status, what);
    }
    return status != WEFT_OK;
}

int64_t wefti_op_limit(const weft_comm *comm, const wefti_op *op)
{
    const uint64_t ms = op->desc.timeout_ms;
    return ms == 0                     ? comm->timeout_ns
           : ms >= INT64_MAX / 1000000 ? INT64_MAX
                                       : (int64_t)ms * 1000000;
}
