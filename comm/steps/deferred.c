/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/deferred.c - reading, checking and writing deferred counts.
 *
 * A count is read once, into op->gone, and only after the ready gate's chunk
 * was seen to have been reached, which pairs with the signal behind whatever
 * wrote it.
 */
#include "comm/steps/deferred.h"

#include "comm/engine/op.h"
#include "comm/pattern/parts.h"
#include "comm/steps/step_gates.h"

#include <stdio.h>

/* The part of the send buffer for peer, and its place in op->gone: one for each
 * rank, or one of a buffer that goes out whole. */
static wefti_part part_out(const wefti_op *op, int peer)
{
    return op->role.shape->send_parts ? wefti_part_to(&op->problem, peer)
                                      : (wefti_part){0, op->problem.count};
}

static size_t place_out(const wefti_op *op, int peer)
{
    return op->role.shape->send_parts ? (size_t)peer : 0;
}

static wefti_part part_in(const wefti_op *op, int owner)
{
    return op->role.shape->recv_parts ? wefti_part_from(&op->problem, owner)
                                      : (wefti_part){0, op->problem.count};
}

static size_t place_in(const wefti_op *op, int owner)
{
    return op->role.shape->recv_parts ? (size_t)owner : 0;
}

static void fail(weft_comm *comm, const wefti_op *op, int peer, size_t elems)
{
    char what[160], whose[24] = "";
    if (op->role.shape->send_parts) {
        snprintf(whose, sizeof(whose), " for rank %d", peer);
    }
    snprintf(what, sizeof(what),
             "rank %d has %zu %s%s, more than the capacity of %zu that both "
             "declared",
             comm->rank, elems, weft_dtype_text(op->desc.dtype), whose,
             part_out(op, peer).elems);
    wefti_op_fail(comm, op, WEFT_ERR_MISMATCH, what);
}

static void start_out(weft_comm *comm, wefti_op *op, int peer)
{
    const size_t *elems = &op->desc.deferred_counts[place_out(op, peer)];
    op->gone[place_out(op, peer)] = SIZE_MAX;
    /* Others may not have been written yet. */
    if (part_out(op, peer).elems == 0 && *elems != 0) {
        fail(comm, op, peer, *elems);
    }
}

static void start_in(wefti_op *op, int owner)
{
    op->come[place_in(op, owner)] = 0;
    if (op->desc.arrived_counts && part_in(op, owner).elems == 0) {
        op->desc.arrived_counts[place_in(op, owner)] = 0;
    }
}

void wefti_deferred_start(weft_comm *comm, wefti_op *op)
{
    const wefti_shape *shape = op->role.shape;
    const int out = !op->role.sends ? 0 : shape->send_parts ? comm->nranks : 1;
    const int in = !op->role.receives  ? 0
                   : shape->recv_parts ? comm->nranks
                                       : 1;
    for (int peer = 0; peer < out; peer++) {
        start_out(comm, op, peer);
    }
    for (int owner = 0; owner < in; owner++) {
        start_in(op, owner);
    }
}

/* How far into its part a step begins. */
static size_t offset_of(const wefti_op *op, const wefti_step *step)
{
    return step->src == WEFTI_BUFFER_SEND
               ? step->src_elem - part_out(op, step->owner).begin
               : step->dst_elem - part_in(op, step->owner).begin;
}

/* Whether its length is this rank's own count: of what it sends, and of a sum,
 * to which all ranks have the same. */
static bool goes_by_own(const wefti_step *step)
{
    return step->src == WEFTI_BUFFER_SEND || step->kind == WEFTI_STEP_REDUCE;
}

/* Whether the part that step moves ends before it. */
static bool is_over(const wefti_op *op, const wefti_step *step)
{
    return (goes_by_own(step)
                ? op->gone[place_out(op, step->owner)]
                : op->come[place_in(op, step->owner)]) < offset_of(op, step);
}

/* Whether the count of a step that goes by it is known, or can be read now. */
static bool is_known(weft_comm *comm, const wefti_op *op,
                     const wefti_step *step)
{
    wefti_step reads = *step;
    reads.src = WEFTI_BUFFER_SEND; /* of agents a REDUCE reads no own part */
    return wefti_step_source_ready(comm, op, &reads);
}

/* Reads the count of a step that goes by it, once it is known; false: not yet,
 * or it is more than the capacity, and op has failed. */
static bool read_own(weft_comm *comm, wefti_op *op, const wefti_step *step)
{
    const size_t place = place_out(op, step->owner);
    if (!is_known(comm, op, step)) {
        return false;
    }
    if (op->gone[place] == SIZE_MAX) {
        op->gone[place] = op->desc.deferred_counts[place];
    }
    if (op->gone[place] > part_out(op, step->owner).elems) {
        fail(comm, op, step->owner, op->gone[place]);
        return false;
    }
    return true;
}

bool wefti_deferred_settle(weft_comm *comm, wefti_op *op, wefti_step_list *list,
                           wefti_wait *wait_out)
{
    wefti_step *step = &list->step;
    *wait_out = WEFTI_WAIT_NOTHING;
    if (!goes_by_own(step)) {
        return !is_over(op, step);
    }
    if (!is_over(op, step) && !read_own(comm, op, step)) {
        *wait_out = WEFTI_WAIT_GATE;
        return false;
    }
    if (is_over(op, step)) { /* by a count that another list may have read */
        return false;
    }
    const size_t left =
        op->gone[place_out(op, step->owner)] - offset_of(op, step);
    step->elems = left < step->elems ? left : step->elems;
    if (step->kind == WEFTI_STEP_COPY && step->elems == 0) {
        wefti_step_announce(op, step);
        return false;
    }
    return true;
}

bool wefti_deferred_fits(weft_comm *comm, const wefti_op *op,
                         const wefti_step *step, int peer, size_t sent_bytes,
                         size_t *expected_bytes)
{
    const size_t elems = sent_bytes / op->role.elem_bytes;
    char what[200];
    if (step->kind == WEFTI_STEP_RECV || elems == step->elems) {
        if (sent_bytes < *expected_bytes) {
            *expected_bytes = sent_bytes;
        }
        return true;
    }
    snprintf(what, sizeof(what),
             "deferred counts for rank %d differ: of elements %zu to %zu "
             "rank %d sums up %zu, rank %d has sent %zu",
             step->owner, offset_of(op, step),
             offset_of(op, step) + op->problem.chunk_elems, comm->rank,
             step->elems, peer, elems);
    wefti_op_fail(comm, op, WEFT_ERR_MISMATCH, what);
    return false;
}

bool wefti_deferred_arrived(wefti_op *op, const wefti_step *step)
{
    const size_t capacity = part_in(op, step->owner).elems;
    const size_t offset = step->dst_elem - part_in(op, step->owner).begin;
    const size_t left = capacity - offset;
    const size_t chunk = op->problem.chunk_elems;
    const size_t most = left < chunk ? left : chunk;
    const size_t come = offset + step->elems;
    op->come[place_in(op, step->owner)] = come;
    if (step->elems == most && come < capacity) {
        return false;
    }
    if (op->desc.arrived_counts) {
        op->desc.arrived_counts[place_in(op, step->owner)] = come;
    }
    return true;
}
