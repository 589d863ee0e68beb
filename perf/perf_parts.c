/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_parts.c - cutting a send buffer, and what each part puts on the
 * wire.
 */
#include "perf/perf_parts.h"

#include "base/check.h"
#include "perf/perf_call.h"

/* A list of messages goes through each from its start. */
static weft_status find_order(const wefti_perf_case *subject,
                              wefti_perf_buffers buffers, weft_comm *comm,
                              size_t part_elems, size_t *order_out)
{
    size_t count = 0;
    for (size_t i = 0; i < WEFTI_PERF_PARTS; i++) {
        order_out[i] = i;
    }
    if (subject->op->kind == WEFTI_PERF_SENDRECV || subject->count == 0) {
        return WEFT_OK;
    }
    weft_op op = wefti_perf_call_op(subject, buffers);
    op.gate_elems = part_elems;
    return weft_op_ready_order(&op, comm, order_out, WEFTI_PERF_PARTS, &count);
}

/* How many elements of the part other ranks get, where each has its own. */
static size_t elems_for_others(const wefti_perf_case *subject,
                               const wefti_perf_part *part)
{
    const size_t begin = (size_t)subject->rank * subject->count;
    const size_t end = begin + subject->count;
    const size_t part_end = part->first + part->elems;
    const size_t low = part->first > begin ? part->first : begin;
    const size_t high = part_end < end ? part_end : end;
    return part->elems - (high > low ? high - low : 0);
}

static size_t share(size_t whole, size_t elems, size_t of_elems)
{
    return (size_t)((double)whole * (double)elems / (double)of_elems);
}

/* Deals the operation's bytes out: the sums are exact. */
static void deal_wire(const wefti_perf_case *subject, wefti_perf_parts *parts)
{
    const bool keeps = subject->op->kind == WEFTI_PERF_REDUCESCATTER ||
                       subject->op->kind == WEFTI_PERF_ALLTOALL;
    const size_t kept = keeps ? subject->count : 0;
    const size_t sent_elems = subject->send_elems - kept;
    size_t elems = 0, dealt = 0;
    for (size_t i = 0; i < parts->count; i++) {
        wefti_perf_part *part = &parts->list[i];
        elems += keeps ? elems_for_others(subject, part) : part->elems;
        const size_t until =
            sent_elems ? share(parts->wire_bytes, elems, sent_elems) : 0;
        part->wire_bytes = until - dealt;
        dealt = until;
    }
}

weft_status wefti_perf_parts_plan(const wefti_perf_case *subject,
                                  wefti_perf_buffers buffers, weft_comm *comm,
                                  wefti_perf_parts *parts_out)
{
    const size_t elems = subject->send_elems;
    size_t order[WEFTI_PERF_PARTS];
    wefti_perf_parts parts = {
        .part_elems = (elems + WEFTI_PERF_PARTS - 1) / WEFTI_PERF_PARTS,
        .wire_bytes =
            (size_t)((double)subject->bytes *
                     wefti_perf_op_bus_factor(subject->op, subject->nranks))};
    parts.part_elems += parts.part_elems == 0;
    parts.count = (elems + parts.part_elems - 1) / parts.part_elems;
    weft_status status =
        find_order(subject, buffers, comm, parts.part_elems, order);
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; i < parts.count; i++) {
        const size_t first = order[i] * parts.part_elems;
        const size_t left = elems - first;
        WEFTI_ASSERT(first < elems);
        parts.list[i] = (wefti_perf_part){
            .chunk = order[i],
            .first = first,
            .elems = left < parts.part_elems ? left : parts.part_elems};
    }
    deal_wire(subject, &parts);
    *parts_out = parts;
    return WEFT_OK;
}
