/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/meeting.c - rounds are entries from leader to leader: of those in
 * whose count a 1 stands, all ranks of the sender's host and of the rounds
 * before have entered. A barrier's have no payload, those of the pattern
 * dissemination what these ranks have, those of common counts the sender's.
 *
 *   ranks of a host --entries--> leader --rounds--> leaders
 *                   <--- met ---
 *
 * entry.met is stored by the leader, once it has all rounds, and pairs with the
 * load of the others on its host: all ranks have entered, and their hosts'
 * blocks are there.
 */
#include "comm/steps/meeting.h"

#include "comm/net/remote.h"
#include "comm/net/rounds.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/common_counts.h"
#include "comm/steps/host_blocks.h"

static bool is_barrier(const wefti_op *op)
{
    return op->desc.collective == WEFT_COLLECTIVE_BARRIER;
}

/* What NCCL carries out, or is being made for, has no messages of weft's; but
 * what ranks tell each other meanwhile may go in rounds. */
static bool is_nccl(const wefti_op *op)
{
    return op->choice.route == WEFTI_ROUTE_NCCL ||
           (op->signature.kind >> 56 == WEFTI_PURPOSE_ROUTE &&
            !wefti_host_blocks_carry(op));
}

/* Counts that all must have alike, before their steps can end. */
static bool has_counts(const wefti_op *op)
{
    return wefti_op_has_common_counts(op) &&
           wefti_choice_has_steps(&op->choice);
}

bool wefti_meeting_has_rounds(const weft_comm *comm, const wefti_op *op)
{
    return comm->fabric.rounds && !is_nccl(op) &&
           (is_barrier(op) || wefti_host_blocks_carry(op) || has_counts(op));
}

/* Whether what peers read, or how much it is, stands in entries. */
static bool in_entries(const wefti_op *op)
{
    return op->role.shape->varied || !wefti_choice_has_steps(&op->choice);
}

bool wefti_meeting_tells(const weft_comm *comm, const wefti_op *op, int peer)
{
    if (is_nccl(op)) {
        return true;
    }
    return !wefti_meeting_has_rounds(comm, op) &&
           (wefti_rounds_find_to(comm->fabric.rounds, peer) == 0 ||
            (in_entries(op) && wefti_shape_moves(op->role.shape, op->desc.root,
                                                 comm->rank, peer)));
}

bool wefti_meeting_hears(const weft_comm *comm, const wefti_op *op, int peer)
{
    return is_nccl(op) ||
           wefti_rounds_find_from(comm->fabric.rounds, peer) == 0 ||
           (in_entries(op) && !wefti_meeting_has_rounds(comm, op) &&
            wefti_op_needs(op, peer));
}

static wefti_entry *entry_of(const weft_comm *comm, const wefti_op *op,
                             int rank)
{
    return wefti_shared_get_entry(&comm->fabric.shared, rank, op->number);
}

/* Whether that round's message has come, and is of this operation. Data of the
 * same rank may have been checked before. */
static bool has_come(weft_comm *comm, wefti_op *op, int round)
{
    const int from = comm->fabric.rounds->from[round];
    return wefti_op_check_peer(comm, op, from) &&
           atomic_load(&entry_of(comm, op, from)->number) == op->number &&
           *wefti_shared_get_count(&comm->fabric.shared, from, comm->rank,
                                   op->number) != 0;
}

/* Tells the other ranks of this host. */
static void release_host(weft_comm *comm, const wefti_op *op)
{
    const wefti_rounds *rounds = comm->fabric.rounds;
    atomic_store(&entry_of(comm, op, comm->rank)->met, op->number);
    for (int i = 0; i < rounds->local_count; i++) {
        if (rounds->locals[i] != comm->rank) {
            wefti_doorbell_ring(comm->bells[rounds->locals[i]]);
        }
    }
}

static void tell(weft_comm *comm, wefti_op *op)
{
    wefti_announcement announcement = {
        .elems = 1, .urgent = wefti_class_is_urgent(op->desc.class_id)};
    if (wefti_host_blocks_carry(op)) {
        announcement.payload = wefti_host_blocks_offer(
            comm, op, op->round, &announcement.payload_bytes);
    } else if (has_counts(op)) {
        announcement.payload_bytes = wefti_common_counts_bytes(comm->nranks);
        announcement.payload = wefti_entry_payload(
            entry_of(comm, op, comm->rank), announcement.payload_bytes);
    }
    wefti_remote_tell_entry(&comm->fabric, comm->fabric.rounds->to[op->round],
                            op->number, &announcement);
    op->round++;
}

/* Whether all ranks have entered, as the leader of this host says. */
static bool is_over(const weft_comm *comm, const wefti_op *op)
{
    const int leader = comm->fabric.rounds->leader;
    return atomic_load(&entry_of(comm, op, leader)->met) == op->number;
}

bool wefti_meeting_advance(weft_comm *comm, wefti_op *op, bool *moved)
{
    const wefti_rounds *rounds = comm->fabric.rounds;
    if (is_over(comm, op)) {
        return true;
    }
    while (rounds->leads &&
           (op->round == 0 || has_come(comm, op, op->round - 1))) {
        if (op->round > 0 && wefti_host_blocks_carry(op)) {
            wefti_host_blocks_take(comm, op, op->round - 1);
        }
        if (op->round == rounds->count) {
            release_host(comm, op);
            return true;
        }
        tell(comm, op);
        *moved = true;
    }
    return false;
}

bool wefti_meeting_awaits(const weft_comm *comm, const wefti_op *op)
{
    return wefti_meeting_has_rounds(comm, op) && !is_over(comm, op);
}

int wefti_meeting_find_awaited(const weft_comm *comm, const wefti_op *op)
{
    const wefti_rounds *rounds = comm->fabric.rounds;
    if (!wefti_meeting_awaits(comm, op)) {
        return -1;
    }
    return rounds->leads && op->round > 0 ? rounds->from[op->round - 1]
                                          : rounds->leader;
}
