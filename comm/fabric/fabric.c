/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/fabric.c - what a communicator has whatever its members are
 * reached by: a place for each region, and counts of messages.
 */
#include "comm/fabric/fabric.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>

/* Who has a region, in the order of ranks. Returns how many there are. */
static int find_places(wefti_fabric *fabric, int nranks, const bool *remote)
{
    int local = 0;
    for (int peer = 0; peer < nranks; peer++) {
        fabric->shared.places[peer] = remote && remote[peer] ? -1 : local++;
    }
    return local;
}

/* Regions of the domain lie in its memory, those of others in mirrors. */
static weft_status place_regions(wefti_fabric *fabric, void *base)
{
    const wefti_fabric_table *local = &wefti_fabric_shm;
    const wefti_layout *layout = &fabric->shared.layout;
    const size_t remotes = (size_t)(layout->nranks - layout->local_ranks);
    if (remotes) {
        weft_status status = wefti_mapping_open(
            -1, 0, remotes * layout->mirror_bytes, &fabric->mirrors);
        if (status != WEFT_OK) {
            return status;
        }
    }
    unsigned char *mirror =
        remotes ? wefti_mapping_get_base(fabric->mirrors) : NULL;
    for (int peer = 0; peer < layout->nranks; peer++) {
        const int place = fabric->shared.places[peer];
        if (place < 0) {
            fabric->shared.regions[peer] = mirror;
            mirror += layout->mirror_bytes;
        } else {
            fabric->shared.regions[peer] =
                wefti_layout_get_region(layout, base, place);
        }
        fabric->tables[peer] = local;
    }
    return local->open ? local->open(fabric) : WEFT_OK;
}

weft_status wefti_fabric_init(wefti_fabric *fabric, int rank, int nranks,
                              void *base, const bool *remote)
{
    size_t ranks = (size_t)nranks;
    size_t cells = ranks * WEFTI_ALL_SLOTS * WEFTI_CHANNELS;
    fabric->shared.header = base;
    fabric->shared.regions = calloc(ranks, sizeof(*fabric->shared.regions));
    fabric->shared.places = calloc(ranks, sizeof(*fabric->shared.places));
    fabric->tables = calloc(ranks, sizeof(*fabric->tables));
    fabric->rank = rank;
    fabric->posted = calloc(cells, sizeof(*fabric->posted));
    fabric->read = calloc(cells, sizeof(*fabric->read));
    fabric->taken = calloc(cells, sizeof(*fabric->taken));
    if (!fabric->shared.regions || !fabric->shared.places || !fabric->tables ||
        !fabric->posted || !fabric->read || !fabric->taken) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d peers",
                           nranks);
    }
    fabric->shared.layout =
        wefti_layout_plan(nranks, find_places(fabric, nranks, remote));
    return place_regions(fabric, base);
}

void wefti_fabric_fini(wefti_fabric *fabric)
{
    const wefti_fabric_table *local =
        fabric->tables ? fabric->tables[fabric->rank] : NULL;
    if (local && local->close) {
        local->close(fabric);
    }
    wefti_mapping_close(fabric->mirrors);
    wefti_mapped_close(&fabric->mapped);
    const int nranks = fabric->shared.layout.nranks;
    for (int i = 0; fabric->outgoing && i < nranks * WEFTI_P2P_AREAS; i++) {
        wefti_mapping_close(atomic_load(&fabric->outgoing[i]));
    }
    free(fabric->outgoing);
    fabric->outgoing = NULL;
    wefti_mapping_close(fabric->spare);
    fabric->spare = NULL;
    free(fabric->shared.regions);
    free(fabric->shared.places);
    free(fabric->tables);
    free(fabric->posted);
    free(fabric->read);
    free(fabric->taken);
    fabric->mirrors = NULL;
    fabric->shared.regions = NULL;
    fabric->shared.places = NULL;
    fabric->tables = NULL;
    fabric->posted = NULL;
    fabric->read = NULL;
    fabric->taken = NULL;
}

static weft_status open_outgoing(wefti_mapping **mapping_out)
{
    const size_t bytes = WEFTI_P2P_REMOTE_SLOTS * WEFTI_P2P_REMOTE_BYTES;
    return wefti_mapping_open(-1, 0, bytes, mapping_out);
}

weft_status wefti_fabric_open_spare(wefti_fabric *fabric)
{
    return open_outgoing(&fabric->spare);
}

weft_status wefti_fabric_open_outgoing(wefti_fabric *fabric, int peer, int area,
                                       wefti_mapping **mapping_out)
{
    weft_status status = open_outgoing(mapping_out);
    if (status == WEFT_OK && !fabric->spare) {
        weft_status again = open_outgoing(&fabric->spare);
        (void)again; /* then there is none */
    } else if (status != WEFT_OK && fabric->spare) {
        *mapping_out = fabric->spare;
        fabric->spare = NULL;
        status = WEFT_OK;
    }
    if (status == WEFT_OK) {
        atomic_store_explicit(
            &fabric->outgoing[(size_t)peer * WEFTI_P2P_AREAS + (size_t)area],
            *mapping_out, memory_order_release);
    }
    return status;
}

const char *wefti_fabric_name(const wefti_fabric *fabric)
{
    int remotes = 0, nranks = fabric->shared.layout.nranks;
    for (int peer = 0; peer < nranks; peer++) {
        remotes += fabric->tables[peer] == &wefti_fabric_net;
    }
    return nranks == 1             ? "self"
           : remotes == 0          ? fabric->tables[fabric->rank]->name
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
