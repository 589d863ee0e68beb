/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/ballot_cell.c - votes in the memory that a domain shares.
 *
 * cell.state's compare-and-swap (the writer's, after the words) pairs with the
 * load in read: a reader that sees VOTED sees the words that were stored
 * before.
 */
#include "comm/control/ballot_cell.h"

wefti_ballot_cell *wefti_ballot_cell_get(const weft_comm *comm,
                                         const wefti_ballot_place *place)
{
    const wefti_shared *shared = &comm->fabric.shared;
    unsigned char *base = (unsigned char *)(void *)shared->header;
    size_t row =
        ((size_t)place->round * WEFTI_BALLOT_QUESTIONS + place->question) *
            WEFTI_BALLOT_TURNS +
        place->turn;
    return (void *)(base + shared->layout.cells +
                    (row * (size_t)comm->nranks + place->domain) *
                        shared->layout.cell_bytes);
}

void wefti_ballot_cell_settle(wefti_ballot_cell *cell, uint32_t state)
{
    uint32_t open = 0;
    atomic_compare_exchange_strong(&cell->state, &open, state);
}

void wefti_ballot_cell_write(wefti_ballot_cell *cell, const weft_comm *comm,
                             const wefti_vote *vote)
{
    if (atomic_load(&cell->state)) {
        return;
    }
    atomic_store_explicit(&cell->number, vote->number, memory_order_relaxed);
    for (int i = 0; i < wefti_vote_count_words(comm->nranks); i++) {
        atomic_store_explicit(&cell->words[i], vote->words[i],
                              memory_order_relaxed);
    }
    wefti_ballot_cell_settle(cell, WEFTI_CELL_VOTED);
}

uint32_t wefti_ballot_cell_read(wefti_ballot_cell *cell, const weft_comm *comm,
                                wefti_vote *vote_out)
{
    uint32_t state = atomic_load(&cell->state);
    if (state == WEFTI_CELL_VOTED) {
        *vote_out = (wefti_vote){.number = atomic_load_explicit(
                                     &cell->number, memory_order_relaxed)};
        for (int i = 0; i < wefti_vote_count_words(comm->nranks); i++) {
            vote_out->words[i] =
                atomic_load_explicit(&cell->words[i], memory_order_relaxed);
        }
    }
    return state;
}

void wefti_ballot_take(weft_comm *comm, const wefti_ballot_place *place,
                       const wefti_vote *vote)
{
    wefti_ballot_cell_write(wefti_ballot_cell_get(comm, place), comm, vote);
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_doorbell_wake(comm->bells[peer]);
    }
}
