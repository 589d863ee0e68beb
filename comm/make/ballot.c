/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/ballot.c - the walk through the turns, which every rank of a domain
 * makes over the same cells.
 */
#include "comm/make/ballot.h"

#include "base/clock.h"
#include "comm/control/ballot_cell.h"
#include "comm/control/channel.h"
#include "comm/watch/peer_life.h"

enum { VOTE, ESTIMATE };

/* Whether no rank of a domain is left, as far as this one knows. */
static bool has_ended(weft_comm *comm, int domain)
{
    bool ended = true;
    for (int rank = domain; rank < comm->nranks; rank++) {
        if (comm->peers[rank].first == domain && !wefti_peer_lost(comm, rank)) {
            wefti_peer_doubt(comm, rank, comm->timeout_ns);
            ended = false;
        }
    }
    return ended;
}

static bool votes(const wefti_ballot *ballot, int domain)
{
    const weft_comm *comm = ballot->comm;
    for (int rank = domain; rank < comm->nranks; rank++) {
        if (comm->peers[rank].first == domain &&
            (!ballot->voters || wefti_vote_has(ballot->voters, rank))) {
            return true;
        }
    }
    return false;
}

/* Whether cell is no more open; gives up a domain that has ended or is late. */
static bool has_come(const wefti_ballot *ballot, wefti_ballot_cell *cell,
                     int domain, int64_t until_ns)
{
    if (!atomic_load(&cell->state) &&
        (has_ended(ballot->comm, domain) || wefti_clock_ns() > until_ns)) {
        wefti_ballot_cell_settle(cell, WEFTI_CELL_LOST);
    }
    return atomic_load(&cell->state) != 0;
}

/* Says to all voters' domains what this one says. */
static void tell(wefti_ballot *ballot, const wefti_ballot_place *place,
                 const wefti_vote *vote)
{
    weft_comm *comm = ballot->comm;
    if (ballot->told[place->turn] || !ballot->is_speaker(ballot->context)) {
        return;
    }
    ballot->told[place->turn] = true;
    const wefti_note note = {
        .kind = WEFTI_NOTE_BALLOT, .place = *place, .vote = *vote};
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (comm->peers[rank].first == rank &&
            rank != comm->peers[comm->rank].first && votes(ballot, rank)) {
            wefti_control_notify(comm, rank, &note);
        }
    }
}

/* The first part; the estimate is the same on all ranks of this domain. */
static bool gather(wefti_ballot *ballot, const wefti_vote *own,
                   wefti_vote *estimate)
{
    weft_comm *comm = ballot->comm;
    wefti_ballot_place place = {ballot->round, ballot->question, VOTE,
                                (uint32_t)comm->peers[comm->rank].first};
    tell(ballot, &place, own);
    *estimate = *own;
    for (int domain = 0; domain < comm->nranks; domain++) {
        wefti_vote theirs;
        if (comm->peers[domain].first != domain ||
            domain == comm->peers[comm->rank].first || !votes(ballot, domain)) {
            continue;
        }
        place.domain = (uint32_t)domain;
        wefti_ballot_cell *cell = wefti_ballot_cell_get(comm, &place);
        if (!has_come(ballot, cell, domain, ballot->until_ns)) {
            return false;
        }
        ballot->combine(estimate, wefti_ballot_cell_read(cell, comm, &theirs) ==
                                          WEFTI_CELL_VOTED
                                      ? &theirs
                                      : NULL);
    }
    return true;
}

bool wefti_ballot_advance(wefti_ballot *ballot, const wefti_vote *own,
                          wefti_vote *result_out)
{
    weft_comm *comm = ballot->comm;
    const int home = comm->peers[comm->rank].first;
    if (!gather(ballot, own, result_out)) {
        return false;
    }
    for (int domain = 0; domain < comm->nranks; domain++) {
        if (comm->peers[domain].first != domain || !votes(ballot, domain)) {
            continue;
        }
        const wefti_ballot_place place = {ballot->round, ballot->question,
                                          ESTIMATE, (uint32_t)domain};
        wefti_ballot_cell *cell = wefti_ballot_cell_get(comm, &place);
        if (domain == home) {
            wefti_ballot_cell_write(cell, comm, result_out);
            tell(ballot, &place, result_out);
        } else if (!has_come(ballot, cell, domain,
                             ballot->until_ns + ballot->timeout_ns)) {
            return false;
        }
        (void)wefti_ballot_cell_read(cell, comm, result_out);
    }
    return true;
}
