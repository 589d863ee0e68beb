/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/wire.c - judging and applying what came over the network.
 */
#include "comm/net/wire.h"

#include <string.h>

typedef struct path {
    int op_slot, channel;
} path;

/* *rest_out: what stands above it in the word. */
static bool unpack_path(uint64_t word, path *path_out, uint64_t *rest_out)
{
    path_out->op_slot = (int)(word >> 8 & 0xff);
    path_out->channel = (int)(word & 0xff);
    *rest_out = word >> 16;
    return path_out->op_slot < WEFTI_ALL_SLOTS &&
           path_out->channel < WEFTI_CHANNELS;
}

static size_t cell(path at)
{
    return (size_t)at.op_slot * WEFTI_CHANNELS + (size_t)at.channel;
}

bool wefti_wire_decode(const void *header, size_t header_bytes,
                       wefti_wire *wire_out)
{
    if (header_bytes != sizeof(*wire_out)) {
        return false;
    }
    memcpy(wire_out, header, sizeof(*wire_out));
    return wire_out->version == WEFTI_WIRE_VERSION && wire_out->kind >= 1 &&
           wire_out->kind < WEFTI_WIRE_END;
}

/* No rank enters or completes more than an op slot ahead of those it waits for.
 */
static bool is_within_reach(uint64_t number, const wefti_wire_view *view)
{
    return number <= view->completed + WEFTI_OP_SLOTS;
}

static bool check_entry(const wefti_wire *wire, size_t data_bytes,
                        const wefti_wire_view *view)
{
    return wire->words[0] >= 1 && is_within_reach(wire->words[0], view) &&
           data_bytes <= WEFTI_PAYLOAD_BYTES;
}

static wefti_arrival *arrival_of(const wefti_wire *wire, path at,
                                 const wefti_wire_view *view)
{
    return wefti_shared_get_arrival(view->shared, (int)wire->from, at.op_slot,
                                    at.channel, wire->words[1]);
}

/* Whether the path carries messages of that size. */
static bool is_staged(path at, size_t data_bytes)
{
    return wefti_op_slot_is_p2p(at.op_slot)
               ? wefti_p2p_has_channel(at.op_slot, at.channel) &&
                     data_bytes <= WEFTI_P2P_REMOTE_BYTES
               : data_bytes <= WEFTI_STAGING_BYTES;
}

static bool check_message(const wefti_wire *wire, size_t data_bytes,
                          const wefti_wire_view *view)
{
    path at;
    uint64_t awaited;
    if (!unpack_path(wire->words[0], &at, &awaited) || awaited > 1) {
        return false;
    }
    uint64_t ahead = wire->words[1] - view->taken[cell(at)];
    return ahead >= 1 && ahead <= WEFTI_DEPTH && is_staged(at, data_bytes) &&
           wefti_inbound_fits(view->inbound, (int)wire->from,
                              arrival_of(wire, at, view), wire->words[1],
                              data_bytes);
}

int wefti_wire_first_release(wefti_wire_kind kind)
{
    switch (kind) {
    case WEFTI_WIRE_ENTRY:
    case WEFTI_WIRE_MESSAGE:
        return 6;
    case WEFTI_WIRE_ENTERED:
        return 5;
    case WEFTI_WIRE_COMPLETED:
    case WEFTI_WIRE_OBSERVED:
        return 0;
    case WEFTI_WIRE_LEFT:
        return 1;
    case WEFTI_WIRE_WAITING:
    case WEFTI_WIRE_BYE:
    case WEFTI_WIRE_END:
        break;
    }
    return WEFTI_WIRE_WORDS;
}

/* Of the path's messages, that the word says the sender has released: never
 * more than were posted. One that was overtaken may be long outdated. */
static bool unpack_release(uint64_t word, const wefti_wire_view *view,
                           path *at_out, uint64_t *value_out)
{
    const uint64_t low_bits = UINT64_MAX >> 16;
    uint64_t low;
    if (!(word & WEFTI_WIRE_RELEASED) ||
        !unpack_path(word & ~(uint64_t)WEFTI_WIRE_RELEASED, at_out, &low)) {
        return false;
    }
    const uint64_t posted = view->posted[cell(*at_out)];
    const uint64_t unreleased = (posted - low) & low_bits;
    *value_out = posted - unreleased;
    return unreleased <= low_bits / 2 && unreleased <= posted;
}

static bool check_releases(const wefti_wire *wire, const wefti_wire_view *view)
{
    path at;
    uint64_t value;
    int i = wefti_wire_first_release((wefti_wire_kind)wire->kind);
    while (i < WEFTI_WIRE_WORDS &&
           (wire->words[i] == 0 ||
            unpack_release(wire->words[i], view, &at, &value))) {
        i++;
    }
    return i == WEFTI_WIRE_WORDS;
}

bool wefti_wire_check(const wefti_wire *wire, size_t data_bytes,
                      const wefti_wire_view *view)
{
    if (wire->from >= (uint32_t)view->shared->layout.nranks ||
        wire->from == (uint32_t)view->rank ||
        !is_within_reach(wire->completed, view) ||
        !is_within_reach(wire->all_completed, view) ||
        !check_releases(wire, view)) {
        return false;
    }
    switch ((wefti_wire_kind)wire->kind) {
    case WEFTI_WIRE_ENTRY:
        return check_entry(wire, data_bytes, view);
    case WEFTI_WIRE_MESSAGE:
        return check_message(wire, data_bytes, view);
    case WEFTI_WIRE_ENTERED:
        return data_bytes == 0 && check_entry(wire, 0, view);
    case WEFTI_WIRE_WAITING: /* what its words say is checked where read */
    case WEFTI_WIRE_COMPLETED:
    case WEFTI_WIRE_OBSERVED:
        return data_bytes == 0;
    case WEFTI_WIRE_LEFT:
        return data_bytes == 0 && (wire->words[0] == WEFTI_LEAVE_WELL ||
                                   wire->words[0] == WEFTI_LEAVE_AFTER_FAULT);
    case WEFTI_WIRE_BYE:
    case WEFTI_WIRE_END:
        break;
    }
    return false;
}

static void write_entry(const wefti_wire *wire, wefti_entry *entry,
                        int64_t skew_ns)
{
    atomic_store_explicit(&entry->count, wire->words[1], memory_order_relaxed);
    atomic_store_explicit(&entry->kind, wire->words[2], memory_order_relaxed);
    atomic_store_explicit(&entry->cut, wire->words[3], memory_order_relaxed);
    atomic_store_explicit(&entry->stamp_ns, (int64_t)wire->words[4] + skew_ns,
                          memory_order_relaxed);
}

/* Stands beside the entries, as one of these may be under way yet. */
static void apply_entered(const wefti_wire *wire, const wefti_wire_view *view,
                          int64_t skew_ns)
{
    const uint64_t number = wire->words[0];
    wefti_entry *entered =
        wefti_shared_get_entered(view->shared, (int)wire->from, number);
    if (atomic_load(&entered->number) < number) {
        write_entry(wire, entered, skew_ns);
        atomic_store(&entered->number, number);
    }
}

/* entry.number's store pairs with wefti_op_check_peer's load, as its own. */
static void apply_entry(const wefti_wire *wire, const void *data,
                        size_t data_bytes, const wefti_wire_view *view,
                        int64_t skew_ns)
{
    const uint64_t number = wire->words[0];
    wefti_entry *entry =
        wefti_shared_get_entry(view->shared, (int)wire->from, number);
    if (atomic_load(&entry->number) >= number) {
        return; /* overtaken by a later one */
    }
    if (data_bytes) {
        memcpy(wefti_entry_payload(entry, data_bytes), data, data_bytes);
    }
    write_entry(wire, entry, skew_ns);
    *wefti_shared_get_count(view->shared, (int)wire->from, view->rank, number) =
        wire->words[5];
    atomic_store(&entry->number, number);
}

void *wefti_wire_place(const wefti_wire *wire, size_t data_bytes,
                       const wefti_wire_view *view)
{
    path at;
    uint64_t awaited;
    if (wire->kind != WEFTI_WIRE_MESSAGE) {
        return NULL;
    }
    (void)unpack_path(wire->words[0], &at, &awaited);
    return wefti_inbound_hold(view->inbound, (int)wire->from,
                              arrival_of(wire, at, view), wire->words[1],
                              data_bytes);
}

/* message.sequence's store pairs with peek's load, as the sender's own. */
static bool apply_message(const wefti_wire *wire, const void *data,
                          size_t data_bytes, const wefti_wire_view *view,
                          int64_t skew_ns)
{
    path at;
    uint64_t awaited;
    (void)unpack_path(wire->words[0], &at, &awaited);
    const uint64_t sequence = wire->words[1];
    uint64_t *last = &view->awaited[cell(at)];
    if (awaited && *last < sequence) {
        *last = sequence;
    }
    wefti_posted_message *message =
        wefti_shared_get_message(view->shared, (int)wire->from, view->rank,
                                 at.op_slot, at.channel, sequence);
    unsigned char *place = wefti_wire_place(wire, data_bytes, view);
    if (!place) {
        return false;
    }
    message->bytes = (uint32_t)data_bytes;
    message->place = WEFTI_PLACE_STAGED;
    message->ready_ns = (int64_t)wire->words[2] + skew_ns;
    message->visible_ns = 0;
    message->signature =
        (wefti_signature){wire->words[3], wire->words[4], wire->words[5]};
    if (data_bytes && data != place) {
        memcpy(place, data, data_bytes);
    }
    atomic_store(&message->sequence, sequence);
    return true;
}

/* Since when it waits is not told: since the first word of it. */
static void apply_waiting(const wefti_wire *wire, wefti_wait_page *page,
                          int64_t now_ns)
{
    bool same = atomic_load(&page->seen_ns) != 0;
    for (int i = 0; i < WEFTI_WAIT_WORDS; i++) {
        same = same && atomic_load(&page->words[i]) == wire->words[i];
        atomic_store(&page->words[i], wire->words[i]);
    }
    if (!same) {
        atomic_store(&page->since_ns, now_ns);
    }
    atomic_store(&page->seen_ns, now_ns);
}

/* On several rails a smaller value may come after a greater one. */
static void raise(_Atomic uint64_t *flag, uint64_t value)
{
    if (atomic_load(flag) < value) {
        atomic_store(flag, value);
    }
}

static void apply_releases(const wefti_wire *wire, const wefti_wire_view *view)
{
    path at;
    uint64_t value;
    for (int i = wefti_wire_first_release((wefti_wire_kind)wire->kind);
         i < WEFTI_WIRE_WORDS; i++) {
        if (unpack_release(wire->words[i], view, &at, &value)) {
            raise(wefti_shared_get_consumed(view->shared, (int)wire->from,
                                            view->rank, at.op_slot, at.channel),
                  value);
        }
    }
}

bool wefti_wire_apply(const wefti_wire *wire, const void *data,
                      size_t data_bytes, const wefti_wire_view *view,
                      int64_t skew_ns, int64_t now_ns)
{
    const int from = (int)wire->from;
    wefti_rank_page *page = wefti_shared_get_page(view->shared, from);
    switch ((wefti_wire_kind)wire->kind) {
    case WEFTI_WIRE_ENTRY:
        apply_entry(wire, data, data_bytes, view, skew_ns);
        break;
    case WEFTI_WIRE_MESSAGE:
        if (!apply_message(wire, data, data_bytes, view, skew_ns)) {
            return false;
        }
        break;
    case WEFTI_WIRE_WAITING:
        apply_waiting(wire, &page->wait, now_ns);
        break;
    case WEFTI_WIRE_ENTERED:
        apply_entered(wire, view, skew_ns);
        break;
    case WEFTI_WIRE_OBSERVED:
        atomic_store(&view->shared->header->observed, 1);
        break;
    case WEFTI_WIRE_COMPLETED:
    case WEFTI_WIRE_LEFT:
    case WEFTI_WIRE_BYE:
    case WEFTI_WIRE_END:
        break;
    }
    apply_releases(wire, view);
    raise(&page->completed, wire->completed);
    return true;
}
