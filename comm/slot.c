/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/slot.c - staging: which slot is next, whether it is free, who has read
 * what.
 */
#include "comm/slot.h"

/* Whether peer has read the message that a slot remembers. */
static bool slot_read_by(weft_comm *comm, const wefti_op *op, int channel,
                         const wefti_staged_slot *slot, int peer)
{
    wefti_fabric_path path = {peer, op->ring, channel};
    uint64_t sequence = slot->number;
    if (slot->peer == WEFTI_ALL_PEERS) {
        uint64_t later = op->sends[channel] - 1 - slot->number;
        sequence = wefti_fabric_posted(&comm->fabric, path) - later;
    }
    return wefti_fabric_read_by(&comm->fabric, path) >= sequence;
}

/* A letter's slots are the pair's, and so is their order. */
static bool letter_has_slot(weft_comm *comm, wefti_fabric_path path,
                            size_t later)
{
    const uint64_t unread = wefti_fabric_posted(&comm->fabric, path) -
                            wefti_fabric_read_by(&comm->fabric, path);
    return unread + later < WEFTI_LETTER_SLOTS;
}

int wefti_slot_blocker(weft_comm *comm, const wefti_op *op,
                       const wefti_step *step, size_t later)
{
    const int channel = step->channel;
    const uint64_t number = op->sends[channel] + later;
    const uint64_t slots = (uint64_t)op->slots[channel];
    if (op->ring == WEFTI_RING_LETTERS) {
        wefti_fabric_path path = wefti_slot_path(op, step, step->peer);
        return letter_has_slot(comm, path, later) ? -1 : step->peer;
    }
    if (number < slots) {
        return -1;
    }
    if (number - slots >= op->sends[channel]) {
        return comm->rank; /* that one has yet to be posted */
    }
    const wefti_staged_slot *slot = &op->slot_records[channel][number % slots];
    if (slot->peer != WEFTI_ALL_PEERS) {
        return slot_read_by(comm, op, channel, slot, slot->peer) ? -1
                                                                 : slot->peer;
    }
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank &&
            !slot_read_by(comm, op, channel, slot, peer)) {
            return peer;
        }
    }
    return -1;
}

int wefti_slot_find_full(weft_comm *comm, const wefti_op *op,
                         const wefti_step *step)
{
    int first = step->peer == WEFTI_ALL_PEERS ? 0 : step->peer;
    int end = step->peer == WEFTI_ALL_PEERS ? comm->nranks : step->peer + 1;
    for (int peer = first; peer < end; peer++) {
        bool self = peer == comm->rank && step->peer == WEFTI_ALL_PEERS;
        if (!self && !wefti_fabric_has_room(&comm->fabric,
                                            wefti_slot_path(op, step, peer))) {
            return peer;
        }
    }
    return -1;
}

void *wefti_slot_stage(weft_comm *comm, const wefti_op *op,
                       const wefti_step *step, size_t later)
{
    wefti_fabric_path path = wefti_slot_path(op, step, step->peer);
    if (op->ring == WEFTI_RING_LETTERS) {
        const uint64_t number =
            wefti_fabric_posted(&comm->fabric, path) + later;
        return wefti_fabric_stage(&comm->fabric, path, op->window,
                                  (size_t)(number % WEFTI_LETTER_SLOTS));
    }
    const uint64_t slot =
        (op->sends[step->channel] + later) % (uint64_t)op->slots[step->channel];
    const size_t half = step->channel > 0 ? WEFTI_WINDOW_BYTES / 2 : 0;
    return wefti_fabric_stage(&comm->fabric, path, op->window,
                              half + (size_t)slot * op->slot_bytes);
}

void wefti_slot_post(weft_comm *comm, wefti_op *op, const wefti_step *step,
                     size_t bytes)
{
    const void *data = wefti_slot_stage(comm, op, step, 0);
    wefti_outgoing outgoing = {data, bytes, op->piece.posted_ns, op->signature};
    int channel = step->channel;
    wefti_staged_slot *slot =
        &op->slot_records[channel]
                         [op->sends[channel] % (uint64_t)op->slots[channel]];
    bool all = step->peer == WEFTI_ALL_PEERS;
    int first = all ? 0 : step->peer;
    int end = all ? comm->nranks : step->peer + 1;
    for (int peer = first; peer < end; peer++) {
        if (all && peer == comm->rank) {
            continue;
        }
        wefti_fabric_path path = wefti_slot_path(op, step, peer);
        wefti_fabric_post(&comm->fabric, path, &outgoing);
        *slot =
            (wefti_staged_slot){peer, wefti_fabric_posted(&comm->fabric, path)};
        op->piece.bytes += bytes;
    }
    if (all) {
        *slot = (wefti_staged_slot){WEFTI_ALL_PEERS, op->sends[channel]};
    }
    op->sends[channel]++;
}

bool wefti_slots_are_read(weft_comm *comm, const wefti_op *op)
{
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        uint64_t sends = op->sends[channel];
        uint64_t slots = (uint64_t)op->slots[channel];
        for (uint64_t back = 0; back < sends && back < slots; back++) {
            const wefti_staged_slot *slot =
                &op->slot_records[channel][(sends - 1 - back) % slots];
            bool all = slot->peer == WEFTI_ALL_PEERS;
            int first = all ? 0 : slot->peer;
            int end = all ? comm->nranks : slot->peer + 1;
            for (int peer = first; peer < end; peer++) {
                if (!(all && peer == comm->rank) &&
                    !slot_read_by(comm, op, channel, slot, peer)) {
                    return false;
                }
            }
        }
    }
    return true;
}
