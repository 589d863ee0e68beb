/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    no message from the network writes outside the mirror of its sender.
 * Method  the input is a header and data, as the port hands them over. What
 *         check lets pass is applied to a region that lies between two pages
 *         nobody may touch; afterwards the bytes around every run of data
 *         are as they were.
 */
#include "comm/net/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, OWN = 1, GUARD_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* Maps a region for each rank, with guards between them. */
static void make_regions(wefti_shared *shared, unsigned char **regions)
{
    static wefti_shared_header header;
    shared->layout = wefti_layout_plan(RANKS);
    shared->header = &header;
    shared->regions = regions;
    for (int rank = 0; rank < RANKS; rank++) {
        size_t bytes = shared->layout.region_bytes;
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    static unsigned char *regions[RANKS];
    static wefti_shared shared;
    static uint64_t posted[WEFTI_RINGS * WEFTI_CHANNELS];
    static const uint64_t taken[WEFTI_RINGS * WEFTI_CHANNELS];
    if (!regions[0]) {
        make_regions(&shared, regions);
        for (int i = 0; i < WEFTI_RINGS * WEFTI_CHANNELS; i++) {
            posted[i] = 3;
        }
    }
    const wefti_wire_view view = {.shared = &shared,
                                  .rank = OWN,
                                  .completed = 20,
                                  .posted = posted,
                                  .taken = taken};
    wefti_wire wire;
    size_t header_bytes = data_bytes < sizeof(wire) ? data_bytes : sizeof(wire);
    size_t rest_bytes = data_bytes - header_bytes;
    if (!wefti_wire_decode(data, header_bytes, &wire) ||
        !wefti_wire_check(&wire, rest_bytes, &view)) {
        return 0;
    }
    require(wire.from < RANKS && wire.from != OWN);
    unsigned char *region = regions[wire.from];
    const bool staged = wire.kind == WEFTI_WIRE_MESSAGE;
    unsigned char *end = staged ? region + wire.words[2] + rest_bytes : region;
    unsigned char after =
        staged && end < region + shared.layout.region_bytes ? *end : 0;
    wefti_wire_apply(&wire, data + header_bytes, rest_bytes, &view, 5, 7);
    if (staged) {
        require(memcmp(region + wire.words[2], data + header_bytes,
                       rest_bytes) == 0);
        require(end == region + shared.layout.region_bytes || *end == after);
    }
    return 0;
}
