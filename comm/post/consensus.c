/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/consensus.c - by collectives of all, or by messages of some:
 *
 *   member               the first member
 *     | envelope ----------->|   the same list on all?
 *     |<------------ verdict |
 *     |<------ all they said |
 */
#include "comm/post/consensus.h"

#include "base/error.h"
#include "comm/core/reserve.h"
#include "comm/post/post.h"

#include <stdio.h>
#include <string.h>

/* What a member sends: count and digest are of its list of members. */
typedef struct envelope {
    uint64_t digest;
    int32_t count;
    unsigned char own[sizeof(wefti_verdict)];
} envelope;

static wefti_verdict verdict_of(weft_status status)
{
    wefti_verdict verdict = {.status = status};
    if (status != WEFT_OK) {
        snprintf(verdict.text, sizeof(verdict.text), "%s", weft_error_text());
    }
    return verdict;
}

static int count_of(const wefti_consensus *consensus)
{
    return consensus->members ? consensus->count : consensus->comm->nranks;
}

static int member_of(const wefti_consensus *consensus, int i)
{
    return consensus->members ? consensus->members[i] : i;
}

const void *wefti_consensus_get(const wefti_consensus *consensus, int i)
{
    const int at = consensus->apart ? i : member_of(consensus, i);
    return (const unsigned char *)consensus->comm->table +
           (size_t)at * consensus->bytes;
}

/* FNV-1a over the list: it guards against mistakes, not against malice. */
static uint64_t digest_of(const wefti_consensus *consensus)
{
    uint64_t digest = UINT64_C(14695981039346656037);
    for (int i = 0; i < consensus->count; i++) {
        digest = (digest ^ (uint64_t)consensus->members[i]) *
                 UINT64_C(1099511628211);
    }
    return digest;
}

static bool is_first(const wefti_consensus *consensus)
{
    return consensus->comm->rank == consensus->members[0];
}

/* The same bytes from the first member to all others. */
static weft_status spread(const wefti_consensus *consensus, void *data,
                          size_t bytes)
{
    weft_comm *comm = consensus->comm;
    weft_status status = WEFT_OK;
    if (!is_first(consensus)) {
        return weft_recv(data, bytes, WEFT_DTYPE_U8, consensus->members[0],
                         comm, NULL);
    }
    for (int i = 1; i < consensus->count && status == WEFT_OK; i++) {
        status = weft_send(data, bytes, WEFT_DTYPE_U8, consensus->members[i],
                           comm, NULL);
    }
    return status;
}

/* What each member says, at the first: its table, in the members' order. */
static weft_status gather(const wefti_consensus *consensus, const void *own,
                          wefti_verdict *verdict_out)
{
    weft_comm *comm = consensus->comm;
    envelope mine = {digest_of(consensus), consensus->count, {0}};
    memcpy(mine.own, own, consensus->bytes);
    *verdict_out = (wefti_verdict){.status = WEFT_OK};
    if (!is_first(consensus)) {
        return weft_send(&mine, sizeof(mine), WEFT_DTYPE_U8,
                         consensus->members[0], comm, NULL);
    }
    for (int i = 0; i < consensus->count; i++) {
        envelope theirs = mine;
        const int peer = consensus->members[i];
        weft_status status = i == 0
                                 ? WEFT_OK
                                 : weft_recv(&theirs, sizeof(theirs),
                                             WEFT_DTYPE_U8, peer, comm, NULL);
        if (status != WEFT_OK) {
            return status;
        }
        if (verdict_out->status == WEFT_OK &&
            (theirs.count != mine.count || theirs.digest != mine.digest)) {
            *verdict_out = verdict_of(wefti_error(
                WEFT_ERR_INVALID, "rank %d lists other members than rank %d",
                peer, comm->rank));
        }
        memcpy((unsigned char *)comm->table + (size_t)i * consensus->bytes,
               theirs.own, consensus->bytes);
    }
    return WEFT_OK;
}

/* Every rank's bytes into comm->table. */
static weft_status exchange(wefti_consensus *consensus, const void *own,
                            size_t bytes)
{
    weft_comm *comm = consensus->comm;
    wefti_verdict verdict;
    consensus->bytes = bytes;
    if (!consensus->apart) {
        return wefti_post_exchange(consensus->purpose, own, comm->table, bytes,
                                   comm);
    }
    weft_status status = gather(consensus, own, &verdict);
    if (status == WEFT_OK) {
        status = spread(consensus, &verdict, sizeof(verdict));
    }
    if (status == WEFT_OK && verdict.status != WEFT_OK) {
        status = wefti_error((weft_status)verdict.status, "%s", verdict.text);
    }
    return status == WEFT_OK ? spread(consensus, comm->table,
                                      (size_t)consensus->count * bytes)
                             : status;
}

weft_status wefti_consensus_exchange(wefti_consensus *consensus,
                                     const void *own, size_t bytes)
{
    const weft_status refused = (weft_status) * (const int32_t *)own;
    char why[256];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    weft_status status = exchange(consensus, own, bytes);
    if (refused != WEFT_OK && (status == WEFT_OK || consensus->apart)) {
        return wefti_error(refused, "%s", why);
    }
    for (int i = 0; i < count_of(consensus) && status == WEFT_OK; i++) {
        const int32_t *theirs = wefti_consensus_get(consensus, i);
        if (*theirs != WEFT_OK) {
            status = wefti_error((weft_status)*theirs, "rank %d%s: %s",
                                 member_of(consensus, i), consensus->refused,
                                 weft_status_text((weft_status)*theirs));
        }
    }
    return status;
}

/* The first member that shares memory with this rank; -1: not even itself. */
static int find_reserver(const wefti_consensus *consensus)
{
    const weft_comm *comm = consensus->comm;
    const wefti_membership *job = comm->engine->members;
    for (int i = 0; i < count_of(consensus); i++) {
        const int rank = member_of(consensus, i);
        if (wefti_membership_is_local(job, comm->peers[rank].world_rank)) {
            return i;
        }
    }
    return -1;
}

weft_status wefti_consensus_reserve(wefti_consensus *consensus, uint64_t bytes,
                                    uint64_t *offset_out)
{
    const int reserver = find_reserver(consensus);
    uint64_t own = 0;
    *offset_out = 0;
    if (bytes > 0 && reserver >= 0 &&
        member_of(consensus, reserver) == consensus->comm->rank) {
        own = wefti_reserve(consensus->comm->engine, bytes);
    }
    weft_status status = exchange(consensus, &own, sizeof(own));
    if (status == WEFT_OK && reserver >= 0) {
        *offset_out =
            *(const uint64_t *)wefti_consensus_get(consensus, reserver);
    }
    return status;
}

weft_status wefti_consensus_conclude(wefti_consensus *consensus,
                                     weft_status built)
{
    const wefti_verdict own = verdict_of(built);
    weft_status status = exchange(consensus, &own, sizeof(own));
    for (int i = 0; i < count_of(consensus) && status == WEFT_OK; i++) {
        const wefti_verdict *theirs = wefti_consensus_get(consensus, i);
        if (theirs->status != WEFT_OK) {
            status = wefti_error((weft_status)theirs->status,
                                 "rank %d could not %s: %.*s",
                                 member_of(consensus, i), consensus->what,
                                 (int)sizeof(theirs->text) - 1, theirs->text);
        }
    }
    return status;
}
