/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/cause.c - following records of waits (comm/watch/waits.h).
 *
 * A rank that waits shows one rank that it waits for, and chooses the one whose
 * chain ends elsewhere, if there is one: so chains of ranks that each look one
 * step ahead lead to the end, as routes of a distance-vector protocol do.
 * Records change while they are read: every walk is bounded.
 */
#include "comm/watch/cause.h"

#include "base/clock.h"
#include "comm/engine/op.h"
#include "comm/net/rounds.h"
#include "comm/steps/agree.h"
#include "comm/steps/meeting.h"
#include "comm/steps/payload.h"
#include "comm/steps/slot.h"
#include "comm/watch/peer_life.h"
#include "comm/watch/waits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LISTED_RANKS = 16, LISTED_HOPS = 4, LISTED_WAITS = 2 };

/* Whether peer is known to be in an operation whose slot op needs; of another
 * host its last word may be old. */
static bool is_behind(const weft_comm *comm, uint64_t needed, int peer)
{
    return wefti_peer_completed(comm, peer) < needed;
}

/* Whether peer is to pass on that all ranks have completed an operation, where
 * each by itself is known to have. */
static bool passes_on(const weft_comm *comm, uint64_t needed, int peer)
{
    const wefti_rounds *rounds = comm->fabric.rounds;
    if (!rounds || wefti_rounds_get_completed(&comm->fabric) >= needed) {
        return false;
    }
    for (int other = 0; other < comm->nranks; other++) {
        if (is_behind(comm, needed, other)) {
            return false;
        }
    }
    const int round = wefti_rounds_find_from(rounds, peer);
    return rounds->leads ? round >= 0 && rounds->heard[round] < needed
                         : peer == rounds->leader;
}

/* Before op may enter. */
static bool holds_slot(const weft_comm *comm, const wefti_op *op, int peer)
{
    const uint64_t needed = op->number - WEFTI_OP_SLOTS;
    return op->number > WEFTI_OP_SLOTS &&
           (is_behind(comm, needed, peer) || passes_on(comm, needed, peer));
}

/* Whether op waits for peer, of which it is not known that it has entered. */
static bool is_missed(const weft_comm *comm, const wefti_op *op, int peer)
{
    return wefti_meeting_has_rounds(comm, op)
               ? wefti_meeting_awaits(comm, op) &&
                     wefti_peer_completed(comm, peer) < op->number
               : wefti_op_is_checked_by(comm, op, peer);
}

/* Who has yet to read from op's buffers. */
static int find_reader(weft_comm *comm, const wefti_op *op)
{
    return wefti_choice_has_steps(&op->choice)
               ? wefti_slots_find_reader(comm, op)
               : wefti_payload_find_reader(comm, op);
}

/* Whether peer is gone while streams may still need it. */
static bool is_lost_within(weft_comm *comm, const wefti_op *op, int peer)
{
    return wefti_choice_is_carried(&op->choice) && comm->engine->members &&
           !wefti_peer_has_left_well(comm, peer) && wefti_peer_lost(comm, peer);
}

bool wefti_is_awaited(weft_comm *comm, const wefti_op *op, int peer,
                      bool *entered)
{
    if (wefti_op_slot_is_p2p(op->op_slot)) {
        /* What waits for its own gate or a copy waits for no peer. */
        *entered = false;
        return peer == op->desc.root &&
               (op->being_read || op->lists[0].wait == WEFTI_WAIT_PEER ||
                is_lost_within(comm, op, peer));
    }
    if (op->state == WEFTI_OP_POSTED) {
        *entered = false;
        return holds_slot(comm, op, peer);
    }
    *entered = wefti_shared_find_entry(&comm->fabric.shared, peer, op->number);
    if (!*entered && is_missed(comm, op, peer)) {
        return true;
    }
    if (op->state == WEFTI_OP_DRAINING) {
        return wefti_fabric_is_remote(&comm->fabric, peer)
                   ? op->staging >= 0 &&
                         wefti_slots_find_reader(comm, op) == peer
                   : wefti_peer_completed(comm, peer) < op->number;
    }
    if (wefti_choice_is_carried(&op->choice)) { /* by all, to the end */
        return wefti_peer_completed(comm, peer) < op->number &&
               is_lost_within(comm, op, peer);
    }
    for (int t = 0; wefti_choice_has_steps(&op->choice) && t < WEFTI_STEP_LISTS;
         t++) {
        const wefti_step_list *list = &op->lists[t];
        if (list->at.next < list->at.count && list->wait == WEFTI_WAIT_PEER &&
            list->peer == peer) {
            return true;
        }
    }
    return wefti_meeting_find_awaited(comm, op) == peer ||
           (op->being_read && find_reader(comm, op) == peer);
}

static int count_job(const weft_comm *comm)
{
    const wefti_membership *job = comm->engine->members;
    return job ? job->nranks : 1;
}

static int world_of(const weft_comm *comm, int rank)
{
    return comm->peers[rank].world_rank;
}

/* Whom world_rank waits for; -1: no rank. first: whom this rank waits for. */
static int next_of(weft_comm *comm, int world_rank, int first, int64_t fresh_ns)
{
    wefti_wait_record record;
    if (world_rank == world_of(comm, comm->rank)) {
        return first;
    }
    return wefti_waits_find(comm, world_rank, fresh_ns, &record) ? record.peer
                                                                 : -1;
}

/* at lies on a circle: its lowest member that is one of comm too. */
static int lowest_on(weft_comm *comm, int at, int first, int64_t fresh_ns)
{
    const int start = at;
    int lowest = -1;
    for (int i = 0; i <= count_job(comm) && at >= 0; i++) {
        if (wefti_waits_member(comm, at) >= 0 && (lowest < 0 || at < lowest)) {
            lowest = at;
        }
        at = next_of(comm, at, first, fresh_ns);
        if (at == start) {
            break;
        }
    }
    return lowest;
}

/* Whether record is a wait for what its rank has to make itself: then nothing
 * is gained by saying that it has not entered. */
static bool is_own_wait(const wefti_wait_record *record)
{
    return record->kind == WEFTI_WAITS_GATE ||
           record->kind == WEFTI_WAITS_WRITABLE ||
           record->kind == WEFTI_WAITS_STREAM ||
           record->kind == WEFTI_WAITS_DEVICE;
}

wefti_cause wefti_cause_of_peer(weft_comm *comm, int peer, int64_t fresh_ns)
{
    const int self = world_of(comm, comm->rank), first = world_of(comm, peer);
    wefti_cause cause = {.awaited = peer, .world = first, .rank = peer};
    if (peer == comm->rank) {
        return cause; /* a message to oneself: the call that never comes */
    }
    int at = first;
    for (;;) {
        const int next = next_of(comm, at, first, fresh_ns);
        if (next < 0 || next == at) {
            break;
        }
        at = next;
        cause.hops++;
        cause.through = at == self;
        if (cause.through || cause.hops > count_job(comm)) {
            break;
        }
    }
    wefti_wait_record own;
    cause.circle = cause.through
                       ? !wefti_waits_get(comm, comm->rank, fresh_ns, &own) ||
                             !is_own_wait(&own)
                       : cause.hops > count_job(comm);
    if (cause.circle) {
        at = lowest_on(comm, at, first, fresh_ns);
    }
    const int member = at < 0 ? -1 : wefti_waits_member(comm, at);
    cause.world = at < 0 ? first : at;
    cause.rank = member < 0 ? peer : member;
    return cause;
}

static bool has_entered(weft_comm *comm, const wefti_op *op, int rank)
{
    return !wefti_op_slot_is_p2p(op->op_slot) && op->state != WEFTI_OP_POSTED &&
           wefti_shared_find_entry(&comm->fabric.shared, rank, op->number);
}

static bool is_better(weft_comm *comm, const wefti_op *op, const wefti_cause *a,
                      const wefti_cause *b)
{
    if (b->awaited < 0 || a->circle != b->circle) {
        return b->awaited < 0 || !a->circle;
    }
    const bool a_entered = has_entered(comm, op, a->rank);
    const bool b_entered = has_entered(comm, op, b->rank);
    return a_entered != b_entered ? !a_entered
           : a->world != b->world ? a->world < b->world
                                  : a->hops < b->hops;
}

wefti_cause wefti_cause_of_op(weft_comm *comm, const wefti_op *op,
                              int64_t fresh_ns)
{
    wefti_cause best = {.awaited = -1, .world = -1, .rank = -1};
    for (int peer = 0; peer < comm->nranks; peer++) {
        bool entered;
        /* A message to oneself may wait for a call that never comes. */
        if ((peer == comm->rank && !wefti_op_slot_is_p2p(op->op_slot)) ||
            !wefti_is_awaited(comm, op, peer, &entered)) {
            continue;
        }
        wefti_cause cause = wefti_cause_of_peer(comm, peer, fresh_ns);
        if (is_better(comm, op, &cause, &best)) {
            best = cause;
        }
    }
    return best;
}

static void append(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t text_bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, text_bytes - used, format, args);
    va_end(args);
}

/* "(its last: #416 all_gather, 9.8 s ago)". A rank of another host tells few
 * others what it enters, and may be further than is known here. */
static void append_last(weft_comm *comm, int rank, char *text,
                        size_t text_bytes)
{
    const char *what = "";
    int64_t when_ns = 0;
    uint64_t last = wefti_peer_last_entered(comm, rank, &what, &when_ns);
    const bool remote = wefti_fabric_is_remote(&comm->fabric, rank);
    const uint64_t completed = wefti_peer_completed(comm, rank);
    /* On an emulated link an entry is stamped with when it arrives. */
    int64_t ago_ns = wefti_clock_ns() - when_ns;
    if (completed > last) {
        append(text, text_bytes, " (has completed up to #%llu)",
               (unsigned long long)completed);
    } else if (last == 0) {
        append(text, text_bytes, " (nor any before)");
    } else {
        append(text, text_bytes, " (its last%s: #%llu %s, %.1f s ago)",
               remote ? " that is known" : "", (unsigned long long)last, what,
               ago_ns > 0 ? (double)ago_ns / 1e9 : 0.0);
    }
}

/* What rank, which is waited for in op, has not done. shown: it has shown that
 * it waits elsewhere. */
static void describe(weft_comm *comm, const wefti_op *op, int rank, bool first,
                     bool shown, char *text, size_t text_bytes)
{
    append(text, text_bytes, "rank %d", rank);
    if (wefti_op_slot_is_p2p(op->op_slot) && first) {
        append(text, text_bytes, " has not %s",
               op->desc.collective == WEFT_COLLECTIVE_SEND ? "received"
                                                           : "sent");
    } else if (wefti_op_slot_is_p2p(op->op_slot)) {
        append(text, text_bytes, " has not come");
    } else if (has_entered(comm, op, rank)) {
        const wefti_entry *entry =
            wefti_shared_find_entry(&comm->fabric.shared, rank, op->number);
        int64_t ago_ns = wefti_clock_ns() - atomic_load(&entry->stamp_ns);
        append(text, text_bytes, " entered %.1f s ago and does not go on",
               ago_ns > 0 ? (double)ago_ns / 1e9 : 0.0);
    } else {
        append(text, text_bytes,
               !shown && wefti_fabric_is_remote(&comm->fabric, rank)
                   ? " is not known to have entered"
                   : " has not entered");
        append_last(comm, rank, text, text_bytes);
    }
    if (wefti_peer_is_stopped(comm, rank)) {
        append(text, text_bytes, ", its process is stopped");
    }
}

/* "rank 3", or of who is no member of comm "rank 3 of the job". */
static void append_rank_name(const weft_comm *comm, int world_rank, char *text,
                             size_t text_bytes)
{
    const int rank = wefti_waits_member(comm, world_rank);
    append(text, text_bytes, rank < 0 ? "rank %d of the job" : "rank %d",
           rank < 0 ? world_rank : rank);
}

/* From awaited to the end: "rank 1 waits in gather #2 for rank 3, rank 3 ..".
 * What the end itself does is said before. */
static void append_chain(weft_comm *comm, const wefti_cause *cause,
                         int64_t fresh_ns, char *text, size_t text_bytes)
{
    int at = world_of(comm, cause->awaited);
    wefti_wait_record record;
    char what[128];
    for (int i = 0; i < cause->hops && at >= 0; i++) {
        if (at == world_of(comm, comm->rank) ||
            !wefti_waits_find(comm, at, fresh_ns, &record)) {
            break;
        }
        if (i == LISTED_HOPS) {
            append(text, text_bytes, ", ..");
            break;
        }
        wefti_waits_text(comm, &record, what, sizeof(what));
        append(text, text_bytes, i ? ", " : ": ");
        append_rank_name(comm, at, text, text_bytes);
        append(text, text_bytes, " waits %s", what);
        at = record.peer;
    }
}

/* Round the circle, from awaited on: " waits in .. for rank 0, which waits
 * here". */
static void append_circle(weft_comm *comm, const wefti_cause *cause,
                          const char *begin, int64_t fresh_ns, char *text,
                          size_t text_bytes)
{
    const int self = world_of(comm, comm->rank);
    const int first = world_of(comm, cause->awaited);
    bool elsewhere = false;
    int at = first;
    wefti_wait_record record;
    char what[128];
    for (int i = 0; i < LISTED_HOPS && at != self; i++) {
        if ((i && at == first) ||
            !wefti_waits_find(comm, at, fresh_ns, &record)) {
            break;
        }
        wefti_waits_text(comm, &record, what, sizeof(what));
        append(text, text_bytes, "%s %s", i ? ", which waits" : begin, what);
        elsewhere |= strcmp(record.name, comm->name) != 0;
        at = record.peer;
    }
    append(text, text_bytes, "%s%s",
           cause->through ? ", which waits here" : ": they wait in a circle",
           elsewhere ? ": are the two used in different orders?" : "");
}

/* Appends " 3" or, for many, only the first few ranks. */
static void append_rank(char *text, size_t text_bytes, int rank, int *listed)
{
    if (++*listed <= LISTED_RANKS) {
        append(text, text_bytes, " %d", rank);
    } else if (*listed == LISTED_RANKS + 1) {
        append(text, text_bytes, " ...");
    }
}

/* Others that op waits for, and that wait too: ", rank 1 waits in gather #2 for
 * rank 3". Those on the chain have been named. */
static void append_waits(weft_comm *comm, const wefti_op *op,
                         const wefti_cause *cause, int64_t fresh_ns, char *text,
                         size_t text_bytes)
{
    char what[128];
    int listed = 0;
    for (int peer = 0; peer < comm->nranks && listed < LISTED_WAITS; peer++) {
        wefti_wait_record record;
        bool entered;
        if (peer != comm->rank && peer != cause->rank && cause->hops == 0 &&
            wefti_is_awaited(comm, op, peer, &entered) && !entered &&
            wefti_waits_get(comm, peer, fresh_ns, &record)) {
            wefti_waits_text(comm, &record, what, sizeof(what));
            append(text, text_bytes, ", rank %d waits %s", peer, what);
            listed++;
        }
    }
}

/* " and 2 more" that wait for no rank; "; ranks 0 1 wait". */
static void append_others(weft_comm *comm, const wefti_op *op,
                          const wefti_cause *cause, int64_t fresh_ns,
                          char *text, size_t text_bytes)
{
    char waiting[96] = "";
    int listed = 0, more = 0;
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_wait_record record;
        bool entered = has_entered(comm, op, peer), unused;
        if (peer == cause->rank || (cause->circle && peer == cause->awaited)) {
            continue;
        }
        bool waits = peer == comm->rank ||
                     !wefti_is_awaited(comm, op, peer, &unused) ||
                     wefti_waits_get(comm, peer, fresh_ns, &record);
        if (waits && entered) {
            append_rank(waiting, sizeof(waiting), peer, &listed);
        }
        more += !waits;
    }
    if (more) {
        append(text, text_bytes, " and %d more", more);
    }
    if (listed) {
        append(text, text_bytes, "; rank%s%s wait%s", listed > 1 ? "s" : "",
               waiting, listed > 1 ? "" : "s");
    }
}

/* The rank that waits for no other, and what it waits for itself. */
static void append_end(weft_comm *comm, const wefti_op *op,
                       const wefti_cause *cause, int64_t fresh_ns, char *text,
                       size_t text_bytes)
{
    wefti_wait_record record;
    char what[128];
    const bool waits =
        wefti_waits_find(comm, cause->world, fresh_ns, &record) &&
        (cause->world != world_of(comm, comm->rank) || is_own_wait(&record));
    if (waits) {
        wefti_waits_text(comm, &record, what, sizeof(what));
    }
    if (wefti_waits_member(comm, cause->world) < 0) {
        append_rank_name(comm, cause->world, text, text_bytes);
        append(text, text_bytes, " waits %s", waits ? what : "for nobody");
    } else if (waits && is_own_wait(&record)) {
        append(text, text_bytes, "rank %d waits %s", cause->rank, what);
    } else {
        describe(comm, op, cause->rank, cause->hops == 0, waits, text,
                 text_bytes);
        append(text, text_bytes, "%s%s", waits ? ": it waits " : "",
               waits ? what : "");
    }
}

void wefti_cause_text(weft_comm *comm, const wefti_op *op,
                      const wefti_cause *cause, int64_t fresh_ns,
                      char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    if (cause->circle) {
        describe(comm, op, cause->awaited, true, true, text_out, text_bytes);
        append_circle(comm, cause, ": it waits", fresh_ns, text_out,
                      text_bytes);
    } else {
        append_end(comm, op, cause, fresh_ns, text_out, text_bytes);
        append_chain(comm, cause, fresh_ns, text_out, text_bytes);
    }
    if (!wefti_op_slot_is_p2p(op->op_slot)) {
        append_waits(comm, op, cause, fresh_ns, text_out, text_bytes);
        append_others(comm, op, cause, fresh_ns, text_out, text_bytes);
    }
}

void wefti_cause_append(weft_comm *comm, const wefti_cause *cause,
                        int64_t fresh_ns, char *text, size_t text_bytes)
{
    wefti_wait_record record;
    char what[128];
    if (cause->circle) {
        append(text, text_bytes, ": rank %d", cause->awaited);
        append_circle(comm, cause, " waits", fresh_ns, text, text_bytes);
        return;
    }
    append_chain(comm, cause, fresh_ns, text, text_bytes);
    if (wefti_waits_find(comm, cause->world, fresh_ns, &record)) {
        wefti_waits_text(comm, &record, what, sizeof(what));
        append(text, text_bytes, cause->hops ? ", " : ": ");
        append_rank_name(comm, cause->world, text, text_bytes);
        append(text, text_bytes, " waits %s", what);
    } else if (wefti_peer_is_stopped(comm, cause->rank)) {
        append(text, text_bytes, "%s the process of rank %d is stopped",
               cause->hops ? "," : ":", cause->rank);
    }
}
