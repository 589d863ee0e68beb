/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/create_from.c - a new communicator from a list of ranks of an old
 * one, made by those on the list alone.
 *
 *   members          leader, the first on the list
 *     | card ----------->|  the same list on all? Who first shares memory with
 *     |<---------- place |  others has set some aside, and says where
 *   build              build
 *     | verdict -------->|
 *     |<---------- verdict, of all
 *
 * These are point-to-point messages of the parent, in order with the others
 * between the same two ranks.
 */
#include "base/error.h"
#include "comm/live.h"
#include "comm/make/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MOST = 8 }; /* bytes of a list in a name; then it is cut */

/* Sets the counts of names apart from those of ids (comm/make/group.c). */
#define NAME_SALT UINT64_C(0x6e616d65)

/* What a member says first. */
typedef struct card {
    int32_t status; /* of its config */
    int32_t count;
    uint64_t digest; /* of the list */
    uint64_t offset; /* of memory, from those who set it aside */
} card;

_Static_assert(sizeof(card) <= sizeof(wefti_verdict),
               "parent->table has a verdict's room for each rank");

/* What it gets back. */
typedef struct place {
    uint64_t offset;
    wefti_verdict verdict;
} place;

typedef struct gathering {
    weft_comm *parent;
    const int *ranks;
    int count;
    card own;
} gathering;

static weft_status say(weft_comm *comm, int peer, const void *bytes,
                       size_t bytes_count)
{
    return weft_send(bytes, bytes_count, WEFT_DTYPE_U8, peer, comm, NULL);
}

static weft_status hear(weft_comm *comm, int peer, void *bytes,
                        size_t bytes_count)
{
    return weft_recv(bytes, bytes_count, WEFT_DTYPE_U8, peer, comm, NULL);
}

/* FNV-1a over the list: it guards against mistakes, not against malice. */
static uint64_t digest_of(const int *ranks, int count)
{
    uint64_t digest = UINT64_C(14695981039346656037);
    for (int i = 0; i < count; i++) {
        digest = (digest ^ (uint64_t)ranks[i]) * UINT64_C(1099511628211);
    }
    return digest;
}

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

/* What is wrong with the cards of all; they belong to the parent's ranks. */
static weft_status compare(const gathering *all, const card *cards)
{
    int leader = all->parent->rank;
    for (int i = 0; i < all->count; i++) {
        const card *theirs = &cards[all->ranks[i]];
        if (theirs->status != WEFT_OK) {
            return wefti_error((weft_status)theirs->status,
                               "rank %d's config was refused", all->ranks[i]);
        }
        if (theirs->count != all->own.count ||
            theirs->digest != all->own.digest) {
            return wefti_error(WEFT_ERR_INVALID,
                               "rank %d lists other members than rank %d",
                               all->ranks[i], leader);
        }
    }
    return WEFT_OK;
}

/* The leader: everybody's card, and then the place to everybody. */
static weft_status invite(const gathering *all, uint64_t *offset_out)
{
    weft_comm *parent = all->parent;
    card *cards = parent->table;
    cards[parent->rank] = all->own;
    for (int i = 1; i < all->count; i++) {
        int peer = all->ranks[i];
        weft_status status = hear(parent, peer, &cards[peer], sizeof(card));
        if (status != WEFT_OK) {
            return status;
        }
    }
    weft_status compared = compare(all, cards);
    place reply = {.verdict = wefti_verdict_of(compared)};
    for (int i = 1; i < all->count; i++) {
        int peer = all->ranks[i];
        reply.offset =
            cards[wefti_group_placer(parent, all->ranks, all->count, peer)]
                .offset;
        weft_status status = say(parent, peer, &reply, sizeof(reply));
        if (status != WEFT_OK) {
            return status;
        }
    }
    *offset_out = all->own.offset;
    return compared == WEFT_OK
               ? WEFT_OK
               : wefti_error(compared, "%s", reply.verdict.text);
}

static weft_status accept_place(const gathering *all, uint64_t *offset_out)
{
    place reply;
    weft_status status =
        say(all->parent, all->ranks[0], &all->own, sizeof(all->own));
    if (status == WEFT_OK) {
        status = hear(all->parent, all->ranks[0], &reply, sizeof(reply));
    }
    if (status != WEFT_OK) {
        return status;
    }
    *offset_out = reply.offset;
    return reply.verdict.status == WEFT_OK
               ? WEFT_OK
               : wefti_error((weft_status)reply.verdict.status, "%s",
                             reply.verdict.text);
}

/* All learn of the first one in the list that could not build. */
static weft_status agree(const gathering *all, weft_status built)
{
    weft_comm *parent = all->parent;
    if (built != WEFT_OK) {
        built = wefti_error(built, "rank %d could not join: %s", parent->rank,
                            weft_error_text());
    }
    wefti_verdict verdict = wefti_verdict_of(built), theirs;
    weft_status status = WEFT_OK;
    if (parent->rank != all->ranks[0]) {
        status = say(parent, all->ranks[0], &verdict, sizeof(verdict));
        if (status == WEFT_OK) {
            status = hear(parent, all->ranks[0], &verdict, sizeof(verdict));
        }
    }
    for (int i = 1;
         i < all->count && parent->rank == all->ranks[0] && status == WEFT_OK;
         i++) {
        status = hear(parent, all->ranks[i], &theirs, sizeof(theirs));
        if (status == WEFT_OK && verdict.status == WEFT_OK) {
            verdict = theirs;
        }
    }
    for (int i = 1;
         i < all->count && parent->rank == all->ranks[0] && status == WEFT_OK;
         i++) {
        status = say(parent, all->ranks[i], &verdict, sizeof(verdict));
    }
    if (status != WEFT_OK || verdict.status == WEFT_OK) {
        return status;
    }
    return wefti_error((weft_status)verdict.status, "%.*s",
                       (int)sizeof(verdict.text) - 1, verdict.text);
}

/* Faults must tell it from its parent: "world/0,2,5", "world/0,1..(12)", and
 * a number behind it where the parent has had this very list before. */
static void make_name(const gathering *all, char *name_out, size_t name_bytes)
{
    char list[48] = "";
    int used = 0, listed = 0;
    for (; listed < all->count && used < LIST_MOST; listed++) {
        used += snprintf(list + used, sizeof(list) - (size_t)used, "%s%d",
                         listed ? "," : "/", all->ranks[listed]);
    }
    if (listed < all->count) {
        used += snprintf(list + used, sizeof(list) - (size_t)used, "..(%d)",
                         all->count);
    }
    uint64_t key = wefti_group_mix(all->parent->fabric.id, NAME_SALT);
    key = wefti_group_mix(key, all->own.digest);
    uint64_t times = wefti_group_count(all->parent->engine, key);
    if (times > 1) {
        used += snprintf(list + used, sizeof(list) - (size_t)used, "#%llu",
                         (unsigned long long)times);
    }
    const size_t parent_bytes = strlen(all->parent->name);
    const size_t list_bytes =
        (size_t)used < name_bytes ? (size_t)used : name_bytes - 1;
    const size_t room = name_bytes - 1 - list_bytes;
    const size_t kept = parent_bytes < room ? parent_bytes : room;
    memcpy(name_out, all->parent->name, kept);
    memcpy(name_out + kept, list, list_bytes);
    name_out[kept + list_bytes] = '\0';
}

weft_status weft_comm_create_from(weft_comm *parent, const int *ranks,
                                  int rank_count,
                                  const weft_comm_config *config,
                                  weft_comm **comm_out)
{
    weft_comm_config full;
    uint64_t offset = 0;
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
    weft_status refused = wefti_group_read_config(parent, config, &full);
    gathering all = {
        .parent = parent,
        .ranks = ranks,
        .count = rank_count,
        .own = {refused, rank_count, digest_of(ranks, rank_count), 0}};
    if (wefti_group_placer(parent, ranks, rank_count, parent->rank) ==
        parent->rank) {
        all.own.offset = wefti_group_place(parent, rank_count);
    }
    char reason[256];
    snprintf(reason, sizeof(reason), "%s", weft_error_text());
    status = parent->rank == ranks[0] ? invite(&all, &offset)
                                      : accept_place(&all, &offset);
    if (refused != WEFT_OK) {
        return wefti_error(refused, "%s", reason);
    }
    if (status != WEFT_OK) {
        return status;
    }
    char name[sizeof(parent->name)];
    if (!config || !config->name) {
        make_name(&all, name, sizeof(name));
        full.name = name;
    }
    weft_status built =
        wefti_group_build(parent, ranks, rank_count, offset, &full, comm_out);
    status = agree(&all, built);
    if (status != WEFT_OK) {
        weft_comm_destroy(*comm_out);
        *comm_out = NULL;
    }
    return status;
}
