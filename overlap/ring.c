/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/ring.c - rounds of blocks, as messages between neighbours that are
 * all posted when the round begins and go when their gates say so.
 *
 * A lane is one direction: blocks 1, 2, ... come from one neighbour into two
 * places by turns, and all but the last go on to the other. Block 0 is this
 * rank's own; of CARRY it is the one before's sum, which begins here, and the
 * last to come is this rank's. Numbers grow from round to round, so that each
 * place and gate has rising epochs.
 *
 *   in:    place is free (used and sent) --> receive block --> arrived
 *   out:   READ  arrived --> send block --> sent      chunk by chunk
 *          CARRY made by compute --> send block --> sent
 *   compute (next):  used, or made, the last one, unless it has been passed on;
 *                    wait for arrived
 */
#include "overlap/ring.h"

#include "base/error.h"
#include "base/sized.h"
#include "comm/core/live.h"
#include "comm/make/explain.h"
#include "comm/post/p2p.h"
#include "weft/mem.h"
#include "weft/p2p.h"

#include <stdlib.h>

/*
 * A block of a ring is passed on in so many parts at most, of so many bytes at
 * least: parts let it leave before it has come whole, and each costs a message.
 */
enum { PARTS_MOST = 8, PART_BYTES = 1 << 19, ALIGN_BYTES = 64 };

enum { PLACES = 2, OWN = PLACES /* the program's block, among the gates */ };

typedef struct lane {
    int from, to;
    int step;    /* of owners: -1 or 1 */
    size_t hops; /* blocks that come in a round */
    char *place[PLACES];
    uint64_t used[PLACES + 1]; /* epochs of the last one there; 0: none */
    uint64_t sent[PLACES + 1]; /* to be waited for; 0: nothing was sent */
    uint64_t first;            /* CARRY: sent of block 0's place, as the round
                                  begins */
    weft_gate *arrived;        /* [PLACES + 1][parts] */
    weft_gate *made;           /* READ: is used up. CARRY: [..][parts] */
    weft_gate *left;           /* [PLACES + 1]: has been sent */
    weft_stream *in, *out;
} lane;

struct weft_ring {
    weft_ring_config config;
    int rank, nranks;
    size_t bytes, part_elems, parts;
    weft_mem *shared; /* holds the places; NULL: memory does */
    void *memory;
    lane lanes[2];
    int lane_count;
    weft_gate *begun; /* [1]: compute has come to the round */
    uint64_t round;
    uint64_t number;      /* of the round's block 0 */
    bool blocking;        /* nothing moves while a block is used */
    bool passed;          /* CARRY: the last block given has gone on its way */
    size_t next;          /* which block next gives; blocks + 1: round over */
    weft_status failed;   /* what a post returned: it is of no more use */
    void *own;            /* of the round */
    weft_stream *compute; /* of the round */
};

/* ---- which block, where ---------------------------------------------------
 */

static bool carries(const weft_ring *ring)
{
    return ring->config.kind == WEFT_RING_CARRY;
}

/* Those that next gives: the own sum is not touched here. */
static size_t count_blocks(const weft_ring *ring)
{
    return (size_t)ring->nranks - carries(ring);
}

static bool is_under_way(const weft_ring *ring)
{
    return ring->next <= count_blocks(ring);
}

/* Which lane's block stands at a place of the order, and which of its. */
static lane *lane_at(weft_ring *ring, size_t order, size_t *block_out)
{
    const size_t lanes = ring->lane_count > 1 ? 2 : 1; /* alone: only block 0 */
    *block_out = order == 0 ? 0 : (order - 1) / lanes + 1;
    return &ring->lanes[order == 0 ? 0 : (order - 1) % lanes];
}

/* CARRY's sums go from place to place, and home. */
static size_t place_of(const weft_ring *ring, size_t block)
{
    if (carries(ring)) {
        return block == count_blocks(ring) ? OWN : block % PLACES;
    }
    return block == 0 ? OWN : (block - 1) % PLACES;
}

static void *memory_of(const weft_ring *ring, const lane *of, size_t place)
{
    return place == OWN ? ring->own : of->place[place];
}

static uint64_t epoch_of(const weft_ring *ring, size_t block)
{
    return ring->number + block;
}

/* All parts of a place; wait_parts waits for them. */
static weft_status signal_parts(const weft_ring *ring, weft_gate *gate,
                                size_t place, uint64_t epoch,
                                weft_stream *stream)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < ring->parts && status == WEFT_OK; i++) {
        status = weft_gate_signal(gate, place * ring->parts + i, epoch, stream);
    }
    return status;
}

/* ---- life -----------------------------------------------------------------
 */

static weft_status check_config(const weft_ring_config *given,
                                weft_ring **ring_out, weft_ring_config *own)
{
    if (!given || !ring_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            given ? "ring_out" : "config");
    }
    weft_status status =
        wefti_sized_read("config", given, offsetof(weft_ring_config, class_id),
                         own, sizeof(*own));
    if (status != WEFT_OK) {
        return status;
    }
    if (!own->comm || !own->device) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config.%s is NULL: allowed is an object",
                           own->comm ? "device" : "comm");
    }
    if (!wefti_comm_is_live(own->comm)) {
        return wefti_comm_refuse(own->comm, "config.comm");
    }
    if ((own->kind != WEFT_RING_READ && own->kind != WEFT_RING_CARRY) ||
        (own->way != WEFT_RING_ONE && own->way != WEFT_RING_BOTH) ||
        (own->kind == WEFT_RING_CARRY && own->way == WEFT_RING_BOTH)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config: kind %d, way %d: allowed is READ, one way "
                           "or both, and CARRY, one way",
                           (int)own->kind, (int)own->way);
    }
    const size_t elem_bytes = weft_dtype_bytes(own->dtype);
    if (elem_bytes == 0 || own->count == 0 ||
        own->count > SIZE_MAX / 8 / elem_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config: %zu elements of dtype %d: allowed is 1 or "
                           "more, of a type there is",
                           own->count, (int)own->dtype);
    }
    if (own->queue < 0 || own->queue >= WEFT_P2P_QUEUES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config.queue %d: allowed is 0 .. %d", own->queue,
                           WEFT_P2P_QUEUES - 1);
    }
    return WEFT_OK;
}

static void plan_lanes(weft_ring *ring)
{
    const int n = ring->nranks;
    const size_t others = (size_t)n - 1;
    const bool both = ring->config.way == WEFT_RING_BOTH && n > 2;
    const int after = (ring->rank + 1) % n, before = (ring->rank + n - 1) % n;
    ring->lane_count = n == 1 ? 0 : 1 + both;
    ring->lanes[0] = (lane){.from = before, .to = after, .step = -1};
    ring->lanes[1] = (lane){.from = after, .to = before, .step = 1};
    ring->lanes[0].hops = others - (others / 2) * both;
    ring->lanes[1].hops = both ? others / 2 : 0;
}

static void plan_parts(weft_ring *ring)
{
    size_t parts = ring->bytes / PART_BYTES;
    parts = parts > PARTS_MOST ? PARTS_MOST : parts < 1 ? 1 : parts;
    ring->part_elems = (ring->config.count + parts - 1) / parts;
    ring->parts =
        (ring->config.count + ring->part_elems - 1) / ring->part_elems;
}

/* Where ranks read each other's memory, messages are not staged from there. */
static weft_status make_places(weft_ring *ring)
{
    if (ring->lane_count == 0) {
        return WEFT_OK;
    }
    const size_t stride =
        (ring->bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    const size_t all = stride * PLACES * (size_t)ring->lane_count;
    weft_status status;
    char *at;
    if (weft_device_get_caps(ring->config.device) & WEFT_CAP_HOST_READS &&
        wefti_comm_reads_mapped(ring->config.comm)) {
        status = weft_mem_create(ring->config.comm, all, &ring->shared);
        at = ring->shared ? weft_mem_get_base(ring->shared) : NULL;
    } else {
        status = weft_device_alloc(ring->config.device, all, &ring->memory);
        at = ring->memory;
    }
    for (int i = 0; i < ring->lane_count && status == WEFT_OK; i++) {
        for (size_t place = 0; place < PLACES; place++, at += stride) {
            ring->lanes[i].place[place] = at;
        }
    }
    return status;
}

static weft_status open_lane(weft_ring *ring, lane *of)
{
    weft_device *device = ring->config.device;
    const size_t chunks = (PLACES + 1) * ring->parts;
    weft_status status = weft_gate_create(device, chunks, &of->arrived);
    if (status == WEFT_OK) {
        status = weft_gate_create(device, chunks, &of->made);
    }
    if (status == WEFT_OK) {
        status = weft_gate_create(device, PLACES + 1, &of->left);
    }
    if (status == WEFT_OK) {
        status = weft_stream_create(device, 0, &of->in);
    }
    return status == WEFT_OK ? weft_stream_create(device, 0, &of->out) : status;
}

weft_status weft_ring_create(const weft_ring_config *config,
                             weft_ring **ring_out)
{
    weft_ring_config own;
    weft_status status = check_config(config, ring_out, &own);
    if (status != WEFT_OK) {
        return status;
    }
    weft_ring *ring = calloc(1, sizeof(*ring));
    if (!ring) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a ring");
    }
    own.class_id = own.class_id ? own.class_id : WEFT_CLASS_CP;
    own.label = own.label ? own.label : "ring";
    ring->config = own;
    ring->rank = weft_comm_get_rank(own.comm);
    ring->nranks = weft_comm_get_nranks(own.comm);
    ring->bytes = own.count * weft_dtype_bytes(own.dtype);
    ring->number = 1;
    ring->next = count_blocks(ring) + 1;
    plan_parts(ring);
    plan_lanes(ring);
    status = make_places(ring);
    if (status == WEFT_OK) {
        status = weft_gate_create(own.device, 1, &ring->begun);
    }
    for (int i = 0; i < ring->lane_count && status == WEFT_OK; i++) {
        status = open_lane(ring, &ring->lanes[i]);
    }
    if (status != WEFT_OK) {
        weft_ring_destroy(ring);
        return status;
    }
    *ring_out = ring;
    return WEFT_OK;
}

/* A round that a failure has ended: what waits for compute waits no longer. */
static void give_up(weft_ring *ring)
{
    const uint64_t last = ring->number + (uint64_t)ring->nranks;
    wefti_p2p_end_round(ring->config.comm, ring->config.queue);
    weft_status status = weft_gate_signal(ring->begun, 0, ring->round, NULL);
    for (int i = 0; i < ring->lane_count; i++) {
        for (size_t place = 0; place < PLACES && status == WEFT_OK; place++) {
            status = signal_parts(ring, ring->lanes[i].made, place, last, NULL);
        }
    }
}

void weft_ring_destroy(weft_ring *ring)
{
    if (!ring) {
        return;
    }
    if (is_under_way(ring)) {
        give_up(ring);
    }
    for (int i = 0; i < ring->lane_count; i++) {
        lane *of = &ring->lanes[i];
        weft_stream_destroy(of->in);
        weft_stream_destroy(of->out);
        weft_gate_destroy(of->arrived);
        weft_gate_destroy(of->made);
        weft_gate_destroy(of->left);
    }
    weft_gate_destroy(ring->begun);
    weft_mem_destroy(ring->shared);
    weft_device_free(ring->config.device, ring->memory);
    free(ring);
}

/* ---- a round --------------------------------------------------------------
 */

static weft_status wait_gate(const weft_ring *ring, weft_gate *gate,
                             size_t chunk, uint64_t epoch, weft_stream *stream)
{
    return wefti_comm_explain_fault(ring->config.comm,
                                    weft_gate_wait(gate, chunk, epoch, stream));
}

static weft_status wait_parts(const weft_ring *ring, weft_gate *gate,
                              size_t place, uint64_t epoch, weft_stream *stream)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < ring->parts && status == WEFT_OK; i++) {
        status = wait_gate(ring, gate, place * ring->parts + i, epoch, stream);
    }
    return status;
}

static weft_p2p message(const weft_ring *ring, const lane *of, size_t block,
                        weft_p2p_kind kind)
{
    const size_t place = place_of(ring, block);
    const bool sends = kind == WEFT_P2P_SEND;
    weft_gate *ready = carries(ring)  ? of->made
                       : place == OWN ? NULL
                                      : of->arrived;
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = kind,
                      .buffer = memory_of(ring, of, place),
                      .count = ring->config.count,
                      .dtype = ring->config.dtype,
                      .peer = sends ? of->to : of->from,
                      .ready = sends ? ready : NULL,
                      .arrived = sends ? NULL : of->arrived,
                      .gate_elems = ring->part_elems,
                      .ready_chunk = sends ? place * ring->parts : 0,
                      .arrived_chunk = sends ? 0 : place * ring->parts,
                      .epoch = epoch_of(ring, block),
                      .class_id = ring->config.class_id,
                      .label = ring->config.label,
                      .queue = ring->config.queue};
}

static weft_status post_send(weft_ring *ring, lane *of, size_t block)
{
    const size_t place = place_of(ring, block);
    const weft_p2p part = message(ring, of, block, WEFT_P2P_SEND);
    weft_status status =
        place == OWN ? weft_gate_wait(ring->begun, 0, ring->round, of->out)
                     : WEFT_OK;
    if (status == WEFT_OK) {
        status = weft_p2p_post(&part, 1, ring->config.comm, of->out);
    }
    if (status == WEFT_OK) {
        of->sent[place] = epoch_of(ring, block);
        status = weft_gate_signal(of->left, place, of->sent[place], of->out);
    }
    return status;
}

/* Waits until nobody reads the place any more, or writes to it. */
static weft_status free_place(const weft_ring *ring, const lane *of,
                              size_t place, weft_stream *stream)
{
    weft_status status = WEFT_OK;
    if (of->sent[place] != 0) {
        status = wait_gate(ring, of->left, place, of->sent[place], stream);
    }
    if (status == WEFT_OK && of->used[place] != 0 && !carries(ring)) {
        status = wait_parts(ring, of->made, place, of->used[place], stream);
    }
    return status;
}

static weft_status post_receive(weft_ring *ring, lane *of, size_t block)
{
    const size_t place = place_of(ring, block);
    const weft_p2p part = message(ring, of, block, WEFT_P2P_RECV);
    weft_status status =
        place == OWN ? weft_gate_wait(ring->begun, 0, ring->round, of->in)
                     : free_place(ring, of, place, of->in);
    if (status == WEFT_OK) {
        status = weft_p2p_post(&part, 1, ring->config.comm, of->in);
    }
    of->used[place] = epoch_of(ring, block);
    return status;
}

/* Sends before receives, of each block: both sides match in that order. */
static weft_status post_lane(weft_ring *ring, lane *of)
{
    weft_status status = WEFT_OK;
    of->first = of->sent[0];
    for (size_t block = 0; block < of->hops && status == WEFT_OK; block++) {
        status = post_send(ring, of, block);
        if (status == WEFT_OK) {
            status = post_receive(ring, of, block + 1);
        }
    }
    return status;
}

static weft_status check_round(const weft_ring *ring,
                               const weft_stream *compute, bool begins)
{
    if (!ring) {
        return wefti_error(WEFT_ERR_INVALID,
                           "ring is NULL: allowed is an object");
    }
    if (begins && !wefti_comm_is_live(ring->config.comm)) {
        return wefti_comm_refuse(ring->config.comm, "the ring's comm");
    }
    if (ring->failed != WEFT_OK) {
        return wefti_comm_explain_fault(
            ring->config.comm,
            wefti_error(ring->failed,
                        "a round of \"%s\" has failed: allowed "
                        "is to destroy it",
                        ring->config.label));
    }
    if (begins == is_under_way(ring)) {
        return wefti_error(WEFT_ERR_INVALID,
                           begins ? "a round of \"%s\" is under way: allowed "
                                    "is to begin when it is over"
                                  : "no round of \"%s\" is under way: allowed "
                                    "is to call next between a post and the "
                                    "round's end",
                           ring->config.label);
    }
    if (!begins && compute != ring->compute) {
        return wefti_error(WEFT_ERR_INVALID,
                           "compute is not the stream that the round of \"%s\" "
                           "was posted with",
                           ring->config.label);
    }
    return WEFT_OK;
}

weft_status weft_ring_post(weft_ring *ring, void *own_block,
                           weft_stream *compute)
{
    weft_status status = check_round(ring, compute, true);
    if (status == WEFT_OK && !own_block) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "own_block is NULL: allowed is memory");
    }
    if (status == WEFT_OK) {
        status = wefti_p2p_begin_round(ring->config.comm, ring->config.queue,
                                       ring->config.label);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_gate_signal(ring->begun, 0, ring->round + 1, compute);
    if (status != WEFT_OK) {
        wefti_p2p_end_round(ring->config.comm, ring->config.queue);
        return status;
    }
    ring->round++;
    ring->own = own_block;
    ring->compute = compute;
    ring->passed = false;
    ring->next = 0;
    for (int i = 0; i < ring->lane_count && status == WEFT_OK; i++) {
        status = post_lane(ring, &ring->lanes[i]);
    }
    ring->failed = wefti_comm_explain_fault(ring->config.comm, status);
    return ring->failed;
}

/* Compute has done with the block at a place of the order. */
static weft_status end_block(weft_ring *ring, size_t order)
{
    size_t block;
    lane *of = lane_at(ring, order, &block);
    const size_t place = place_of(ring, block);
    const bool passed = ring->passed;
    ring->passed = false;
    if (ring->lane_count == 0 || place == OWN || passed) {
        return WEFT_OK;
    }
    return signal_parts(ring, of->made, place, epoch_of(ring, block),
                        ring->compute);
}

/* The own block is free, or has its sum. */
static weft_status end_round(weft_ring *ring)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < ring->lane_count && status == WEFT_OK; i++) {
        const lane *of = &ring->lanes[i];
        status =
            carries(ring)
                ? wait_parts(ring, of->arrived, OWN, epoch_of(ring, of->hops),
                             ring->compute)
                : wait_gate(ring, of->left, OWN, of->sent[OWN], ring->compute);
    }
    ring->number += (uint64_t)ring->nranks + 1;
    wefti_p2p_end_round(ring->config.comm, ring->config.queue);
    return status;
}

/*
 * READ: what can come beside the block that is to be used has come. Two places
 * of each lane are free as the round begins, later one beside that block.
 */
static weft_status settle(weft_ring *ring, size_t order)
{
    const size_t ahead = 2 * (size_t)ring->lane_count - (order > 0);
    weft_status status = WEFT_OK;
    for (size_t i = order + 1; !carries(ring) && i < (size_t)ring->nranks &&
                               i <= order + ahead && status == WEFT_OK;
         i++) {
        size_t block;
        const lane *of = lane_at(ring, i, &block);
        status = wait_parts(ring, of->arrived, place_of(ring, block),
                            epoch_of(ring, block), ring->compute);
    }
    return status;
}

void wefti_ring_set_blocking(weft_ring *ring, bool blocking)
{
    ring->blocking = blocking;
}

weft_status wefti_ring_pass_on(weft_ring *ring, weft_stream *compute)
{
    weft_status status = check_round(ring, compute, false);
    if (status != WEFT_OK || ring->next == 0 || ring->passed) {
        return status;
    }
    const size_t block = ring->next - 1;
    const lane *of = &ring->lanes[0];
    status = end_block(ring, block);
    ring->passed = true;
    if (ring->blocking && status == WEFT_OK) {
        status = wait_parts(ring, of->arrived, place_of(ring, block + 1),
                            epoch_of(ring, block + 1), compute);
    }
    return status;
}

weft_status weft_ring_next(weft_ring *ring, weft_stream *compute,
                           void **block_out, int *owner_out)
{
    weft_status status = check_round(ring, compute, false);
    if (status == WEFT_OK && (!block_out || !owner_out)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "%s is NULL: allowed is a place for a result",
                             block_out ? "owner_out" : "block_out");
    }
    if (status != WEFT_OK) {
        return status;
    }
    const size_t order = ring->next++;
    size_t block;
    const lane *of = lane_at(ring, order, &block);
    *block_out = NULL;
    *owner_out = -1;
    if (order > 0) {
        status = end_block(ring, order - 1);
    }
    if (status != WEFT_OK || order == count_blocks(ring)) {
        return status == WEFT_OK ? end_round(ring) : status;
    }
    const size_t place = ring->lane_count == 0 ? OWN : place_of(ring, block);
    if (block > 0) {
        status = wait_parts(ring, of->arrived, place, epoch_of(ring, block),
                            compute);
    } else if (place != OWN && of->first != 0) { /* compute writes there */
        status = wait_gate(ring, of->left, place, of->first, compute);
    }
    if (ring->blocking && status == WEFT_OK) {
        status = settle(ring, order);
    }
    const int n = ring->nranks, away = (int)block + carries(ring);
    *block_out = memory_of(ring, of, place);
    *owner_out = (ring->rank + n + of->step * away) % n;
    return status;
}
