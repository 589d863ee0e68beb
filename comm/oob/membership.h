/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/membership.h - the members of the job, and the memory that a domain
 * shares: what a rank holds once it has joined.
 */
#ifndef COMM_OOB_MEMBERSHIP_H
#define COMM_OOB_MEMBERSHIP_H

#include "comm/oob/inner_level.h"
#include "comm/oob/limits.h"
#include "weft/status.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * A member of the job. domain: the lowest rank that it shares memory with;
 * host: the lowest rank on its host; inner: the lowest of its group on each
 * level inside the domain (comm/oob/inner_level.h), the innermost first. pid
 * counts within one domain only. pidfd: readable once the process has ended; -1
 * for members of this process and of other domains. Owned by the membership.
 */
typedef struct wefti_member {
    pid_t pid;
    int pidfd;
    int domain;
    int host;
    int inner[WEFTI_PLACE_LEVELS];
} wefti_member;

/*
 * memory_fd    anonymous memory shared by all members of this rank's domain,
 *              empty: the caller sizes it. Owned, close-on-exec.
 * job_key      random, the same on all members, never sent in clear text.
 */
typedef struct wefti_membership {
    int rank;
    int nranks;
    wefti_member *members; /* [nranks] */
    int memory_fd;
    unsigned char tuning[WEFTI_TUNING_BYTES];
    unsigned char job_key[WEFTI_JOB_KEY_BYTES];
} wefti_membership;

/* Whether other shares this rank's memory. */
static inline bool wefti_membership_is_local(const wefti_membership *membership,
                                             int other)
{
    return membership->members[other].domain ==
           membership->members[membership->rank].domain;
}

/* How many ranks share this one's memory, itself included. */
int wefti_membership_count_local(const wefti_membership *membership);

/*
 * wefti_membership_init - no process watched, no memory (memory_fd -1).
 *
 * Returns     OK | ERR_NO_MEMORY; fini is legal after both.
 */
WEFT_NODISCARD weft_status wefti_membership_init(wefti_membership *membership,
                                                 int rank, int nranks);

/*
 * wefti_membership_watch - open a pidfd for each other process of this rank's
 * domain; members of one process share it. pid and domain of the members are
 * set, and all are alive when this is called.
 *
 * Returns     -1, or the rank whose process could not be watched (errno).
 */
int wefti_membership_watch(wefti_membership *membership);
void wefti_membership_fini(wefti_membership *membership);

#endif
