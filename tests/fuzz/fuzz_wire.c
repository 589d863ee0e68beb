/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    no message from the network writes outside the mirror of its sender.
 * Method  the input is a header and data, as the port hands them over. What
 *         check lets pass is applied to mirrors that lie between pages
 *         nobody may touch; afterwards a message's bytes are in a buffer of
 *         its own, where its reader finds them.
 */
#include "comm/net/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, OWN = 1, GUARD_BYTES = 1 << 16 };

/* Of one version and size the corpus' inputs are: others are no messages. */
_Static_assert(WEFTI_WIRE_VERSION == 9 && sizeof(wefti_wire) == 128,
               "another header needs another corpus");

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* A region for this rank and a mirror for each other, guards around each. */
static void make_regions(wefti_shared *shared, unsigned char **regions)
{
    static wefti_shared_header header;
    static int places[RANKS] = {-1, 0, -1};
    shared->layout = wefti_layout_plan(RANKS, 1);
    shared->header = &header;
    shared->regions = regions;
    shared->places = places;
    for (int rank = 0; rank < RANKS; rank++) {
        size_t bytes = rank == OWN ? shared->layout.region_bytes
                                   : shared->layout.mirror_bytes;
        unsigned char *base =
            mmap(NULL, bytes + 2 * GUARD_BYTES, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        require(base != MAP_FAILED);
        require(mprotect(base + GUARD_BYTES, bytes, PROT_READ | PROT_WRITE) ==
                0);
        regions[rank] = base + GUARD_BYTES;
    }
    /* Nobody writes into our own region but we. */
    require(mprotect(regions[OWN], shared->layout.region_bytes, PROT_READ) ==
            0);
}

/* A message's bytes are where its reader looks for them, and nowhere else. */
static void check_message(const wefti_wire *wire, const wefti_wire_view *view,
                          const uint8_t *data, size_t data_bytes)
{
    const int ring = (int)(wire->words[0] >> 8 & 0xff);
    const int channel = (int)(wire->words[0] & 0xff);
    wefti_arrival *arrival = wefti_shared_get_arrival(
        view->shared, (int)wire->from, ring, channel, wire->words[1]);
    const wefti_posted_message *message = wefti_shared_get_message(
        view->shared, (int)wire->from, OWN, ring, channel, wire->words[1]);
    require(atomic_load(&message->sequence) == wire->words[1]);
    require(message->bytes == data_bytes);
    require(arrival->buffer && memcmp(arrival->buffer, data, data_bytes) == 0);
    require(wefti_wire_place(wire, data_bytes, view) == arrival->buffer);
    require(wefti_wire_check(wire, data_bytes, view));
    require(!wefti_wire_check(wire, data_bytes + 1, view));
    wefti_inbound_let_go(view->inbound, (int)wire->from, arrival);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    static unsigned char *regions[RANKS];
    static wefti_shared shared;
    static wefti_inbound *inbound;
    static uint64_t posted[WEFTI_ALL_SLOTS * WEFTI_CHANNELS];
    static const uint64_t taken[WEFTI_ALL_SLOTS * WEFTI_CHANNELS];
    static uint64_t awaited[WEFTI_ALL_SLOTS * WEFTI_CHANNELS];
    if (!regions[0]) {
        make_regions(&shared, regions);
        inbound = wefti_inbound_create(RANKS);
        require(inbound != NULL);
        for (int i = 0; i < WEFTI_ALL_SLOTS * WEFTI_CHANNELS; i++) {
            posted[i] = 3;
        }
    }
    const wefti_wire_view view = {.shared = &shared,
                                  .inbound = inbound,
                                  .rank = OWN,
                                  .completed = 20,
                                  .posted = posted,
                                  .taken = taken,
                                  .awaited = awaited};
    wefti_wire wire;
    size_t header_bytes = data_bytes < sizeof(wire) ? data_bytes : sizeof(wire);
    size_t rest_bytes = data_bytes - header_bytes;
    if (!wefti_wire_decode(data, header_bytes, &wire) ||
        !wefti_wire_check(&wire, rest_bytes, &view)) {
        return 0;
    }
    require(wire.from < RANKS && wire.from != OWN);
    require(
        wefti_wire_apply(&wire, data + header_bytes, rest_bytes, &view, 5, 7));
    if (wire.kind == WEFTI_WIRE_MESSAGE) {
        check_message(&wire, &view, data + header_bytes, rest_bytes);
    }
    return 0;
}
