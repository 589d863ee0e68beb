/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/mem/mem_lent_trial.c - whether ranks really write into each other's
 * device memory: each owner keeps aside what its first bytes are, a peer writes
 * a pattern of its own at its place among them, and the owner looks for it.
 *
 *   owner   keep, spoil |              | look, restore
 *   peer                | write        |
 *                    all agree      all agree
 *
 * A place is as large as the memory allows, eight bytes at most; what is there
 * before is no rank's pattern.
 */
#include "base/error.h"
#include "base/log.h"
#include "comm/mem/mem.h"

#include <stdlib.h>
#include <string.h>

enum { PLACE_BYTES = 8 };

static size_t place_bytes(const weft_mem *mem)
{
    const size_t share = mem->bytes / (size_t)mem->comm->nranks;
    return share < PLACE_BYTES ? share : PLACE_BYTES;
}

static size_t zone_bytes(const weft_mem *mem)
{
    return place_bytes(mem) * (size_t)mem->comm->nranks;
}

/* What source writes into owner's memory. */
static uint64_t pattern_of(const weft_mem *mem, int source, int owner)
{
    const uint64_t which =
        (mem->id << 32) + (uint64_t)source * 65537 + (uint64_t)owner + 1;
    const uint64_t mixed = which * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 29;
}

static weft_status copy(const weft_mem *mem, void *dst, const void *src,
                        size_t bytes)
{
    return weft_device_copy(mem->comm->device, dst, src, bytes, NULL);
}

weft_status wefti_mem_lent_keep(weft_mem *mem)
{
    const weft_comm *comm = mem->comm;
    const size_t place = place_bytes(mem), zone = zone_bytes(mem);
    if (!mem->on_device || zone == 0) {
        return WEFT_OK;
    }
    unsigned char *kept = malloc(2 * zone);
    if (!kept) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes", zone);
    }
    weft_status status = copy(mem, kept, mem->own, zone);
    for (int peer = 0; peer < comm->nranks; peer++) {
        const uint64_t spoilt = ~pattern_of(mem, peer, comm->rank);
        memcpy(kept + zone + (size_t)peer * place, &spoilt, place);
    }
    if (status != WEFT_OK) {
        free(kept);
        return status;
    }
    mem->kept = kept;
    return copy(mem, mem->own, kept + zone, zone);
}

weft_status wefti_mem_lent_write(const weft_mem *mem)
{
    const weft_comm *comm = mem->comm;
    const size_t place = place_bytes(mem);
    weft_status status = WEFT_OK;
    for (int peer = 0; peer < comm->nranks && status == WEFT_OK; peer++) {
        const uint64_t pattern = pattern_of(mem, comm->rank, peer);
        unsigned char *data = mem->reaches[peer].data;
        if (data) {
            status =
                copy(mem, data + (size_t)comm->rank * place, &pattern, place);
        }
    }
    return status;
}

static weft_status compare(const weft_mem *mem, const unsigned char *found)
{
    const weft_comm *comm = mem->comm;
    const size_t place = place_bytes(mem);
    for (int peer = 0; peer < comm->nranks; peer++) {
        const uint64_t pattern = pattern_of(mem, peer, comm->rank);
        if (mem->reaches[peer].writes &&
            memcmp(found + (size_t)peer * place, &pattern, place) != 0) {
            return wefti_error(WEFT_ERR_SYSTEM,
                               "what rank %d has written into its device "
                               "memory is not there",
                               peer);
        }
    }
    return WEFT_OK;
}

weft_status wefti_mem_lent_look(weft_mem *mem)
{
    const size_t zone = zone_bytes(mem);
    if (!mem->kept) {
        return WEFT_OK;
    }
    unsigned char *found = mem->kept + zone;
    weft_status status = copy(mem, found, mem->own, zone);
    return status == WEFT_OK ? compare(mem, found) : status;
}

void wefti_mem_lent_restore(weft_mem *mem)
{
    if (!mem->kept) {
        return;
    }
    if (copy(mem, mem->own, mem->kept, zone_bytes(mem)) != WEFT_OK) {
        wefti_log(WEFTI_LOG_ERROR, mem->comm->rank,
                  "\"%s\", memory #%llu: its first %zu bytes are lost: %s",
                  mem->comm->name, (unsigned long long)mem->id, zone_bytes(mem),
                  weft_error_text());
    }
    free(mem->kept);
    mem->kept = NULL;
}
