/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/op_check.c - arguments of operations, refused by name.
 */
#include "comm/post/op_check.h"

#include "base/error.h"
#include "comm/engine/extent.h"
#include "comm/engine/op.h"
#include "comm/pattern/shape.h"
#include "comm/steps/reduction.h"

enum { SMALL_ELEMS = 64 << 10 };

static weft_status check_enums(const weft_op *op)
{
    if ((unsigned)op->collective >= WEFT_COLLECTIVE_COUNT) {
        return wefti_error(WEFT_ERR_INVALID, "collective %d: allowed is 0..%d",
                           op->collective, WEFT_COLLECTIVE_COUNT - 1);
    }
    if ((unsigned)op->dtype >= WEFT_DTYPE_COUNT) {
        return wefti_error(WEFT_ERR_INVALID, "dtype %d: allowed is 0..%d",
                           op->dtype, WEFT_DTYPE_COUNT - 1);
    }
    if ((unsigned)op->redop >= WEFT_REDOP_COUNT &&
        !wefti_redop_is_user(op->redop)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "redop %d: allowed is 0..%d, or one that "
                           "weft_redop_create_user has made",
                           op->redop, WEFT_REDOP_COUNT - 1);
    }
    if ((unsigned)op->class_id >= WEFT_CLASS_COUNT) {
        return wefti_error(WEFT_ERR_INVALID, "class_id %d: allowed is 0..%d",
                           op->class_id, WEFT_CLASS_COUNT - 1);
    }
    if ((unsigned)op->chunk_order >= WEFT_CHUNK_ORDER_COUNT) {
        return wefti_error(WEFT_ERR_INVALID, "chunk_order %d: allowed is 0..%d",
                           op->chunk_order, WEFT_CHUNK_ORDER_COUNT - 1);
    }
    return WEFT_OK;
}

/* A program's own reduction: it works on host memory, step by step. */
static weft_status check_own_reduction(const weft_op *op, const weft_comm *comm,
                                       wefti_role *role)
{
    const wefti_reduction *reduction = wefti_reduction_get(comm, op->redop);
    if (!reduction) {
        return wefti_error(WEFT_ERR_INVALID,
                           "redop %d: \"%s\" has no such reduction; allowed is "
                           "one that weft_redop_create_user has made for it",
                           op->redop, comm->name);
    }
    if (op->scale) {
        return wefti_error(WEFT_ERR_INVALID,
                           "scale %p with reduction \"%s\": allowed is NULL, "
                           "or redop premulsum",
                           op->scale, reduction->name);
    }
    if (op->count > 0) { /* of nothing, ranks only meet */
        role->shape = wefti_shape_get_stepwise(op->collective);
    }
    return WEFT_OK;
}

/* What a collective that reduces does with its elements. */
static weft_status check_reduction(const weft_op *op, const weft_comm *comm,
                                   wefti_role *role)
{
    if (!weft_redop_applies(op->redop, op->dtype)) {
        if (wefti_redop_is_user(op->redop)) {
            return check_own_reduction(op, comm, role);
        }
        return wefti_error(WEFT_ERR_INVALID,
                           "redop %s of %s: allowed is with integers, i8 u8 "
                           "i32 u32 i64 u64",
                           weft_redop_text(op->redop),
                           weft_dtype_text(op->dtype));
    }
    bool scales = op->redop == WEFT_REDOP_PREMULSUM;
    if (scales && !op->scale) {
        return wefti_error(WEFT_ERR_INVALID,
                           "scale is NULL: allowed with redop premulsum is "
                           "one element of %s",
                           weft_dtype_text(op->dtype));
    }
    if (!scales && op->scale) {
        return wefti_error(WEFT_ERR_INVALID,
                           "scale %p with redop %s: allowed is NULL, or redop "
                           "premulsum",
                           op->scale, weft_redop_text(op->redop));
    }
    return WEFT_OK;
}

weft_status wefti_check_place(const weft_comm *comm, const char *name,
                              const void *pointer, bool *device_out)
{
    weft_pointer found = {.size_bytes = sizeof(found)};
    *device_out = false;
    if (!comm->copies || !pointer) {
        return WEFT_OK;
    }
    weft_status status = weft_device_query(comm->device, pointer, &found);
    if (status != WEFT_OK || (found.kind != WEFT_MEMORY_DEVICE &&
                              found.kind != WEFT_MEMORY_EXPORTABLE)) {
        return status;
    }
    const char *kind = wefti_device_get_table(comm->device)->kind;
    const int index = wefti_device_get_index(comm->device);
    *device_out = true;
    return found.index == index
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%s %p is memory of %s device %d: allowed on "
                             "\"%s\" is the host's, or that of %s device %d",
                             name, pointer, kind, found.index, comm->name, kind,
                             index);
}

/* Where the buffers are that this rank uses. Asks the device. */
static weft_status check_places(const weft_op *op, const weft_comm *comm,
                                const wefti_extent *extent,
                                wefti_op_places *places)
{
    const wefti_span *send = &extent->send, *recv = &extent->recv;
    bool scale = false;
    weft_status status = WEFT_OK;
    *places = (wefti_op_places){false, false};
    if (send->first_byte < send->end_byte) {
        status = wefti_check_place(comm, "send",
                                   (const char *)op->send + send->first_byte,
                                   &places->send);
    }
    if (status == WEFT_OK && recv->first_byte < recv->end_byte) {
        status = wefti_check_place(comm, "recv",
                                   (const char *)op->recv + recv->first_byte,
                                   &places->recv);
    }
    if (status == WEFT_OK) {
        status = wefti_check_place(comm, "scale", op->scale, &scale);
    }
    if (status == WEFT_OK && scale) {
        status =
            wefti_error(WEFT_ERR_INVALID,
                        "scale %p is memory of the %s device: allowed is "
                        "the host's",
                        op->scale, wefti_device_get_table(comm->device)->kind);
    }
    if (status == WEFT_OK && wefti_redop_is_user(op->redop) &&
        (places->send || places->recv)) {
        status = wefti_error(
            WEFT_ERR_INVALID,
            "%s %p is memory of the %s device: allowed with reduction \"%s\" "
            "is host memory",
            places->send ? "send" : "recv", places->send ? op->send : op->recv,
            wefti_device_get_table(comm->device)->kind,
            wefti_reduction_get(comm, op->redop)->name);
    }
    return status;
}

static weft_status check_buffers(const weft_op *op, const wefti_role *role,
                                 const wefti_extent *extent)
{
    const wefti_span *send = &extent->send, *recv = &extent->recv;
    if (send->first_byte < send->end_byte && !op->send) {
        return wefti_error(WEFT_ERR_INVALID,
                           "send is NULL: allowed is a buffer of %zu bytes",
                           send->end_byte);
    }
    if (recv->first_byte < recv->end_byte && !op->recv) {
        return wefti_error(WEFT_ERR_INVALID,
                           "recv is NULL: allowed is a buffer of %zu bytes",
                           recv->end_byte);
    }
    if (!wefti_extent_is_apart(op, extent) &&
        !wefti_extent_is_in_place(op, role->shape, extent)) {
        bool pairs = role->shape->send_parts && role->shape->recv_parts;
        return wefti_error(WEFT_ERR_INVALID,
                           "recv %p of %zu bytes overlaps send %p of %zu "
                           "bytes: allowed is apart%s%s",
                           op->recv, recv->end_byte, op->send, send->end_byte,
                           pairs ? "; never in place is "
                                 : ", or the in-place form of ",
                           weft_collective_text(op->collective));
    }
    return WEFT_OK;
}

static weft_status check_gate(const char *name, const weft_gate *gate,
                              size_t first, size_t elems, size_t gate_elems)
{
    if (!gate) {
        return WEFT_OK;
    }
    size_t chunks = 1;
    if (gate_elems && elems) {
        chunks = (elems - 1) / gate_elems + 1;
    }
    size_t have = wefti_gate_get_chunks(gate);
    if (chunks > WEFTI_GATE_CHUNKS_MAX) {
        return wefti_error(WEFT_ERR_INVALID,
                           "gate_elems %zu gives %zu chunks: allowed is up to "
                           "%d chunks",
                           gate_elems, chunks, WEFTI_GATE_CHUNKS_MAX);
    }
    if (first > have || chunks > have - first) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s needs chunks %zu..%zu: its gate has %zu", name,
                           first, first + chunks - 1, have);
    }
    return WEFT_OK;
}

static weft_status check_gates(const weft_op *op, uint64_t epoch,
                               const wefti_role *role, const weft_comm *comm)
{
    bool varied = role->shape->varied;
    bool per_rank = op->gate_elems == WEFT_GATE_PER_RANK;
    if (varied && op->gate_elems && !per_rank) {
        return wefti_error(WEFT_ERR_INVALID,
                           "gate_elems %zu in %s: allowed is 0 or "
                           "WEFT_GATE_PER_RANK, for its parts have no common "
                           "length",
                           op->gate_elems,
                           weft_collective_text(op->collective));
    }
    if (!varied && per_rank) {
        return wefti_error(WEFT_ERR_INVALID,
                           "gate_elems WEFT_GATE_PER_RANK in %s: allowed is "
                           "the elements of a chunk, for its parts have one "
                           "length",
                           weft_collective_text(op->collective));
    }
    if (varied && op->chunk_order != WEFT_CHUNK_ORDER_ASCENDING) {
        return wefti_error(WEFT_ERR_INVALID,
                           "chunk_order descending in %s: allowed is "
                           "ascending, for its parts are not cut",
                           weft_collective_text(op->collective));
    }
    if (!wefti_op_is_gated(op)) {
        return WEFT_OK;
    }
    if (epoch == 0 || epoch > WEFT_EPOCH_MAX) {
        return wefti_error(
            WEFT_ERR_INVALID, "epoch %llu with gates: allowed is 1 to %llu",
            (unsigned long long)epoch, (unsigned long long)WEFT_EPOCH_MAX);
    }
    size_t send_elems = 0, recv_elems = 0; /* one chunk */
    size_t gate_elems = op->gate_elems;
    if (varied && per_rank) { /* as many chunks as parts */
        gate_elems = 1;
        send_elems = role->shape->send_parts ? (size_t)comm->nranks : 1;
        recv_elems = role->shape->recv_parts ? (size_t)comm->nranks : 1;
    } else if (!varied) {
        send_elems = wefti_role_send_elems(role, op->count, comm->nranks);
        recv_elems = wefti_role_recv_elems(role, op->count, comm->nranks);
    }
    weft_status status =
        check_gate("ready", op->ready, op->ready_chunk, send_elems, gate_elems);
    if (status == WEFT_OK) {
        status = check_gate("arrived", op->arrived, op->arrived_chunk,
                            recv_elems, gate_elems);
    }
    return status != WEFT_OK
               ? status
               : check_gate("writable", op->writable, op->writable_chunk,
                            recv_elems, gate_elems);
}

/* Counts that are known only later: for whom, and where they lie. */
static weft_status check_deferred(const weft_op *op, const weft_comm *comm)
{
    bool device = false;
    const char *name = "deferred_counts";
    const wefti_shape *shape = wefti_shape_get(op->collective);
    if (op->deferred_counts && !shape->varied) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "deferred_counts in %s: allowed is NULL, or a v "
                           "form",
                           weft_collective_text(op->collective));
    }
    if (op->arrived_counts && !op->deferred_counts) {
        return wefti_error(WEFT_ERR_INVALID,
                           "arrived_counts %p without deferred_counts: allowed "
                           "is NULL",
                           (void *)op->arrived_counts);
    }
    weft_status status =
        wefti_check_place(comm, name, op->deferred_counts, &device);
    if (status == WEFT_OK && !device) {
        name = "arrived_counts";
        status = wefti_check_place(comm, name, op->arrived_counts, &device);
    }
    return status != WEFT_OK || !device
               ? status
               : wefti_error(WEFT_ERR_INVALID,
                             "%s is memory of the %s device: allowed is the "
                             "host's",
                             name, wefti_device_get_table(comm->device)->kind);
}

/* Arrays that this rank does not need are not looked at. */
static void forget_unused(weft_op *op, const wefti_role *role)
{
    const wefti_shape *shape = role->shape;
    if (!shape->varied || !shape->send_parts || !role->sends) {
        op->send_counts = op->send_displs = NULL;
    }
    if (!shape->varied || !shape->recv_parts || !role->receives) {
        op->recv_counts = op->recv_displs = NULL;
    }
    if (op->deferred_counts && !role->receives) {
        op->arrived_counts = NULL;
    }
}

/* What has no meaning for the collective is not looked at either. */
static weft_status settle(weft_op *op, const weft_comm *comm, wefti_role *role)
{
    forget_unused(op, role);
    if (op->class_id == WEFT_CLASS_COMPUTE) {
        op->class_id = WEFT_CLASS_DP;
    }
    if (role->shape->reduces) {
        return check_reduction(op, comm, role);
    }
    op->redop = WEFT_REDOP_SUM;
    op->scale = NULL;
    if (op->collective == WEFT_COLLECTIVE_BARRIER) {
        op->count = 0;
    }
    return WEFT_OK;
}

/* Without anything that few have. */
static bool is_usual(const weft_op *op, const weft_comm *comm)
{
    return !op->scale && op->chunk_order == WEFT_CHUNK_ORDER_ASCENDING &&
           !op->gate_elems && !wefti_op_is_gated(op) && !op->send_counts &&
           !op->send_displs && !op->recv_counts && !op->recv_displs &&
           !op->deferred_counts && !op->arrived_counts && !comm->copies &&
           op->count <= SMALL_ELEMS && (unsigned)op->dtype < WEFT_DTYPE_COUNT &&
           (unsigned)op->root < (unsigned)comm->nranks &&
           (unsigned)op->class_id < WEFT_CLASS_COUNT &&
           op->class_id != WEFT_CLASS_COMPUTE;
}

/*
 * A small message from or to host memory. All that may be wrong with one is
 * looked at here: most are so small that the questions below take longer than
 * the message.
 */
static bool is_plain_message(const weft_op *op)
{
    return op->redop == WEFT_REDOP_SUM &&
           (op->collective == WEFT_COLLECTIVE_SEND   ? op->send != NULL
            : op->collective == WEFT_COLLECTIVE_RECV ? op->recv != NULL
                                                     : false);
}

static bool is_apart(const void *a, size_t a_bytes, const void *b,
                     size_t b_bytes)
{
    return (uintptr_t)a + a_bytes <= (uintptr_t)b ||
           (uintptr_t)b + b_bytes <= (uintptr_t)a;
}

/* The same of a small collective: buffers are there, and apart or one. */
static bool is_plain_collective(const weft_op *op, const wefti_role *role,
                                const weft_comm *comm)
{
    const wefti_shape *shape = role->shape;
    const bool meets = op->collective == WEFT_COLLECTIVE_BARRIER;
    const bool known = shape->reduces
                           ? (unsigned)op->redop < WEFT_REDOP_COUNT &&
                                 op->redop != WEFT_REDOP_PREMULSUM &&
                                 weft_redop_applies(op->redop, op->dtype)
                           : op->redop == WEFT_REDOP_SUM;
    if (shape->varied || !known || (meets && op->count) ||
        op->collective >= WEFT_COLLECTIVE_SEND) {
        return false;
    }
    if (op->count == 0) {
        return true;
    }
    if ((role->sends && !op->send) || (role->receives && !op->recv)) {
        return false;
    }
    const size_t ranks = (size_t)comm->nranks;
    const size_t part = op->count * role->elem_bytes;
    return !role->sends || !role->receives ||
           (op->send == op->recv && !shape->send_parts && !shape->recv_parts) ||
           is_apart(op->send, shape->send_parts ? ranks * part : part, op->recv,
                    shape->recv_parts ? ranks * part : part);
}

weft_status wefti_check_op(weft_op *op, uint64_t epoch, const weft_comm *comm,
                           wefti_role *role_out, wefti_op_places *places_out)
{
    if (is_usual(op, comm) &&
        (unsigned)op->collective < WEFT_COLLECTIVE_COUNT) {
        *role_out =
            wefti_role_of(op->collective, op->dtype, op->root, comm->rank);
        if (is_plain_message(op) || is_plain_collective(op, role_out, comm)) {
            *places_out = (wefti_op_places){false, false};
            return WEFT_OK;
        }
    }
    weft_status status = check_enums(op);
    if (status != WEFT_OK) {
        return status;
    }
    if ((unsigned)op->root >= (unsigned)comm->nranks) {
        return wefti_error(WEFT_ERR_INVALID, "%s %d: allowed is 0..%d",
                           op->collective >= WEFT_COLLECTIVE_SEND ? "peer"
                                                                  : "root",
                           op->root, comm->nranks - 1);
    }
    wefti_role role =
        wefti_role_of(op->collective, op->dtype, op->root, comm->rank);
    status = settle(op, comm, &role);
    *role_out = role;
    wefti_extent extent;
    if (status == WEFT_OK) {
        status =
            wefti_extent_measure(op, &role, comm->rank, comm->nranks, &extent);
    }
    if (status == WEFT_OK) {
        status = check_buffers(op, &role, &extent);
    }
    if (status == WEFT_OK) {
        status = check_places(op, comm, &extent, places_out);
    }
    if (status == WEFT_OK && (op->deferred_counts || op->arrived_counts)) {
        status = check_deferred(op, comm);
    }
    return status == WEFT_OK ? check_gates(op, epoch, &role, comm) : status;
}

weft_status wefti_check_stream(const weft_stream *stream, const weft_comm *comm)
{
    const weft_device *ours = comm->device ? comm->device : comm->engine->host;
    const weft_device *theirs = wefti_stream_get_device(stream);
    return wefti_device_is_same(ours, theirs)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "stream of %s device %d: allowed on \"%s\" is "
                             "one of %s device %d",
                             wefti_device_get_table(theirs)->kind,
                             wefti_device_get_index(theirs), comm->name,
                             wefti_device_get_table(ours)->kind,
                             wefti_device_get_index(ours));
}
