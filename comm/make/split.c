/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/split.c - new communicators out of an old one.
 *
 *   all-gather (color, key) -> every rank knows every group
 *   all-gather offsets      -> each group's first rank in each domain has set
 *                              aside its memory
 *   all-gather verdicts     -> all of a group succeed, or none does
 *
 * What the exchanges need was allocated with the parent: a rank without memory
 * fails in build, and the others hear of it in the last exchange.
 */
#include "base/error.h"
#include "comm/live.h"
#include "comm/make/group.h"
#include "comm/post.h"

#include <stdio.h>
#include <stdlib.h>

/* Sets the counts of colors apart from those of lists (comm/make/group.c). */
#define SPLIT_SALT UINT64_C(0x73706c6974)

/* What each rank of the parent says about itself. */
typedef struct card {
    int32_t status; /* of its arguments */
    int32_t color;
    int32_t key;
    int32_t rank; /* in the parent */
} card;

_Static_assert(sizeof(card) <= sizeof(wefti_verdict) &&
                   sizeof(uint64_t) <= sizeof(wefti_verdict),
               "comm->table has a verdict's room for each rank");

/* Cards, then ranks, of a whole parent. */
size_t wefti_split_cards_bytes(int nranks)
{
    return (size_t)nranks * (sizeof(card) + sizeof(int));
}

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
    return wefti_post_exchange(WEFTI_PURPOSE_SPLIT, mine, all, bytes, comm);
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

/* The group's first rank that shares memory with this one. */
static int find_placer(const weft_comm *comm, const card *group)
{
    const wefti_membership *job = comm->engine->members;
    int first = 0;
    while (!wefti_membership_is_near(
        job, comm->peers[group[first].rank].world_rank)) {
        first++; /* this rank itself, at the latest */
    }
    return group[first].rank;
}

/* One rank of each group and domain sets memory aside and tells the others. */
static weft_status place(weft_comm *comm, const card *group, int members,
                         uint64_t *offset_out)
{
    uint64_t *offsets = comm->table;
    uint64_t mine = 0;
    int placer = members > 0 ? find_placer(comm, group) : 0;
    if (members > 0 && placer == comm->rank) {
        mine = wefti_group_place(comm, members);
    }
    weft_status status = exchange(comm, &mine, offsets, sizeof(mine));
    *offset_out = members > 0 ? offsets[placer] : 0;
    return status;
}

static weft_status build(weft_comm *comm, const card *group, int members,
                         uint64_t offset, const weft_comm_config *config,
                         weft_comm **comm_out)
{
    int *ranks =
        (int *)(void *)(comm->cards + (size_t)comm->nranks * sizeof(card));
    for (int i = 0; i < members; i++) {
        ranks[i] = group[i].rank;
    }
    return wefti_group_build(comm, ranks, members, offset, config, comm_out);
}

/* All ranks of the parent learn whether anyone failed to build. */
static weft_status agree(weft_comm *comm, const card *group, int members,
                         weft_status mine)
{
    wefti_verdict verdict = wefti_verdict_of(mine);
    const wefti_verdict *verdicts = comm->table;
    weft_status status = exchange(comm, &verdict, comm->table, sizeof(verdict));
    for (int i = 0; i < members && status == WEFT_OK; i++) {
        const wefti_verdict *theirs = &verdicts[group[i].rank];
        if (theirs->status != WEFT_OK) {
            status = wefti_error((weft_status)theirs->status,
                                 "rank %d could not join the split: %.*s",
                                 group[i].rank, (int)sizeof(theirs->text) - 1,
                                 theirs->text);
        }
    }
    return status;
}

static bool is_first_of_color(const card *cards, int at)
{
    int first = 0;
    while (cards[first].color != cards[at].color) {
        first++;
    }
    return first == at;
}

/*
 * How often comm has been split by this rank's color. All ranks count all
 * colors, so that it is the same for all of a group, whatever colors they had
 * before.
 */
static uint64_t count_color(weft_comm *comm, const card *cards, int color)
{
    uint64_t times = 0;
    for (int i = 0; i < comm->nranks; i++) {
        if (cards[i].color >= 0 && is_first_of_color(cards, i)) {
            uint64_t key = wefti_group_mix(comm->fabric.id, SPLIT_SALT);
            key = wefti_group_mix(key, (uint64_t)cards[i].color);
            uint64_t seen = wefti_group_count(comm->engine, key);
            times = cards[i].color == color ? seen : times;
        }
    }
    return times;
}

/* Faults must tell it from its parent, and from other groups: "world/2", and
 * "world/2#3" where it is the third of that color. */
static void make_name(const weft_comm *comm, int color, uint64_t times,
                      char *name_out, size_t name_bytes)
{
    char last[24] = "";
    if (times > 1) {
        snprintf(last, sizeof(last), "#%llu", (unsigned long long)times);
    }
    int last_bytes = snprintf(NULL, 0, "/%d%s", color, last);
    snprintf(name_out, name_bytes, "%.*s/%d%s",
             (int)name_bytes - 1 - last_bytes, comm->name, color, last);
}

/* refused: what this rank's arguments got; the others must learn of it. A
 * config without a name gets one made. */
static weft_status split(weft_comm *comm, weft_status refused, int color,
                         int key, weft_comm_config *config,
                         weft_comm **comm_out)
{
    card mine = {refused, color, key, comm->rank};
    card *cards = (card *)(void *)comm->cards;
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
    char name[sizeof(comm->name)];
    uint64_t times = count_color(comm, cards, color);
    if (!config->name) {
        make_name(comm, color, times, name, sizeof(name));
        config->name = name;
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
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (!comm_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm_out is NULL: allowed is a place for the "
                           "communicator");
    }
    *comm_out = NULL;
    weft_comm_config full;
    weft_status refused = wefti_group_read_config(comm, config, &full);
    if (!config || !config->name) {
        full.name = NULL;
    }
    return split(comm, refused, color, key, &full, comm_out);
}
