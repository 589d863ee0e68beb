/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/payload.c - entries, areas and lent buffers.
 *
 * entry.number, stored behind all this, publishes the payload and where it is.
 * entry.met (reader's store) pairs with find_reader's load: the reader is done
 * with what it was lent. Areas: comm/steps/area.h.
 */
#include "comm/steps/payload.h"

#include "base/check.h"
#include "base/prefetch.h"
#include "comm/pattern/shape.h"
#include "comm/steps/area.h"
#include "comm/steps/host_blocks.h"
#include "comm/steps/op_life.h"
#include "comm/steps/unstaged.h"
#include "kernels/wire/reduce.h"

#include <string.h>

enum { PREFETCH_MOST_BYTES = 8 << 10 };

/* Of a payload that is not in the entry, in place of it. */
typedef struct whereabouts {
    uint64_t offset; /* from its rank's region, or in the domain's memory */
    uint64_t place;  /* STAGED or MAPPED */
} whereabouts;

_Static_assert(sizeof(whereabouts) == sizeof(((wefti_entry *)NULL)->payload),
               "takes the payload's room");

static wefti_entry *entry_of(const weft_comm *comm, const wefti_op *op,
                             int rank)
{
    return wefti_shared_get_entry(&comm->fabric.shared, rank, op->number);
}

static size_t all_bytes(const weft_comm *comm, const wefti_op *op)
{
    return wefti_oneshot_bytes(comm->nranks, &op->desc, &op->role);
}

static bool fits_entry(size_t bytes)
{
    return bytes <= WEFTI_ENTRIES_BYTES;
}

bool wefti_payload_own_is_here(const wefti_op *op)
{
    return !op->places.send && !op->desc.scale;
}

/* A root that all send to is nobody's source but its own. */
static bool is_read(const weft_comm *comm, const wefti_op *op)
{
    const bool keeps =
        comm->nranks == 1 || (op->role.shape->receives == WEFTI_WHO_ROOT &&
                              comm->rank == op->desc.root);
    return op->role.sends && !(keeps && wefti_payload_own_is_here(op));
}

size_t wefti_payload_bytes(const weft_comm *comm, const wefti_op *op)
{
    return is_read(comm, op) ? all_bytes(comm, op) : 0;
}

unsigned char *wefti_payload_take_area(weft_comm *comm, const wefti_op *op,
                                       bool far)
{
    unsigned char *area = wefti_area_take(comm, op, far);
    if (!area) {
        wefti_op_look_completed(comm);
        area = wefti_area_take_any(comm, op);
    }
    return area;
}

/* ---- showing ------------------------------------------------------------- */

/* All parts but this rank's own. */
static void copy_others(weft_comm *comm, unsigned char *place,
                        const unsigned char *payload, size_t bytes, size_t part)
{
    wefti_stager *stager = &comm->engine->stager;
    const size_t before = (size_t)comm->rank * part, behind = before + part;
    wefti_stager_copy(stager, place, payload, before);
    wefti_stager_copy(stager, place + behind, payload + behind, bytes - behind);
}

/* Whether a rank's own part of a payload stays where it is. */
static bool leaves_own(const wefti_op *op)
{
    return op->role.shape->send_parts && wefti_payload_own_is_here(op) &&
           !wefti_host_blocks_carry(op);
}

static size_t longest_copy(const weft_comm *comm, const wefti_op *op,
                           size_t bytes)
{
    const size_t part = op->desc.count * op->role.elem_bytes;
    const size_t before = (size_t)comm->rank * part;
    const size_t behind = bytes - before - part;
    return !leaves_own(op) ? bytes : before > behind ? before : behind;
}

/* What peers read of it; a rank's own part need not be there, but for its
 * leader. */
static void copy_out(weft_comm *comm, const wefti_op *op, unsigned char *place,
                     const unsigned char *payload, size_t bytes)
{
    const size_t part = op->desc.count * op->role.elem_bytes;
    if (op->desc.scale) {
        wefti_scale(place, payload, op->desc.scale, bytes / op->role.elem_bytes,
                    op->desc.dtype);
    } else if (leaves_own(op)) {
        copy_others(comm, place, payload, bytes, part);
    } else {
        wefti_stager_copy(&comm->engine->stager, place, payload, bytes);
    }
}

void wefti_payload_show(weft_comm *comm, wefti_op *op, const void *payload)
{
    const size_t bytes = wefti_payload_bytes(comm, op);
    wefti_entry *entry = entry_of(comm, op, comm->rank);
    if (bytes == 0) {
        return;
    }
    if (fits_entry(bytes)) {
        copy_out(comm, op, wefti_entry_payload(entry, bytes), payload, bytes);
        return;
    }
    whereabouts at = {.place = WEFTI_PLACE_MAPPED};
    if (wefti_unstaged_choose(comm, op) == WEFTI_PLACE_MAPPED &&
        wefti_mapped_locate(comm->fabric.mapped, payload, bytes, &at.offset)) {
        op->unstaged = WEFTI_PLACE_MAPPED;
        comm->fabric.unstaged_bytes += bytes;
    } else {
        unsigned char *area = wefti_payload_take_area(
            comm, op,
            wefti_stager_is_far(&comm->engine->stager,
                                longest_copy(comm, op, bytes)));
        at.offset = (uint64_t)(area - comm->fabric.shared.regions[comm->rank]);
        at.place = WEFTI_PLACE_STAGED;
        copy_out(comm, op, area, payload, bytes);
    }
    memcpy(entry->payload, &at, sizeof(at));
}

void wefti_payload_prefetch(const weft_comm *comm, const wefti_op *op)
{
    const size_t bytes = wefti_payload_bytes(comm, op);
    const wefti_entry *next = wefti_shared_get_entry(
        &comm->fabric.shared, comm->rank, op->number + 1);
    if (bytes == 0 || bytes > PREFETCH_MOST_BYTES ||
        op->unstaged != WEFTI_PLACE_STAGED) {
        return;
    }
    if (fits_entry(bytes)) {
        wefti_prefetch_write(next, bytes <= sizeof(next->payload)
                                       ? sizeof(*next)
                                       : sizeof(*next) + bytes);
        return;
    }
    wefti_area_prefetch(comm, bytes);
    wefti_prefetch_write(next, sizeof(*next));
}

/* ---- reading ------------------------------------------------------------- */

const unsigned char *wefti_payload_find(weft_comm *comm, const wefti_op *op,
                                        int rank, bool *lent)
{
    wefti_entry *entry = entry_of(comm, op, rank);
    const size_t bytes = all_bytes(comm, op);
    whereabouts at;
    if (rank == comm->rank && wefti_payload_own_is_here(op)) {
        return op->desc.send;
    }
    if (wefti_fabric_is_remote(&comm->fabric, rank) &&
        wefti_host_blocks_carry(op)) {
        return wefti_host_blocks_find(comm, op, rank);
    }
    if (fits_entry(bytes)) {
        return wefti_entry_payload(entry, bytes);
    }
    memcpy(&at, entry->payload, sizeof(at));
    if (at.place == WEFTI_PLACE_STAGED) {
        return comm->fabric.shared.regions[rank] + at.offset;
    }
    const void *found =
        wefti_mapped_find(comm->fabric.mapped, at.offset, bytes);
    WEFTI_ASSERT(found); /* all members keep it */
    *lent = true;
    return found;
}

void wefti_payload_give_back(weft_comm *comm, const wefti_op *op)
{
    atomic_store(&entry_of(comm, op, comm->rank)->met, op->number);
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank) {
            wefti_doorbell_ring(comm->bells[peer]);
        }
    }
}

int wefti_payload_find_reader(weft_comm *comm, const wefti_op *op)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank &&
            wefti_shape_moves(op->role.shape, op->desc.root, comm->rank,
                              peer) &&
            atomic_load(&entry_of(comm, op, peer)->met) != op->number) {
            return peer;
        }
    }
    return -1;
}
