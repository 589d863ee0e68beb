/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/group.c - what split, create_from and shrink have in common.
 */
#include "comm/make/group.h"

#include "base/check.h"
#include "base/error.h"
#include "comm/engine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

/* More than a rank tries to make before one is made, and makes at once. */
enum { LISTS_SPARE = 64 };

wefti_verdict wefti_verdict_of(weft_status status)
{
    wefti_verdict verdict = {.status = status};
    if (status != WEFT_OK) {
        snprintf(verdict.text, sizeof(verdict.text), "%s", weft_error_text());
    }
    return verdict;
}

weft_status wefti_group_read_config(const weft_comm *parent,
                                    const weft_comm_config *config,
                                    weft_comm_config *config_out)
{
    weft_status status = wefti_comm_read_config(config, config_out);
    if (!config || !config->name) {
        config_out->name = parent->name;
    }
    if (!config || !config->warn_ms) {
        config_out->warn_ms = parent->warn_ns / 1000000;
    }
    if (!config || !config->timeout_ms) {
        config_out->timeout_ms = parent->timeout_ns / 1000000;
    }
    return status;
}

int wefti_group_placer(const weft_comm *parent, const int *ranks, int count,
                       int rank)
{
    const wefti_member *members = parent->engine->members->members;
    int domain = members[parent->peers[rank].world_rank].domain;
    for (int i = 0; i < count; i++) {
        if (members[parent->peers[ranks[i]].world_rank].domain == domain) {
            return ranks[i];
        }
    }
    return rank;
}

static wefti_shared_header *get_world(const weft_comm *parent)
{
    return wefti_mapping_get_base(parent->engine->mapping);
}

/* What the world itself uses comes first. */
static uint64_t get_first(const weft_comm *parent)
{
    return wefti_layout_plan(parent->engine->members->nranks).total_bytes;
}

uint64_t wefti_group_reserve(weft_comm *parent, uint64_t bytes)
{
    return get_first(parent) +
           atomic_fetch_add(&get_world(parent)->next_offset, bytes);
}

void wefti_group_release(weft_comm *parent, uint64_t offset, uint64_t bytes)
{
    /* Failure costs memory until the job ends, nothing else. */
    int refused = fallocate(parent->engine->members->memory_fd,
                            FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            (off_t)offset, (off_t)bytes);
    /* What was set aside last can be set aside again; else a hole remains. */
    uint64_t begin = offset - get_first(parent), end = begin + bytes;
    if (refused == 0) {
        atomic_compare_exchange_strong(&get_world(parent)->next_offset, &end,
                                       begin);
    }
}

uint64_t wefti_group_place(weft_comm *parent, int nranks)
{
    return wefti_group_reserve(parent, wefti_layout_plan(nranks).total_bytes);
}

uint64_t wefti_group_mix(uint64_t digest, uint64_t word)
{
    return (digest ^ word) * UINT64_C(1099511628211); /* FNV-1a */
}

weft_status wefti_group_prepare(wefti_engine *engine)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&engine->lock);
    if (engine->list_room - engine->list_count < LISTS_SPARE) {
        const size_t room = 2 * engine->list_room + LISTS_SPARE;
        wefti_list *more =
            realloc(engine->lists, room * sizeof(*engine->lists));
        if (more) {
            engine->lists = more;
            engine->list_room = room;
        } else {
            status = wefti_error(WEFT_ERR_NO_MEMORY,
                                 "no memory for %zu lists of members", room);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

/* How often this very key has come, this time included; there is room for it.
 */
static uint64_t count_key(wefti_engine *engine, uint64_t key)
{
    size_t i = 0;
    pthread_mutex_lock(&engine->lock);
    while (i < engine->list_count && engine->lists[i].digest != key) {
        i++;
    }
    if (i == engine->list_count) {
        WEFTI_ASSERT(i < engine->list_room);
        engine->lists[i] = (wefti_list){key, 0};
        engine->list_count++;
    }
    const uint64_t times = ++engine->lists[i].times;
    pthread_mutex_unlock(&engine->lock);
    return times;
}

uint64_t wefti_group_count(wefti_engine *engine, uint64_t key)
{
    return wefti_group_prepare(engine) == WEFT_OK ? count_key(engine, key) : 0;
}

/*
 * The same on all members without another word: from the parent's, who they
 * are, and how often the parent has had this very list, for which there is room
 * since the parent was made: none of those on the list can fail to count.
 * Numbers of operations would not do, since shrink and create_from are not
 * everybody's.
 */
static uint64_t new_id(weft_comm *parent, const int *ranks, int nranks)
{
    uint64_t id =
        wefti_group_mix(UINT64_C(14695981039346656037), parent->fabric.id);
    for (int i = 0; i < nranks; i++) {
        id = wefti_group_mix(id, (uint64_t)parent->peers[ranks[i]].world_rank);
    }
    return wefti_group_mix(id, count_key(parent->engine, id));
}

weft_status wefti_group_build(weft_comm *parent, const int *parent_ranks,
                              int nranks, uint64_t offset,
                              const weft_comm_config *config,
                              weft_comm **comm_out)
{
    const uint64_t id = new_id(parent, parent_ranks, nranks);
    int *world_ranks = calloc((size_t)nranks, sizeof(*world_ranks));
    if (!world_ranks) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d members",
                           nranks);
    }
    const wefti_membership *job = parent->engine->members;
    wefti_comm_parts parts = {
        .engine = parent->engine,
        .nranks = nranks,
        .members = job,
        .world_ranks = world_ranks,
        .memory_fd = job->nranks > 1 ? job->memory_fd : -1,
        .memory_offset = offset,
        .id = id,
        .name = config->name,
        .device = parent->device,
        .warn_ms = config->warn_ms,
        .timeout_ms = config->timeout_ms,
        .ops_in_flight = parent->ops_in_flight,
        .tuning = parent->tuning,
        .parent = parent,
        .parent_ranks = parent_ranks,
    };
    for (int i = 0; i < nranks; i++) {
        world_ranks[i] = parent->peers[parent_ranks[i]].world_rank;
        if (parent_ranks[i] == parent->rank) {
            parts.rank = i;
        }
    }
    wefti_engine_retain(parent->engine);
    weft_status status = wefti_comm_build(&parts, comm_out);
    free(world_ranks);
    if (status != WEFT_OK) {
        wefti_engine_release(parent->engine);
    }
    return status;
}
