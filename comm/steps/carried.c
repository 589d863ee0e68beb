/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/carried.c - comparing what ranks have entered, and looking whether
 * the stream has come to the operation's end.
 */
#include "comm/steps/carried.h"

#include "base/clock.h"
#include "base/log.h"
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
    if (op->role.shape->varied) {
        wefti_op_declare_counts(comm, op);
    }
    if (comm->observer.moved && !wefti_choice_is_captured(&op->choice)) {
        wefti_op_piece_open(op);
        op->piece.bytes =
            ((op->role.sends ? op->send_elems : 0) +
             (op->role.receives && op->desc.recv ? op->recv_elems : 0)) *
            op->role.elem_bytes;
    }
    wefti_oneshot_announce(comm, op, 0, 0);
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

/* All ranks are inside: what carries it out is bounded all the same. */
static void watch(weft_comm *comm, wefti_op *op)
{
    const int64_t limit_ns = wefti_op_limit(comm, op);
    const int64_t stalled_ns = wefti_clock_coarse_ns() - op->moved_ns;
    char text[96], what[128];
    const char *carrier =
        op->choice.route == WEFTI_ROUTE_NCCL ? "NCCL has" : "streams have";
    if (stalled_ns >= limit_ns) {
        snprintf(what, sizeof(what),
                 "%s not ended it within %lld ms, though all ranks have "
                 "entered it",
                 carrier, (long long)(limit_ns / 1000000));
        wefti_op_fail(comm, op, WEFT_ERR_TIMEOUT, what);
    } else if (stalled_ns >= comm->warn_ns && !op->warned) {
        op->warned = true;
        wefti_op_text(comm, op, text, sizeof(text));
        wefti_log(WEFTI_LOG_WARN, comm->rank,
                  "%s: all ranks have entered, %s not ended it for %lld ms",
                  text, carrier, (long long)(stalled_ns / 1000000));
    }
}

bool wefti_carried_advance(weft_comm *comm, wefti_op *op)
{
    const int seen = op->unchecked;
    const bool all = wefti_op_check_all(comm, op);
    if (op->unchecked != seen) {
        op->moved_ns = wefti_clock_coarse_ns();
    }
    if (all && op->lists[0].wait == WEFTI_WAIT_PEER) {
        op->lists[0].wait = WEFTI_WAIT_DEVICE;
        op->piece.ready_ns = wefti_clock_ns();
    }
    if (wefti_choice_is_captured(&op->choice)) {
        if (all) { /* launches are the graph's */
            finish(comm, op);
        }
        return op->unchecked != seen;
    }
    /* In this order: a rank says so before it lets its streams go. */
    if (wefti_ticket_passed(comm, op->request->ticket) &&
        (op->choice.route != WEFTI_ROUTE_STREAMS ||
         wefti_streams_are_right(comm->streams))) {
        finish(comm, op);
        return true;
    }
    if (all) {
        watch(comm, op);
    }
    return op->unchecked != seen;
}
