/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/elsewhere.h - in which operation of another communicator a rank
 * waits, where the members of this one can see it: ranks that use two
 * communicators in different orders hold each other up, and each sees only
 * that somebody does not come.
 */
#ifndef COMM_CONTROL_ELSEWHERE_H
#define COMM_CONTROL_ELSEWHERE_H

#include "comm/core.h"

/* What wefti_elsewhere_get found. */
typedef enum wefti_elsewhere_found {
    WEFTI_ELSEWHERE_NO,      /* it does not wait, or nothing is known of it */
    WEFTI_ELSEWHERE_STRANGE, /* for a rank that is no member of this one */
    WEFTI_ELSEWHERE_MEMBER
} wefti_elsewhere_found;

/*
 * wefti_elsewhere_note - op of comm waits for a peer: noted in all other
 * communicators of this rank, at each look at op. Lock held.
 *
 * far    other hosts are to know as well
 */
void wefti_elsewhere_note(weft_comm *comm, const wefti_op *op, int peer,
                          int64_t now_ns, bool far);

/*
 * wefti_elsewhere_get - what rank waits in, `all_reduce #1 on "tp"`, and for
 * which rank of comm; text NULL: not wanted.
 *
 * Threads     any.
 */
wefti_elsewhere_found wefti_elsewhere_get(weft_comm *comm, int rank, char *text,
                                          size_t text_bytes, int *peer_out);

#endif
