/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/reserve.c - a counter in the world's shared header.
 */
#include "comm/core/reserve.h"

#include <fcntl.h>

static wefti_shared_header *get_world(const wefti_engine *engine)
{
    return wefti_mapping_get_base(engine->mapping);
}

/* What the world itself uses comes first. */
static uint64_t get_first(const wefti_engine *engine)
{
    const wefti_membership *members = engine->members;
    return wefti_layout_plan(members->nranks,
                             wefti_membership_count_local(members))
        .total_bytes;
}

uint64_t wefti_reserve(wefti_engine *engine, uint64_t bytes)
{
    return get_first(engine) +
           atomic_fetch_add(&get_world(engine)->next_offset, bytes);
}

void wefti_unreserve(wefti_engine *engine, uint64_t offset, uint64_t bytes)
{
    /* Failure costs memory until the job ends, nothing else. */
    int refused = fallocate(engine->members->memory_fd,
                            FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            (off_t)offset, (off_t)bytes);
    /* What was set aside last can be set aside again; else a hole remains. */
    uint64_t begin = offset - get_first(engine), end = begin + bytes;
    if (refused == 0) {
        atomic_compare_exchange_strong(&get_world(engine)->next_offset, &end,
                                       begin);
    }
}
