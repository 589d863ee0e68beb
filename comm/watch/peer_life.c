/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/peer_life.c - a rank's entries are its flight record, and the
 * death of a process shows on its pidfd.
 */
#include "comm/watch/peer_life.h"

#include "base/clock.h"
#include "base/process.h"
#include "comm/control/channel.h"
#include "comm/net/net.h"
#include "comm/net/remote.h"
#include "comm/net/rounds.h"
#include "comm/watch/waits.h"

#include <poll.h>
#include <stdio.h>

enum { DOUBT_NS = 1000000000 };

/* The later of what its rank has told at once and, of another host, when it
 * was asked. */
static const wefti_entry *newer_of(weft_comm *comm, int rank, uint64_t op_slot)
{
    const wefti_shared *shared = &comm->fabric.shared;
    const wefti_entry *entry = wefti_shared_get_entry(shared, rank, op_slot);
    if (!wefti_fabric_is_remote(&comm->fabric, rank)) {
        return entry;
    }
    const wefti_entry *asked = wefti_shared_get_entered(shared, rank, op_slot);
    return atomic_load(&asked->number) > atomic_load(&entry->number) ? asked
                                                                     : entry;
}

uint64_t wefti_peer_last_entered(weft_comm *comm, int rank, const char **what,
                                 int64_t *when_ns)
{
    uint64_t newest = 0;
    for (uint64_t op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        const wefti_entry *entry = newer_of(comm, rank, op_slot);
        uint64_t number = atomic_load(&entry->number);
        if (number > newest) {
            newest = number;
            *what = wefti_signature_name(atomic_load(&entry->kind));
            *when_ns = atomic_load(&entry->stamp_ns);
        }
    }
    return newest;
}

uint64_t wefti_peer_completed(const weft_comm *comm, int rank)
{
    const wefti_shared *shared = &comm->fabric.shared;
    const uint64_t own =
        atomic_load(&wefti_shared_get_page(shared, rank)->completed);
    if (!wefti_fabric_is_remote(&comm->fabric, rank)) {
        return own;
    }
    const int leader = comm->fabric.rounds->leader;
    const uint64_t all =
        atomic_load(&wefti_shared_get_page(shared, leader)->all_completed);
    return own > all ? own : all;
}

uint64_t wefti_peer_finished(const weft_comm *comm, int rank)
{
    const uint64_t completed = wefti_peer_completed(comm, rank);
    const uint64_t finished = atomic_load(
        &wefti_shared_get_page(&comm->fabric.shared, rank)->finished);
    return finished > completed ? finished : completed;
}

bool wefti_peer_has_died(const weft_comm *comm, int peer)
{
    if (wefti_fabric_is_remote(&comm->fabric, peer)) {
        return wefti_net_is_lost(comm->fabric.net,
                                 comm->peers[peer].world_rank);
    }
    int pidfd =
        comm->engine->members->members[comm->peers[peer].world_rank].pidfd;
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&ended, 1, 0) == 1;
}

bool wefti_peer_is_stopped(const weft_comm *comm, int peer)
{
    return comm->engine->members &&
           !wefti_fabric_is_remote(&comm->fabric, peer) &&
           wefti_process_is_stopped(
               comm->engine->members->members[comm->peers[peer].world_rank]
                   .pidfd);
}

bool wefti_peer_is_cut(const weft_comm *comm, int peer)
{
    return wefti_fabric_is_remote(&comm->fabric, peer) &&
           wefti_control_get_outcome(comm->engine->control,
                                     comm->peers[peer].world_rank) ==
               WEFTI_RANK_OUTCOME_CUT;
}

static const char *find_cut(const weft_comm *comm, int peer)
{
    return wefti_peer_is_cut(comm, peer)
               ? "does not answer: its host, or the link to it, is down"
           : wefti_fabric_is_remote(&comm->fabric, peer)
               ? wefti_net_get_cut(comm->fabric.net,
                                   comm->peers[peer].world_rank)
               : NULL;
}

/* How it has left, and of another host when that was known here. */
static wefti_leave leave_of(const weft_comm *comm, int peer, int64_t *known_ns)
{
    const wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, peer);
    const wefti_leave how = (wefti_leave)atomic_load(&page->left);
    *known_ns = 0;
    if (!wefti_fabric_is_remote(&comm->fabric, peer)) {
        return how;
    }
    if (how != WEFTI_LEAVE_NONE) {
        *known_ns = comm->fabric.lines[peer].left_ns;
        return how;
    }
    *known_ns =
        wefti_net_get_end_ns(comm->fabric.net, comm->peers[peer].world_rank);
    return *known_ns ? WEFTI_LEAVE_WELL : WEFTI_LEAVE_NONE;
}

bool wefti_peer_has_left(const weft_comm *comm, int peer)
{
    int64_t known_ns;
    return leave_of(comm, peer, &known_ns) != WEFTI_LEAVE_NONE;
}

bool wefti_peer_has_left_well(const weft_comm *comm, int peer)
{
    int64_t known_ns;
    return leave_of(comm, peer, &known_ns) == WEFTI_LEAVE_WELL;
}

/* Who leaves because of a fault has told it, but from another host that comes
 * by another way, and later. */
static const char *find_leave(wefti_leave how, int64_t known_ns)
{
    const int64_t told_ns =
        how == WEFTI_LEAVE_WELL ? INT64_C(500000000) : INT64_C(5000000000);
    if (known_ns && wefti_clock_ns() - known_ns < told_ns) {
        return NULL;
    }
    return how == WEFTI_LEAVE_WELL
               ? "has destroyed its communicator"
               : "has destroyed its communicator after a fault of which "
                 "nothing was heard here";
}

const char *wefti_peer_lost(weft_comm *comm, int peer)
{
    const wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, peer);
    int64_t known_ns;
    const bool died = atomic_load(&page->left) == WEFTI_LEAVE_NONE &&
                      wefti_peer_has_died(comm, peer);
    const wefti_leave how = leave_of(comm, peer, &known_ns);
    if (how != WEFTI_LEAVE_NONE) {
        return find_leave(how, known_ns);
    }
    const char *cut = died ? find_cut(comm, peer) : NULL;
    return cut ? cut : died ? "has died" : NULL;
}

void wefti_peer_doubt(weft_comm *comm, int peer, int64_t limit_ns)
{
    const int64_t patience_ns = wefti_waits_patience(comm, limit_ns) / 2;
    wefti_remote_doubt(&comm->fabric, peer,
                       patience_ns < DOUBT_NS ? patience_ns : DOUBT_NS);
}

void wefti_peer_lost_text(weft_comm *comm, int peer, const char *how,
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
