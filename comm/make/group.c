/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/group.c - what split, create_from and shrink have in common.
 */
#include "comm/make/group.h"

#include "base/error.h"
#include "comm/core/live.h"
#include "comm/engine/engine.h"
#include "comm/make/key_count.h"
#include "comm/make/route_join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_status wefti_group_check_place(const weft_comm *parent, const char *name,
                                    weft_comm **comm_out)
{
    if (!wefti_comm_is_live(parent)) {
        return wefti_comm_refuse(parent, name);
    }
    if (!comm_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm_out is NULL: allowed is a place for the "
                           "communicator");
    }
    *comm_out = NULL;
    return WEFT_OK;
}

weft_status wefti_group_check_list(const weft_comm *parent, const int *ranks,
                                   int count)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->nranks) {
            return wefti_error(WEFT_ERR_INVALID,
                               "ranks[%d] is %d: allowed is 0 to %d", i,
                               ranks[i], parent->nranks - 1);
        }
        for (int j = 0; j < i; j++) {
            if (ranks[j] == ranks[i]) {
                return wefti_error(WEFT_ERR_INVALID,
                                   "ranks[%d] and ranks[%d] are both %d: "
                                   "allowed is each rank once",
                                   j, i, ranks[i]);
            }
        }
    }
    return WEFT_OK;
}

weft_status wefti_group_read_config(const weft_comm *parent,
                                    const weft_comm_config *config,
                                    weft_comm_config *config_out)
{
    const weft_comm_config base = {.name = parent->name,
                                   .device = parent->device,
                                   .warn_ms = parent->warn_ns / 1000000,
                                   .timeout_ms = parent->timeout_ns / 1000000,
                                   .ops_in_flight = parent->ops_in_flight,
                                   .sm_budget = parent->sm_budget,
                                   .idle = parent->idle.function,
                                   .idle_context = parent->idle.context};
    return wefti_comm_read_config(config, &base, config_out);
}

enum { LIST_MOST = 8 }; /* bytes of a list in a name; then it is cut */

/* Sets the counts of names apart from those of ids. */
#define NAME_SALT UINT64_C(0x6e616d65)

/* And those after a fault of the parent from those before. */
#define FAULT_SALT UINT64_C(0x6661756c74)

/*
 * The same on all members without another word: from the parent's, who they
 * are, and how often the parent has had this very list, for which there is room
 * since the parent was made: none of those on the list can fail to count.
 * Numbers of operations would not do, since shrink and create_from are not
 * every rank's. What a fault interrupts, some have counted and some have not,
 * so after one it begins anew.
 */
static uint64_t new_id(weft_comm *parent, const int *ranks, int nranks,
                       bool after_fault)
{
    uint64_t id =
        wefti_key_mix(UINT64_C(14695981039346656037), parent->fabric.id);
    if (after_fault) {
        id = wefti_key_mix(id, FAULT_SALT);
    }
    for (int i = 0; i < nranks; i++) {
        id = wefti_key_mix(id, (uint64_t)parent->peers[ranks[i]].world_rank);
    }
    return wefti_key_mix(id, wefti_key_count(parent->engine, id));
}

/* What lies in the parent's weft_mems is not staged. */
static weft_status inherit_mapped(const weft_comm *parent, weft_comm *made)
{
    pthread_mutex_lock(&made->engine->lock);
    const bool well =
        wefti_mapped_inherit(&made->fabric.mapped, parent->fabric.mapped);
    pthread_mutex_unlock(&made->engine->lock);
    return well ? WEFT_OK
                : wefti_error(WEFT_ERR_NO_MEMORY,
                              "no memory for what its parent has mapped");
}

weft_status wefti_group_build(weft_comm *parent, const int *parent_ranks,
                              int nranks, uint64_t offset, bool after_fault,
                              const weft_comm_config *config,
                              weft_comm **comm_out)
{
    const uint64_t id = new_id(parent, parent_ranks, nranks, after_fault);
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
        .config = config,
        .tuning = parent->tuning,
        .ranks_per_core = parent->ranks_per_core,
        .parent = parent,
        .parent_ranks = parent_ranks,
    };
    if (!after_fault) { /* else some may have them, and some not */
        parts.rates = parent->rates;
    }
    for (int i = 0; i < nranks; i++) {
        world_ranks[i] = parent->peers[parent_ranks[i]].world_rank;
        if (parent_ranks[i] == parent->rank) {
            parts.rank = i;
        }
    }
    if (config->flags & WEFT_COMM_SUM_FLAT) {
        parts.tuning.sum_flat = true;
    }
    wefti_engine_retain(parent->engine);
    weft_status status = wefti_comm_build(&parts, comm_out);
    free(world_ranks);
    if (status != WEFT_OK) {
        wefti_engine_release(parent->engine);
        return status;
    }
    return after_fault ? WEFT_OK : inherit_mapped(parent, *comm_out);
}

size_t wefti_group_count_memory(const weft_comm *parent, const int *ranks,
                                int count)
{
    int local = 0;
    for (int i = 0; i < count; i++) {
        local += parent->fabric.shared.places[ranks[i]] >= 0;
    }
    return count > 0 ? wefti_layout_plan(count, local).total_bytes : 0;
}

weft_status wefti_group_make(wefti_consensus *consensus,
                             const weft_comm_config *config,
                             weft_comm **comm_out)
{
    const int nranks = consensus->count;
    uint64_t offset;
    weft_status status = wefti_consensus_reserve(
        consensus,
        wefti_group_count_memory(consensus->comm, consensus->members, nranks),
        &offset);
    if (status != WEFT_OK) {
        return status;
    }
    weft_status built =
        nranks > 0 ? wefti_group_build(consensus->comm, consensus->members,
                                       nranks, offset, false, config, comm_out)
                   : WEFT_OK;
    status = wefti_consensus_conclude(consensus, built);
    if (status != WEFT_OK) {
        weft_comm_destroy(*comm_out);
        *comm_out = NULL;
    } else if (*comm_out) {
        wefti_route_join(*comm_out);
    }
    return status;
}

void wefti_group_name(const weft_comm *parent, const char *suffix,
                      uint64_t times, char *name_out, size_t name_bytes)
{
    char count[24] = "";
    if (times > 1) {
        snprintf(count, sizeof(count), "#%llu", (unsigned long long)times);
    }
    const int tail_bytes = (int)(strlen(suffix) + strlen(count));
    snprintf(name_out, name_bytes, "%.*s%s%s", (int)name_bytes - 1 - tail_bytes,
             parent->name, suffix, count);
}

void wefti_group_name_list(const weft_comm *parent,
                           const wefti_group_list *named, char *name_out,
                           size_t name_bytes)
{
    const int *ranks = named->ranks;
    const int count = named->count;
    char list[48] = "";
    int used = 0;
    uint64_t key = wefti_key_mix(parent->fabric.id, NAME_SALT);
    key = wefti_key_mix(key, (uint64_t)named->mark);
    for (int i = 0; i < count; i++) {
        key = wefti_key_mix(key, (uint64_t)ranks[i]);
        if (used < LIST_MOST) {
            used += snprintf(list + used, sizeof(list) - (size_t)used, "%c%d",
                             i ? ',' : named->mark, ranks[i]);
        } else if (i + 1 == count) {
            snprintf(list + used, sizeof(list) - (size_t)used, "..(%d)", count);
        }
    }
    wefti_group_name(parent, list, wefti_key_count(parent->engine, key),
                     name_out, name_bytes);
}

/* What each member says about its config. */
typedef struct info {
    int32_t status;
    uint32_t flags;
} info;

static weft_status check_flags(const wefti_consensus *consensus)
{
    const info *first = wefti_consensus_get(consensus, 0);
    for (int i = 1; i < consensus->count; i++) {
        const info *theirs = wefti_consensus_get(consensus, i);
        if (theirs->flags != first->flags) {
            return wefti_error(WEFT_ERR_INVALID,
                               "flags: rank %d has 0x%x, rank %d 0x%x: allowed "
                               "is the same on all members",
                               consensus->members[0], first->flags,
                               consensus->members[i], theirs->flags);
        }
    }
    return WEFT_OK;
}

weft_status wefti_group_make_apart(weft_comm *parent, const int *members,
                                   int count, weft_status refused,
                                   weft_comm_config *config,
                                   const wefti_group_list *named,
                                   weft_comm **comm_out)
{
    char name[sizeof(parent->name)];
    wefti_consensus consensus = {.comm = parent,
                                 .what = "join",
                                 .refused = "'s config was refused",
                                 .members = members,
                                 .count = count,
                                 .apart = true};
    const info own = {refused, config->flags};
    weft_status status =
        wefti_consensus_exchange(&consensus, &own, sizeof(own));
    if (status == WEFT_OK) {
        status = check_flags(&consensus);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (config->name == parent->name) {
        wefti_group_name_list(parent, named, name, sizeof(name));
        config->name = name;
    }
    status = wefti_group_make(&consensus, config, comm_out);
    config->name = config->name == name ? parent->name : config->name;
    return status;
}
