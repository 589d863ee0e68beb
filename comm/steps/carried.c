/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/carried.c - comparing what ranks have entered, and looking whether
 * the stream has come to the operation's end.
 *
 * A sender's message may end before its receiver has read the signature: NCCL
 * may have taken the bytes over. The receiver's never ends unread.
 */
#include "comm/steps/carried.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/engine/engine.h"
#include "comm/engine/op.h"
#include "comm/engine/request.h"
#include "comm/engine/ticket.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/entry.h"
#include "comm/steps/op_life.h"
#include "comm/streams/streams.h"

#include <stdio.h>

void wefti_carried_enter(weft_comm *comm, wefti_op *op)
{
    op->lists[0].wait = WEFTI_WAIT_PEER;
    const size_t told_bytes =
        op->role.shape->varied ? wefti_op_declare_counts(comm, op) : 0;
    if (comm->observer.moved && !wefti_choice_is_captured(&op->choice)) {
        wefti_op_piece_open(op);
        op->piece.bytes =
            ((op->role.sends ? op->send_elems : 0) +
             (op->role.receives && op->desc.recv ? op->recv_elems : 0)) *
            op->role.elem_bytes;
    }
    wefti_oneshot_announce(comm, op, told_bytes, 0);
}

static void finish(weft_comm *comm, wefti_op *op)
{
    if ((op->role.sends && wefti_op_find_failed(comm, op, op->desc.ready)) ||
        (op->role.receives &&
         wefti_op_find_failed(comm, op, op->desc.writable))) {
        return;
    }
    if (op->desc.arrived && op->desc.count && op->role.receives &&
        op->desc.recv && !op->role.shape->varied) {
        wefti_op_all_arrived(op);
    }
    if (op->choice.route == WEFTI_ROUTE_STREAMS &&
        !wefti_choice_is_captured(&op->choice)) {
        wefti_streams_count_done(comm->streams);
    }
    wefti_op_finish(comm, op, WEFT_OK);
}

/* Streams are not at it before this rank's own gate is open. */
static bool is_shut(weft_comm *comm, const wefti_op *op)
{
    size_t chunk;
    const bool shut = wefti_op_find_unwritable(op, &chunk);
    if (shut) {
        wefti_engine_look(comm->engine, op->desc.writable);
    }
    return shut;
}

/* All ranks are inside: what carries it out is bounded all the same. since_ns:
 * nothing else holds it up. */
static void watch(weft_comm *comm, wefti_op *op, int64_t since_ns)
{
    const char *who = wefti_op_slot_is_p2p(op->op_slot) ? "both" : "all";
    const int64_t limit_ns = wefti_op_limit(comm, op);
    const int64_t stalled_ns = wefti_clock_coarse_ns() - since_ns;
    char text[96], what[128];
    const char *carrier =
        op->choice.route == WEFTI_ROUTE_NCCL ? "NCCL has" : "streams have";
    if (stalled_ns >= limit_ns) {
        snprintf(what, sizeof(what),
                 "%s not ended it within %lld ms, though %s ranks have "
                 "entered it",
                 carrier, (long long)(limit_ns / 1000000), who);
        wefti_op_fail(comm, op, WEFT_ERR_TIMEOUT, what);
    } else if (stalled_ns >= comm->warn_ns && !op->warned) {
        op->warned = true;
        wefti_op_text(comm, op, text, sizeof(text));
        wefti_log(WEFTI_LOG_WARN, comm->rank,
                  "%s: %s ranks have entered, %s not ended it for %lld ms",
                  text, who, carrier, (long long)(stalled_ns / 1000000));
    }
}

static void hand_over(wefti_op *op)
{
    op->lists[0].wait = WEFTI_WAIT_DEVICE;
    op->piece.ready_ns = wefti_clock_ns();
    op->moved_ns = wefti_clock_coarse_ns();
}

bool wefti_carried_advance(weft_comm *comm, wefti_op *op)
{
    const int seen = op->unchecked;
    const bool all = wefti_op_check_all(comm, op);
    if (op->unchecked != seen) {
        op->moved_ns = wefti_clock_coarse_ns();
    }
    if (all && op->lists[0].wait != WEFTI_WAIT_DEVICE) {
        op->lists[0].wait = WEFTI_WAIT_GATE;
        if (!is_shut(comm, op)) {
            hand_over(op);
        }
    }
    if (wefti_choice_is_captured(&op->choice)) {
        if (all) { /* launches are the graph's */
            finish(comm, op);
        }
        return op->unchecked != seen;
    }
    /* In this order: a rank says so before it lets its streams go. */
    if (wefti_ticket_passed(comm, op->ticket) &&
        (op->choice.route != WEFTI_ROUTE_STREAMS ||
         wefti_streams_are_right(comm->streams))) {
        finish(comm, op);
        return true;
    }
    if (op->lists[0].wait == WEFTI_WAIT_DEVICE) {
        watch(comm, op, op->moved_ns);
    }
    return op->unchecked != seen;
}

/* ---- messages -------------------------------------------------------------
 */

void wefti_carried_enter_message(weft_comm *comm, wefti_op *op)
{
    op->lists[0].wait = WEFTI_WAIT_PEER;
    op->piece.bytes =
        op->desc.root == comm->rank ? 0 : op->desc.count * op->role.elem_bytes;
}

/* Whether the signature has gone out now. */
static bool send_signature(weft_comm *comm, wefti_op *op,
                           wefti_fabric_path path)
{
    if (op->sends[0] || !wefti_fabric_has_room(&comm->fabric, path)) {
        return false;
    }
    const uint64_t slots = wefti_fabric_p2p_slots(&comm->fabric, path.peer);
    const size_t slot =
        (size_t)(wefti_fabric_posted(&comm->fabric, path) % slots);
    const wefti_outgoing message = {
        .data = wefti_fabric_stage(&comm->fabric, path, -1, slot),
        .signature = op->signature,
        .slots = (int)slots,
        .urgent = wefti_class_is_urgent(op->desc.class_id)};
    wefti_fabric_post(&comm->fabric, path, &message);
    op->sends[0]++;
    return true;
}

/* Whether it has come and is as this rank's own. */
static bool take_signature(weft_comm *comm, const wefti_op *op,
                           wefti_fabric_path path)
{
    wefti_incoming message;
    if (!wefti_fabric_peek(&comm->fabric, path, &message,
                           &comm->engine->due_ns)) {
        return false;
    }
    if (!wefti_signature_equal(message.signature, op->signature)) {
        wefti_op_report_mismatch(comm, op, path.peer, message.signature);
        return false;
    }
    wefti_fabric_release(&comm->fabric, path);
    return true;
}

/* One less that holds up the others of its list. */
static void leave_unmet(wefti_op *op)
{
    hand_over(op);
    if (--op->ticket->unmet == 0) {
        op->ticket->met_ns = op->moved_ns;
    }
}

/* Whether the other side is known to be there, which it stays. */
static bool meet(weft_comm *comm, wefti_op *op)
{
    const wefti_fabric_path path = {op->desc.root, op->op_slot, 0};
    const bool sends = op->desc.collective == WEFT_COLLECTIVE_SEND;
    bool moved =
        sends ? send_signature(comm, op, path) : take_signature(comm, op, path);
    const bool met =
        sends ? op->sends[0] && wefti_fabric_read_by(&comm->fabric, path) >=
                                    wefti_fabric_posted(&comm->fabric, path)
              : moved;
    if (met) {
        op->lists[0].wait = WEFTI_WAIT_GATE;
    }
    return moved || met;
}

/* Whether all that it stands for has been done. */
static bool is_over(weft_comm *comm, const wefti_op *op)
{
    const bool signs = op->desc.collective == WEFT_COLLECTIVE_SEND
                           ? op->sends[0] > 0
                           : op->lists[0].wait == WEFTI_WAIT_DEVICE;
    return signs && (op->brief ? op->lists[0].wait == WEFTI_WAIT_DEVICE
                               : wefti_ticket_passed(comm, op->ticket));
}

bool wefti_carried_advance_message(weft_comm *comm, wefti_op *op)
{
    const bool moved = op->lists[0].wait == WEFTI_WAIT_PEER && meet(comm, op);
    if (moved) {
        op->moved_ns = wefti_clock_coarse_ns();
    }
    if (op->lists[0].wait == WEFTI_WAIT_GATE && !is_shut(comm, op)) {
        leave_unmet(op);
    }
    if (is_over(comm, op)) {
        if (op->lists[0].wait != WEFTI_WAIT_DEVICE) {
            leave_unmet(op);
        }
        finish(comm, op);
        return true;
    }
    /* One that the others of its list hold up is not to blame. */
    if (op->lists[0].wait == WEFTI_WAIT_DEVICE && op->ticket->unmet == 0) {
        watch(comm, op,
              op->moved_ns > op->ticket->met_ns ? op->moved_ns
                                                : op->ticket->met_ns);
    }
    return moved;
}
