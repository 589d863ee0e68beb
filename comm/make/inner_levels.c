/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/inner_levels.c - the job's groups, as far as the communicator's
 * ranks are in them.
 */
#include "comm/make/inner_levels.h"

#include "base/error.h"

#include <stdlib.h>

/* The rank's leader on a level of the job; the last level is domains. */
static int leader_of(const wefti_member *member, int level)
{
    return level < WEFTI_PLACE_LEVELS ? member->inner[level] : member->domain;
}

/* ranks: [job's ranks] scratch. */
static void find_firsts(const weft_comm *comm, const wefti_membership *members,
                        int level, int *ranks, int *firsts)
{
    for (int peer = comm->nranks - 1; peer >= 0; peer--) {
        const int world_rank = comm->peers[peer].world_rank;
        ranks[leader_of(&members->members[world_rank], level)] = peer;
    }
    for (int peer = 0; peer < comm->nranks; peer++) {
        const int world_rank = comm->peers[peer].world_rank;
        firsts[peer] = ranks[leader_of(&members->members[world_rank], level)];
    }
}

weft_status wefti_inner_levels_find(weft_comm *comm,
                                    const wefti_membership *members)
{
    enum { LEVELS = WEFTI_PLACE_LEVELS + 1 };
    const size_t ranks = (size_t)comm->nranks;
    const int *levels[LEVELS];
    int *firsts = calloc(LEVELS * ranks + (size_t)members->nranks, sizeof(int));
    bool made = firsts != NULL;
    for (int level = 0; level < LEVELS && made; level++) {
        find_firsts(comm, members, level, firsts + LEVELS * ranks,
                    firsts + (size_t)level * ranks);
        levels[level] = firsts + (size_t)level * ranks;
    }
    made = made && wefti_nest_create(levels, LEVELS, comm->nranks, &comm->nest);
    made = made && (!comm->nest ||
                    wefti_nest_find_sums(comm->nest, levels[LEVELS - 1]));
    free(firsts);
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the levels of %d ranks",
                           comm->nranks);
    }
    const int outer = comm->grouping != NULL; /* hosts are a level of it then */
    if (comm->nest && comm->nest->level_count <= outer) {
        wefti_nest_free(comm->nest);
        comm->nest = NULL;
    }
    return WEFT_OK;
}
