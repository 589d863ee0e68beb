/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/create_from.c - a new communicator from a list of ranks of an old
 * one, made by those on the list alone, by messages of the parent, in order
 * with the others between the same two ranks.
 */
#include "base/error.h"
#include "comm/core/live.h"
#include "comm/make/group.h"
#include "comm/make/key_count.h"

#include <stdio.h>

enum { LIST_MOST = 8 }; /* bytes of a list in a name; then it is cut */

/* Sets the counts of names apart from those of ids (comm/make/group.c). */
#define NAME_SALT UINT64_C(0x6e616d65)

static weft_status check_list(const weft_comm *parent, const int *ranks,
                              int count)
{
    bool own = false;
    if (!ranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "ranks is NULL: allowed is a list of ranks");
    }
    if (count < 1 || count > parent->nranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "rank_count %d: allowed is 1 to %d, the ranks of "
                           "the parent",
                           count, parent->nranks);
    }
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
        own |= ranks[i] == parent->rank;
    }
    return own ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "ranks lacks this rank, %d: only members call",
                             parent->rank);
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

/* Faults must tell it from its parent: "world/0,2,5", "world/0,1..(12)", and
 * a number behind it where the parent has had this very list before. */
static void make_name(const weft_comm *parent, const int *ranks, int count,
                      char *name_out, size_t name_bytes)
{
    char list[48] = "";
    int used = 0;
    uint64_t key = wefti_key_mix(parent->fabric.id, NAME_SALT);
    for (int i = 0; i < count; i++) {
        key = wefti_key_mix(key, (uint64_t)ranks[i]);
        if (used < LIST_MOST) {
            used += snprintf(list + used, sizeof(list) - (size_t)used, "%s%d",
                             i ? "," : "/", ranks[i]);
        } else if (i + 1 == count) {
            snprintf(list + used, sizeof(list) - (size_t)used, "..(%d)", count);
        }
    }
    wefti_group_name(parent, list, wefti_key_count(parent->engine, key),
                     name_out, name_bytes);
}

weft_status weft_comm_create_from(weft_comm *parent, const int *ranks,
                                  int rank_count,
                                  const weft_comm_config *config,
                                  weft_comm **comm_out)
{
    weft_comm_config full;
    char name[sizeof(parent->name)];
    if (!wefti_comm_is_live(parent)) {
        return wefti_comm_refuse(parent, "parent");
    }
    if (!comm_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm_out is NULL: allowed is a place for the "
                           "communicator");
    }
    *comm_out = NULL;
    weft_status status = check_list(parent, ranks, rank_count);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_consensus consensus = {.comm = parent,
                                 .what = "join",
                                 .refused = "'s config was refused",
                                 .members = ranks,
                                 .count = rank_count,
                                 .apart = true};
    const weft_status refused = wefti_group_read_config(parent, config, &full);
    const info own = {refused, full.flags};
    status = wefti_consensus_exchange(&consensus, &own, sizeof(own));
    if (status == WEFT_OK) {
        status = check_flags(&consensus);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (full.name == parent->name) {
        make_name(parent, ranks, rank_count, name, sizeof(name));
        full.name = name;
    }
    return wefti_group_make(&consensus, &full, comm_out);
}
