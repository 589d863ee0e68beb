/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/slot.c - staging: which slot is next, whether it is free, who has
 * read what.
 */
#include "comm/steps/slot.h"

#include "comm/steps/area.h"
#include "comm/steps/unstaged.h"

static int channel_of(const wefti_step *step)
{
    return step->kind == WEFTI_STEP_RELAY ? step->to_channel : step->channel;
}

static wefti_staged_slot address(const wefti_step *step)
{
    return (wefti_staged_slot){.peer = step->peer,
                               .owner = step->owner,
                               .round = step->round,
                               .relayed = step->kind == WEFTI_STEP_RELAY};
}

static const wefti_staged_slot *record_of(const wefti_op *op, int channel,
                                          uint64_t number)
{
    return &op->slot_records[channel][number % (uint64_t)op->slots[channel]];
}

/* The addressee at that place; -1: this rank, which gets no message. */
static int addressee(const wefti_op *op, const wefti_staged_slot *slot,
                     int place)
{
    int rank = wefti_peer_at(&op->problem, slot->peer, slot->owner, slot->round,
                             place);
    bool own = slot->peer < 0 && !slot->relayed && rank == op->problem.rank;
    return own ? -1 : rank;
}

static bool includes(const wefti_op *op, const wefti_staged_slot *slot,
                     int rank)
{
    return wefti_peer_includes(&op->problem, slot->peer, slot->owner,
                               slot->round, rank);
}

/* Whether peer has read the message that a slot remembers. */
static bool slot_read_by(weft_comm *comm, const wefti_op *op, int channel,
                         const wefti_staged_slot *slot, int peer)
{
    wefti_fabric_path path = {peer, op->op_slot, channel};
    uint64_t sequence = slot->number;
    if (slot->peer < 0) { /* those that went to it since come behind */
        sequence = wefti_fabric_posted(&comm->fabric, path);
        for (uint64_t later = slot->number + 1; later < op->sends[channel];
             later++) {
            sequence -= includes(op, record_of(op, channel, later), peer);
        }
    }
    return wefti_fabric_read_by(&comm->fabric, path) >= sequence;
}

/* The first addressee that has not read it; -1: all have. */
static int find_reader(weft_comm *comm, const wefti_op *op, int channel,
                       const wefti_staged_slot *slot)
{
    int places =
        wefti_peer_count(&op->problem, slot->peer, slot->owner, slot->round);
    for (int place = 0; place < places; place++) {
        int rank = addressee(op, slot, place);
        if (rank >= 0 && !slot_read_by(comm, op, channel, slot, rank)) {
            return rank;
        }
    }
    return -1;
}

static wefti_fabric_path path_to(const wefti_op *op, const wefti_step *step,
                                 int peer)
{
    return (wefti_fabric_path){peer, op->op_slot, channel_of(step)};
}

/* A message's slots are the pair's, and so is their order. */
static bool message_has_slot(weft_comm *comm, wefti_fabric_path path,
                             size_t later)
{
    const uint64_t unread = wefti_fabric_posted(&comm->fabric, path) -
                            wefti_fabric_read_by(&comm->fabric, path);
    return unread + later < wefti_fabric_p2p_slots(&comm->fabric, path.peer);
}

int wefti_slot_blocker(weft_comm *comm, const wefti_op *op,
                       const wefti_step *step, size_t later)
{
    const int channel = channel_of(step);
    const uint64_t number = op->sends[channel] + later;
    const uint64_t slots = (uint64_t)op->slots[channel];
    if (wefti_op_slot_is_p2p(op->op_slot)) {
        wefti_fabric_path path = path_to(op, step, step->peer);
        return message_has_slot(comm, path, later) ? -1 : step->peer;
    }
    if (number < slots) {
        return -1;
    }
    if (number - slots >= op->sends[channel]) {
        return comm->rank; /* that one has yet to be posted */
    }
    return find_reader(comm, op, channel, record_of(op, channel, number));
}

int wefti_slot_find_full(weft_comm *comm, const wefti_op *op,
                         const wefti_step *step)
{
    const wefti_staged_slot to = address(step);
    int places = wefti_peer_count(&op->problem, to.peer, to.owner, to.round);
    for (int place = 0; place < places; place++) {
        int rank = addressee(op, &to, place);
        if (rank >= 0 &&
            !wefti_fabric_has_room(&comm->fabric, path_to(op, step, rank))) {
            return rank;
        }
    }
    return -1;
}

void wefti_slot_choose(weft_comm *comm, wefti_op *op, const wefti_step *step,
                       size_t bytes)
{
    if (wefti_op_slot_is_p2p(op->op_slot) && !op->area) {
        op->area = wefti_area_take_for_message(
            comm, path_to(op, step, step->peer), bytes);
    }
}

void *wefti_slot_stage(weft_comm *comm, const wefti_op *op,
                       const wefti_step *step, size_t later)
{
    const int channel = channel_of(step);
    wefti_fabric_path path = path_to(op, step, step->peer);
    if (later == 0 && op->area) {
        return op->area;
    }
    if (wefti_op_slot_is_p2p(op->op_slot)) {
        const uint64_t number =
            wefti_fabric_posted(&comm->fabric, path) + later;
        return wefti_fabric_stage(
            &comm->fabric, path, op->staging,
            (size_t)(number %
                     wefti_fabric_p2p_slots(&comm->fabric, path.peer)));
    }
    const uint64_t slot =
        (op->sends[channel] + later) % (uint64_t)op->slots[channel];
    return wefti_fabric_stage(&comm->fabric, path, op->staging,
                              op->slots_begin[channel] +
                                  (size_t)slot * op->slot_bytes);
}

void wefti_slot_post(weft_comm *comm, wefti_op *op, const wefti_step *step,
                     size_t bytes, const void *src)
{
    const int channel = channel_of(step);
    /* Among several peers a slot may wait for one that is sent nothing more. */
    const bool alone = wefti_op_slot_is_p2p(op->op_slot) || comm->nranks == 2;
    const wefti_bytes_place bytes_place =
        wefti_unstaged_place(comm, op, step, src, bytes);
    const wefti_outgoing outgoing = {
        .data = bytes_place ? src : wefti_slot_stage(comm, op, step, 0),
        .bytes = bytes,
        .ready_ns = op->piece.posted_ns,
        .signature = op->signature,
        .place = bytes_place,
        .lent = bytes_place == WEFTI_PLACE_LENT ? &op->lent : NULL,
        .slots = alone ? op->slots[channel] : 0,
        .urgent = wefti_class_is_urgent(op->desc.class_id)};
    wefti_staged_slot *slot =
        &op->slot_records[channel]
                         [op->sends[channel] % (uint64_t)op->slots[channel]];
    *slot = address(step);
    slot->number = op->sends[channel]++;
    op->area = NULL;
    int places =
        wefti_peer_count(&op->problem, slot->peer, slot->owner, slot->round);
    for (int place = 0; place < places; place++) {
        int rank = addressee(op, slot, place);
        if (rank < 0) {
            continue;
        }
        wefti_fabric_path path = path_to(op, step, rank);
        wefti_fabric_post(&comm->fabric, path, &outgoing);
        op->piece.bytes += rank == comm->rank ? 0 : bytes;
        if (slot->peer >= 0) {
            slot->number = wefti_fabric_posted(&comm->fabric, path);
        }
    }
}

int wefti_slots_find_reader(weft_comm *comm, const wefti_op *op)
{
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        uint64_t sends = op->sends[channel];
        uint64_t slots = (uint64_t)op->slots[channel];
        for (uint64_t back = 0; back < sends && back < slots; back++) {
            const wefti_staged_slot *slot =
                record_of(op, channel, sends - 1 - back);
            const int reader = find_reader(comm, op, channel, slot);
            if (reader >= 0) {
                return reader;
            }
        }
    }
    return -1;
}
