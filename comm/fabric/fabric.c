/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/fabric.c - what a communicator has whatever its members are
 * reached by: a place for each region, and counts of messages.
 */
#include "comm/fabric/fabric.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>

/* Regions of the domain lie in its memory, those of others in mirrors. */
static weft_status place_regions(wefti_fabric *fabric, int nranks, void *base,
                                 const bool *remote)
{
    const wefti_layout *layout = &fabric->shared.layout;
    size_t remotes = 0, used = 0;
    for (int peer = 0; peer < nranks; peer++) {
        remotes += remote && remote[peer];
    }
    if (remotes) {
        weft_status status = wefti_mapping_open(
            -1, 0, remotes * layout->region_bytes, &fabric->mirrors);
        if (status != WEFT_OK) {
            return status;
        }
    }
    for (int peer = 0; peer < nranks; peer++) {
        bool mirrored = remote && remote[peer];
        fabric->shared.regions[peer] =
            mirrored
                ? (unsigned char *)wefti_mapping_get_base(fabric->mirrors) +
                      used++ * layout->region_bytes
                : wefti_layout_get_region(layout, base, peer);
        fabric->tables[peer] =
            nranks == 1 ? &wefti_fabric_self : &wefti_fabric_shm;
    }
    return WEFT_OK;
}

weft_status wefti_fabric_init(wefti_fabric *fabric, int rank, int nranks,
                              void *base, const bool *remote)
{
    size_t ranks = (size_t)nranks;
    size_t cells = ranks * WEFTI_RINGS * WEFTI_CHANNELS;
    fabric->shared.layout = wefti_layout_plan(nranks);
    fabric->shared.header = base;
    fabric->shared.regions = calloc(ranks, sizeof(*fabric->shared.regions));
    fabric->tables = calloc(ranks, sizeof(*fabric->tables));
    fabric->rank = rank;
    fabric->posted = calloc(cells, sizeof(*fabric->posted));
    fabric->taken = calloc(cells, sizeof(*fabric->taken));
    if (!fabric->shared.regions || !fabric->tables || !fabric->posted ||
        !fabric->taken) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d peers",
                           nranks);
    }
    return place_regions(fabric, nranks, base, remote);
}

void wefti_fabric_fini(wefti_fabric *fabric)
{
    wefti_mapping_close(fabric->mirrors);
    free(fabric->shared.regions);
    free(fabric->tables);
    free(fabric->posted);
    free(fabric->taken);
    fabric->mirrors = NULL;
    fabric->shared.regions = NULL;
    fabric->tables = NULL;
    fabric->posted = NULL;
    fabric->taken = NULL;
}

const char *wefti_fabric_name(const wefti_fabric *fabric)
{
    int remotes = 0, nranks = fabric->shared.layout.nranks;
    for (int peer = 0; peer < nranks; peer++) {
        remotes += fabric->tables[peer] == &wefti_fabric_net;
    }
    return remotes == 0            ? fabric->tables[fabric->rank]->name
           : remotes == nranks - 1 ? wefti_fabric_net.name
                                   : "shm+net";
}

int64_t wefti_fabric_charge(wefti_fabric *fabric, size_t bytes)
{
    if (fabric->ns_per_byte <= 0) {
        return 0;
    }
    int64_t now = wefti_clock_ns();
    int64_t start = *fabric->link_free_ns > now ? *fabric->link_free_ns : now;
    *fabric->link_free_ns =
        start + (int64_t)((double)bytes * fabric->ns_per_byte);
    return *fabric->link_free_ns;
}
