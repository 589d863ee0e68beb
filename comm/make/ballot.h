/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/ballot.h - the domains of a communicator agree on one vote,
 * whatever dies meanwhile.
 *
 *   first   every domain tells all others its vote, and waits for theirs or
 *           for their end; it combines what came into an estimate
 *   turns   the domains take turns, by their lowest ranks: the one whose turn
 *           it is tells its estimate, and all others wait for it, or for the
 *           domain's end, and make it their own
 *
 * After a turn of a domain that every rank heard, all estimates are the same
 * and stay so; the last one is the result. A domain is its shared memory: all
 * that it has said and heard is written there, once, so that it outlives all
 * its ranks but one, and any of them can go on.
 *
 * Source: T. Chandra, S. Toueg, "Unreliable failure detectors for reliable
 * distributed systems", 1996: consensus with strong accuracy, by turns.
 */
#ifndef COMM_MAKE_BALLOT_H
#define COMM_MAKE_BALLOT_H

#include "comm/control/note.h"
#include "comm/core/core.h"

/*
 * round, question   which one, the same on all
 * voters            a bit for each rank; domains without one take no part;
 *                   NULL: all do
 * combine           of two votes; theirs NULL: a voters' domain has ended.
 * is_speaker        whether this rank tells other domains what its own says
 * until_ns          a domain that has not said its vote by then is given up;
 *                   one that is silent in its turn timeout_ns later
 */
typedef struct wefti_ballot {
    weft_comm *comm;
    uint32_t round, question;
    const uint64_t *voters;
    void (*combine)(wefti_vote *ours, const wefti_vote *theirs);
    bool (*is_speaker)(const void *context);
    const void *context;
    int64_t until_ns, timeout_ns;
    bool told[WEFTI_BALLOT_TURNS];
} wefti_ballot;

/*
 * wefti_ballot_advance - go on as far as it goes now. own is this domain's
 * vote, the same on all its ranks. Engine's lock held.
 *
 * Returns     whether result_out is the result.
 */
bool wefti_ballot_advance(wefti_ballot *ballot, const wefti_vote *own,
                          wefti_vote *result_out);

static inline bool wefti_vote_has(const uint64_t *words, int rank)
{
    return words[rank / 64] >> (rank % 64) & 1;
}

#endif
