/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_case.c - one row of the table for each operation.
 */
#include "perf/perf_case.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

const wefti_perf_op wefti_perf_ops[] = {
    {"all_reduce", WEFTI_PERF_ALLREDUCE, WEFT_COLLECTIVE_ALLREDUCE, true, false,
     "every rank gets the reduction of all buffers"},
    {"all_gather", WEFTI_PERF_ALLGATHER, WEFT_COLLECTIVE_ALLGATHER, false,
     false, "every rank gets every rank's buffer"},
    {"reduce_scatter", WEFTI_PERF_REDUCESCATTER, WEFT_COLLECTIVE_REDUCESCATTER,
     true, false, "every rank gets its share of the reduction"},
    {"broadcast", WEFTI_PERF_BROADCAST, WEFT_COLLECTIVE_BROADCAST, false, true,
     "every rank gets the root's buffer"},
    {"reduce", WEFTI_PERF_REDUCE, WEFT_COLLECTIVE_REDUCE, true, true,
     "the root gets the reduction of all buffers"},
    {"sendrecv", WEFTI_PERF_SENDRECV, WEFT_COLLECTIVE_SEND, false, false,
     "every rank sends to the next and receives from the one before"},
    {"barrier", WEFTI_PERF_BARRIER, WEFT_COLLECTIVE_BARRIER, false, false,
     "nobody leaves before everybody has entered"},
    {0}};

const wefti_perf_op *wefti_perf_op_get(const char *name)
{
    for (const wefti_perf_op *op = wefti_perf_ops; op->name; op++) {
        if (strcmp(op->name, name) == 0) {
            return op;
        }
    }
    return NULL;
}

void wefti_perf_op_list(char *text_out, size_t text_bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (const wefti_perf_op *op = wefti_perf_ops; op->name; op++) {
        int added = snprintf(text_out + used, text_bytes - used, "%s%s",
                             used ? " " : "", op->name);
        used += (size_t)added;
        WEFTI_ASSERT(used < text_bytes);
    }
}

double wefti_perf_op_bus_factor(const wefti_perf_op *op, int nranks)
{
    double others = (double)(nranks - 1) / nranks;
    switch (op->kind) {
    case WEFTI_PERF_ALLREDUCE:
        return 2.0 * others;
    case WEFTI_PERF_ALLGATHER:
    case WEFTI_PERF_REDUCESCATTER:
        return others;
    default:
        return 1.0;
    }
}

/* Whether one of the buffers has a part for each rank. */
static bool has_parts(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_ALLGATHER ||
           op->kind == WEFTI_PERF_REDUCESCATTER;
}

void wefti_perf_case_size(wefti_perf_case *subject, size_t bytes)
{
    size_t elem_bytes = weft_dtype_bytes(subject->dtype);
    size_t parts = has_parts(subject->op) ? (size_t)subject->nranks : 1;
    size_t count = bytes / (elem_bytes * parts);
    if (count == 0 && bytes > 0) {
        count = 1;
    }
    if (subject->op->kind == WEFTI_PERF_BARRIER) {
        count = 0;
    }
    bool scatter = subject->op->kind == WEFTI_PERF_REDUCESCATTER;
    subject->count = count;
    subject->bytes = count * parts * elem_bytes;
    subject->send_elems = scatter ? count * parts : count;
    subject->recv_elems = scatter ? count : count * parts;
}

size_t wefti_perf_case_room(const wefti_perf_case *subject)
{
    return subject->bytes > 0 ? subject->bytes : 1;
}

wefti_perf_buffers wefti_perf_case_place(const wefti_perf_case *subject,
                                         wefti_perf_buffers rooms)
{
    if (!subject->inplace) {
        return rooms;
    }
    size_t own = subject->count * (size_t)subject->rank *
                 weft_dtype_bytes(subject->dtype);
    switch (subject->op->kind) {
    case WEFTI_PERF_ALLGATHER:
        return (wefti_perf_buffers){rooms.recv + own, rooms.recv};
    case WEFTI_PERF_REDUCESCATTER:
        return (wefti_perf_buffers){rooms.send, rooms.send + own};
    case WEFTI_PERF_BROADCAST:
    case WEFTI_PERF_REDUCE:
        if (subject->rank != subject->root) {
            return rooms;
        }
        return (wefti_perf_buffers){rooms.recv, rooms.recv};
    case WEFTI_PERF_ALLREDUCE:
        return (wefti_perf_buffers){rooms.recv, rooms.recv};
    default:
        return rooms;
    }
}

bool wefti_perf_case_sends(const wefti_perf_case *subject)
{
    return subject->op->kind != WEFTI_PERF_BROADCAST ||
           subject->rank == subject->root;
}

bool wefti_perf_case_receives(const wefti_perf_case *subject)
{
    return subject->op->kind != WEFTI_PERF_REDUCE ||
           subject->rank == subject->root;
}

int wefti_perf_case_before(const wefti_perf_case *subject)
{
    return (subject->rank + subject->nranks - 1) % subject->nranks;
}

int wefti_perf_case_after(const wefti_perf_case *subject)
{
    return (subject->rank + 1) % subject->nranks;
}

static size_t count_wrong_parts(const wefti_perf_case *subject,
                                const unsigned char *recv, size_t shift,
                                wefti_tile *scratch)
{
    size_t part_bytes = subject->count * weft_dtype_bytes(subject->dtype);
    size_t wrong = 0;
    for (int p = 0; p < subject->nranks; p++) {
        wefti_tile_make(scratch, subject->dtype, WEFT_REDOP_SUM, p,
                        subject->nranks);
        wrong += wefti_tile_count_wrong(scratch, recv + (size_t)p * part_bytes,
                                        0, subject->count, shift);
    }
    return wrong;
}

size_t wefti_perf_case_count_wrong(const wefti_perf_case *subject,
                                   const void *recv, size_t shift,
                                   wefti_tile *scratch)
{
    if (!wefti_perf_case_receives(subject) || subject->count == 0) {
        return 0;
    }
    size_t first = 0;
    switch (subject->op->kind) {
    case WEFTI_PERF_ALLGATHER:
        return count_wrong_parts(subject, recv, shift, scratch);
    case WEFTI_PERF_BROADCAST:
        wefti_tile_make(scratch, subject->dtype, WEFT_REDOP_SUM, subject->root,
                        subject->nranks);
        break;
    case WEFTI_PERF_SENDRECV:
        wefti_tile_make(scratch, subject->dtype, WEFT_REDOP_SUM,
                        wefti_perf_case_before(subject), subject->nranks);
        break;
    case WEFTI_PERF_REDUCESCATTER:
        first = (size_t)subject->rank * subject->count;
        __attribute__((fallthrough));
    default:
        wefti_tile_make_reduced(scratch, subject->dtype, subject->redop,
                                subject->nranks);
    }
    return wefti_tile_count_wrong(scratch, recv, first, subject->recv_elems,
                                  shift);
}
