/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/op_check.c - arguments of operations, refused by name.
 */
#include "comm/op_check.h"

#include "base/error.h"

/* Bytes of the whole send and receive buffer as this rank uses them. */
struct extent {
    size_t send_bytes, recv_bytes;
};

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
    if ((unsigned)op->redop >= WEFT_REDOP_COUNT) {
        return wefti_error(WEFT_ERR_INVALID, "redop %d: allowed is 0..%d",
                           op->redop, WEFT_REDOP_COUNT - 1);
    }
    if ((unsigned)op->class_id >= WEFT_CLASS_COUNT) {
        return wefti_error(WEFT_ERR_INVALID, "class_id %d: allowed is 0..%d",
                           op->class_id, WEFT_CLASS_COUNT - 1);
    }
    return WEFT_OK;
}

static bool reduces(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLREDUCE ||
           collective == WEFT_COLLECTIVE_REDUCE ||
           collective == WEFT_COLLECTIVE_REDUCESCATTER;
}

/* What a collective that reduces does with its elements. */
static weft_status check_reduction(const weft_op *op)
{
    if (!weft_redop_applies(op->redop, op->dtype)) {
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

static weft_status measure(const weft_op *op, const weft_comm *comm,
                           struct extent *extent_out)
{
    size_t bytes, all;
    if (__builtin_mul_overflow(op->count, weft_dtype_bytes(op->dtype),
                               &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)comm->nranks, &all) ||
        all > SIZE_MAX / 2) {
        return wefti_error(WEFT_ERR_INVALID,
                           "count %zu of %s: more than memory can hold",
                           op->count, weft_dtype_text(op->dtype));
    }
    bool root = op->root == comm->rank;
    switch (op->collective) {
    case WEFT_COLLECTIVE_ALLGATHER:
        *extent_out = (struct extent){bytes, all};
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        *extent_out = (struct extent){all, bytes};
        break;
    case WEFT_COLLECTIVE_REDUCE:
        *extent_out = (struct extent){bytes, root ? bytes : 0};
        break;
    case WEFT_COLLECTIVE_BROADCAST:
        /* The root need not receive what it has. */
        *extent_out =
            (struct extent){root ? bytes : 0, root && !op->recv ? 0 : bytes};
        break;
    case WEFT_COLLECTIVE_SEND:
        *extent_out = (struct extent){bytes, 0};
        break;
    case WEFT_COLLECTIVE_RECV:
        *extent_out = (struct extent){0, bytes};
        break;
    case WEFT_COLLECTIVE_BARRIER:
        *extent_out = (struct extent){0, 0};
        break;
    default:
        *extent_out = (struct extent){bytes, bytes};
        break;
    }
    return WEFT_OK;
}

/* Where send must lie within recv, or recv within send, to be in place. */
static bool is_in_place(const weft_op *op, const weft_comm *comm,
                        const struct extent *extent)
{
    const char *send = op->send, *recv = op->recv;
    switch (op->collective) {
    case WEFT_COLLECTIVE_ALLGATHER:
        return send == recv + (size_t)comm->rank * extent->send_bytes;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return recv == send + (size_t)comm->rank * extent->recv_bytes;
    default:
        return send == recv;
    }
}

static weft_status check_buffers(const weft_op *op, const weft_comm *comm,
                                 const struct extent *extent)
{
    if (extent->send_bytes && !op->send) {
        return wefti_error(WEFT_ERR_INVALID,
                           "send is NULL: allowed is a buffer of %zu bytes",
                           extent->send_bytes);
    }
    if (extent->recv_bytes && !op->recv) {
        return wefti_error(WEFT_ERR_INVALID,
                           "recv is NULL: allowed is a buffer of %zu bytes",
                           extent->recv_bytes);
    }
    uintptr_t send = (uintptr_t)op->send, recv = (uintptr_t)op->recv;
    bool apart = extent->send_bytes == 0 || extent->recv_bytes == 0 ||
                 send + extent->send_bytes <= recv ||
                 recv + extent->recv_bytes <= send;
    if (!apart && !is_in_place(op, comm, extent)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "recv %p overlaps send %p of %zu bytes: allowed is "
                           "apart, or the in-place form of %s",
                           op->recv, op->send, extent->send_bytes,
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
                               const weft_comm *comm)
{
    if ((op->ready || op->arrived) && epoch == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "epoch 0 with gates: allowed is 1 and more");
    }
    size_t ranks = (size_t)comm->nranks;
    bool scatter = op->collective == WEFT_COLLECTIVE_REDUCESCATTER;
    bool gather = op->collective == WEFT_COLLECTIVE_ALLGATHER;
    weft_status status =
        check_gate("ready", op->ready, op->ready_chunk,
                   scatter ? op->count * ranks : op->count, op->gate_elems);
    if (status != WEFT_OK) {
        return status;
    }
    return check_gate("arrived", op->arrived, op->arrived_chunk,
                      gather ? op->count * ranks : op->count, op->gate_elems);
}

weft_status wefti_check_op(const weft_op *op, uint64_t epoch,
                           const weft_comm *comm, weft_op *op_out)
{
    if (!op || op->size_bytes < sizeof(*op)) {
        return wefti_error(
            WEFT_ERR_INVALID, "op %s: allowed is a weft_op with size_bytes %zu",
            op ? "has too small a size_bytes" : "is NULL", sizeof(*op));
    }
    weft_status status = check_enums(op);
    if (status != WEFT_OK) {
        return status;
    }
    if (op->root < 0 || op->root >= comm->nranks) {
        return wefti_error(WEFT_ERR_INVALID, "%s %d: allowed is 0..%d",
                           op->collective >= WEFT_COLLECTIVE_SEND ? "peer"
                                                                  : "root",
                           op->root, comm->nranks - 1);
    }
    *op_out = *op;
    if (op->collective == WEFT_COLLECTIVE_BARRIER) {
        op_out->count = 0; /* it moves nothing */
    }
    if (reduces(op->collective)) {
        status = check_reduction(op);
    } else {
        op_out->redop = WEFT_REDOP_SUM; /* it has no meaning */
        op_out->scale = NULL;
    }
    if (status != WEFT_OK) {
        return status;
    }
    struct extent extent;
    status = measure(op_out, comm, &extent);
    if (status != WEFT_OK) {
        return status;
    }
    status = check_buffers(op_out, comm, &extent);
    if (status != WEFT_OK) {
        return status;
    }
    if (op->class_id == WEFT_CLASS_COMPUTE) {
        op_out->class_id = WEFT_CLASS_DP;
    }
    return op->ready || op->arrived ? check_gates(op_out, epoch, comm)
                                    : WEFT_OK;
}

weft_status wefti_check_stream(const weft_stream *stream, const weft_comm *comm)
{
    const wefti_device_table *ours =
        wefti_device_get_table(wefti_gate_get_device(comm->start));
    const wefti_device_table *theirs =
        wefti_device_get_table(wefti_stream_get_device(stream));
    return ours == theirs
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "stream of a %s device: allowed on \"%s\" is a "
                             "%s device's",
                             theirs->kind, comm->name, ours->kind);
}
