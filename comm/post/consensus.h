/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/consensus.h - ranks that make something together: a communicator,
 * memory that peers write into, a reduction. All succeed, or all learn which
 * one did not, and why.
 *
 *   exchange   what each says of itself: all get all
 *   reserve    one rank of each domain sets memory aside, the others learn
 * where conclude   all have built it, or the first that has not says why
 *
 * Either all ranks of a communicator take part, by its collectives; or only the
 * members do, by messages through the first of them. What this needs was
 * allocated with the communicator.
 */
#ifndef COMM_POST_CONSENSUS_H
#define COMM_POST_CONSENSUS_H

#include "comm/core/core.h"

/* How one rank's building ended, as it travels; the most that a rank says at
 * once. comm->table has room for one of each rank. */
typedef struct wefti_verdict {
    int32_t status;
    char text[124];
} wefti_verdict;

/*
 * purpose    of the collectives
 * what       "rank 3 could not <what>: ..."
 * refused    "rank 3<refused>: ...", of its arguments
 * members    [count] the ranks of comm that make it; NULL: all of them
 * apart      only the members call: by messages
 */
typedef struct wefti_consensus {
    weft_comm *comm;
    wefti_purpose purpose;
    const char *what, *refused;
    const int *members;
    int count;
    bool apart;
    size_t bytes; /* of what each rank said last */
} wefti_consensus;

/*
 * wefti_consensus_exchange - own goes to all that take part. It begins with an
 * int32_t: the status of this rank's arguments, whose text is the thread's.
 *
 * Returns     OK: wefti_consensus_get has them | this rank's status | another's
 *             | ERR_INVALID: apart, and the members differ | as a collective.
 */
WEFT_NODISCARD weft_status wefti_consensus_exchange(wefti_consensus *consensus,
                                                    const void *own,
                                                    size_t bytes);

/* What the i-th member has said; in place until the next call. */
const void *wefti_consensus_get(const wefti_consensus *consensus, int i);

/*
 * wefti_consensus_reserve - so many bytes in each domain's memory; 0: none.
 *
 * Returns     OK | as a collective.
 */
WEFT_NODISCARD weft_status wefti_consensus_reserve(wefti_consensus *consensus,
                                                   uint64_t bytes,
                                                   uint64_t *offset_out);

/*
 * wefti_consensus_conclude - built is how this rank has done, its text the
 * thread's.
 *
 * Returns     OK | that of the first member that has failed | as a collective.
 */
WEFT_NODISCARD weft_status wefti_consensus_conclude(wefti_consensus *consensus,
                                                    weft_status built);

#endif
