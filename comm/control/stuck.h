/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/stuck.h - the send, the receive or the wait for a signal in
 * which a rank has waited for longest, where all ranks can see it (of other
 * hosts, once it has lasted): these have no entries, and yet may be why their
 * rank does not come.
 */
#ifndef COMM_CONTROL_STUCK_H
#define COMM_CONTROL_STUCK_H

#include "comm/core.h"

/* op, a letter, waits for its peer: noted at each look at it. Lock held. */
void wefti_stuck_note(weft_comm *comm, const wefti_op *op, int64_t now_ns);

/* A wait for peer (or WEFT_MEM_ANY_PEER) to raise slot to value, likewise. */
void wefti_stuck_note_signal(weft_comm *comm, int peer, int slot,
                             uint64_t value, int64_t since_ns, int64_t now_ns);

/*
 * wefti_stuck_get - what rank waits in, "recv #3 from rank 1 of 8 f32" or
 * "signal slot 5 from rank 1 to come to 7", and for how long; text NULL: not
 * wanted.
 *
 * Returns     whom it waits for (rank itself: for nobody in particular); -1: it
 *             does not, or nothing is known of it.
 * Threads     any.
 */
int wefti_stuck_get(weft_comm *comm, int rank, char *text, size_t text_bytes,
                    double *waited_s);

#endif
