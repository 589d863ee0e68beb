/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/cause.h - why an operation does not go on: the chain of waits
 * from a rank that is waited for to the one that waits for no rank, or round in
 * a circle.
 */
#ifndef COMM_WATCH_CAUSE_H
#define COMM_WATCH_CAUSE_H

#include "comm/core/core.h"

/*
 * awaited    the rank of comm where the chain begins; -1: no rank is waited for
 * world      rank of the job at its end, or the lowest of the circle
 * rank       the same as a rank of comm; of no member: awaited
 * circle     it has no end
 * through    it comes back to this rank itself: a circle, unless this rank
 *            waits for what it has to make itself
 * hops       from awaited to the end
 */
typedef struct wefti_cause {
    int awaited, world, rank, hops;
    bool circle, through;
} wefti_cause;

/*
 * wefti_is_awaited - whether peer stands between op and its end; entered: it is
 * inside op. Lock held, as for all here.
 */
bool wefti_is_awaited(weft_comm *comm, const wefti_op *op, int peer,
                      bool *entered);

/* Of all ranks that op waits for: an end rather than a circle, and a rank that
 * has not entered op rather than one that has. */
wefti_cause wefti_cause_of_op(weft_comm *comm, const wefti_op *op,
                              int64_t fresh_ns);

/* Of a wait for one peer. */
wefti_cause wefti_cause_of_peer(weft_comm *comm, int peer, int64_t fresh_ns);

/* "rank 3 has not entered (its last: #416 all_gather, 9.8 s ago): rank 1 waits
 * in gather #2 for rank 3; ranks 0 2 wait" */
void wefti_cause_text(weft_comm *comm, const wefti_op *op,
                      const wefti_cause *cause, int64_t fresh_ns,
                      char *text_out, size_t text_bytes);

/* ": rank 1 waits in gather #2 for rank 3, ..", or nothing: of a wait for one
 * peer. Appended. */
void wefti_cause_append(weft_comm *comm, const wefti_cause *cause,
                        int64_t fresh_ns, char *text, size_t text_bytes);

#endif
