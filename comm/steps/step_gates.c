/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step_gates.c - from a step's elements to the chunks of the gates.
 * What has been written of each chunk of the receive buffer is counted, as
 * several steps may write it.
 */
#include "comm/steps/step_gates.h"

#include "comm/core/wake.h"
#include "comm/engine/op.h"
#include "comm/steps/deferred.h"

void wefti_step_get_chunks(const wefti_op *op, const wefti_step *step,
                           bool send, size_t *first_out, size_t *last_out)
{
    if (op->gate_per_rank) {
        *first_out = *last_out = send ? wefti_op_send_chunk(op, step->owner)
                                      : wefti_op_recv_chunk(op, step->owner);
        return;
    }
    const size_t begin = send ? step->src_elem : step->dst_elem;
    *first_out = begin / op->gate_elems;
    *last_out = (begin + step->elems - 1) / op->gate_elems;
}

/* The first chunk of step's that gate, which has them from `begin` on, does not
 * let through. */
static bool find_shut(const wefti_op *op, const wefti_step *step, bool send,
                      const weft_gate *gate, size_t begin, size_t *chunk_out)
{
    size_t first, last;
    wefti_step_get_chunks(op, step, send, &first, &last);
    for (size_t chunk = first; chunk <= last; chunk++) {
        if (!wefti_gate_reached(gate, begin + chunk, op->epoch)) {
            *chunk_out = chunk;
            return true;
        }
    }
    return false;
}

bool wefti_step_find_shut(const wefti_op *op, const wefti_step *step,
                          size_t *chunk_out)
{
    return op->desc.ready && step->src == WEFTI_BUFFER_SEND &&
           step->elems > 0 &&
           find_shut(op, step, true, op->desc.ready, op->desc.ready_chunk,
                     chunk_out);
}

bool wefti_step_find_unwritable(const wefti_op *op, const wefti_step *step,
                                size_t *chunk_out)
{
    return op->desc.writable && step->dst == WEFTI_BUFFER_RECV &&
           step->elems > 0 &&
           find_shut(op, step, false, op->desc.writable,
                     op->desc.writable_chunk, chunk_out);
}

bool wefti_step_shows_with(const wefti_op *op, const wefti_step *step,
                           const wefti_step *other)
{
    if (!op->desc.arrived ||
        (!op->gate_per_rank && op->gate_elems == SIZE_MAX)) {
        return true;
    }
    return op->gate_per_rank ? step->owner == other->owner
                             : step->dst_elem / op->gate_elems ==
                                   other->dst_elem / op->gate_elems;
}

static void part_arrived(wefti_op *op, const wefti_step *step)
{
    const size_t chunk = wefti_op_recv_chunk(op, step->owner);
    op->gate_arrived[chunk] += step->elems;
    if (op->gate_arrived[chunk] == wefti_op_recv_part(op, step->owner)) {
        wefti_op_raise_arrived(op, chunk);
    }
}

void wefti_step_announce(wefti_op *op, const wefti_step *step)
{
    if (step->dst != WEFTI_BUFFER_RECV) {
        return;
    }
    if (wefti_op_is_deferred(op)) {
        if (wefti_deferred_arrived(op, step) && op->desc.arrived &&
            op->gate_per_rank) {
            wefti_op_raise_arrived(op, wefti_op_recv_chunk(op, step->owner));
        }
        return;
    }
    if (!op->desc.arrived) {
        return;
    }
    if (op->gate_per_rank) {
        part_arrived(op, step);
        return;
    }
    if (op->gate_elems == SIZE_MAX) {
        return;
    }
    size_t total = wefti_op_recv_elems(op);
    size_t at = step->dst_elem;
    size_t end = at + step->elems;
    while (at < end) {
        size_t chunk = at / op->gate_elems;
        size_t chunk_begin = chunk * op->gate_elems;
        size_t chunk_end = total - chunk_begin < op->gate_elems
                               ? total
                               : chunk_begin + op->gate_elems;
        size_t stop = end < chunk_end ? end : chunk_end;
        op->gate_arrived[chunk] += stop - at;
        if (op->gate_arrived[chunk] == chunk_end - chunk_begin) {
            wefti_op_raise_arrived(op, chunk);
        }
        at = stop;
    }
}

bool wefti_step_source_ready(weft_comm *comm, const wefti_op *op,
                             const wefti_step *step)
{
    size_t chunk;
    bool shut = wefti_step_find_shut(op, step, &chunk);
    if (shut) {
        wefti_engine_look(comm->engine, op->desc.ready);
    }
    return !shut && !wefti_op_find_failed(comm, op, op->desc.ready);
}

bool wefti_step_target_writable(weft_comm *comm, const wefti_op *op,
                                const wefti_step *step)
{
    size_t chunk;
    if (!op->desc.writable || step->dst != WEFTI_BUFFER_RECV) {
        return true;
    }
    bool shut = wefti_step_find_unwritable(op, step, &chunk);
    if (shut) {
        wefti_engine_look(comm->engine, op->desc.writable);
    }
    return !shut && !wefti_op_find_failed(comm, op, op->desc.writable);
}
