/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/comm_bytes.c - memory of communicators, as it is there: of private
 * memory pages that are resident, of the domain's file what is no hole.
 */
#include "comm/make/comm_bytes.h"

#include "base/error.h"
#include "base/sized.h"
#include "comm/core/live.h"
#include "comm/fabric/stager.h"
#include "comm/mem/mem.h"
#include "comm/net/inbound.h"

#include <sys/mman.h>
#include <unistd.h>

/* Bytes of a mapping that are really there. */
static uint64_t count_resident(const void *base, size_t bytes)
{
    enum { PAGES = 4096 };
    static const size_t page_bytes = 4096;
    unsigned char present[PAGES];
    uint64_t pages = 0;
    for (size_t at = 0; at < bytes; at += PAGES * page_bytes) {
        size_t part = bytes - at;
        part = part < PAGES * page_bytes ? part : PAGES * page_bytes;
        if (mincore((unsigned char *)base + at, part, present) != 0) {
            break;
        }
        for (size_t i = 0; i < (part + page_bytes - 1) / page_bytes; i++) {
            pages += present[i] & 1;
        }
    }
    return pages * page_bytes;
}

/* Bytes between two offsets of a file that are no hole. */
static uint64_t count_data(int fd, off_t from, off_t end)
{
    uint64_t bytes = 0;
    while (from < end) {
        off_t data = lseek(fd, from, SEEK_DATA);
        if (data < 0 || data >= end) {
            break;
        }
        off_t hole = lseek(fd, data, SEEK_HOLE);
        hole = hole < 0 || hole > end ? end : hole;
        bytes += (uint64_t)(hole - data);
        from = hole;
    }
    return bytes;
}

/* What is there of a range of the domain's memory, mapped at base. */
static uint64_t count_shared(const weft_comm *comm, const void *base,
                             uint64_t offset, size_t bytes)
{
    const wefti_membership *job = comm->engine->members;
    return job->nranks > 1 ? count_data(job->memory_fd, (off_t)offset,
                                        (off_t)(offset + bytes))
                           : count_resident(base, bytes);
}

/* Adds what its weft_mems have, and what came from other domains. */
static void add_used(weft_comm *comm, weft_comm_bytes *bytes)
{
    pthread_mutex_lock(&comm->engine->lock);
    bytes->own_bytes += wefti_inbound_count_bytes(comm->fabric.inbound);
    for (const weft_mem *mem = comm->mems; mem; mem = mem->next) {
        bytes->shared_bytes +=
            count_shared(comm, wefti_mapping_get_base(mem->mapping),
                         mem->offset, mem->total_bytes);
        bytes->reserved_bytes += mem->total_bytes;
    }
    pthread_mutex_unlock(&comm->engine->lock);
}

weft_status weft_comm_get_bytes(weft_comm *comm, weft_comm_bytes *bytes_out)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (!bytes_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "bytes_out is NULL: allowed is a weft_comm_bytes");
    }
    weft_status sized = wefti_sized_check(
        "bytes_out", bytes_out->size_bytes,
        offsetof(weft_comm_bytes, shared_bytes), sizeof(*bytes_out));
    if (sized != WEFT_OK) {
        return sized;
    }
    const wefti_layout *layout = &comm->fabric.shared.layout;
    weft_comm_bytes found = {
        .own_bytes =
            comm->heap_bytes + count_resident(comm->arena, comm->arena_bytes),
        .shared_bytes =
            count_shared(comm, wefti_mapping_get_base(comm->mapping),
                         comm->memory_offset, layout->total_bytes),
        .reserved_bytes = wefti_layout_count_bytes(layout) + comm->arena_bytes,
    };
    add_used(comm, &found);
    wefti_sized_write(bytes_out, &found, sizeof(found));
    return WEFT_OK;
}

/* ---- a rank's part --------------------------------------------------------
 */

/* Of a range that begins at base in this process, and there in the file. */
static uint64_t count_range(const weft_comm *comm, const wefti_mapping *mapping,
                            uint64_t offset, const unsigned char *from,
                            size_t bytes)
{
    const unsigned char *base = wefti_mapping_get_base(mapping);
    return count_shared(comm, from, offset + (uint64_t)(from - base), bytes);
}

/* The header is its first rank's. */
static uint64_t count_region(const weft_comm *comm)
{
    const wefti_shared *shared = &comm->fabric.shared;
    const uint64_t header =
        shared->places[comm->rank] == 0
            ? count_range(comm, comm->mapping, comm->memory_offset,
                          (const unsigned char *)shared->header,
                          shared->layout.header_bytes)
            : 0;
    return header + count_range(comm, comm->mapping, comm->memory_offset,
                                shared->regions[comm->rank],
                                shared->layout.region_bytes);
}

uint64_t wefti_comm_count_made(weft_comm *comm)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&comm->engine->lock);
    for (const weft_comm *each = comm->engine->comms; each; each = each->next) {
        bytes += each->heap_bytes + each->fabric.shared.layout.staging;
    }
    pthread_mutex_unlock(&comm->engine->lock);
    return bytes;
}

size_t wefti_comm_plan_staging(const weft_comm *comm, size_t bytes)
{
    if (comm->nranks == 1 || bytes <= WEFTI_PAYLOAD_BYTES) {
        return 0;
    }
    return bytes <= WEFTI_AREA_BYTES ? WEFTI_AREAS * bytes
                                     : WEFTI_STAGER_FAR_BYTES;
}

size_t wefti_comm_plan_messages(const weft_comm *comm, size_t bytes)
{
    if (comm->nranks == 1 || bytes < WEFTI_STAGER_LEAST_BYTES) {
        return 0;
    }
    return WEFTI_AREAS *
           (bytes < WEFTI_P2P_SLOT_BYTES ? bytes : WEFTI_P2P_SLOT_BYTES);
}

uint64_t wefti_comm_count_part(weft_comm *comm)
{
    wefti_engine *engine = comm->engine;
    uint64_t bytes = 0;
    if (!engine->members || engine->members->nranks == 1) {
        return 0;
    }
    pthread_mutex_lock(&engine->lock);
    for (const weft_comm *each = engine->comms; each; each = each->next) {
        bytes += count_region(each);
        for (const weft_mem *mem = each->mems; mem; mem = mem->next) {
            bytes += count_range(each, mem->mapping, mem->offset,
                                 wefti_mem_get_part(mem, each->rank),
                                 mem->part_bytes);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return bytes;
}
