/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/split.c - new communicators out of an old one: all its ranks say
 * color and key, and each then knows its group.
 *
 * What this needs was allocated with the parent: a rank without memory fails in
 * build, and the others learn that when they conclude.
 */
#include "base/error.h"
#include "comm/make/cancel.h"
#include "comm/make/group.h"
#include "comm/make/key_count.h"

#include <stdio.h>
#include <stdlib.h>

/* Sets the counts of colors apart from those of lists (comm/make/group.c). */
#define SPLIT_SALT UINT64_C(0x73706c6974)

/* What each rank of the parent says about itself. */
typedef struct info {
    int32_t status; /* of its arguments */
    int32_t color;
    int32_t key;
    int32_t rank; /* in the parent */
    uint32_t flags;
} info;

static int by_key(const void *left, const void *right)
{
    const info *a = left, *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* The ranks of color, in their new order, into comm->group. */
static int form_group(weft_comm *comm, info *infos, int color)
{
    int members = 0;
    for (int i = 0; i < comm->nranks && color >= 0; i++) {
        if (infos[i].color == color) {
            infos[members++] = infos[i];
        }
    }
    qsort(infos, (size_t)members, sizeof(*infos), by_key);
    for (int i = 0; i < members; i++) {
        comm->group[i] = infos[i].rank;
    }
    return members;
}

static bool is_first_of_color(const info *infos, int at)
{
    int first = 0;
    while (infos[first].color != infos[at].color) {
        first++;
    }
    return first == at;
}

/*
 * How often comm has been split by this rank's color. All ranks count all
 * colors, so that it is the same for all of a group, whatever colors they had
 * before.
 */
static uint64_t count_color(weft_comm *comm, const info *infos, int color)
{
    uint64_t times = 0;
    for (int i = 0; i < comm->nranks; i++) {
        if (infos[i].color >= 0 && is_first_of_color(infos, i)) {
            uint64_t key = wefti_key_mix(comm->fabric.id, SPLIT_SALT);
            key = wefti_key_mix(key, (uint64_t)infos[i].color);
            uint64_t seen = wefti_key_count(comm->engine, key);
            times = infos[i].color == color ? seen : times;
        }
    }
    return times;
}

/* Sums that follow different trees on ranks of one group would not meet. */
static weft_status check_flags(const weft_comm *comm, const info *infos)
{
    for (int i = 0; i < comm->nranks; i++) {
        int first = 0;
        while (infos[first].color != infos[i].color) {
            first++;
        }
        if (infos[i].color >= 0 && infos[i].flags != infos[first].flags) {
            return wefti_error(WEFT_ERR_INVALID,
                               "flags: of color %d rank %d has 0x%x, rank %d "
                               "0x%x: allowed is the same on all of a color",
                               infos[i].color, first, infos[first].flags, i,
                               infos[i].flags);
        }
    }
    return WEFT_OK;
}

/* A config, and room for the name that one without gets. */
typedef struct named_config {
    weft_comm_config config;
    char name[sizeof(((weft_comm *)NULL)->name)];
} named_config;

/* refused: what this rank's arguments got; the others must learn of it. A
 * config without a name gets one made: faults must tell "world/2" from its
 * parent, and from other groups. */
static weft_status split(weft_comm *comm, weft_status refused, int color,
                         int key, named_config *own, weft_comm **comm_out)
{
    wefti_consensus consensus = {.comm = comm,
                                 .purpose = WEFTI_PURPOSE_SPLIT,
                                 .what = "join the split",
                                 .refused = "'s config was refused"};
    weft_comm_config *config = &own->config;
    const info mine = {refused, color, key, comm->rank, config->flags};
    char suffix[16];
    weft_status status =
        wefti_consensus_exchange(&consensus, &mine, sizeof(mine));
    if (status == WEFT_OK) {
        status = check_flags(comm, comm->table);
    }
    if (status != WEFT_OK) {
        return status;
    }
    uint64_t times = count_color(comm, comm->table, color);
    if (config->name == comm->name) {
        snprintf(suffix, sizeof(suffix), "/%d", color);
        wefti_group_name(comm, suffix, times, own->name, sizeof(own->name));
        config->name = own->name;
    }
    consensus.members = comm->group;
    consensus.count = form_group(comm, comm->table, color);
    return wefti_group_make(&consensus, config, comm_out);
}

weft_status weft_comm_split(weft_comm *comm, int color, int key,
                            const weft_comm_config *config,
                            weft_comm **comm_out)
{
    weft_status status = wefti_group_check_place(comm, "comm", comm_out);
    if (status != WEFT_OK) {
        return status;
    }
    named_config own;
    const weft_status refused =
        wefti_group_read_config(comm, config, &own.config);
    wefti_cancel_attach(own.config.cancel, comm);
    status = split(comm, refused, color, key, &own, comm_out);
    wefti_cancel_detach(own.config.cancel);
    return status;
}
