/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/diagnosis.c - diagnosis of an operation that does not move.
 *
 * All it needs lies in shared memory: a rank's entries are its flight record,
 * and the death of a process shows on its pidfd.
 */
#include "comm/control/diagnosis.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/control/channel.h"
#include "comm/control/elsewhere.h"
#include "comm/control/fault.h"
#include "comm/control/stuck.h"
#include "comm/fabric/remote.h"
#include "comm/net/net.h"
#include "comm/op.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_NS = 20000000,    /* between looks at a stalled operation */
    PAUSE_NS = 1000000000, /* no look for so long: it was us who stood still */
    ASK_NS = 1000000000,   /* between questions whether hosts answer */
    LISTED_RANKS = 16
};

uint64_t wefti_peer_last_entered(weft_comm *comm, int rank, const char **what,
                                 int64_t *when_ns)
{
    uint64_t newest = 0;
    for (uint64_t lane = 0; lane < WEFTI_LANES; lane++) {
        wefti_entry *entry =
            wefti_shared_get_entry(&comm->fabric.shared, rank, lane);
        uint64_t number = atomic_load(&entry->number);
        if (number > newest) {
            newest = number;
            *what = wefti_signature_name(atomic_load(&entry->kind));
            *when_ns = atomic_load(&entry->stamp_ns);
        }
    }
    return newest;
}

/* Whether peer stands between op and its end; entered: it is inside op. */
static bool is_awaited(weft_comm *comm, const wefti_op *op, int peer,
                       bool *entered)
{
    if (op->ring == WEFTI_RING_LETTERS) {
        /* What waits for its own gate or a copy waits for no peer. */
        *entered = false;
        return peer == op->desc.root && op->tracks[0].wait == WEFTI_WAIT_PEER;
    }
    if (op->state == WEFTI_OP_POSTED) {
        wefti_rank_page *page =
            wefti_shared_get_page(&comm->fabric.shared, peer);
        *entered = false;
        return op->number > WEFTI_LANES &&
               atomic_load(&page->completed) < op->number - WEFTI_LANES;
    }
    wefti_entry *entry =
        wefti_shared_get_entry(&comm->fabric.shared, peer, op->number);
    *entered = atomic_load(&entry->number) == op->number;
    if (!*entered) {
        return true;
    }
    if (op->state == WEFTI_OP_DRAINING) {
        wefti_rank_page *page =
            wefti_shared_get_page(&comm->fabric.shared, peer);
        return atomic_load(&page->completed) < op->number;
    }
    for (int t = 0; op->choice.pattern && t < WEFTI_TRACKS; t++) {
        const wefti_track *track = &op->tracks[t];
        if (track->next < track->count && track->wait == WEFTI_WAIT_PEER &&
            track->peer == peer) {
            return true;
        }
    }
    return false;
}

static _Atomic int64_t *waiting_mark(weft_comm *comm, const wefti_op *op,
                                     int rank)
{
    wefti_rank_page *page = wefti_shared_get_page(&comm->fabric.shared, rank);
    return &page->waiting_ns[op->number % WEFTI_LANES];
}

/* An awaited peer that itself waits for somebody is not who holds us up. */
static bool is_only_waiting(weft_comm *comm, const wefti_op *op, int peer)
{
    return op->ring != WEFTI_RING_LETTERS &&
           wefti_clock_coarse_ns() - atomic_load(waiting_mark(comm, op, peer)) <
               WEFTI_FRESH_NS;
}

/* Whether op also waits for what this rank itself has yet to make. */
static bool awaits_itself(const wefti_op *op)
{
    bool tracks = op->ring == WEFTI_RING_LETTERS || op->choice.pattern;
    for (int t = 0; tracks && t < WEFTI_TRACKS; t++) {
        const wefti_track *track = &op->tracks[t];
        if (track->next < track->count && (track->wait == WEFTI_WAIT_GATE ||
                                           track->wait == WEFTI_WAIT_DEVICE)) {
            return true;
        }
    }
    return false;
}

/* How long op may stand still. */
static int64_t limit_of(const weft_comm *comm, const wefti_op *op)
{
    const uint64_t ms = op->desc.timeout_ms;
    return ms == 0                     ? comm->timeout_ns
           : ms >= INT64_MAX / 1000000 ? INT64_MAX
                                       : (int64_t)ms * 1000000;
}

int64_t wefti_watch_patience(const weft_comm *comm, int64_t limit_ns)
{
    const int64_t half_ns = limit_ns / 2;
    return comm->warn_ns < half_ns ? comm->warn_ns : half_ns;
}

/* Tells the others that this rank waits for a peer, not for itself. */
static void leave_mark(weft_comm *comm, const wefti_op *op, int64_t now_ns)
{
    const bool far = now_ns - op->moved_ns >
                     wefti_watch_patience(comm, limit_of(comm, op)) / 2;
    if (op->ring == WEFTI_RING_LETTERS) {
        if (op->tracks[0].wait == WEFTI_WAIT_PEER) {
            wefti_elsewhere_note(comm, op, op->desc.root, now_ns, far);
            wefti_stuck_note(comm, op, now_ns);
            if (far) {
                wefti_remote_tell_stuck(&comm->fabric);
            }
        }
        return;
    }
    for (int peer = 0; peer < comm->nranks && !awaits_itself(op); peer++) {
        bool entered;
        if (peer != comm->rank && is_awaited(comm, op, peer, &entered)) {
            wefti_elsewhere_note(comm, op, peer, now_ns, far);
            atomic_store(waiting_mark(comm, op, comm->rank), now_ns);
            wefti_remote_tell_waiting(&comm->fabric, op->number % WEFTI_LANES);
            return;
        }
    }
}

/* "rank 3 has not entered (its last: #416 all_gather, 9.8 s ago)" */
static void describe(weft_comm *comm, const wefti_op *op, int peer,
                     bool entered, char *text, size_t text_bytes)
{
    const char *what = "";
    int64_t when_ns = 0;
    uint64_t last = wefti_peer_last_entered(comm, peer, &what, &when_ns);
    /* On an emulated link an entry is stamped with when it arrives. */
    int64_t ago_ns = wefti_clock_ns() - when_ns;
    double ago_s = ago_ns > 0 ? (double)ago_ns / 1e9 : 0.0;
    if (op->ring == WEFTI_RING_LETTERS) {
        snprintf(text, text_bytes, "rank %d has not %s", peer,
                 op->desc.collective == WEFT_COLLECTIVE_SEND ? "received"
                                                             : "sent");
    } else if (entered) {
        snprintf(text, text_bytes,
                 "rank %d entered %.1f s ago and does not go on", peer, ago_s);
    } else if (last == 0) {
        snprintf(text, text_bytes, "rank %d has not entered (nor any before)",
                 peer);
    } else {
        snprintf(text, text_bytes,
                 "rank %d has not entered (its last: #%llu %s, %.1f s ago)",
                 peer, (unsigned long long)last, what, ago_s);
    }
}

/* Appends what keeps a rank away that has not entered. */
static void append_stuck(weft_comm *comm, int rank, char *text,
                         size_t text_bytes)
{
    char what[96] = "";
    double waited_s;
    size_t used = strlen(text);
    int peer = -1;
    if (wefti_stuck_get(comm, rank, what, sizeof(what), &waited_s) < 0 &&
        wefti_elsewhere_get(comm, rank, what, sizeof(what), &peer) ==
            WEFTI_ELSEWHERE_MEMBER) {
        snprintf(text + used, text_bytes - used,
                 ": it waits in %s for rank %d%s", what, peer,
                 peer == comm->rank ? ", which waits here: are the two used in "
                                      "different orders?"
                                    : "");
    } else if (what[0]) {
        snprintf(text + used, text_bytes - used, ": it waits in %s", what);
    }
}

/*
 * Who holds up rank, which has not come: whoever it waits for, point to point
 * or on another communicator, and whom that one waits for; rank itself where
 * they wait in a circle.
 */
static int find_cause(weft_comm *comm, int rank)
{
    int cause = rank;
    for (int i = 0; i < comm->nranks; i++) {
        int next = wefti_stuck_get(comm, cause, NULL, 0, NULL);
        if (next == cause) {
            return cause;
        }
        if (next < 0 && (wefti_elsewhere_get(comm, cause, NULL, 0, &next) !=
                             WEFTI_ELSEWHERE_MEMBER ||
                         next == comm->rank)) {
            return cause;
        }
        cause = next;
    }
    return rank;
}

/* Appends " 3" or, for many, only the first few ranks. */
static void append_rank(char *text, size_t text_bytes, int rank, int *listed)
{
    size_t used = strlen(text);
    if (++*listed <= LISTED_RANKS) {
        snprintf(text + used, text_bytes - used, " %d", rank);
    } else if (*listed == LISTED_RANKS + 1) {
        snprintf(text + used, text_bytes - used, " ...");
    }
}

/*
 * Writes whom op waits for and who waits; returns the first awaited, or who
 * holds that one up; -1: nobody. Before all others comes who has not entered:
 * one that has may wait for that one too, and its word of it be late.
 */
static int diagnose(weft_comm *comm, const wefti_op *op, char *text,
                    size_t text_bytes)
{
    char absent[256] = "", waiting[96] = "";
    int first = -1, listed = 0, more = 0;
    bool first_entered = true;
    for (int peer = 0; peer < comm->nranks; peer++) {
        bool entered = true;
        /* A letter to oneself may wait for a call that never comes. */
        bool other = peer != comm->rank || op->ring == WEFTI_RING_LETTERS;
        if (!other || !is_awaited(comm, op, peer, &entered)) {
            if (entered && op->ring != WEFTI_RING_LETTERS) {
                append_rank(waiting, sizeof(waiting), peer, &listed);
            }
            continue;
        }
        if (entered && is_only_waiting(comm, op, peer)) {
            append_rank(waiting, sizeof(waiting), peer, &listed);
        } else if (first < 0 || (first_entered && !entered)) {
            more += first >= 0;
            first = peer;
            first_entered = entered;
            describe(comm, op, peer, entered, absent, sizeof(absent));
            if (peer != comm->rank && !entered) {
                append_stuck(comm, peer, absent, sizeof(absent));
            }
            if (op->ring != WEFTI_RING_LETTERS && !entered) {
                first = find_cause(comm, peer);
            }
        } else {
            more++;
        }
    }
    int used = snprintf(text, text_bytes, "%s", absent);
    if (more && used >= 0 && (size_t)used < text_bytes) {
        used += snprintf(text + used, text_bytes - (size_t)used, " and %d more",
                         more);
    }
    if (listed && used >= 0 && (size_t)used < text_bytes) {
        snprintf(text + used, text_bytes - (size_t)used, "; rank%s%s wait%s",
                 listed > 1 ? "s" : "", waiting, listed > 1 ? "" : "s");
    }
    return first;
}

bool wefti_peer_has_died(const weft_comm *comm, int peer)
{
    if (wefti_remote_is(&comm->fabric, peer)) {
        return wefti_net_is_lost(comm->fabric.net,
                                 comm->peers[peer].world_rank);
    }
    int pidfd =
        comm->engine->members->members[comm->peers[peer].world_rank].pidfd;
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&ended, 1, 0) == 1;
}

bool wefti_peer_is_cut(const weft_comm *comm, int peer)
{
    return wefti_remote_is(&comm->fabric, peer) &&
           wefti_control_get_fate(comm->engine->control,
                                  comm->peers[peer].world_rank) ==
               WEFTI_FATE_CUT;
}

/* Who leaves because of a fault has told it, but from another host that comes
 * by another way, and later. */
static const char *find_leave(weft_comm *comm, int peer, wefti_leave how)
{
    if (wefti_remote_is(&comm->fabric, peer)) {
        const int64_t since_ns =
            wefti_clock_ns() - comm->fabric.lines[peer].left_ns;
        const int64_t told_ns =
            how == WEFTI_LEAVE_WELL ? INT64_C(500000000) : INT64_C(5000000000);
        if (since_ns < told_ns) {
            return NULL;
        }
    }
    return how == WEFTI_LEAVE_WELL
               ? "has destroyed its communicator"
               : "has destroyed its communicator after a fault of which "
                 "nothing was heard here";
}

const char *wefti_watch_lost(weft_comm *comm, int peer)
{
    wefti_rank_page *page = wefti_shared_get_page(&comm->fabric.shared, peer);
    const wefti_leave how = (wefti_leave)atomic_load(&page->left);
    return how != WEFTI_LEAVE_NONE            ? find_leave(comm, peer, how)
           : !wefti_peer_has_died(comm, peer) ? NULL
           : wefti_peer_is_cut(comm, peer)
               ? "does not answer: its host, or the link to it, is down"
               : "has died";
}

void wefti_watch_lost_text(weft_comm *comm, int peer, const char *how,
                           char *text, size_t text_bytes)
{
    wefti_memory_limit now;
    int used = snprintf(text, text_bytes, "rank %d %s", peer, how);
    wefti_memory_limit_read("", &now);
    if (used > 0 && (size_t)used < text_bytes && now.file[0] &&
        now.kills > comm->engine->memory.kills) {
        snprintf(text + used, text_bytes - (size_t)used,
                 ": the kernel ended it for want of memory; raise %s (%llu)",
                 now.file, (unsigned long long)now.bytes);
    }
}

/*
 * A peer that will never come: its process has ended, or it has left. It may
 * have done its part just before, so a first look only suspects it: what it
 * sent is there for the push that comes before the second.
 */
static bool find_lost(weft_comm *comm, wefti_op *op)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        bool entered;
        if (peer == comm->rank || !is_awaited(comm, op, peer, &entered)) {
            continue;
        }
        const char *how = wefti_watch_lost(comm, peer);
        if (!how) {
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
        wefti_watch_lost_text(comm, peer, how, lost, sizeof(lost));
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
        stalled_ns < wefti_watch_patience(comm, limit_ns) ||
        now_ns - comm->asked_ns < ASK_NS) {
        return;
    }
    comm->asked_ns = now_ns;
    int asked = -1; /* ranks of a domain mostly stand together */
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (wefti_remote_is(&comm->fabric, peer) &&
            awaits(comm, context, peer) && comm->peers[peer].first != asked) {
            asked = comm->peers[peer].first;
            wefti_control_ask(comm, peer);
        }
    }
}

static bool awaits(weft_comm *comm, const void *context, int peer)
{
    bool entered;
    return is_awaited(comm, context, peer, &entered);
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

void wefti_watch_stalled(weft_comm *comm, wefti_op *op)
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
    leave_mark(comm, op, now_ns);
    if (somebody_differs(comm, op)) {
        return;
    }
    if (comm->engine->members && find_lost(comm, op)) {
        return;
    }
    int64_t stalled_ns = now_ns - op->moved_ns;
    const int64_t limit_ns = limit_of(comm, op);
    wefti_watch_hosts(comm, stalled_ns, limit_ns, now_ns, awaits, op);
    if (stalled_ns < comm->warn_ns && stalled_ns < limit_ns) {
        return;
    }
    char text[96], who[400];
    wefti_op_text(comm, op, text, sizeof(text));
    int awaited = diagnose(comm, op, who, sizeof(who));
    if (awaited < 0 && awaits_itself(op)) {
        return; /* this rank's own compute is late: no fault of a peer */
    }
    if (awaited < 0 && stalled_ns / 2 < limit_ns) {
        return; /* whoever waits for the cause will name it */
    }
    if (awaited < 0) { /* which nobody has done */
        wefti_fault_publish(comm, WEFT_ERR_TIMEOUT, comm->rank, op->number,
                            "%s: whoever rank %d waits for waits too%s", text,
                            comm->rank, who);
    } else if (stalled_ns >= limit_ns) {
        wefti_fault_publish(comm, WEFT_ERR_TIMEOUT, awaited, op->number,
                            "%s: %s", text, who);
    } else if (!op->warned) {
        op->warned = true;
        wefti_log(WEFTI_LOG_WARN, comm->rank, "%s: %s", text, who);
    }
}
