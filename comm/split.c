/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/split.c - new communicators out of an old one.
 *
 *   all-gather (color, key) -> every rank knows every group
 *   all-gather offsets      -> each group's first rank has set aside its memory
 *   all-gather verdicts     -> all of a group succeed, or none does
 */
#include "base/error.h"
#include "comm/comm.h"
#include "comm/control/fault.h"
#include "comm/engine.h"

#include <stdlib.h>
#include <string.h>

/* What each rank of the parent says about itself. */
typedef struct card {
    int32_t status; /* of its arguments */
    int32_t color;
    int32_t key;
    int32_t rank;       /* in the parent */
    int32_t world_rank; /* in the job */
} card;

static int by_key(const void *left, const void *right)
{
    const card *a = left, *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static weft_status exchange(weft_comm *comm, const void *mine, void *all,
                            size_t bytes)
{
    return weft_allgather(mine, all, bytes, WEFT_DTYPE_U8, comm, NULL);
}

/* Moves the cards of color to the front, in their new order. */
static int form_group(card *cards, int count, int color)
{
    int members = 0;
    for (int i = 0; i < count; i++) {
        if (cards[i].color == color) {
            cards[members++] = cards[i];
        }
    }
    qsort(cards, (size_t)members, sizeof(*cards), by_key);
    return members;
}

/* The first rank of each group sets memory aside and tells the others. */
static weft_status place(weft_comm *comm, const card *group, int members,
                         uint64_t *offset_out)
{
    uint64_t *offsets = calloc((size_t)comm->nranks, sizeof(*offsets));
    if (!offsets) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a split");
    }
    uint64_t mine = 0;
    if (members > 0 && group[0].rank == comm->rank) {
        wefti_engine *engine = comm->engine;
        wefti_shared_header *world =
            wefti_shared_get_header(wefti_mapping_get_base(engine->mapping));
        int world_ranks = engine->members->nranks;
        uint64_t first = wefti_layout_plan(world_ranks).total_bytes;
        mine = first + atomic_fetch_add(&world->next_offset,
                                        wefti_layout_plan(members).total_bytes);
    }
    weft_status status = exchange(comm, &mine, offsets, sizeof(mine));
    *offset_out = members > 0 ? offsets[group[0].rank] : 0;
    free(offsets);
    return status;
}

static weft_status build(weft_comm *comm, const card *group, int members,
                         uint64_t offset, const weft_comm_config *config,
                         weft_comm **comm_out)
{
    int *ranks = calloc((size_t)members * 2, sizeof(*ranks));
    if (!ranks) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a split");
    }
    const wefti_membership *job = comm->engine->members;
    wefti_comm_parts parts = {
        .engine = comm->engine,
        .nranks = members,
        .world_ranks = ranks,
        .memory_fd = job->nranks > 1 ? job->memory_fd : -1,
        .memory_offset = offset,
        .name = config->name,
        .device = comm->device,
        .warn_ms = config->warn_ms,
        .timeout_ms = config->timeout_ms,
        .ops_in_flight = comm->ops_in_flight,
        .tuning = comm->tuning,
        .parent = comm,
        .parent_ranks = ranks + members,
    };
    for (int i = 0; i < members; i++) {
        ranks[i] = group[i].world_rank;
        ranks[members + i] = group[i].rank;
        if (group[i].rank == comm->rank) {
            parts.rank = i;
        }
    }
    wefti_engine_retain(comm->engine);
    weft_status status = wefti_comm_build(&parts, comm_out);
    free(ranks);
    if (status != WEFT_OK) {
        wefti_engine_release(comm->engine);
    }
    return status;
}

/* All ranks of the parent learn whether anyone failed to build. */
static weft_status agree(weft_comm *comm, const card *group, int members,
                         weft_status mine)
{
    int32_t *verdicts = calloc((size_t)comm->nranks, sizeof(*verdicts));
    if (!verdicts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a split");
    }
    int32_t verdict = mine;
    weft_status status = exchange(comm, &verdict, verdicts, sizeof(verdict));
    for (int i = 0; i < members && status == WEFT_OK && mine == WEFT_OK; i++) {
        weft_status theirs = (weft_status)verdicts[group[i].rank];
        if (theirs != WEFT_OK) {
            status = wefti_error(theirs, "rank %d could not join the split: %s",
                                 group[i].rank, weft_status_text(theirs));
        }
    }
    free(verdicts);
    return mine != WEFT_OK ? mine : status;
}

/* refused: what this rank's arguments got; the others must learn of it. */
static weft_status split(weft_comm *comm, weft_status refused, int color,
                         int key, card *cards, const weft_comm_config *config,
                         weft_comm **comm_out)
{
    card mine = {refused, color, key, comm->rank,
                 comm->peers[comm->rank].world_rank};
    weft_status status = exchange(comm, &mine, cards, sizeof(mine));
    if (status != WEFT_OK) {
        return status;
    }
    if (refused != WEFT_OK) {
        return refused; /* the text is this rank's own */
    }
    for (int i = 0; i < comm->nranks; i++) {
        if (cards[i].status != WEFT_OK) {
            return wefti_error((weft_status)cards[i].status,
                               "rank %d's config of the split was refused", i);
        }
    }
    int members = color < 0 ? 0 : form_group(cards, comm->nranks, color);
    uint64_t offset;
    status = place(comm, cards, members, &offset);
    if (status != WEFT_OK) {
        return status;
    }
    weft_status built = WEFT_OK;
    if (members > 0) {
        built = build(comm, cards, members, offset, config, comm_out);
    }
    status = agree(comm, cards, members, built);
    if (status != WEFT_OK && *comm_out) {
        weft_comm_destroy(*comm_out);
        *comm_out = NULL;
    }
    return status;
}

weft_status weft_comm_split(weft_comm *comm, int color, int key,
                            const weft_comm_config *config,
                            weft_comm **comm_out)
{
    if (!comm || !comm_out) {
        return wefti_error(WEFT_ERR_INVALID, "%s is NULL",
                           comm ? "comm_out" : "comm");
    }
    *comm_out = NULL;
    weft_comm_config full;
    weft_status refused = wefti_comm_read_config(config, &full);
    if (!config || !config->name) {
        full.name = comm->name;
    }
    if (!config || !config->warn_ms) {
        full.warn_ms = comm->warn_ns / 1000000;
    }
    if (!config || !config->timeout_ms) {
        full.timeout_ms = comm->timeout_ns / 1000000;
    }
    card *cards = calloc((size_t)comm->nranks, sizeof(*cards));
    if (!cards) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a split");
    }
    weft_status status =
        split(comm, refused, color, key, cards, &full, comm_out);
    free(cards);
    return status;
}
