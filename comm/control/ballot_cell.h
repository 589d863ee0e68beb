/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/ballot_cell.h - the cells that votes of domains are written
 * into; what they decide is comm/make/ballot.h's.
 */
#ifndef COMM_CONTROL_BALLOT_CELL_H
#define COMM_CONTROL_BALLOT_CELL_H

#include "comm/control/note.h"
#include "comm/core/core.h"

wefti_ballot_cell *wefti_ballot_cell_get(const weft_comm *comm,
                                         const wefti_ballot_place *place);

/* The first to write, or to settle it as WEFTI_CELL_*, decides. */
void wefti_ballot_cell_write(wefti_ballot_cell *cell, const weft_comm *comm,
                             const wefti_vote *vote);
void wefti_ballot_cell_settle(wefti_ballot_cell *cell, uint32_t state);

/* 0: open; else WEFTI_CELL_*, and the vote if that is VOTED. */
uint32_t wefti_ballot_cell_read(wefti_ballot_cell *cell, const weft_comm *comm,
                                wefti_vote *vote_out);

/* What another domain has sent. Engine's lock held. */
void wefti_ballot_take(weft_comm *comm, const wefti_ballot_place *place,
                       const wefti_vote *vote);

#endif
