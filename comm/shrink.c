/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/shrink.c - the survivors of a communicator agree who they are.
 *
 * The parent has failed, so they talk through its shared memory alone, in
 * rounds:
 *
 *   enter     say so, and wait until every rank has entered or is gone
 *   decide    write down who entered, and swap one's name into "decided": the
 *             first one's list is everybody's, also if it dies right after
 *   build     each on the list builds its end and says how that went
 *   conclude  wait until all on the list have said so or are gone, and swap the
 *             outcome in: all of it, once more without who was lost, or failed
 *
 * Swaps are what makes it an agreement: whatever each has seen, one view wins,
 * and nobody has to stay alive for it. A rank that is only slow is waited for
 * as long as the parent's time limit; then the others go on without it, and it
 * learns that from the list.
 *
 * Source: M. Herlihy, "Wait-free synchronization", 1991: consensus by
 * compare-and-swap.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/control/diagnosis.h"
#include "comm/control/fault.h"
#include "comm/engine.h"
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>

enum { BUILT = 1, NOT_BUILT = 2 };

typedef struct shrinking {
    weft_comm *comm;
    uint32_t round; /* from 0 */
    const wefti_proposal *list;
    int64_t until_ns;
    int *members; /* [nranks] of the parent */
    int count;
} shrinking;

static wefti_shrink_round *round_of(const shrinking *own)
{
    return &own->comm->fabric.shared.header->shrink[own->round];
}

static wefti_shrink_page *page_of(const shrinking *own, int rank)
{
    return &wefti_shared_get_page(&own->comm->fabric.shared, rank)->shrink;
}

static bool is_gone(const shrinking *own, int rank)
{
    wefti_rank_page *page =
        wefti_shared_get_page(&own->comm->fabric.shared, rank);
    return rank != own->comm->rank && (atomic_load(&page->left) != 0 ||
                                       wefti_peer_has_died(own->comm, rank));
}

static bool is_listed(const wefti_proposal *list, int rank)
{
    return list->alive[rank / 64] >> (rank % 64) & 1;
}

static void ring_all(const weft_comm *comm)
{
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_doorbell_wake(comm->bells[peer]);
    }
}

static bool has_entered(const shrinking *own, int rank)
{
    return atomic_load(&page_of(own, rank)->round) > own->round;
}

/* Whether a list is there, or can be written. */
static bool may_decide(const void *context)
{
    const shrinking *own = context;
    if (atomic_load(&round_of(own)->decided) ||
        wefti_clock_ns() > own->until_ns) {
        return true;
    }
    for (int rank = 0; rank < own->comm->nranks; rank++) {
        if (!has_entered(own, rank) && !is_gone(own, rank)) {
            return false;
        }
    }
    return true;
}

/* Who is here, as this rank sees it; others may see more or fewer. */
static void propose(shrinking *own)
{
    weft_comm *comm = own->comm;
    wefti_proposal *list = &page_of(own, comm->rank)->proposals[own->round];
    int count = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (has_entered(own, rank) && !is_gone(own, rank)) {
            list->alive[rank / 64] |= UINT64_C(1) << (rank % 64);
            count++;
        }
    }
    list->offset = wefti_group_place(comm, count);
    uint32_t nobody = 0;
    atomic_compare_exchange_strong(&round_of(own)->decided, &nobody,
                                   (uint32_t)comm->rank + 1);
}

/* Enters the next round and leaves it with the list that all have. */
static weft_status decide(shrinking *own)
{
    weft_comm *comm = own->comm;
    wefti_shrink_page *mine = page_of(own, comm->rank);
    own->round = atomic_load(&mine->round);
    if (own->round == WEFTI_SHRINK_ROUNDS) {
        return wefti_error(WEFT_ERR_PEER,
                           "\"%s\" has been shrunk, or tried to, %d times: "
                           "shrink the communicator that came of it",
                           comm->name, WEFTI_SHRINK_ROUNDS);
    }
    atomic_store(&mine->round, own->round + 1);
    ring_all(comm);
    own->until_ns = wefti_clock_ns() + comm->timeout_ns;
    wefti_engine_drive(comm->engine, may_decide, own);
    if (!atomic_load(&round_of(own)->decided)) {
        propose(own);
        ring_all(comm);
    }
    int author = (int)atomic_load(&round_of(own)->decided) - 1;
    own->list = &page_of(own, author)->proposals[own->round];
    if (!is_listed(own->list, comm->rank)) {
        return wefti_error(WEFT_ERR_PEER,
                           "the other ranks of \"%s\" have gone on without "
                           "rank %d: it came to shrink more than %lld ms late",
                           comm->name, comm->rank,
                           (long long)(comm->timeout_ns / 1000000));
    }
    own->count = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (is_listed(own->list, rank)) {
            own->members[own->count++] = rank;
        }
    }
    return WEFT_OK;
}

static void build(shrinking *own, weft_comm **comm_out)
{
    weft_comm *comm = own->comm;
    wefti_shrink_page *mine = page_of(own, comm->rank);
    weft_comm_config config;
    weft_status status = wefti_group_read_config(comm, NULL, &config);
    if (status == WEFT_OK) {
        status = wefti_group_build(comm, own->members, own->count,
                                   own->list->offset, &config, comm_out);
    }
    if (status != WEFT_OK) {
        mine->status = status;
        snprintf(mine->text, sizeof(mine->text), "%s", weft_error_text());
    }
    atomic_store(&mine->built[own->round],
                 status == WEFT_OK ? BUILT : NOT_BUILT);
    ring_all(comm);
}

/* What this rank would conclude; 0: it does not know yet. */
static uint32_t look_at_builders(const shrinking *own)
{
    uint32_t outcome = WEFTI_SHRINK_AGREED;
    for (int i = 0; i < own->count; i++) {
        int rank = own->members[i];
        _Atomic uint32_t *built = &page_of(own, rank)->built[own->round];
        if (!atomic_load(built)) {
            /* What it said before it went has to be seen: look again. */
            bool gone = is_gone(own, rank);
            if (!atomic_load(built)) {
                if (!gone && wefti_clock_ns() <= own->until_ns) {
                    return 0;
                }
                outcome = WEFTI_SHRINK_AGAIN;
                continue;
            }
        }
        if (atomic_load(built) == NOT_BUILT) {
            return WEFTI_SHRINK_FAILED + (uint32_t)rank;
        }
    }
    return outcome;
}

static bool may_conclude(const void *context)
{
    const shrinking *own = context;
    return atomic_load(&round_of(own)->outcome) || look_at_builders(own);
}

/* The outcome of the round, the same for all. */
static uint32_t conclude(shrinking *own)
{
    _Atomic uint32_t *outcome = &round_of(own)->outcome;
    own->until_ns = wefti_clock_ns() + own->comm->timeout_ns;
    wefti_engine_drive(own->comm->engine, may_conclude, own);
    uint32_t open = 0, mine = look_at_builders(own);
    if (mine) {
        atomic_compare_exchange_strong(outcome, &open, mine);
        ring_all(own->comm);
    }
    return atomic_load(outcome);
}

static weft_status tell_failure(const shrinking *own, uint32_t outcome)
{
    int rank = (int)(outcome - WEFTI_SHRINK_FAILED);
    const wefti_shrink_page *theirs = page_of(own, rank);
    return wefti_error((weft_status)theirs->status,
                       "rank %d could not join what is left of \"%s\": %.*s",
                       rank, own->comm->name, (int)sizeof(theirs->text) - 1,
                       theirs->text);
}

static weft_status shrink(shrinking *own, weft_comm **comm_out)
{
    for (;;) {
        weft_status status = decide(own);
        if (status != WEFT_OK) {
            return status;
        }
        build(own, comm_out);
        uint32_t outcome = conclude(own);
        if (outcome == WEFTI_SHRINK_AGREED) {
            WEFTI_ASSERT(*comm_out);
            wefti_log(WEFTI_LOG_INFO, own->comm->rank,
                      "\"%s\" goes on with %d of %d ranks", own->comm->name,
                      own->count, own->comm->nranks);
            return WEFT_OK;
        }
        weft_comm_destroy(*comm_out);
        *comm_out = NULL;
        if (outcome != WEFTI_SHRINK_AGAIN) {
            return tell_failure(own, outcome);
        }
    }
}

weft_status weft_comm_shrink(weft_comm *comm, weft_comm **comm_out)
{
    if (!comm || !comm_out) {
        return wefti_error(WEFT_ERR_INVALID, "%s is NULL: allowed is %s",
                           comm ? "comm_out" : "comm",
                           comm ? "a place for the communicator"
                                : "a communicator");
    }
    *comm_out = NULL;
    if (comm->near_count < comm->nranks) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "\"%s\" has ranks that share no memory with rank "
                           "%d: those of one host can be shrunk (split by host "
                           "first)",
                           comm->name, comm->rank);
    }
    shrinking own = {.comm = comm};
    own.members = calloc((size_t)comm->nranks, sizeof(*own.members));
    if (!own.members) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                           comm->nranks);
    }
    /* Whoever is inside an operation comes out of it, and here. */
    wefti_fault_publish(comm, WEFT_ERR_ABORTED, comm->rank, 0,
                        "rank %d shrinks \"%s\"", comm->rank, comm->name);
    weft_status status = shrink(&own, comm_out);
    free(own.members);
    return status;
}
