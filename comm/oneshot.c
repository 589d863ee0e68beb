/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oneshot.c - the low-latency path.
 *
 *   rank 0: entry {payload, signature, number}   rank 1: the same
 *           read all entries, fold in rank order          the same
 *
 * entry.number is stored last and pairs with wefti_op_check_peer's load: the
 * payload is complete. Nobody overwrites an entry before everybody has
 * completed the operation (comm/fabric/shared.h), so no reader is hurried.
 */
#include "comm/oneshot.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/fabric/remote.h"
#include "comm/op.h"
#include "comm/pattern/shape.h"
#include "kernels/wire/fold.h"

#include <string.h>

static wefti_entry *entry_of(weft_comm *comm, const wefti_op *op, int rank)
{
    return wefti_shared_get_entry(&comm->fabric.shared, rank, op->number);
}

/* Between host and whatever memory the buffer is in; small, so at once. */
static void copy(weft_comm *comm, wefti_op *op, void *dst, const void *src,
                 size_t bytes)
{
    bool device = wefti_device_owns(comm->device, dst) ||
                  wefti_device_owns(comm->device, src);
    if (!device) {
        memcpy(dst, src, bytes);
        return;
    }
    weft_status status = weft_device_copy(comm->device, dst, src, bytes, NULL);
    if (status != WEFT_OK) {
        op->status = status;
        wefti_op_fail(comm, op, status, "the device refused a copy");
    }
}

static size_t part_bytes(const wefti_op *op)
{
    return op->desc.count * op->role.elem_bytes;
}

/* What this rank's peers take of its payload, and it of theirs. */
static void measure(const weft_comm *comm, const wefti_op *op,
                    size_t *sent_bytes, size_t *taken_bytes)
{
    const wefti_role *role = &op->role;
    size_t part = part_bytes(op), all = part * ((size_t)comm->nranks - 1);
    bool root = comm->rank == op->desc.root;
    *sent_bytes = !role->sends                             ? 0
                  : role->shape->receives == WEFTI_WHO_ALL ? all
                  : root                                   ? 0
                                                           : part;
    *taken_bytes = !role->receives                       ? 0
                   : role->shape->sends == WEFTI_WHO_ALL ? all
                   : root                                ? 0
                                                         : part;
}

/* Whether peer reads what this rank's entry carries. */
static bool reads_payload(const weft_comm *comm, const wefti_op *op, int peer)
{
    const wefti_shape *shape = op->role.shape;
    return shape->varied ||
           wefti_shape_moves(shape, op->desc.root, comm->rank, peer);
}

void wefti_oneshot_announce(weft_comm *comm, wefti_op *op, size_t payload_bytes,
                            size_t sent_bytes)
{
    wefti_entry *entry = entry_of(comm, op, comm->rank);
    wefti_shared_header *header = comm->fabric.shared.header;
    int64_t stamp_ns =
        sent_bytes ? wefti_fabric_charge(&comm->fabric, sent_bytes) : 0;
    if (!stamp_ns) {
        stamp_ns = atomic_load_explicit(&header->observed, memory_order_relaxed)
                       ? wefti_clock_ns()
                       : op->entered_ns;
    }
    atomic_store_explicit(&entry->count, op->signature.count,
                          memory_order_relaxed);
    atomic_store_explicit(&entry->kind, op->signature.kind,
                          memory_order_relaxed);
    atomic_store_explicit(&entry->cut, op->signature.cut, memory_order_relaxed);
    atomic_store_explicit(&entry->stamp_ns, stamp_ns, memory_order_relaxed);
    atomic_store(&entry->number, op->number);
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank) {
            wefti_doorbell_ring(comm->bells[peer]);
        }
    }
    for (int peer = 0; comm->fabric.net && peer < comm->nranks; peer++) {
        bool reads = payload_bytes && reads_payload(comm, op, peer);
        wefti_remote_tell_entry(&comm->fabric, peer, op->number,
                                reads ? payload_bytes : 0);
    }
}

void wefti_oneshot_enter(weft_comm *comm, wefti_op *op)
{
    size_t bytes = 0;
    if (op->role.sends) {
        bytes = wefti_oneshot_bytes(comm->nranks, &op->desc, &op->role);
    }
    if (bytes) {
        copy(comm, op, entry_of(comm, op, comm->rank)->payload, op->desc.send,
             bytes);
        if (op->status != WEFT_OK) {
            return; /* nobody may read that; the fault ends the operation */
        }
        if (op->desc.scale) {
            unsigned char *payload = entry_of(comm, op, comm->rank)->payload;
            wefti_scale(payload, payload, op->desc.scale,
                        bytes / op->role.elem_bytes, op->desc.dtype);
        }
    }
    size_t sent_bytes, taken_bytes;
    measure(comm, op, &sent_bytes, &taken_bytes);
    if (comm->observer.moved) {
        wefti_op_piece_open(op);
        op->piece.bytes = sent_bytes + taken_bytes;
    }
    wefti_oneshot_announce(comm, op, bytes, sent_bytes);
}

/* Whether peer's payload may be read; notes when it was or will be there. */
static bool arrived(weft_comm *comm, wefti_op *op, int peer)
{
    if (!wefti_op_check_peer(comm, op, peer)) {
        return false;
    }
    int64_t stamp_ns = atomic_load_explicit(&entry_of(comm, op, peer)->stamp_ns,
                                            memory_order_relaxed);
    if (comm->fabric.ns_per_byte > 0 && stamp_ns > wefti_clock_ns()) {
        if (stamp_ns < comm->engine->due_ns) {
            comm->engine->due_ns = stamp_ns;
        }
        return false;
    }
    if (stamp_ns > op->piece.ready_ns) {
        op->piece.ready_ns = stamp_ns;
    }
    return true;
}

/* Folds count elements that start at elem first of every payload. */
static void fold(weft_comm *comm, wefti_op *op, size_t first)
{
    const void **sources = op->tracks[0].sources;
    size_t offset = first * op->role.elem_bytes;
    for (int rank = 0; rank < comm->nranks; rank++) {
        sources[rank] = entry_of(comm, op, rank)->payload + offset;
    }
    bool device = wefti_device_owns(comm->device, op->desc.recv);
    void *result = device ? (void *)op->tracks[0].scratch : op->desc.recv;
    wefti_fold(result, sources, (size_t)comm->nranks, op->desc.count,
               op->desc.dtype, op->desc.redop);
    if (device) {
        copy(comm, op, op->desc.recv, result, part_bytes(op));
    }
}

/* Takes part `part` of every rank's payload, one after another. */
static void gather(weft_comm *comm, wefti_op *op, size_t part)
{
    size_t bytes = part_bytes(op);
    for (int rank = 0; rank < comm->nranks; rank++) {
        copy(comm, op, (char *)op->desc.recv + (size_t)rank * bytes,
             entry_of(comm, op, rank)->payload + part * bytes, bytes);
    }
}

/* Takes part `part` of the root's payload; a root need not. */
static void take(weft_comm *comm, wefti_op *op, size_t part)
{
    size_t bytes = part_bytes(op);
    if (op->desc.recv) {
        copy(comm, op, op->desc.recv,
             entry_of(comm, op, op->desc.root)->payload + part * bytes, bytes);
    }
}

static void produce(weft_comm *comm, wefti_op *op)
{
    bool root = comm->rank == op->desc.root;
    switch (op->desc.collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        fold(comm, op, 0);
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        fold(comm, op, (size_t)comm->rank * op->desc.count);
        break;
    case WEFT_COLLECTIVE_REDUCE:
        if (root) {
            fold(comm, op, 0);
        }
        break;
    case WEFT_COLLECTIVE_GATHER:
        if (root) {
            gather(comm, op, 0);
        }
        break;
    case WEFT_COLLECTIVE_ALLGATHER:
        gather(comm, op, 0);
        break;
    case WEFT_COLLECTIVE_ALLTOALL:
        gather(comm, op, (size_t)comm->rank);
        break;
    case WEFT_COLLECTIVE_BROADCAST:
        take(comm, op, 0);
        break;
    case WEFT_COLLECTIVE_SCATTER:
        take(comm, op, (size_t)comm->rank);
        break;
    default:
        break;
    }
}

bool wefti_oneshot_advance(weft_comm *comm, wefti_op *op)
{
    bool moved = false;
    if (op->status != WEFT_OK) {
        return false;
    }
    for (; op->missing < comm->nranks; op->missing++) {
        int peer = op->missing;
        if (peer == comm->rank || !wefti_op_needs(op, peer)) {
            continue;
        }
        if (!arrived(comm, op, peer)) {
            return moved;
        }
        moved = true;
    }
    if (op->desc.count) {
        produce(comm, op);
        if (op->status != WEFT_OK) {
            return false;
        }
        wefti_op_all_arrived(op);
    }
    wefti_op_finish(comm, op, WEFT_OK);
    return true;
}
