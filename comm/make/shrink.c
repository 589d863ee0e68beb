/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/shrink.c - the survivors of a communicator agree who they are.
 *
 * The parent has failed, so they talk through the memory that a domain shares
 * and, between domains, over the control channel, in rounds:
 *
 *   enter     say so, and wait until every rank of the domain has entered or is
 *             gone
 *   decide    write down who entered, and swap one's name into "decided": the
 *             first one's list is the domain's, also if it dies right after;
 *             the domains' lists become one by a ballot (control/ballot.h)
 *   build     each on the list builds its end and says how that went
 *   conclude  wait until all of the domain on the list have said so or are
 *             gone, swap the outcome in, and vote on it: all of it, once more
 *             without who was lost, or failed
 *
 * Agreement rests on compare-and-swap: whatever each has seen, one view wins,
 * and no rank has to stay alive for it. A rank that is only slow is waited for
 * as long as the parent's time limit; then the others go on without it, and it
 * learns that from the list. Domains that were cut off from each other would
 * each make a list of its own: only the one that can outvote those of whom it
 * does not know that they are dead goes on.
 *
 * Ranks that are to be left out (shrink_without.c) count as gone.
 *
 * Source: M. Herlihy, "Wait-free synchronization", 1991: consensus by
 * compare-and-swap.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/control/channel.h"
#include "comm/control/fault.h"
#include "comm/core/reserve.h"
#include "comm/engine/engine.h"
#include "comm/make/ballot.h"
#include "comm/make/group.h"
#include "comm/make/route_join.h"
#include "comm/net/remote.h"
#include "comm/watch/peer_life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_EVERY_NS = 20000000, ASK_MOST_NS = 2000000000 };
enum { BUILT = 1, NOT_BUILT = 2, SPEAKERS = 2 /* one may die */ };
enum { ASK_WHO, ASK_BUILT };

typedef struct shrinking {
    weft_comm *comm;
    const weft_comm_config *config;    /* as it was given */
    uint64_t voters[WEFTI_VOTE_WORDS]; /* all others */
    uint32_t round;                    /* from 0 */
    const wefti_proposal *local;       /* the domain's own list */
    wefti_vote list;                   /* every rank's */
    int64_t until_ns;
    wefti_ballot ballot;
    wefti_vote own, result;
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

static bool is_left_out(const shrinking *own, int rank)
{
    return !wefti_vote_has(own->voters, rank);
}

static bool is_gone(const shrinking *own, int rank)
{
    wefti_rank_page *page =
        wefti_shared_get_page(&own->comm->fabric.shared, rank);
    return is_left_out(own, rank) ||
           (rank != own->comm->rank && (atomic_load(&page->left) != 0 ||
                                        wefti_peer_has_died(own->comm, rank)));
}

static bool is_local(const shrinking *own, int rank)
{
    const weft_comm *comm = own->comm;
    return wefti_membership_is_local(comm->engine->members,
                                     comm->peers[rank].world_rank);
}

static bool has_remote(const shrinking *own)
{
    return own->comm->local_count < own->comm->nranks;
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

/* The first ones of the domain that are here speak for it. */
static bool is_speaker(const void *context)
{
    const shrinking *own = context;
    int before = 0;
    for (int rank = 0; rank < own->comm->rank; rank++) {
        before += is_local(own, rank) && has_entered(own, rank) &&
                  !is_gone(own, rank);
    }
    return before < SPEAKERS;
}

/* Whether the domain's list is there, or can be written. */
static bool may_decide(const void *context)
{
    const shrinking *own = context;
    if (atomic_load(&round_of(own)->decided) ||
        wefti_clock_ns() > own->until_ns) {
        return true;
    }
    for (int rank = 0; rank < own->comm->nranks; rank++) {
        if (is_local(own, rank) && !has_entered(own, rank) &&
            !is_gone(own, rank)) {
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
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (is_local(own, rank) && has_entered(own, rank) &&
            !is_gone(own, rank)) {
            list->alive[rank / 64] |= UINT64_C(1) << (rank % 64);
        }
    }
    uint32_t nobody = 0;
    atomic_compare_exchange_strong(&round_of(own)->decided, &nobody,
                                   (uint32_t)comm->rank + 1);
}

/* What a driven engine asks for; the shrinking itself changes meanwhile. */
typedef struct voting {
    shrinking *own;
} voting;

static bool has_voted(const void *context)
{
    shrinking *own = ((const voting *)context)->own;
    return wefti_ballot_advance(&own->ballot, &own->own, &own->result);
}

/* What all domains make of this one's vote; the vote itself if it is alone. */
static void vote(shrinking *own, uint32_t question, const uint64_t *voters,
                 void (*combine)(wefti_vote *ours, const wefti_vote *theirs))
{
    const weft_comm *comm = own->comm;
    const voting now = {own};
    own->result = own->own;
    if (!has_remote(own)) {
        return;
    }
    /* Another domain may wait its time limit for a rank before it votes. */
    own->ballot =
        (wefti_ballot){.comm = own->comm,
                       .round = own->round,
                       .question = question,
                       .voters = voters,
                       .combine = combine,
                       .is_speaker = is_speaker,
                       .context = own,
                       .until_ns = wefti_clock_ns() + comm->timeout_ns * 3 / 2,
                       .timeout_ns = comm->timeout_ns};
    wefti_engine_drive(comm->engine, has_voted, &now);
}

static void unite(wefti_vote *ours, const wefti_vote *theirs)
{
    for (int i = 0; theirs && i < WEFTI_VOTE_WORDS; i++) {
        ours->words[i] |= theirs->words[i];
    }
}

static weft_status come_too_late(const shrinking *own)
{
    const weft_comm *comm = own->comm;
    return wefti_error(WEFT_ERR_PEER,
                       "the other ranks of \"%s\" have gone on without rank "
                       "%d: it came to shrink more than %lld ms late",
                       comm->name, comm->rank,
                       (long long)(comm->timeout_ns / 1000000));
}

/* Of another domain, not on the list, and neither dead nor gone as far as is
 * known here. */
static bool is_unknown(const shrinking *own, int rank)
{
    const weft_comm *comm = own->comm;
    if (wefti_vote_has(own->list.words, rank) || is_local(own, rank) ||
        is_left_out(own, rank) || wefti_peer_has_left(comm, rank)) {
        return false;
    }
    const wefti_rank_outcome outcome = wefti_control_get_outcome(
        comm->engine->control, comm->peers[rank].world_rank);
    return outcome != WEFTI_RANK_OUTCOME_DEAD &&
           outcome != WEFTI_RANK_OUTCOME_LEFT;
}

/*
 * Whether those on the list may go on. Unknown ranks may live behind a cut
 * link, and make a list too: the larger part goes on, of two halves the one
 * with the lowest rank.
 */
static bool may_go_on(const shrinking *own, int *unknown_out)
{
    int unknown = 0, first_unknown = own->comm->nranks;
    for (int rank = own->comm->nranks - 1; rank >= 0; rank--) {
        if (is_unknown(own, rank)) {
            unknown++;
            first_unknown = rank;
        }
    }
    *unknown_out = unknown;
    return unknown < own->count ||
           (unknown == own->count && own->members[0] < first_unknown);
}

/* Who has left and nothing had failed has told no other domain: it is asked. */
static bool has_answer(const void *context)
{
    const shrinking *own = context;
    weft_comm *comm = own->comm;
    int unknown;
    if (may_go_on(own, &unknown) || wefti_clock_ns() > own->until_ns) {
        return true;
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (is_unknown(own, rank)) {
            wefti_remote_doubt(&comm->fabric, rank, ASK_EVERY_NS);
        }
    }
    return false;
}

static weft_status check_part(shrinking *own)
{
    const weft_comm *comm = own->comm;
    const int64_t limit_ns = comm->timeout_ns / 4;
    int unknown;
    own->until_ns =
        wefti_clock_ns() + (limit_ns < ASK_MOST_NS ? limit_ns : ASK_MOST_NS);
    wefti_engine_drive(comm->engine, has_answer, own);
    if (may_go_on(own, &unknown)) {
        return WEFT_OK;
    }
    return wefti_error(WEFT_ERR_PEER,
                       "%d ranks of \"%s\" that cannot be reached may be alive "
                       "and have gone on without the %d here, rank %d among "
                       "them",
                       unknown, comm->name, own->count, comm->rank);
}

/* Where the domain's part of the new communicator lies; the first one says. */
static uint64_t place(const shrinking *own)
{
    _Atomic uint64_t *offset = &round_of(own)->offset;
    uint64_t none = 0;
    if (atomic_load(offset) == 0) {
        const size_t bytes =
            wefti_group_count_memory(own->comm, own->members, own->count);
        uint64_t mine = wefti_reserve(own->comm->engine, bytes);
        if (!atomic_compare_exchange_strong(offset, &none, mine + 1)) {
            wefti_unreserve(own->comm->engine, mine, bytes);
        }
    }
    return atomic_load(offset) - 1;
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
    own->local = &page_of(own, author)->proposals[own->round];
    if (!wefti_vote_has(own->local->alive, comm->rank)) {
        return come_too_late(own);
    }
    own->own.number = 0;
    memcpy(own->own.words, own->local->alive, sizeof(own->own.words));
    vote(own, ASK_WHO, own->voters, unite);
    own->list = own->result;
    own->count = 0;
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (wefti_vote_has(own->list.words, rank)) {
            own->members[own->count++] = rank;
        }
    }
    return wefti_vote_has(own->list.words, comm->rank) ? WEFT_OK
                                                       : come_too_late(own);
}

static void build(shrinking *own, weft_comm **comm_out)
{
    weft_comm *comm = own->comm;
    wefti_shrink_page *mine = page_of(own, comm->rank);
    weft_comm_config config;
    weft_status status = has_remote(own) ? check_part(own) : WEFT_OK;
    if (status == WEFT_OK) {
        status = wefti_group_read_config(comm, own->config, &config);
    }
    if (status == WEFT_OK) {
        status = wefti_group_build(comm, own->members, own->count, place(own),
                                   true, &config, comm_out);
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
        if (!is_local(own, rank)) {
            continue; /* its own domain votes on it */
        }
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

/* The worse of two outcomes; a domain that has ended needs another round. */
static void worsen(wefti_vote *ours, const wefti_vote *theirs)
{
    if (!theirs && ours->number < WEFTI_SHRINK_AGAIN) {
        ours->number = WEFTI_SHRINK_AGAIN;
    } else if (theirs && theirs->number > ours->number) {
        *ours = *theirs;
    }
}

/* The outcome of the round, the same for all, in own->result. */
static void conclude(shrinking *own)
{
    _Atomic uint32_t *outcome = &round_of(own)->outcome;
    own->until_ns = wefti_clock_ns() + own->comm->timeout_ns;
    wefti_engine_drive(own->comm->engine, may_conclude, own);
    uint32_t open = 0, mine = look_at_builders(own);
    if (mine) {
        atomic_compare_exchange_strong(outcome, &open, mine);
        ring_all(own->comm);
    }
    memset(&own->own, 0, sizeof(own->own));
    own->own.number = atomic_load(outcome);
    if (own->own.number >= WEFTI_SHRINK_FAILED) {
        const wefti_shrink_page *theirs =
            page_of(own, (int)(own->own.number - WEFTI_SHRINK_FAILED));
        own->own.words[0] = (uint64_t) - (int64_t)theirs->status;
        memcpy(&own->own.words[1], theirs->text, WEFTI_VOTE_TEXT_BYTES);
    }
    vote(own, ASK_BUILT, own->list.words, worsen);
}

static weft_status tell_failure(const shrinking *own)
{
    char text[WEFTI_VOTE_TEXT_BYTES + 1];
    memcpy(text, &own->result.words[1], sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (char *at = text; *at; at++) {
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
    }
    return wefti_error((weft_status) - (int64_t)own->result.words[0],
                       "rank %d could not join what is left of \"%s\": %s",
                       (int)(own->result.number - WEFTI_SHRINK_FAILED),
                       own->comm->name, text);
}

static weft_status shrink(shrinking *own, weft_comm **comm_out)
{
    for (;;) {
        weft_status status = decide(own);
        if (status != WEFT_OK) {
            return status;
        }
        build(own, comm_out);
        conclude(own);
        if (own->result.number == WEFTI_SHRINK_AGREED) {
            WEFTI_ASSERT(*comm_out);
            wefti_log(WEFTI_LOG_INFO, own->comm->rank,
                      "\"%s\" goes on with %d of %d ranks", own->comm->name,
                      own->count, own->comm->nranks);
            wefti_route_join(*comm_out);
            return WEFT_OK;
        }
        weft_comm_destroy(*comm_out);
        *comm_out = NULL;
        if (own->result.number != WEFTI_SHRINK_AGAIN) {
            return tell_failure(own);
        }
    }
}

weft_status wefti_shrink_agree(weft_comm *comm, const int *without,
                               int without_count,
                               const weft_comm_config *config,
                               weft_comm **comm_out)
{
    /* The room that a split would need: a rank cannot lack it here. */
    shrinking own = {.comm = comm, .config = config, .members = comm->group};
    for (int rank = 0; rank < comm->nranks; rank++) {
        own.voters[rank / 64] |= UINT64_C(1) << (rank % 64);
    }
    for (int i = 0; i < without_count; i++) {
        own.voters[without[i] / 64] &= ~(UINT64_C(1) << (without[i] % 64));
    }
    /* The thread that is inside an operation comes out of it, and here. */
    wefti_fault_publish(comm, WEFT_ERR_ABORTED, comm->rank, 0,
                        "rank %d shrinks \"%s\"", comm->rank, comm->name);
    return shrink(&own, comm_out);
}

weft_status weft_comm_shrink(weft_comm *comm, weft_comm **comm_out)
{
    weft_status status = wefti_group_check_place(comm, "comm", comm_out);
    return status == WEFT_OK ? wefti_shrink_agree(comm, NULL, 0, NULL, comm_out)
                             : status;
}
