/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/entry.c - the low-latency protocol, oneshot.
 *
 *   rank 0: entry {payload, signature, number}   rank 1: the same
 *           copy what is its own                            the same
 *           read all entries, reduce in rank order          the same
 *
 * entry.number is stored last and pairs with wefti_op_check_peer's load: the
 * payload, wherever it lies (comm/steps/payload.h), is complete. No rank
 * overwrites an entry before every rank has completed the operation
 * (comm/fabric/shared.h), so no reader is hurried.
 *
 * Device memory adds a copy to the host before, and one back at the end:
 *
 *   FETCH --> READY (announced; peers' entries) --> [STORE] --> done
 */
#include "comm/steps/entry.h"

#include "base/clock.h"
#include "comm/core/wake.h"
#include "comm/engine/copies.h"
#include "comm/engine/op.h"
#include "comm/net/remote.h"
#include "comm/net/rounds.h"
#include "comm/pattern/parts.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/host_blocks.h"
#include "comm/steps/meeting.h"
#include "comm/steps/op_life.h"
#include "comm/steps/payload.h"
#include "comm/steps/sum.h"
#include "comm/steps/unstaged.h"

#include <string.h>

static wefti_entry *entry_of(weft_comm *comm, const wefti_op *op, int rank)
{
    return wefti_shared_get_entry(&comm->fabric.shared, rank, op->number);
}

static size_t part_bytes(const wefti_op *op)
{
    return op->desc.count * op->role.elem_bytes;
}

/* What this rank's peers take of its payload, and it of theirs. */
static void measure(const weft_comm *comm, const wefti_op *op,
                    size_t *sent_bytes, size_t *taken_bytes)
{
    const wefti_role *role = &op->role;
    size_t part = part_bytes(op), all = part * ((size_t)comm->nranks - 1);
    bool root = comm->rank == op->desc.root;
    *sent_bytes = !role->sends                             ? 0
                  : role->shape->receives == WEFTI_WHO_ALL ? all
                  : root                                   ? 0
                                                           : part;
    *taken_bytes = !role->receives                       ? 0
                   : role->shape->sends == WEFTI_WHO_ALL ? all
                   : root                                ? 0
                                                         : part;
}

/* Whether peer reads what this rank's entry carries. */
static bool reads_payload(const weft_comm *comm, const wefti_op *op, int peer)
{
    return wefti_shape_moves(op->role.shape, op->desc.root, comm->rank, peer);
}

/* The v forms: elements that go to peer. */
static uint64_t count_for(const wefti_op *op, int peer)
{
    return op->role.shape->varied ? wefti_part_to(&op->problem, peer).elems : 0;
}

void wefti_entry_publish(weft_comm *comm, uint64_t number,
                         const wefti_signature *signature, int64_t stamp_ns)
{
    wefti_entry *entry =
        wefti_shared_get_entry(&comm->fabric.shared, comm->rank, number);
    atomic_store_explicit(&entry->count, signature->count,
                          memory_order_relaxed);
    atomic_store_explicit(&entry->kind, signature->kind, memory_order_relaxed);
    atomic_store_explicit(&entry->cut, signature->cut, memory_order_relaxed);
    atomic_store_explicit(&entry->stamp_ns, stamp_ns, memory_order_relaxed);
    atomic_store(&entry->number, number);
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank) {
            wefti_doorbell_ring(comm->bells[peer]);
        }
    }
    comm->fabric.entered++;
}

void wefti_oneshot_announce(weft_comm *comm, wefti_op *op, size_t payload_bytes,
                            size_t sent_bytes)
{
    wefti_shared_header *header = comm->fabric.shared.header;
    int64_t stamp_ns =
        sent_bytes ? wefti_fabric_charge(&comm->fabric, sent_bytes) : 0;
    if (!stamp_ns) {
        stamp_ns = atomic_load_explicit(&header->observed, memory_order_relaxed)
                       ? wefti_clock_ns()
                       : op->entered_ns;
    }
    wefti_entry_publish(comm, op->number, &op->signature, stamp_ns);
    wefti_entry *entry = entry_of(comm, op, comm->rank);
    for (int peer = 0; comm->fabric.net && peer < comm->nranks; peer++) {
        if (!wefti_fabric_is_remote(&comm->fabric, peer) ||
            !wefti_meeting_tells(comm, op, peer)) {
            continue;
        }
        const bool reads = payload_bytes && reads_payload(comm, op, peer);
        const size_t bytes = reads ? payload_bytes : 0;
        const wefti_announcement announcement = {
            .payload = wefti_entry_payload(entry, bytes),
            .payload_bytes = bytes,
            .elems = count_for(op, peer),
            .urgent = wefti_class_is_urgent(op->desc.class_id)};
        wefti_remote_tell_entry(&comm->fabric, peer, op->number, &announcement);
    }
}

/* What small copies of the device pass through. */
static unsigned char *bounce(wefti_op *op)
{
    return op->lists[0].scratch;
}

/* Asks for a copy of the device, after which the operation goes on. */
static void start_copy(weft_comm *comm, wefti_op *op, wefti_step_phase phase,
                       void *dst, const void *src, size_t bytes)
{
    op->lists[0].phase = phase;
    wefti_copies_ask(comm, wefti_copy_place(comm, op, &op->lists[0], 0), dst,
                     src, bytes);
}

/* Whether it is done. */
static bool is_copied(weft_comm *comm, wefti_op *op)
{
    wefti_step_list *list = &op->lists[0];
    const bool done =
        wefti_copies_are_done(comm, wefti_copy_place(comm, op, list, 0));
    list->wait = done ? WEFTI_WAIT_NOTHING : WEFTI_WAIT_DEVICE;
    return done;
}

/* Copies what rank gives this one, part `part` of its payload. */
static void take_part(weft_comm *comm, wefti_op *op, void *dst, int rank,
                      size_t part)
{
    const size_t bytes = part_bytes(op);
    const unsigned char *src =
        wefti_payload_find(comm, op, rank, &op->lists[0].lent) + part * bytes;
    if (dst != src) {
        memcpy(dst, src, bytes);
    }
}

/* Which part of the payloads this rank takes, of what is not added up. */
static size_t wanted_part(const weft_comm *comm, const wefti_op *op)
{
    return op->role.shape->send_parts ? (size_t)comm->rank : 0;
}

/* Where in result what comes from rank belongs. */
static void *place_of(const wefti_op *op, void *result, int rank)
{
    const size_t before = op->role.shape->recv_parts ? (size_t)rank : 0;
    return (unsigned char *)result + before * part_bytes(op);
}

/* Whether this rank's own part is copied before any peer's is looked for: their
 * payloads are on their way meanwhile. */
static bool takes_own_early(const weft_comm *comm, const wefti_op *op)
{
    return op->role.sends && op->role.receives && !op->role.shape->reduces &&
           op->desc.count && op->desc.recv && !op->places.recv &&
           !op->desc.writable && comm->nranks > 1 &&
           wefti_payload_own_is_here(op) &&
           wefti_who_has(op->role.shape->sends, comm->rank, op->desc.root);
}

void wefti_oneshot_take_own(weft_comm *comm, wefti_op *op)
{
    if (takes_own_early(comm, op)) {
        take_part(comm, op, place_of(op, op->desc.recv, comm->rank), comm->rank,
                  wanted_part(comm, op));
    }
}

/* Shows this rank's payload, which the host can read, and enters. */
static void enter_with(weft_comm *comm, wefti_op *op, const void *payload,
                       size_t bytes)
{
    wefti_payload_show(comm, op, payload);
    size_t sent_bytes, taken_bytes;
    measure(comm, op, &sent_bytes, &taken_bytes);
    if (comm->observer.moved) {
        wefti_op_piece_open(op);
        op->piece.bytes = sent_bytes + taken_bytes;
    }
    op->lists[0].phase = WEFTI_PHASE_READY;
    wefti_oneshot_announce(comm, op, bytes, sent_bytes);
    if (wefti_engine_spins(comm->engine)) {
        wefti_payload_prefetch(comm, op);
    }
    wefti_oneshot_take_own(comm, op);
}

void wefti_oneshot_enter(weft_comm *comm, wefti_op *op)
{
    const size_t bytes = wefti_payload_bytes(comm, op);
    op->lists[0].wait = WEFTI_WAIT_NOTHING;
    op->lists[0].lent = false;
    if (bytes && op->places.send) {
        start_copy(comm, op, WEFTI_PHASE_FETCH, bounce(op), op->desc.send,
                   bytes);
    } else {
        enter_with(comm, op, op->desc.send, bytes);
    }
}

/* Whether peer's payload may be read; notes when it was or will be there. */
static bool arrived(weft_comm *comm, wefti_op *op, int peer)
{
    if (!wefti_op_check_peer(comm, op, peer)) {
        return false;
    }
    int64_t stamp_ns = atomic_load_explicit(&entry_of(comm, op, peer)->stamp_ns,
                                            memory_order_relaxed);
    if (comm->fabric.ns_per_byte > 0 && stamp_ns > wefti_clock_ns()) {
        if (stamp_ns < comm->engine->due_ns) {
            comm->engine->due_ns = stamp_ns;
        }
        return false;
    }
    if (stamp_ns > op->piece.ready_ns) {
        op->piece.ready_ns = stamp_ns;
    }
    return true;
}

/* Reduces count elements that start at elem first of every payload. */
static size_t reduce(weft_comm *comm, wefti_op *op, void *result, size_t first)
{
    const void **sources = op->lists[0].sources;
    size_t offset = first * op->role.elem_bytes;
    if (wefti_host_blocks_are_sums(op)) {
        wefti_host_blocks_sum(comm, op, result, offset);
        return part_bytes(op);
    }
    for (int place = 0; place < comm->nranks; place++) {
        int from = wefti_peer_at(&op->problem, WEFTI_ALL_PEERS, 0, 0, place);
        sources[place] =
            wefti_payload_find(comm, op, from, &op->lists[0].lent) + offset;
    }
    wefti_sum_all(op, result, sources, op->desc.count);
    return part_bytes(op);
}

/* Takes this rank's part of every rank's payload, one after another. */
static size_t gather(weft_comm *comm, wefti_op *op, void *result)
{
    const bool early = takes_own_early(comm, op);
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (rank != comm->rank || !early) {
            take_part(comm, op, place_of(op, result, rank), rank,
                      wanted_part(comm, op));
        }
    }
    return (size_t)comm->nranks * part_bytes(op);
}

/* Takes this rank's part of the root's payload; a root need not. */
static size_t take(weft_comm *comm, wefti_op *op, void *result)
{
    if (!op->desc.recv) {
        return 0;
    }
    if (comm->rank != op->desc.root || !takes_own_early(comm, op)) {
        take_part(comm, op, result, op->desc.root, wanted_part(comm, op));
    }
    return part_bytes(op);
}

size_t wefti_oneshot_produce(weft_comm *comm, wefti_op *op, void *result)
{
    bool root = comm->rank == op->desc.root;
    size_t own = (size_t)comm->rank;
    switch (op->desc.collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        return reduce(comm, op, result, 0);
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return reduce(comm, op, result, own * op->desc.count);
    case WEFT_COLLECTIVE_REDUCE:
        return root ? reduce(comm, op, result, 0) : 0;
    case WEFT_COLLECTIVE_GATHER:
        return root ? gather(comm, op, result) : 0;
    case WEFT_COLLECTIVE_ALLGATHER:
        return gather(comm, op, result);
    case WEFT_COLLECTIVE_ALLTOALL:
        return gather(comm, op, result);
    case WEFT_COLLECTIVE_BROADCAST:
        return take(comm, op, result);
    case WEFT_COLLECTIVE_SCATTER:
        return take(comm, op, result);
    default:
        return 0;
    }
}

/* What the leader of a host brings to the first round. */
static void gather_host(weft_comm *comm, wefti_op *op)
{
    const wefti_rounds *rounds = comm->fabric.rounds;
    wefti_step_list *list = &op->lists[0];
    for (int i = 0; i < rounds->local_count; i++) {
        list->sources[i] =
            wefti_payload_find(comm, op, rounds->locals[i], &list->lent);
    }
    wefti_host_blocks_gather(comm, op, list->sources,
                             wefti_payload_take_area(comm, op, false));
}

/* Looks for those peers' payloads that it needs; in rounds for the ranks of
 * this host, and then goes on to others. */
static bool look_for_all(weft_comm *comm, wefti_op *op, bool *moved)
{
    const bool rounds = wefti_meeting_has_rounds(comm, op);
    for (; op->missing < comm->nranks; op->missing++) {
        int peer = op->missing;
        if (peer == comm->rank || !wefti_op_needs(op, peer) ||
            (rounds && wefti_fabric_is_remote(&comm->fabric, peer))) {
            continue;
        }
        if (!arrived(comm, op, peer)) {
            return false;
        }
        *moved = true;
    }
    if (rounds && op->round == 0 && comm->fabric.rounds->leads &&
        wefti_host_blocks_carry(op)) {
        gather_host(comm, op);
    }
    return !rounds || wefti_meeting_advance(comm, op, moved);
}

/* Whether all of the receive buffer may be overwritten. */
static bool may_write(weft_comm *comm, wefti_op *op)
{
    size_t chunk;
    const bool shut = wefti_op_find_unwritable(op, &chunk);
    op->lists[0].wait = shut ? WEFTI_WAIT_GATE : WEFTI_WAIT_NOTHING;
    if (shut) {
        wefti_engine_look(comm->engine, op->desc.writable);
        return false;
    }
    return !op->role.receives ||
           !wefti_op_find_failed(comm, op, op->desc.writable);
}

static void finish(weft_comm *comm, wefti_op *op)
{
    if (op->desc.count) {
        wefti_op_all_arrived(op);
    }
    wefti_op_finish(comm, op, WEFT_OK);
}

/*
 * The result is there: lent payloads go back, and what this rank lends is
 * waited for. Returns whether anything moved.
 */
static bool settle(weft_comm *comm, wefti_op *op)
{
    if (op->lists[0].lent) {
        if (!wefti_unstaged_holds(comm)) {
            return false; /* a fault, on which this rank will act */
        }
        wefti_payload_give_back(comm, op);
        op->lists[0].lent = false;
    }
    op->being_read = op->unstaged && wefti_payload_find_reader(comm, op) >= 0;
    if (op->being_read) {
        return false;
    }
    finish(comm, op);
    return true;
}

bool wefti_oneshot_advance(weft_comm *comm, wefti_op *op)
{
    bool moved = false;
    wefti_step_list *list = &op->lists[0];
    switch (list->phase) {
    case WEFTI_PHASE_START: /* left when it entered */
        return false;
    case WEFTI_PHASE_FETCH:
        if (!is_copied(comm, op)) {
            return false;
        }
        enter_with(comm, op, bounce(op), wefti_payload_bytes(comm, op));
        moved = true;
        __attribute__((fallthrough));
    case WEFTI_PHASE_READY:
        if (!look_for_all(comm, op, &moved) || !wefti_op_may_end(comm, op)) {
            return moved;
        }
        if (op->desc.count && !may_write(comm, op)) {
            return moved;
        }
        moved = true;
        list->phase = WEFTI_PHASE_STORE;
        if (op->desc.count) {
            const bool device = op->places.recv;
            void *result = device ? (void *)bounce(op) : op->desc.recv;
            const size_t bytes = wefti_oneshot_produce(comm, op, result);
            if (device && bytes) {
                start_copy(comm, op, WEFTI_PHASE_STORE, op->desc.recv, result,
                           bytes);
                list->wait = WEFTI_WAIT_DEVICE;
                return true;
            }
        }
        __attribute__((fallthrough));
    case WEFTI_PHASE_HELD: /* no list's step: small enough for the lock */
    case WEFTI_PHASE_MADE:
    case WEFTI_PHASE_STORE:
        if (list->wait == WEFTI_WAIT_DEVICE && !is_copied(comm, op)) {
            return moved;
        }
        return settle(comm, op) || moved;
    }
    return moved;
}
