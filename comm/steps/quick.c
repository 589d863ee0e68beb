/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/quick.c - the shortest way through comm/steps/entry.c.
 *
 *   enter   payload, signature, number into this rank's entry
 *           the operation is filled in: the line is on its way meanwhile
 *   begin   running, as if it had entered in its turn; those before are settled
 *   look    the peers' entries -> result -> done
 *
 * What look does not end goes on as any other of its kind, and a mismatch is
 * wefti_op_check_peer's to report. entry.number: see comm/steps/entry.c.
 *
 * A rank looks at the entry of a peer that it needs nothing of, as a root
 * does, only when it has entered the next operation: the peer is mostly about
 * to write that line, and would have to fetch it back. At the latest it does
 * so before that one ends.
 */
#include "comm/steps/quick.h"

#include "base/clock.h"
#include "base/prefetch.h"
#include "comm/core/wake.h"
#include "comm/engine/op.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/entry.h"
#include "comm/steps/op_life.h"
#include "comm/steps/payload.h"

#include <string.h>

bool wefti_quick_suits(const weft_comm *comm, const weft_op *desc,
                       const wefti_role *role, const wefti_choice *choice)
{
    return choice->pattern == &wefti_pattern_oneshot && !comm->fabric.net &&
           comm->nranks > 1 && !comm->observer.moved && !desc->scale &&
           comm->fabric.ns_per_byte <= 0 && !wefti_op_is_gated(desc) &&
           wefti_oneshot_bytes(comm->nranks, desc, role) <=
               WEFTI_ENTRIES_BYTES &&
           !atomic_load_explicit(&comm->fabric.shared.header->observed,
                                 memory_order_relaxed);
}

/* What peers read of this rank's; a root that all send to shows nothing. */
static size_t shown_bytes(const weft_comm *comm, const wefti_quick *quick)
{
    const wefti_role *role = quick->role;
    const bool shows =
        role->sends && (role->shape->receives != WEFTI_WHO_ROOT ||
                        comm->rank != quick->desc->root);
    return shows ? wefti_oneshot_bytes(comm->nranks, quick->desc, role) : 0;
}

static void show(const weft_comm *comm, const wefti_quick *quick, size_t bytes)
{
    const weft_op *desc = quick->desc;
    unsigned char *place = wefti_entry_payload(
        wefti_shared_get_entry(&comm->fabric.shared, comm->rank, quick->number),
        bytes);
    if (quick->role->shape->send_parts) {
        /* all parts but this rank's own */
        const size_t part = desc->count * quick->role->elem_bytes;
        const size_t before = (size_t)comm->rank * part, behind = before + part;
        const unsigned char *parts = desc->send;
        memcpy(place, parts, before);
        memcpy(place + behind, parts + behind, bytes - behind);
    } else {
        memcpy(place, desc->send, bytes);
    }
}

/* Where the next operation will write. */
static void prefetch(const weft_comm *comm, uint64_t number, size_t bytes)
{
    const wefti_entry *next =
        wefti_shared_get_entry(&comm->fabric.shared, comm->rank, number + 1);
    wefti_prefetch_write(next, bytes <= sizeof(next->payload)
                                   ? sizeof(*next)
                                   : sizeof(*next) + bytes);
}

/* Whether there is something to settle before number. */
static bool is_behind(const weft_comm *comm, uint64_t number)
{
    return comm->settled + 1 < number;
}

/* What begin will settle. */
static void prefetch_last(const weft_comm *comm, uint64_t number)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        __builtin_prefetch(
            wefti_shared_get_entry(&comm->fabric.shared, peer, number - 1));
    }
}

bool wefti_quick_enter(weft_comm *comm, const wefti_quick *quick)
{
    const size_t bytes = shown_bytes(comm, quick);
    if (!wefti_op_may_enter(comm, quick->number)) {
        return false;
    }
    if (is_behind(comm, quick->number)) {
        prefetch_last(comm, quick->number);
    }
    if (bytes) {
        show(comm, quick, bytes);
    }
    wefti_entry_publish(comm, quick->number, quick->signature,
                        wefti_clock_coarse_ns());
    if (wefti_engine_spins(comm->engine)) {
        prefetch(comm, quick->number, bytes);
    }
    return true;
}

void wefti_quick_begin(weft_comm *comm, wefti_op *op)
{
    const wefti_entry *entry =
        wefti_shared_get_entry(&comm->fabric.shared, comm->rank, op->number);
    op->state = WEFTI_OP_RUNNING;
    op->entered_ns = op->moved_ns =
        atomic_load_explicit(&entry->stamp_ns, memory_order_relaxed);
    op->checked[comm->rank] = op->number;
    op->unchecked = 0;
    op->lists[0].phase = WEFTI_PHASE_READY;
    op->lists[0].wait = WEFTI_WAIT_NOTHING;
    op->lists[0].lent = false;
    wefti_comm_note(comm, op->number, op->signature.kind);
    wefti_oneshot_take_own(comm, op);
    if (is_behind(comm, op->number)) {
        wefti_op_settle_before(comm, op->number);
    }
}

/* Whether peer has entered the same. */
static bool is_here(weft_comm *comm, wefti_op *op, int peer)
{
    const wefti_entry *entry =
        wefti_shared_get_entry(&comm->fabric.shared, peer, op->number);
    if (atomic_load(&entry->number) != op->number) {
        return false;
    }
    const wefti_signature theirs = {
        atomic_load_explicit(&entry->count, memory_order_relaxed),
        atomic_load_explicit(&entry->kind, memory_order_relaxed),
        atomic_load_explicit(&entry->cut, memory_order_relaxed)};
    if (!wefti_signature_equal(theirs, op->signature)) {
        return wefti_op_check_peer(comm, op, peer);
    }
    op->checked[peer] = op->number;
    return true;
}

bool wefti_quick_look(weft_comm *comm, wefti_op *op)
{
    for (; op->missing < comm->nranks; op->missing++) {
        if (op->missing != comm->rank && wefti_op_needs(op, op->missing) &&
            !is_here(comm, op, op->missing)) {
            return false;
        }
    }
    if (!wefti_op_may_end(comm, op)) {
        return false;
    }
    if (op->desc.count) {
        (void)wefti_oneshot_produce(comm, op, op->desc.recv);
    }
    op->lists[0].phase = WEFTI_PHASE_STORE;
    wefti_op_finish_plain(comm, op);
    return true;
}
