/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/ballot.c - the cells that votes are written into, and the walk
 * through the turns, which every rank of a domain makes over the same cells.
 *
 * cell.state's compare-and-swap (the writer's, after the words) pairs with the
 * load in read: who sees VOTED reads the words that were stored before.
 */
#include "comm/control/ballot.h"

#include "base/clock.h"
#include "comm/control/channel.h"
#include "comm/control/diagnosis.h"

enum { VOTE, ESTIMATE };

static wefti_ballot_cell *get_cell(const weft_comm *comm,
                                   const wefti_ballot_place *place)
{
    const wefti_shared *shared = &comm->fabric.shared;
    unsigned char *base = (unsigned char *)(void *)shared->header;
    wefti_ballot_cell *cells = (void *)(base + shared->layout.cells);
    size_t row =
        ((size_t)place->round * WEFTI_BALLOT_QUESTIONS + place->question) *
            WEFTI_BALLOT_TURNS +
        place->turn;
    return &cells[row * (size_t)comm->nranks + place->domain];
}

static void settle(wefti_ballot_cell *cell, uint32_t state)
{
    uint32_t open = 0;
    atomic_compare_exchange_strong(&cell->state, &open, state);
}

static void write(wefti_ballot_cell *cell, const wefti_vote *vote)
{
    if (atomic_load(&cell->state)) {
        return;
    }
    atomic_store_explicit(&cell->number, vote->number, memory_order_relaxed);
    for (int i = 0; i < WEFTI_VOTE_WORDS; i++) {
        atomic_store_explicit(&cell->words[i], vote->words[i],
                              memory_order_relaxed);
    }
    settle(cell, WEFTI_CELL_VOTED);
}

static uint32_t read(wefti_ballot_cell *cell, wefti_vote *vote_out)
{
    uint32_t state = atomic_load(&cell->state);
    if (state == WEFTI_CELL_VOTED) {
        vote_out->number =
            atomic_load_explicit(&cell->number, memory_order_relaxed);
        for (int i = 0; i < WEFTI_VOTE_WORDS; i++) {
            vote_out->words[i] =
                atomic_load_explicit(&cell->words[i], memory_order_relaxed);
        }
    }
    return state;
}

void wefti_ballot_take(weft_comm *comm, const wefti_ballot_place *place,
                       const wefti_vote *vote)
{
    write(get_cell(comm, place), vote);
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_doorbell_wake(comm->bells[peer]);
    }
}

/* Whether no rank of a domain is left, as far as this one knows. */
static bool has_ended(weft_comm *comm, int domain)
{
    for (int rank = domain; rank < comm->nranks; rank++) {
        if (comm->peers[rank].first == domain &&
            !wefti_watch_lost(comm, rank)) {
            return false;
        }
    }
    return true;
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

/* Whether cell is no more open; gives a domain up that has ended, or is late.
 */
static bool has_come(const wefti_ballot *ballot, wefti_ballot_cell *cell,
                     int domain, int64_t until_ns)
{
    if (!atomic_load(&cell->state) &&
        (has_ended(ballot->comm, domain) || wefti_clock_ns() > until_ns)) {
        settle(cell, WEFTI_CELL_LOST);
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
        wefti_ballot_cell *cell = get_cell(comm, &place);
        if (!has_come(ballot, cell, domain, ballot->until_ns)) {
            return false;
        }
        ballot->combine(
            estimate, read(cell, &theirs) == WEFTI_CELL_VOTED ? &theirs : NULL);
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
        wefti_ballot_cell *cell = get_cell(comm, &place);
        if (domain == home) {
            write(cell, result_out);
            tell(ballot, &place, result_out);
        } else if (!has_come(ballot, cell, domain,
                             ballot->until_ns + ballot->timeout_ns)) {
            return false;
        }
        (void)read(cell, result_out);
    }
    return true;
}
