/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/agree.c - comparing what ranks have entered, sent and expect.
 *
 * A peer's entry is read after its number was loaded, which pairs with the
 * store in comm/steps/entry.c; no rank writes over it before this rank has
 * settled the operation (comm/engine/op.c).
 */
#include "comm/steps/agree.h"

#include "base/clock.h"
#include "comm/control/fault.h"
#include "comm/core/select.h"
#include "comm/engine/op.h"
#include "comm/pattern/parts.h"
#include "comm/pattern/shape.h"
#include "comm/steps/common_counts.h"
#include "comm/steps/meeting.h"
#include "comm/steps/signature_text.h"

#include <stdio.h>
#include <string.h>

/* All but which algorithm they chose is the same: that is said in words. And
 * of messages all but what comes before. */
static void append_choice(wefti_signature mine, wefti_signature theirs,
                          bool message, char *text, size_t text_bytes)
{
    const uint8_t choice = wefti_signature_choice(mine);
    const uint64_t others =
        UINT64_C(0xff) << 24 | (message ? UINT64_C(0xffffff) << 32 : 0);
    const size_t used = strlen(text);
    if (mine.count != theirs.count || mine.cut != theirs.cut ||
        (mine.kind | others) != (theirs.kind | others)) {
        return;
    }
    if (choice != wefti_signature_choice(theirs)) {
        snprintf(text + used, text_bytes - used, ", by %s",
                 message && !choice ? "weft's own steps"
                                    : wefti_choice_name(choice));
    } else if (message) {
        snprintf(text + used, text_bytes - used,
                 ", by %s behind %u collectives", wefti_choice_name(choice),
                 wefti_signature_root(mine));
    }
}

void wefti_op_report_mismatch(weft_comm *comm, const wefti_op *op, int peer,
                              wefti_signature theirs)
{
    char mine_text[128], theirs_text[128];
    bool message = wefti_op_slot_is_p2p(op->op_slot);
    wefti_signature mine = op->signature;
    if (message) { /* both sides sign as the sender does */
        mine.kind = (mine.kind & ~(uint64_t)0xff) | WEFT_COLLECTIVE_RECV;
    }
    wefti_signature_text(comm, mine, mine_text, sizeof(mine_text));
    wefti_signature_text(comm, theirs, theirs_text, sizeof(theirs_text));
    wefti_signature alike = theirs;
    if (message) {
        alike.kind = (alike.kind & ~(uint64_t)0xff) | (mine.kind & 0xff);
    }
    append_choice(mine, alike, message, mine_text, sizeof(mine_text));
    append_choice(alike, mine, message, theirs_text, sizeof(theirs_text));
    wefti_fault_publish(comm, WEFT_ERR_MISMATCH, peer, op->number,
                        "%s #%llu on \"%s\" differs: rank %d posted %s, rank "
                        "%d posted %s",
                        message ? "message" : "operation",
                        (unsigned long long)op->number, comm->name, comm->rank,
                        mine_text, peer, theirs_text);
}

size_t wefti_op_declare_counts(weft_comm *comm, wefti_op *op)
{
    if (wefti_op_has_common_counts(op)) {
        return wefti_common_counts_declare(comm, op);
    }
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (!wefti_fabric_is_remote(&comm->fabric, peer)) {
            *wefti_shared_get_count(&comm->fabric.shared, comm->rank, peer,
                                    op->number) =
                wefti_part_to(&op->problem, peer).elems;
        }
    }
    return 0;
}

/* Whether peer sends as much as this rank expects; it has entered. */
static bool counts_agree(weft_comm *comm, const wefti_op *op, int peer)
{
    if (!op->role.shape->varied || wefti_op_has_common_counts(op)) {
        return true;
    }
    uint64_t sent = *wefti_shared_get_count(&comm->fabric.shared, peer,
                                            comm->rank, op->number);
    uint64_t expected = wefti_part_from(&op->problem, peer).elems;
    if (sent == expected) {
        return true;
    }
    wefti_fault_publish(comm, WEFT_ERR_MISMATCH, peer, op->number,
                        "operation #%llu on \"%s\" differs: rank %d posted %s "
                        "with %llu %s for rank %d, rank %d expects %llu",
                        (unsigned long long)op->number, comm->name, peer,
                        weft_collective_text(op->desc.collective),
                        (unsigned long long)sent,
                        weft_dtype_text(op->desc.dtype), comm->rank, comm->rank,
                        (unsigned long long)expected);
    return false;
}

/* Whether a signature differs from this rank's in the digest of counts alone.
 */
static bool has_other_counts(const wefti_op *op, wefti_signature theirs)
{
    theirs.count = op->signature.count;
    return wefti_op_has_common_counts(op) &&
           wefti_signature_equal(theirs, op->signature);
}

bool wefti_op_check_peer(weft_comm *comm, wefti_op *op, int peer)
{
    if (wefti_op_slot_is_p2p(op->op_slot) || op->checked[peer] == op->number) {
        return true;
    }
    wefti_entry *entry =
        wefti_shared_find_entry(&comm->fabric.shared, peer, op->number);
    if (!entry) {
        return false;
    }
    wefti_signature theirs = {
        atomic_load_explicit(&entry->count, memory_order_relaxed),
        atomic_load_explicit(&entry->kind, memory_order_relaxed),
        atomic_load_explicit(&entry->cut, memory_order_relaxed)};
    const bool told =
        entry == wefti_shared_get_entry(&comm->fabric.shared, peer, op->number);
    if (!wefti_signature_equal(theirs, op->signature)) {
        if (has_other_counts(op, theirs)) {
            wefti_common_counts_report(comm, op, peer, told ? entry : NULL);
        } else {
            wefti_op_report_mismatch(comm, op, peer, theirs);
        }
        return false;
    }
    if (!told) {
        return false; /* it was only asked */
    }
    if (!counts_agree(comm, op, peer)) {
        return false;
    }
    op->checked[peer] = op->number;
    return true;
}

bool wefti_op_needs(const wefti_op *op, int peer)
{
    return op->desc.collective == WEFT_COLLECTIVE_BARRIER ||
           (op->role.receives &&
            wefti_who_has(op->role.shape->sends, peer, op->desc.root));
}

bool wefti_op_check_sources(weft_comm *comm, wefti_op *op)
{
    const bool rounds = wefti_meeting_has_rounds(comm, op);
    bool varied = op->role.shape->varied, moved = false;
    for (; varied && op->missing < comm->nranks; op->missing++) {
        const int peer = op->missing;
        if (!(rounds && wefti_fabric_is_remote(&comm->fabric, peer)) &&
            wefti_op_needs(op, peer) && !wefti_op_check_peer(comm, op, peer)) {
            return false;
        }
    }
    const bool all = !rounds || wefti_meeting_advance(comm, op, &moved);
    if (moved) {
        op->moved_ns = wefti_clock_coarse_ns();
    }
    return all;
}

bool wefti_op_is_signed(const weft_comm *comm, const wefti_op *op, int peer)
{
    return !wefti_op_slot_is_p2p(op->op_slot) &&
           wefti_fabric_is_remote(&comm->fabric, peer) &&
           (!op->role.shape->varied || wefti_meeting_has_rounds(comm, op));
}

bool wefti_op_check_sent(weft_comm *comm, wefti_op *op, int peer,
                         wefti_signature theirs)
{
    if (op->checked[peer] != op->number &&
        !wefti_signature_equal(theirs, op->signature)) {
        if (!has_other_counts(op, theirs)) { /* else rounds say which */
            wefti_op_report_mismatch(comm, op, peer, theirs);
        }
        return false;
    }
    op->checked[peer] = op->number;
    return true;
}

bool wefti_op_is_checked_by(const weft_comm *comm, const wefti_op *op, int peer)
{
    return !wefti_fabric_is_remote(&comm->fabric, peer) ||
           wefti_meeting_hears(comm, op, peer);
}

bool wefti_op_check_all(weft_comm *comm, wefti_op *op)
{
    while (op->unchecked < comm->nranks &&
           (op->checked[op->unchecked] == op->number ||
            !wefti_op_is_checked_by(comm, op, op->unchecked) ||
            wefti_op_check_peer(comm, op, op->unchecked))) {
        op->unchecked++;
    }
    return op->unchecked == comm->nranks;
}

bool wefti_op_check_bytes(weft_comm *comm, const wefti_op *op, int peer,
                          size_t sent_bytes, size_t expected_bytes)
{
    if (sent_bytes == expected_bytes) {
        return true;
    }
    char what[96];
    wefti_op_text(comm, op, what, sizeof(what));
    wefti_fault_publish(comm, WEFT_ERR_MISMATCH, peer, op->number,
                        "%s: rank %d sent a message of %zu bytes where rank %d "
                        "expects %zu",
                        what, peer, sent_bytes, comm->rank, expected_bytes);
    return false;
}

bool wefti_op_may_read(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    const wefti_step_kind kind = list->step.kind;
    const bool reads = kind == WEFTI_STEP_RECV || kind == WEFTI_STEP_REDUCE ||
                       kind == WEFTI_STEP_RELAY;
    /* What a rank passes on, others have counted. */
    const bool passed_on = op->choice.pattern == &wefti_pattern_hierarchical ||
                           op->problem.nest || list->step.bundled;
    if (!reads || !passed_on || wefti_meeting_has_rounds(comm, op) ||
        wefti_op_check_sources(comm, op)) {
        return true;
    }
    list->peer = op->missing;
    return false;
}
