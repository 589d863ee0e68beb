/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/diagnosis.c - diagnosis of an operation that does not move.
 *
 * All it needs lies in shared memory: a rank's entries are its flight record,
 * and the death of a process shows on its pidfd.
 */
#include "comm/watch/diagnosis.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/control/channel.h"
#include "comm/control/fault.h"
#include "comm/engine/op.h"
#include "comm/engine/request.h"
#include "comm/engine/ticket.h"
#include "comm/steps/agree.h"
#include "comm/steps/expect.h"
#include "comm/steps/meeting.h"
#include "comm/steps/step_gates.h"
#include "comm/watch/cause.h"
#include "comm/watch/launches.h"
#include "comm/watch/peer_life.h"
#include "comm/watch/waits.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_NS = 20000000,    /* between looks at a stalled operation */
    PAUSE_NS = 1000000000, /* no look for so long: it was us who stood still */
    ASK_NS = 1000000000,   /* between questions whether hosts answer */
    PASSED_ON_NS = 500000000
};

/* The first list of op that waits for something of this rank's own. */
static const wefti_step_list *own_list(const wefti_op *op, wefti_wait wait)
{
    bool lists = wefti_choice_has_steps(&op->choice);
    for (int t = 0; lists && t < WEFTI_STEP_LISTS; t++) {
        const wefti_step_list *list = &op->lists[t];
        if (list->at.next < list->at.count && list->wait == wait) {
            return list;
        }
    }
    const wefti_step_list *only = &op->lists[0]; /* of one shot */
    return !lists && only->wait == wait ? only : NULL;
}

/* The gate of its own that op waits at; false: none. */
static bool find_gate(const wefti_op *op, wefti_wait_record *found)
{
    const wefti_step_list *list =
        op->state == WEFTI_OP_RUNNING ? own_list(op, WEFTI_WAIT_GATE) : NULL;
    const wefti_step *step = list && op->choice.pattern ? &list->step : NULL;
    size_t chunk = 0;
    const bool shut = op->state == WEFTI_OP_POSTED
                          ? wefti_op_find_shut(op, &chunk)
                          : step && wefti_step_find_shut(op, step, &chunk);
    if (!shut && !(step   ? wefti_step_find_unwritable(op, step, &chunk)
                   : list ? wefti_op_find_unwritable(op, &chunk)
                          : false)) {
        return false;
    }
    found->kind = shut ? WEFTI_WAITS_GATE : WEFTI_WAITS_WRITABLE;
    found->count =
        chunk + (shut ? op->desc.ready_chunk : op->desc.writable_chunk);
    found->epoch = op->epoch;
    return true;
}

/* What op waits for that is this rank's own; false: nothing. */
static bool find_own_wait(const wefti_op *op, wefti_wait_record *found)
{
    const bool inside = op->state == WEFTI_OP_RUNNING;
    found->peer = -1;
    if (find_gate(op, found)) {
        return true;
    }
    if (inside && own_list(op, WEFTI_WAIT_DEVICE)) {
        found->kind = WEFTI_WAITS_DEVICE;
        return true;
    }
    return false;
}

/* op as what a rank waits in, for no peer yet. */
static wefti_wait_record record_of(const wefti_op *op)
{
    const weft_collective collective = op->desc.collective;
    return (wefti_wait_record){
        .kind = collective == WEFT_COLLECTIVE_SEND   ? WEFTI_WAITS_SEND
                : collective == WEFT_COLLECTIVE_RECV ? WEFTI_WAITS_RECV
                                                     : WEFTI_WAITS_COLLECTIVE,
        .signature = op->signature.kind,
        .peer = -1,
        .number = op->number,
        .count = op->desc.count};
}

/*
 * Shows the others what this rank waits in: for the rank where the chain to the
 * cause begins, or for itself. Returns whether it waits for itself.
 */
static bool show_wait(weft_comm *comm, const wefti_op *op,
                      const wefti_cause *cause, int64_t now_ns)
{
    const bool remote =
        now_ns - op->moved_ns >
        wefti_waits_patience(comm, wefti_op_limit(comm, op)) / 2;
    wefti_wait_record found = record_of(op), own = found;
    const bool itself = find_own_wait(op, &own);
    const bool leads = cause->awaited >= 0 && !cause->circle && !cause->through;
    if (itself && !leads) {
        wefti_waits_note(comm, op, &own, WEFTI_WEIGHT_OWN, op->moved_ns, now_ns,
                         remote);
    } else if (cause->awaited >= 0) {
        found.peer = comm->peers[cause->awaited].world_rank;
        wefti_waits_note(comm, op, &found,
                         leads ? WEFTI_WEIGHT_CAUSE : WEFTI_WEIGHT_CIRCLE,
                         op->moved_ns, now_ns, remote);
    }
    return itself && !leads;
}

/* Whether all has looked the same for a while: a rank that was kept off its
 * core has had the time to say that it waits. */
static bool is_settled(const wefti_op *op, int64_t wait_ns, int64_t fresh_ns,
                       int64_t now_ns)
{
    const int64_t enough_ns = fresh_ns < wait_ns / 2 ? fresh_ns : wait_ns / 2;
    return now_ns - op->cause_ns >= enough_ns;
}

/*
 * Whether others are to tell, in a barrier's rounds, that peer has entered.
 * They find out sooner than this rank if it never does; if it was lost only
 * after that, the barrier still ends well.
 */
static bool is_told_by_others(const weft_comm *comm, const wefti_op *op,
                              int peer, int64_t now_ns)
{
    const int direct = wefti_meeting_find_awaited(comm, op);
    return op->state == WEFTI_OP_RUNNING && direct >= 0 && direct != peer &&
           wefti_fabric_is_remote(&comm->fabric, peer) &&
           now_ns - op->moved_ns < PASSED_ON_NS;
}

/* In rounds only the rank whose message comes next: whether others have left is
 * seen on their hosts, or by those that wait for their leaders. */
static void doubt(weft_comm *comm, const wefti_op *op, int peer)
{
    const int direct = wefti_meeting_find_awaited(comm, op);
    if (direct < 0 || direct == peer) {
        wefti_peer_doubt(comm, peer, wefti_op_limit(comm, op));
    }
}

/*
 * A peer that will never come: its process has ended, or it has left. It may
 * have done its part just before, so a first look only suspects it: what it
 * sent is there for the push that comes before the second.
 */
static bool find_lost(weft_comm *comm, wefti_op *op, int64_t now_ns)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        bool entered;
        if (peer == comm->rank || !wefti_is_awaited(comm, op, peer, &entered) ||
            is_told_by_others(comm, op, peer, now_ns)) {
            continue;
        }
        const char *how = wefti_peer_lost(comm, peer);
        if (!how) {
            doubt(comm, op, peer);
            continue;
        }
        if (op->suspect != peer) {
            op->suspect = peer;
            op->checked_ns -= LOOK_NS;
            return false;
        }
        char text[96];
        wefti_op_text(comm, op, text, sizeof(text));
        char lost[400];
        wefti_peer_lost_text(comm, peer, how, lost, sizeof(lost));
        wefti_fault_publish(comm, WEFT_ERR_PEER, peer, op->number, "%s: %s",
                            text, lost);
        return true;
    }
    return false;
}

void wefti_watch_hosts(weft_comm *comm, int64_t stalled_ns, int64_t limit_ns,
                       int64_t now_ns,
                       bool (*awaits)(weft_comm *comm, const void *context,
                                      int peer),
                       const void *context)
{
    if (!comm->fabric.net ||
        stalled_ns < wefti_waits_patience(comm, limit_ns) ||
        now_ns - comm->asked_ns < ASK_NS) {
        return;
    }
    comm->asked_ns = now_ns;
    int asked = -1; /* ranks of a domain mostly stand together */
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (wefti_fabric_is_remote(&comm->fabric, peer) &&
            awaits(comm, context, peer) && comm->peers[peer].first != asked) {
            asked = comm->peers[peer].first;
            wefti_control_ping(comm, peer);
        }
    }
}

static bool awaits(weft_comm *comm, const void *context, int peer)
{
    bool entered;
    return wefti_is_awaited(comm, context, peer, &entered);
}

/*
 * Whether somebody has entered something else: a rank whose part is only to
 * send looks at no entry on its way, and would wait for such a peer for ever.
 */
static bool somebody_differs(weft_comm *comm, wefti_op *op)
{
    bool inside =
        op->state == WEFTI_OP_RUNNING || op->state == WEFTI_OP_DRAINING;
    for (int peer = 0; inside && peer < comm->nranks; peer++) {
        (void)wefti_op_check_peer(comm, op, peer);
    }
    return wefti_fault_is_published(comm);
}

/* This rank's own compute is late: no fault of a peer, and one word of it. */
static void warn_of_own(weft_comm *comm, wefti_op *op)
{
    wefti_wait_record own = record_of(op);
    char text[96], what[128];
    if (!op->warned && find_own_wait(op, &own)) {
        op->warned = true;
        memcpy(own.name, comm->name, sizeof(own.name));
        wefti_op_text(comm, op, text, sizeof(text));
        wefti_waits_text(comm, &own, what, sizeof(what));
        wefti_log(WEFTI_LOG_WARN, comm->rank, "%s: rank %d waits %s", text,
                  comm->rank, what);
    }
}

/* Warns, or fails the communicator, if it is time for that. */
static void judge(weft_comm *comm, wefti_op *op, const wefti_cause *cause,
                  bool itself, int64_t now_ns)
{
    const int64_t limit_ns = wefti_op_limit(comm, op);
    const int64_t stalled_ns = now_ns - op->moved_ns;
    const int64_t fresh_ns = wefti_waits_fresh_ns(limit_ns);
    const bool late = stalled_ns >= limit_ns;
    const int64_t wait_ns = late ? limit_ns : comm->warn_ns;
    char text[96], who[400];
    if (itself) {
        if (late) {
            warn_of_own(comm, op);
        }
        return;
    }
    if ((!late && (op->warned || stalled_ns < comm->warn_ns)) ||
        cause->awaited < 0 ||
        (stalled_ns / 2 < limit_ns &&
         !is_settled(op, wait_ns, fresh_ns, now_ns))) {
        return;
    }
    wefti_op_text(comm, op, text, sizeof(text));
    wefti_cause_text(comm, op, cause, fresh_ns, who, sizeof(who));
    if (late) {
        wefti_fault_publish(comm, WEFT_ERR_TIMEOUT, cause->rank, op->number,
                            "%s: %s", text, who);
    } else {
        op->warned = true;
        wefti_log(WEFTI_LOG_WARN, comm->rank, "%s: %s", text, who);
    }
}

/*
 * Looks for dead peers after 20 ms, warns after warn_ns, fails the communicator
 * after op's own limit, else timeout_ns. Costs one coarse clock call.
 */
static void ask_why(weft_comm *comm, wefti_op *op)
{
    int64_t now_ns = wefti_clock_coarse_ns();
    if (op->moved_ns == 0) {
        op->moved_ns = op->checked_ns = now_ns;
        return;
    }
    if (op->checked_ns < op->moved_ns) {
        op->checked_ns = op->moved_ns;
    }
    int64_t since_ns = now_ns - op->checked_ns;
    if (since_ns < LOOK_NS) {
        return;
    }
    if (since_ns > PAUSE_NS) {
        op->moved_ns += since_ns; /* a stopped job goes on when continued */
    }
    op->checked_ns = now_ns;
    const int64_t limit_ns = wefti_op_limit(comm, op);
    const int64_t fresh_ns = wefti_waits_fresh_ns(limit_ns);
    const wefti_cause cause = wefti_cause_of_op(comm, op, fresh_ns);
    if (cause.world != op->cause || since_ns > PAUSE_NS || !op->cause_ns) {
        op->cause = cause.world;
        op->cause_ns = now_ns;
    }
    const bool itself = show_wait(comm, op, &cause, now_ns);
    if (somebody_differs(comm, op)) {
        return;
    }
    if (comm->engine->members && find_lost(comm, op, now_ns)) {
        return;
    }
    wefti_watch_hosts(comm, now_ns - op->moved_ns, limit_ns, now_ns, awaits,
                      op);
    judge(comm, op, &cause, itself, now_ns);
}

static void note_stream(weft_comm *comm, const wefti_request *request)
{
    const wefti_title title = request->kind->describe(comm, request);
    wefti_wait_record found = {.signature = title.kind, .number = title.number};
    wefti_waits_note_stream(comm, wefti_gate_get_device(request->ticket->start),
                            request->ticket->stream, &found);
}

const wefti_watch wefti_diagnosis = {.launched = wefti_launches_look,
                                     .stalled = ask_why,
                                     .stands = note_stream,
                                     .expects = wefti_expect};
