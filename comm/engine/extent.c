/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/extent.c - spans of buffers, with every sum checked for overflow.
 *
 * Nothing spans more than half the address space, so that later arithmetic on
 * offsets within a buffer cannot overflow.
 */
#include "comm/engine/extent.h"

#include "base/error.h"
#include "comm/pattern/shape.h"

static const size_t most_bytes = SIZE_MAX / 2;

static weft_status too_many(const weft_op *op, const char *name, size_t count)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "%s %zu of %s: more than memory can hold", name, count,
                       weft_dtype_text(op->dtype));
}

/* Bytes of count elements, and of so many for each of `parts`. */
static weft_status measure_count(const weft_op *op, const wefti_role *role,
                                 size_t parts, size_t *part_out,
                                 size_t *all_out)
{
    if (__builtin_mul_overflow(op->count, role->elem_bytes, part_out) ||
        __builtin_mul_overflow(*part_out, parts, all_out) ||
        *all_out > most_bytes) {
        return too_many(op, "count", op->count);
    }
    return WEFT_OK;
}

/* A buffer that is one piece, of a v form. */
static weft_status measure_whole(const weft_op *op, const wefti_role *role,
                                 wefti_span *span_out)
{
    size_t bytes, all;
    weft_status status = measure_count(op, role, 1, &bytes, &all);
    if (status == WEFT_OK) {
        *span_out = (wefti_span){0, bytes, 0};
    }
    return status;
}

/* The arrays of one buffer of a v form, with the names they have in op.h. */
typedef struct runs {
    const char *counts_name, *displs_name;
    const size_t *counts, *displs;
    int nranks;
} runs;

/* Two runs share an element. Any order of displacements is legal, but where
 * they rise with the rank, as they nearly always do, one look is enough. */
static weft_status check_apart(const runs *all)
{
    size_t end = 0;
    bool rising = true;
    for (int p = 0; p < all->nranks && rising; p++) {
        rising = all->counts[p] == 0 || all->displs[p] >= end;
        end = all->counts[p] ? all->displs[p] + all->counts[p] : end;
    }
    for (int p = 0; p < all->nranks && !rising; p++) {
        for (int q = 0; q < p; q++) {
            size_t p_begin = all->displs[p], q_begin = all->displs[q];
            if (p_begin < q_begin + all->counts[q] &&
                q_begin < p_begin + all->counts[p] && all->counts[p] &&
                all->counts[q]) {
                return wefti_error(
                    WEFT_ERR_INVALID,
                    "%s[%d] %zu and %s[%d] %zu: %zu and %zu elements "
                    "overlap; allowed is apart",
                    all->displs_name, q, q_begin, all->displs_name, p, p_begin,
                    all->counts[q], all->counts[p]);
            }
        }
    }
    return WEFT_OK;
}

/* From the first element of any run to behind the last. */
static weft_status measure_runs(const weft_op *op, const runs *all, int rank,
                                wefti_span *span_out)
{
    size_t first = SIZE_MAX, end = 0, total = 0, own = 0;
    size_t most = most_bytes / weft_dtype_bytes(op->dtype);
    if (!all->counts) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s is NULL: allowed is an array of %d counts",
                           all->counts_name, all->nranks);
    }
    for (int p = 0; p < all->nranks; p++) {
        size_t count = all->counts[p];
        size_t begin = all->displs ? all->displs[p] : total;
        if (count > most - total) {
            return too_many(op, all->counts_name, count);
        }
        if (begin > most || count > most - begin) {
            return too_many(op, all->displs_name, begin);
        }
        total += count;
        own = p == rank ? begin : own;
        if (count) {
            first = begin < first ? begin : first;
            end = begin + count > end ? begin + count : end;
        }
    }
    size_t elem = weft_dtype_bytes(op->dtype);
    *span_out = (wefti_span){end ? first * elem : 0, end * elem, own * elem};
    return WEFT_OK;
}

/* What a rank keeps for itself has one length. */
static weft_status check_own(const char *counts_name, size_t counted,
                             const char *name, size_t elems, int rank)
{
    return counted == elems
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID, "%s[%d] %zu: allowed is %s, %zu",
                             counts_name, rank, counted, name, elems);
}

static weft_status measure_varied(const weft_op *op, const wefti_role *role,
                                  int rank, int nranks, wefti_extent *extent)
{
    const wefti_shape *shape = role->shape;
    bool sends = role->sends, receives = role->receives;
    /* As the call names them whose arguments these are, and weft_op. */
    const char *out_name = op->collective == WEFT_COLLECTIVE_REDUCESCATTERV
                               ? "recv_counts (in weft_op: send_counts)"
                               : "send_counts";
    runs out = {out_name, "send_displs", op->send_counts, op->send_displs,
                nranks};
    runs in = {"recv_counts", "recv_displs", op->recv_counts, op->recv_displs,
               nranks};
    weft_status status = WEFT_OK;
    if (sends) {
        status = shape->send_parts ? measure_runs(op, &out, rank, &extent->send)
                                   : measure_whole(op, role, &extent->send);
    }
    if (status == WEFT_OK && receives) {
        status = shape->recv_parts ? measure_runs(op, &in, rank, &extent->recv)
                                   : measure_whole(op, role, &extent->recv);
    }
    if (status == WEFT_OK && receives && shape->recv_parts && in.displs) {
        status = check_apart(&in);
    }
    if (status != WEFT_OK || !sends || !receives) {
        return status;
    }
    return !shape->recv_parts
               ? check_own(out_name, out.counts[rank],
                           "recv_elems (in weft_op: count)", op->count, rank)
           : !shape->send_parts
               ? check_own("recv_counts", in.counts[rank],
                           "send_elems (in weft_op: count)", op->count, rank)
               : check_own("send_counts", out.counts[rank],
                           "recv_counts of the same rank", in.counts[rank],
                           rank);
}

weft_status wefti_extent_measure(const weft_op *op, const wefti_role *role,
                                 int rank, int nranks, wefti_extent *extent_out)
{
    const wefti_shape *shape = role->shape;
    *extent_out = (wefti_extent){{0, 0, 0}, {0, 0, 0}};
    if (shape->varied) {
        return measure_varied(op, role, rank, nranks, extent_out);
    }
    /* The limit is that of all parts together, on every rank alike. */
    size_t part, all;
    weft_status status = measure_count(op, role, (size_t)nranks, &part, &all);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_span whole = {0, part, 0}, parts = {0, all, (size_t)rank * part};
    if (role->sends) {
        extent_out->send = shape->send_parts ? parts : whole;
    }
    /* A broadcast's root has what it sends, and need not receive it. */
    bool keeps =
        op->collective == WEFT_COLLECTIVE_BROADCAST && role->sends && !op->recv;
    if (role->receives && !keeps) {
        extent_out->recv = shape->recv_parts ? parts : whole;
    }
    return WEFT_OK;
}

/* One pair of arrays. */
static void copy_runs(size_t *room, const size_t **counts,
                      const size_t **displs, size_t ranks)
{
    size_t *places = room + ranks, total = 0;
    if (!*counts) {
        return;
    }
    for (size_t p = 0; p < ranks; p++) {
        room[p] = (*counts)[p];
        places[p] = *displs ? (*displs)[p] : total;
        total += room[p];
    }
    *counts = room;
    *displs = places;
}

void wefti_extent_copy_counts(weft_op *op, size_t *room, int nranks)
{
    size_t ranks = (size_t)nranks;
    copy_runs(room, &op->send_counts, &op->send_displs, ranks);
    copy_runs(room + 2 * ranks, &op->recv_counts, &op->recv_displs, ranks);
}

bool wefti_extent_is_apart(const weft_op *op, const wefti_extent *extent)
{
    uintptr_t send = (uintptr_t)op->send, recv = (uintptr_t)op->recv;
    const wefti_span *out = &extent->send, *in = &extent->recv;
    return out->first_byte == out->end_byte || in->first_byte == in->end_byte ||
           send + out->end_byte <= recv + in->first_byte ||
           recv + in->end_byte <= send + out->first_byte;
}

bool wefti_extent_is_in_place(const weft_op *op, const wefti_shape *shape,
                              const wefti_extent *extent)
{
    bool pairs = shape->send_parts && shape->recv_parts;
    return !pairs && (uintptr_t)op->send + extent->send.own_byte ==
                         (uintptr_t)op->recv + extent->recv.own_byte;
}
