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

static void fail(weft_comm *comm, const wefti_op *op, int peer, size_t elems)
{
    char what[160];
    snprintf(what, sizeof(what),
             "rank %d has %zu %s for rank %d, more than the capacity of %zu "
             "that both declared",
             comm->rank, elems, weft_dtype_text(op->desc.dtype), peer,
             wefti_part_to(&op->problem, peer).elems);
    wefti_op_fail(comm, op, WEFT_ERR_MISMATCH, what);
}

void wefti_deferred_start(weft_comm *comm, wefti_op *op)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        op->gone[peer] = SIZE_MAX;
        op->come[peer] = 0;
        if (op->desc.arrived_counts &&
            wefti_part_from(&op->problem, peer).elems == 0) {
            op->desc.arrived_counts[peer] = 0;
        }
        if (wefti_part_to(&op->problem, peer).elems == 0 &&
            op->desc.deferred_counts[peer] != 0) {
            fail(comm, op, peer, op->desc.deferred_counts[peer]);
        }
    }
}

/* How far into its part a step that reads the send buffer begins. */
static size_t offset_out(const wefti_op *op, const wefti_step *step)
{
    return step->src_elem - wefti_part_to(&op->problem, step->peer).begin;
}

static size_t offset_in(const wefti_op *op, const wefti_step *step)
{
    return step->dst_elem - wefti_part_from(&op->problem, step->peer).begin;
}

/* Whether the part that step moves ends before it. */
static bool is_over(const wefti_op *op, const wefti_step *step)
{
    return step->src == WEFTI_BUFFER_SEND
               ? op->gone[step->peer] < offset_out(op, step)
               : op->come[step->peer] < offset_in(op, step);
}

/* Shortens a step, whose source is ready, to what its part has; false: the
 * part has more than its capacity, and op has failed. */
static bool cut(weft_comm *comm, wefti_op *op, wefti_step *step)
{
    size_t *gone = &op->gone[step->peer];
    if (*gone == SIZE_MAX) {
        *gone = op->desc.deferred_counts[step->peer];
    }
    if (*gone > wefti_part_to(&op->problem, step->peer).elems) {
        fail(comm, op, step->peer, *gone);
        return false;
    }
    const size_t left = *gone - offset_out(op, step);
    step->elems = left < step->elems ? left : step->elems;
    return true;
}

bool wefti_deferred_settle(weft_comm *comm, wefti_op *op, wefti_step_list *list,
                           wefti_wait *wait_out)
{
    wefti_step *step = &list->step;
    *wait_out = WEFTI_WAIT_NOTHING;
    if (is_over(op, step)) {
        return false;
    }
    if (step->src != WEFTI_BUFFER_SEND) {
        return true;
    }
    if (!wefti_step_source_ready(comm, op, step) || !cut(comm, op, step)) {
        *wait_out = WEFTI_WAIT_GATE;
        return false;
    }
    if (step->kind == WEFTI_STEP_COPY && step->elems == 0) {
        wefti_step_announce(op, step);
        return false;
    }
    return true;
}

bool wefti_deferred_arrived(wefti_op *op, const wefti_step *step)
{
    const size_t capacity = wefti_part_from(&op->problem, step->peer).elems;
    const size_t offset = offset_in(op, step), left = capacity - offset;
    const size_t chunk = op->problem.chunk_elems;
    const size_t most = left < chunk ? left : chunk;
    const size_t come = offset + step->elems;
    op->come[step->peer] = come;
    if (step->elems == most && come < capacity) {
        return false;
    }
    if (op->desc.arrived_counts) {
        op->desc.arrived_counts[step->peer] = come;
    }
    return true;
}
