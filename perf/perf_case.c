/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_case.c - one row of the table for each operation.
 */
#include "perf/perf_case.h"

#include "base/check.h"

#include <stdint.h>
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
    {"alltoall", WEFTI_PERF_ALLTOALL, WEFT_COLLECTIVE_ALLTOALL, false, false,
     "every rank gets its part of every rank's buffer"},
    {"alltoallv", WEFTI_PERF_ALLTOALLV, WEFT_COLLECTIVE_ALLTOALLV, false, false,
     "the same with uneven parts, none to twice the mean"},
    {"gather", WEFTI_PERF_GATHER, WEFT_COLLECTIVE_GATHER, false, true,
     "the root gets every rank's buffer"},
    {"scatter", WEFTI_PERF_SCATTER, WEFT_COLLECTIVE_SCATTER, false, true,
     "every rank gets its part of the root's buffer"},
    {"sendrecv", WEFTI_PERF_SENDRECV, WEFT_COLLECTIVE_SEND, false, false,
     "every rank sends to the next and receives from the one before"},
    {"barrier", WEFTI_PERF_BARRIER, WEFT_COLLECTIVE_BARRIER, false, false,
     "nobody leaves before everybody has entered"},
    {"gatherv", WEFTI_PERF_GATHERV, WEFT_COLLECTIVE_GATHERV, false, true,
     "gather of uneven parts"},
    {"scatterv", WEFTI_PERF_SCATTERV, WEFT_COLLECTIVE_SCATTERV, false, true,
     "scatter of uneven parts"},
    {"all_gatherv", WEFTI_PERF_ALLGATHERV, WEFT_COLLECTIVE_ALLGATHERV, false,
     false, "all_gather of uneven parts"},
    {"reduce_scatterv", WEFTI_PERF_REDUCESCATTERV,
     WEFT_COLLECTIVE_REDUCESCATTERV, true, false,
     "reduce_scatter with uneven shares"},
    {"sendrecv_list", WEFTI_PERF_SENDRECV_LIST, WEFT_COLLECTIVE_SEND, false,
     false, "alltoall as one list of sends and receives"},
    {"put", WEFTI_PERF_PUT, WEFT_COLLECTIVE_SEND, false, false,
     "every rank puts into the next one's memory, signals, and waits"},
    {"put_round", WEFTI_PERF_PUT_ROUND, WEFT_COLLECTIVE_SEND, false, false,
     "one after another: a ping-pong of 2, a round of more"},
    {"ring_exchange", WEFTI_PERF_RING, WEFT_COLLECTIVE_SEND, false, false,
     "every rank's block comes round, and each rank copies it"},
    {"ring_both", WEFTI_PERF_RING_BOTH, WEFT_COLLECTIVE_SEND, false, false,
     "the same, half of the blocks the other way"},
    {"moe_dispatch", WEFTI_PERF_MOE_DISPATCH, WEFT_COLLECTIVE_SEND, false,
     false, "rows of tokens go to the ranks of their experts"},
    {"moe_combine", WEFTI_PERF_MOE_COMBINE, WEFT_COLLECTIVE_SEND, false, false,
     "what experts make of them comes back as sums"},
    {0}};

bool wefti_perf_op_is_uneven(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_ALLTOALLV || op->kind == WEFTI_PERF_GATHERV ||
           op->kind == WEFTI_PERF_SCATTERV ||
           op->kind == WEFTI_PERF_ALLGATHERV ||
           op->kind == WEFTI_PERF_REDUCESCATTERV;
}

bool wefti_perf_op_puts(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_PUT || op->kind == WEFTI_PERF_PUT_ROUND;
}

bool wefti_perf_op_rings(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_RING || op->kind == WEFTI_PERF_RING_BOTH;
}

bool wefti_perf_op_is_moe(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_MOE_DISPATCH ||
           op->kind == WEFTI_PERF_MOE_COMBINE;
}

bool wefti_perf_op_has_inplace(const wefti_perf_op *op)
{
    return op->kind != WEFTI_PERF_SENDRECV && op->kind != WEFTI_PERF_BARRIER &&
           op->kind != WEFTI_PERF_ALLTOALL &&
           op->kind != WEFTI_PERF_ALLTOALLV &&
           op->kind != WEFTI_PERF_SENDRECV_LIST && !wefti_perf_op_rings(op) &&
           !wefti_perf_op_puts(op) && !wefti_perf_op_is_moe(op);
}

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
    case WEFTI_PERF_ALLTOALL:
    case WEFTI_PERF_ALLTOALLV:
    case WEFTI_PERF_GATHER:
    case WEFTI_PERF_SCATTER:
    case WEFTI_PERF_GATHERV:
    case WEFTI_PERF_SCATTERV:
    case WEFTI_PERF_ALLGATHERV:
    case WEFTI_PERF_REDUCESCATTERV:
    case WEFTI_PERF_SENDRECV_LIST:
    case WEFTI_PERF_RING:
    case WEFTI_PERF_RING_BOTH:
    case WEFTI_PERF_MOE_DISPATCH:
    case WEFTI_PERF_MOE_COMBINE:
        return others;
    case WEFTI_PERF_PUT_ROUND:
        return nranks; /* puts, one after another */
    default:
        return 1.0;
    }
}

/* Whether the send, the receive buffer has a part for each rank. */
static bool has_send_parts(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_REDUCESCATTER ||
           op->kind == WEFTI_PERF_SCATTER || op->kind == WEFTI_PERF_ALLTOALL ||
           op->kind == WEFTI_PERF_SENDRECV_LIST;
}

static bool has_recv_parts(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_ALLGATHER || op->kind == WEFTI_PERF_GATHER ||
           op->kind == WEFTI_PERF_ALLTOALL ||
           op->kind == WEFTI_PERF_SENDRECV_LIST || wefti_perf_op_rings(op);
}

/* Whether only one side of a v form has parts: that which sends, receives. */
static bool scatters_uneven(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_SCATTERV ||
           op->kind == WEFTI_PERF_REDUCESCATTERV;
}

static bool gathers_uneven(const wefti_perf_op *op)
{
    return op->kind == WEFTI_PERF_GATHERV || op->kind == WEFTI_PERF_ALLGATHERV;
}

/* 0 .. 8, of a pair of ranks; the same everywhere and always (splitmix64). */
static size_t weight_of(int from, int to)
{
    uint64_t mixed = ((uint64_t)from << 32) + (uint64_t)to;
    mixed += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return (size_t)((mixed ^ mixed >> 31) % 9);
}

size_t wefti_perf_case_part(const wefti_perf_case *subject, int from, int to)
{
    if (!wefti_perf_op_is_uneven(subject->op)) {
        return subject->count;
    }
    if (subject->matrix) {
        return subject->matrix[(size_t)from * (size_t)subject->nranks +
                               (size_t)to] /
               weft_dtype_bytes(subject->dtype);
    }
    size_t weight = weight_of(scatters_uneven(subject->op) ? 0 : from,
                              gathers_uneven(subject->op) ? 0 : to);
    return subject->count / 4 * weight + subject->count % 4 * weight / 4;
}

size_t wefti_perf_case_own_count(const wefti_perf_case *subject)
{
    return wefti_perf_case_part(subject, subject->rank, subject->rank);
}

/* What one rank sends, and gets, of a v form; what bytes are. */
static void size_uneven(wefti_perf_case *subject, size_t elem_bytes)
{
    size_t all = 0;
    subject->send_elems = subject->recv_elems = 0;
    for (int a = 0; a < subject->nranks; a++) {
        subject->send_elems += wefti_perf_case_part(subject, subject->rank, a);
        subject->recv_elems += wefti_perf_case_part(subject, a, subject->rank);
        for (int b = 0; b < subject->nranks; b++) {
            all += wefti_perf_case_part(subject, a, b);
        }
    }
    subject->bytes = all / (size_t)subject->nranks * elem_bytes;
    if (gathers_uneven(subject->op)) {
        subject->send_elems = wefti_perf_case_own_count(subject);
        subject->bytes = subject->recv_elems * elem_bytes;
    } else if (scatters_uneven(subject->op)) {
        subject->recv_elems = wefti_perf_case_own_count(subject);
        subject->bytes = subject->send_elems * elem_bytes;
    }
}

void wefti_perf_case_size(wefti_perf_case *subject, size_t bytes)
{
    const wefti_perf_op *op = subject->op;
    size_t elem_bytes = weft_dtype_bytes(subject->dtype);
    bool uneven = wefti_perf_op_is_uneven(op);
    bool parted = has_send_parts(op) || has_recv_parts(op) || uneven;
    size_t parts = parted ? (size_t)subject->nranks : 1;
    size_t count = bytes / (elem_bytes * parts);
    if (count == 0 && bytes > 0) {
        count = 1;
    }
    if (op->kind == WEFTI_PERF_BARRIER) {
        count = 0;
    }
    subject->count = count;
    subject->bytes = count * parts * elem_bytes;
    subject->send_elems = has_send_parts(op) ? count * parts : count;
    subject->recv_elems = has_recv_parts(op) ? count * parts : count;
    if (uneven) {
        size_uneven(subject, elem_bytes);
    }
    if (subject->matrix) {
        count = subject->bytes / (elem_bytes * parts);
        subject->count = count + (count == 0 && subject->bytes > 0);
    }
}

size_t wefti_perf_case_room(const wefti_perf_case *subject)
{
    size_t elems = subject->send_elems > subject->recv_elems
                       ? subject->send_elems
                       : subject->recv_elems;
    size_t bytes = elems * weft_dtype_bytes(subject->dtype);
    return bytes > 0 ? bytes : 1;
}

/* Elements before this rank's own part of a buffer with parts. */
static size_t own_first(const wefti_perf_case *subject)
{
    size_t first = 0;
    for (int p = 0; p < subject->rank; p++) {
        first += wefti_perf_case_part(subject, p, p);
    }
    return first;
}

wefti_perf_buffers wefti_perf_case_place(const wefti_perf_case *subject,
                                         wefti_perf_buffers rooms)
{
    if (!subject->inplace) {
        return rooms;
    }
    size_t own = own_first(subject) * weft_dtype_bytes(subject->dtype);
    switch (subject->op->kind) {
    case WEFTI_PERF_GATHER:
    case WEFTI_PERF_GATHERV:
        if (subject->rank != subject->root) {
            return rooms;
        }
        __attribute__((fallthrough));
    case WEFTI_PERF_ALLGATHER:
    case WEFTI_PERF_ALLGATHERV:
        return (wefti_perf_buffers){rooms.recv + own, rooms.recv};
    case WEFTI_PERF_SCATTER:
    case WEFTI_PERF_SCATTERV:
        if (subject->rank != subject->root) {
            return rooms;
        }
        __attribute__((fallthrough));
    case WEFTI_PERF_REDUCESCATTER:
    case WEFTI_PERF_REDUCESCATTERV:
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
    return (subject->op->kind != WEFTI_PERF_BROADCAST &&
            subject->op->kind != WEFTI_PERF_SCATTER &&
            subject->op->kind != WEFTI_PERF_SCATTERV) ||
           subject->rank == subject->root;
}

static bool receives(const wefti_perf_case *subject)
{
    return (subject->op->kind != WEFTI_PERF_REDUCE &&
            subject->op->kind != WEFTI_PERF_GATHER &&
            subject->op->kind != WEFTI_PERF_GATHERV) ||
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

/* Where in from's buffer that begins which goes to this rank. */
static size_t first_of(const wefti_perf_case *subject, int from)
{
    size_t first = 0;
    if (subject->op->kind == WEFTI_PERF_ALLTOALLV ||
        scatters_uneven(subject->op)) {
        for (int to = 0; to < subject->rank; to++) {
            first += wefti_perf_case_part(subject, from, to);
        }
        return first;
    }
    return has_send_parts(subject->op) ? (size_t)subject->rank * subject->count
                                       : 0;
}

static size_t count_wrong_parts(const wefti_perf_case *subject,
                                const unsigned char *recv, size_t shift,
                                wefti_tile *scratch)
{
    size_t wrong = 0;
    for (int p = 0; p < subject->nranks; p++) {
        size_t elems = wefti_perf_case_part(subject, p, subject->rank);
        wefti_tile_make(scratch, subject->dtype, WEFT_REDOP_SUM, p,
                        subject->nranks);
        wrong += wefti_tile_count_wrong(scratch, recv, first_of(subject, p),
                                        elems, shift);
        recv += elems * weft_dtype_bytes(subject->dtype);
    }
    return wrong;
}

size_t wefti_perf_case_count_wrong(const wefti_perf_case *subject,
                                   const void *recv, size_t shift,
                                   wefti_tile *scratch)
{
    if (!receives(subject) || subject->count == 0) {
        return 0;
    }
    size_t first = first_of(subject, subject->root);
    switch (subject->op->kind) {
    case WEFTI_PERF_ALLGATHER:
    case WEFTI_PERF_GATHER:
    case WEFTI_PERF_ALLTOALL:
    case WEFTI_PERF_ALLTOALLV:
    case WEFTI_PERF_ALLGATHERV:
    case WEFTI_PERF_GATHERV:
    case WEFTI_PERF_SENDRECV_LIST:
    case WEFTI_PERF_RING:
    case WEFTI_PERF_RING_BOTH:
        return count_wrong_parts(subject, recv, shift, scratch);
    case WEFTI_PERF_BROADCAST:
    case WEFTI_PERF_SCATTER:
    case WEFTI_PERF_SCATTERV:
        wefti_tile_make(scratch, subject->dtype, WEFT_REDOP_SUM, subject->root,
                        subject->nranks);
        break;
    case WEFTI_PERF_SENDRECV:
    case WEFTI_PERF_PUT:
    case WEFTI_PERF_PUT_ROUND:
        wefti_tile_make(scratch, subject->dtype, WEFT_REDOP_SUM,
                        wefti_perf_case_before(subject), subject->nranks);
        break;
    default:
        wefti_tile_make_reduced(scratch, subject->dtype, subject->redop,
                                subject->nranks, subject->hosts);
    }
    return wefti_tile_count_wrong(scratch, recv, first, subject->recv_elems,
                                  shift);
}
