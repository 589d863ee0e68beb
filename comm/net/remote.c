/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/remote.c - the network fabric: the shared memory's protocol, with
 * every store of this rank's repeated by a message.
 *
 *   region (ours) --store, and tell--> mirror of it (theirs)
 *
 * What is told of comes from the region itself, where it stays until its reader
 * has released it; point to point, from fabric->outgoing.
 */
#include "comm/net/remote.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/net/ended.h"
#include "comm/net/net.h"
#include "comm/net/rounds.h"

#include <stdlib.h>

enum {
    WAITING_NS = 100000000,      /* between two words of being waiting */
    DOUBT_PAUSE_NS = 1000000000, /* a wait of which nothing was said so long */
    TOLD_AT_LEAST =
        WEFTI_OP_SLOTS / 4 /* operations that peers may not know of */
};

weft_status wefti_remote_init(wefti_fabric *fabric, struct wefti_net *net,
                              const int *world_ranks, const int *firsts)
{
    const size_t ranks = (size_t)fabric->shared.layout.nranks;
    const size_t cells = ranks * WEFTI_ALL_SLOTS * WEFTI_CHANNELS;
    fabric->lines = calloc(ranks, sizeof(*fabric->lines));
    fabric->inbound = wefti_inbound_create((int)ranks);
    fabric->rounds = wefti_rounds_create(firsts, (int)ranks, fabric->rank);
    fabric->told_taken = calloc(cells, sizeof(*fabric->told_taken));
    fabric->awaited = calloc(cells, sizeof(*fabric->awaited));
    fabric->outgoing =
        calloc(ranks * WEFTI_P2P_AREAS, sizeof(*fabric->outgoing));
    if (!fabric->lines || !fabric->inbound || !fabric->rounds ||
        !fabric->told_taken || !fabric->awaited || !fabric->outgoing) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu peers",
                           ranks);
    }
    weft_status status = wefti_fabric_open_spare(fabric);
    if (status != WEFT_OK) {
        return status;
    }
    fabric->net = net;
    for (size_t peer = 0; peer < ranks; peer++) {
        fabric->lines[peer].world_rank = world_ranks[peer];
        if (firsts[peer] != firsts[fabric->rank]) {
            fabric->tables[peer] = &wefti_fabric_net;
        }
    }
    return WEFT_OK;
}

void wefti_remote_fini(wefti_fabric *fabric)
{
    free(fabric->lines);
    free(fabric->told_taken);
    free(fabric->awaited);
    free(fabric->rounds);
    wefti_inbound_destroy(fabric->inbound);
    fabric->lines = NULL;
    fabric->inbound = NULL;
    fabric->rounds = NULL;
    fabric->told_taken = fabric->awaited = NULL;
    fabric->net = NULL;
}

static uint64_t own_completed(const wefti_fabric *fabric)
{
    return atomic_load(
        &wefti_shared_get_page(&fabric->shared, fabric->rank)->completed);
}

static wefti_wire begin(const wefti_fabric *fabric, wefti_wire_kind kind)
{
    return (wefti_wire){.key = fabric->net->key,
                        .comm = fabric->id,
                        .version = WEFTI_WIRE_VERSION,
                        .kind = (uint16_t)kind,
                        .from = (uint32_t)fabric->rank,
                        .completed = own_completed(fabric),
                        .sent_ns = wefti_clock_ns()};
}

/* Puts releases that the peer does not know of into the message's spare words.
 */
static void add_releases(wefti_fabric *fabric, int peer, wefti_wire *wire)
{
    wefti_line *line = &fabric->lines[peer];
    int word = wefti_wire_first_release((wefti_wire_kind)wire->kind);
    wefti_fabric_path path = {.peer = peer};
    for (; path.op_slot < WEFTI_ALL_SLOTS; path.op_slot++) {
        for (path.channel = 0; path.channel < WEFTI_CHANNELS; path.channel++) {
            if (line->owed == 0 || word == WEFTI_WIRE_WORDS) {
                return;
            }
            const size_t cell = wefti_fabric_cell(&path);
            if (fabric->told_taken[cell] < fabric->taken[cell]) {
                fabric->told_taken[cell] = fabric->taken[cell];
                wire->words[word++] = wefti_wire_pack_release(
                    path.op_slot, path.channel, fabric->taken[cell]);
                line->owed--;
            }
        }
    }
}

/*
 * Releases that the peer waits for do not ride on data that others are queued
 * before. Once it knows how far this rank has come, it is to have them all: it
 * may want to use the op slot again.
 */
static void tell(wefti_fabric *fabric, int peer, wefti_wire *wire,
                 const wefti_net_load *load)
{
    wefti_line *line = &fabric->lines[peer];
    const bool ahead = line->told != wire->completed;
    wire->before = line->sent++;
    line->told = wire->completed;
    wire->all_completed = wefti_rounds_offer(fabric, peer);
    if (!line->urged || wire->kind != WEFTI_WIRE_MESSAGE ||
        !wefti_net_has_queued(fabric->net, line->world_rank)) {
        add_releases(fabric, peer, wire);
    }
    line->urged = line->owed > 0 && (line->urged || ahead);
    fabric->urged |= line->urged;
    wefti_net_send(fabric->net, line->world_rank, wire, load);
}

static void tell_all(wefti_fabric *fabric, const wefti_wire *wire)
{
    for (int peer = 0; peer < fabric->shared.layout.nranks; peer++) {
        if (wefti_fabric_is_remote(fabric, peer)) {
            wefti_wire own = *wire; /* releases are each peer's */
            tell(fabric, peer, &own, NULL);
        }
    }
}

static void pack_entry(const wefti_entry *entry, uint64_t number,
                       wefti_wire *wire)
{
    wire->words[0] = number;
    wire->words[1] = atomic_load_explicit(&entry->count, memory_order_relaxed);
    wire->words[2] = atomic_load_explicit(&entry->kind, memory_order_relaxed);
    wire->words[3] = atomic_load_explicit(&entry->cut, memory_order_relaxed);
    wire->words[4] =
        (uint64_t)atomic_load_explicit(&entry->stamp_ns, memory_order_relaxed);
}

void wefti_remote_tell_entry(wefti_fabric *fabric, int peer, uint64_t number,
                             const wefti_announcement *announcement)
{
    if (!wefti_fabric_is_remote(fabric, peer)) {
        return;
    }
    const wefti_entry *entry =
        wefti_shared_get_entry(&fabric->shared, fabric->rank, number);
    wefti_wire wire = begin(fabric, WEFTI_WIRE_ENTRY);
    pack_entry(entry, number, &wire);
    wire.words[5] = announcement->elems;
    fabric->net->sent_bytes += announcement->payload_bytes;
    const wefti_net_load load = {announcement->payload,
                                 announcement->payload_bytes,
                                 announcement->urgent, fabric->unsent};
    tell(fabric, peer, &wire, &load);
}

static void tell_number(wefti_fabric *fabric, int peer)
{
    wefti_wire wire = begin(fabric, WEFTI_WIRE_COMPLETED);
    tell(fabric, peer, &wire, NULL);
}

/* To those who have releases to get, and do not know of the last `behind`
 * operations: what they sent lies in slots that they may want to use again. */
static void tell_completed(wefti_fabric *fabric, uint64_t behind)
{
    if (!fabric->net) {
        return;
    }
    const uint64_t completed = own_completed(fabric);
    for (int peer = 0; peer < fabric->shared.layout.nranks; peer++) {
        const wefti_line *line = &fabric->lines[peer];
        if (line->owed > 0 && completed - line->told >= behind) {
            tell_number(fabric, peer);
        }
    }
}

/* What all ranks must know, to the leaders that are due it. */
static void tell_rounds(wefti_fabric *fabric)
{
    const unsigned due = wefti_rounds_spread(fabric);
    for (int k = 0; due >> k; k++) {
        if (due >> k & 1) {
            tell_number(fabric, fabric->rounds->to[k]);
        }
    }
}

/* What this rank has entered, as far as peer may not know it. */
static void answer(wefti_fabric *fabric, int peer)
{
    wefti_line *line = &fabric->lines[peer];
    const uint64_t completed =
        atomic_load(&wefti_shared_get_page(&fabric->shared, peer)->completed);
    uint64_t newest = 0;
    for (uint64_t op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        const uint64_t number = atomic_load(
            &wefti_shared_get_entry(&fabric->shared, fabric->rank, op_slot)
                 ->number);
        newest = number > newest ? number : newest;
    }
    for (uint64_t op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        const wefti_entry *entry =
            wefti_shared_get_entry(&fabric->shared, fabric->rank, op_slot);
        const uint64_t number = atomic_load(&entry->number);
        if (number > 0 && (number > completed || number == newest)) {
            wefti_wire wire = begin(fabric, WEFTI_WIRE_ENTERED);
            pack_entry(entry, number, &wire);
            tell(fabric, peer, &wire, NULL);
        }
    }
    if (line->told != own_completed(fabric)) {
        tell_number(fabric, peer);
    }
    line->answered = fabric->entered;
}

static void tell_asked(wefti_fabric *fabric)
{
    if (!fabric->asked) {
        return;
    }
    fabric->asked = false;
    for (int peer = 0; peer < fabric->shared.layout.nranks; peer++) {
        wefti_line *line = &fabric->lines[peer];
        if (line->asked && (line->answered != fabric->entered ||
                            line->told != own_completed(fabric))) {
            answer(fabric, peer);
        }
        line->asked = false;
    }
}

/* Whether peer, for which this rank waits, is to be asked now. */
static bool is_doubtful(wefti_line *line, int64_t now_ns)
{
    const int64_t after_ns =
        atomic_load_explicit(&line->doubt_after_ns, memory_order_relaxed);
    if (line->doubted_got != line->got ||
        now_ns - line->doubted_ns > DOUBT_PAUSE_NS) {
        line->doubted_got = line->got;
        line->doubted_since_ns = now_ns;
    }
    line->doubted_ns = now_ns;
    return now_ns - line->doubted_since_ns >= after_ns &&
           now_ns - line->doubt_told_ns >= after_ns;
}

/* Whoever has left answers any message (comm/net/ended.h). */
static void tell_doubts(wefti_fabric *fabric)
{
    if (!atomic_load_explicit(&fabric->doubts, memory_order_relaxed) ||
        !atomic_exchange(&fabric->doubts, false)) {
        return;
    }
    const int64_t now_ns = wefti_clock_ns();
    for (int peer = 0; peer < fabric->shared.layout.nranks; peer++) {
        wefti_line *line = &fabric->lines[peer];
        if (atomic_exchange(&line->doubted, false) &&
            is_doubtful(line, now_ns)) {
            line->doubt_told_ns = now_ns;
            tell_number(fabric, peer);
        }
    }
}

void wefti_remote_note_completed(wefti_fabric *fabric)
{
    tell_completed(fabric, TOLD_AT_LEAST);
}

void wefti_remote_tell_completed(wefti_fabric *fabric)
{
    tell_completed(fabric, 1);
    wefti_remote_tell_due(fabric);
}

void wefti_remote_tell_due(wefti_fabric *fabric)
{
    if (fabric->net) {
        tell_rounds(fabric);
        tell_asked(fabric);
        tell_doubts(fabric);
    }
}

void wefti_remote_tell_released(wefti_fabric *fabric)
{
    if (!fabric->urged) {
        return;
    }
    for (int peer = 0; peer < fabric->shared.layout.nranks; peer++) {
        while (fabric->lines[peer].urged) {
            tell_number(fabric, peer);
        }
    }
    fabric->urged = false;
}

void wefti_remote_tell_waiting(wefti_fabric *fabric)
{
    if (!fabric->net) {
        return;
    }
    wefti_wire wire = begin(fabric, WEFTI_WIRE_WAITING);
    if (wire.sent_ns - fabric->waiting_told_ns >= WAITING_NS) {
        const wefti_wait_page *own =
            &wefti_shared_get_page(&fabric->shared, fabric->rank)->wait;
        fabric->waiting_told_ns = wire.sent_ns;
        for (int i = 0; i < WEFTI_WAIT_WORDS; i++) {
            wire.words[i] = atomic_load(&own->words[i]);
        }
        tell_all(fabric, &wire);
    }
}

void wefti_remote_tell_observed(wefti_fabric *fabric)
{
    if (fabric->net) {
        wefti_wire wire = begin(fabric, WEFTI_WIRE_OBSERVED);
        tell_all(fabric, &wire);
    }
}

void wefti_remote_doubt(wefti_fabric *fabric, int peer, int64_t after_ns)
{
    if (wefti_fabric_is_remote(fabric, peer)) {
        atomic_store_explicit(&fabric->lines[peer].doubt_after_ns, after_ns,
                              memory_order_relaxed);
        atomic_store(&fabric->lines[peer].doubted, true);
        atomic_store(&fabric->doubts, true);
    }
}

void wefti_remote_leave(wefti_fabric *fabric, wefti_leave how)
{
    if (!fabric->net) {
        return;
    }
    if (how != WEFTI_LEAVE_WELL) {
        wefti_wire wire = begin(fabric, WEFTI_WIRE_LEFT);
        wire.words[0] = how;
        tell_all(fabric, &wire);
    }
    tell_completed(fabric, 1);
    if (!wefti_ended_add(fabric->net, fabric, how)) {
        wefti_log(WEFTI_LOG_WARN, fabric->net->rank,
                  "no memory to answer those that ask for a communicator that "
                  "was destroyed: they wait until their time limit");
    }
}

static void *stage(wefti_fabric *fabric, wefti_fabric_path path, int staging,
                   size_t offset)
{
    if (!wefti_op_slot_is_p2p(path.op_slot)) {
        return wefti_fabric_shm.stage(fabric, path, staging, offset);
    }
    const wefti_mapping *outgoing = wefti_fabric_get_outgoing(
        fabric, path.peer, wefti_p2p_area(path.op_slot, path.channel));
    return (unsigned char *)wefti_mapping_get_base(outgoing) +
           offset * WEFTI_P2P_REMOTE_BYTES;
}

static wefti_arrival *get_arrival(const wefti_fabric *fabric,
                                  wefti_fabric_path path, uint64_t sequence)
{
    return wefti_shared_get_arrival(&fabric->shared, path.peer, path.op_slot,
                                    path.channel, sequence);
}

/*
 * Whether the peer is to say soon that it has released a message just posted,
 * rather than with whatever it has to say next: half of the slots are in use.
 * So before the last is, a message is awaited, whose release frees them all.
 */
static bool is_awaited(wefti_fabric *fabric, wefti_fabric_path path,
                       const wefti_outgoing *outgoing)
{
    const uint64_t unread =
        wefti_fabric_posted(fabric, path) - wefti_fabric_read_by(fabric, path);
    const uint64_t slots =
        outgoing->slots < WEFTI_DEPTH ? (uint64_t)outgoing->slots : WEFTI_DEPTH;
    return 2 * unread > slots;
}

/* The network is slow enough without the emulated limit. */
static void post(wefti_fabric *fabric, wefti_fabric_path path,
                 const wefti_outgoing *outgoing)
{
    wefti_wire wire = begin(fabric, WEFTI_WIRE_MESSAGE);
    wire.words[1] = ++fabric->posted[wefti_fabric_cell(&path)];
    wire.words[0] = wefti_wire_pack_path(path.op_slot, path.channel,
                                         is_awaited(fabric, path, outgoing));
    wire.words[2] = (uint64_t)outgoing->ready_ns;
    wire.words[3] = outgoing->signature.count;
    wire.words[4] = outgoing->signature.kind;
    wire.words[5] = outgoing->signature.cut;
    fabric->net->sent_bytes += outgoing->bytes;
    const wefti_net_load load = {
        outgoing->data, outgoing->bytes, outgoing->urgent,
        outgoing->lent ? outgoing->lent : fabric->unsent};
    tell(fabric, path.peer, &wire, &load);
}

void wefti_remote_offer(wefti_fabric *fabric, wefti_fabric_path path,
                        uint64_t later, void *memory, size_t bytes)
{
    const uint64_t sequence =
        fabric->taken[wefti_fabric_cell(&path)] + 1 + later;
    wefti_inbound_offer(get_arrival(fabric, path, sequence), sequence, memory,
                        bytes);
}

void wefti_remote_withdraw(wefti_fabric *fabric, int peer, int op_slot)
{
    wefti_fabric_path path = {.peer = peer, .op_slot = op_slot};
    for (; path.channel < WEFTI_CHANNELS; path.channel++) {
        for (uint64_t cell = 0; cell < WEFTI_DEPTH; cell++) {
            wefti_inbound_withdraw(fabric->inbound, peer,
                                   get_arrival(fabric, path, cell));
        }
    }
}

static bool peek(wefti_fabric *fabric, wefti_fabric_path path,
                 wefti_incoming *message_out, int64_t *due_ns)
{
    const uint64_t sequence = fabric->taken[wefti_fabric_cell(&path)] + 1;
    if (!wefti_fabric_shm.peek(fabric, path, message_out, due_ns)) {
        return false;
    }
    message_out->data = get_arrival(fabric, path, sequence)->buffer;
    return true;
}

static void release(wefti_fabric *fabric, wefti_fabric_path path)
{
    const size_t cell = wefti_fabric_cell(&path);
    wefti_line *line = &fabric->lines[path.peer];
    line->owed += fabric->told_taken[cell] == fabric->taken[cell];
    const uint64_t sequence = ++fabric->taken[cell];
    wefti_inbound_let_go(fabric->inbound, path.peer,
                         get_arrival(fabric, path, sequence));
    if (sequence <= fabric->awaited[cell]) {
        line->urged = fabric->urged = true;
    }
}

const wefti_fabric_table wefti_fabric_net = {
    .name = "net",
    .stage = stage,
    .post = post,
    .peek = peek,
    .release = release,
};
