/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/membership.c - the members' processes and the job's memory.
 */
#include "comm/oob/membership.h"

#include "base/error.h"

#include <sodium.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <unistd.h>

int wefti_membership_count_local(const wefti_membership *membership)
{
    int local = 0;
    for (int rank = 0; rank < membership->nranks; rank++) {
        local += wefti_membership_is_local(membership, rank);
    }
    return local;
}

weft_status wefti_membership_init(wefti_membership *membership, int rank,
                                  int nranks)
{
    *membership =
        (wefti_membership){.rank = rank, .nranks = nranks, .memory_fd = -1};
    membership->members = calloc((size_t)nranks, sizeof(*membership->members));
    if (!membership->members) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d members",
                           nranks);
    }
    for (int i = 0; i < nranks; i++) {
        membership->members[i].pidfd = -1;
    }
    return WEFT_OK;
}

/* The first member of rank's process. */
static int first_of_process(const wefti_membership *membership, int rank)
{
    int first = 0;
    while (membership->members[first].pid != membership->members[rank].pid ||
           membership->members[first].domain !=
               membership->members[rank].domain) {
        first++;
    }
    return first;
}

int wefti_membership_watch(wefti_membership *membership)
{
    const pid_t own = getpid();
    for (int rank = 0; rank < membership->nranks; rank++) {
        wefti_member *member = &membership->members[rank];
        int first = first_of_process(membership, rank);
        if (member->pid == own ||
            !wefti_membership_is_local(membership, rank)) {
            continue;
        }
        if (first < rank) {
            member->pidfd = membership->members[first].pidfd;
            continue;
        }
        member->pidfd = pidfd_open(member->pid, 0);
        if (member->pidfd < 0) {
            return rank;
        }
    }
    return -1;
}

void wefti_membership_fini(wefti_membership *membership)
{
    for (int rank = 0; membership->members && rank < membership->nranks;
         rank++) {
        if (membership->members[rank].pidfd >= 0 &&
            first_of_process(membership, rank) == rank) {
            close(membership->members[rank].pidfd);
        }
    }
    free(membership->members);
    if (membership->memory_fd >= 0) {
        close(membership->memory_fd);
    }
    sodium_memzero(membership, sizeof(*membership));
    membership->memory_fd = -1;
}
