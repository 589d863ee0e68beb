/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/hosts.h - what the hosts of a job say of themselves.
 *
 * Where ranks do not all share memory, each domain's lowest rank describes its
 * host as the first communicator is made, and all ranks keep all descriptions:
 * comm/cluster/cluster.h makes one graph of them whenever somebody asks. Here
 * they are bytes that no rank reads. On one host nothing is described;
 * WEFT_MACHINES=off, as rank 0 has it, describes nothing anywhere.
 *
 *     rank         0        1        2        3
 *     shares with  0 1      0 1      2 3      2 3
 *     digests      d        -        d        -       one all-gather
 *     bytes        from 0 to all                      a broadcast for each that
 *                                                     differs from those before
 */
#ifndef COMM_MAKE_HOSTS_H
#define COMM_MAKE_HOSTS_H

#include "comm/core/core.h"

/* What each rank says: bytes is 0 where another rank speaks for the host. */
typedef struct wefti_host_heading {
    uint64_t bytes;
    uint64_t digest[2];
} wefti_host_heading;

typedef struct wefti_host_text {
    unsigned char *bytes;
    size_t byte_count;
} wefti_host_text;

/* list[rank]: by the rank that was the first to say it. */
struct wefti_hosts {
    int nranks;
    bool complete;
    wefti_host_text own; /* until it is traded */
    bool unreadable;
    wefti_host_heading *headings; /* [nranks] */
    int *same_as;          /* [nranks] the first rank that says the same; -1 */
    wefti_host_text *list; /* [nranks] */
};

/* wefti_hosts_create - before any has said something. Returns OK |
 * ERR_NO_MEMORY; destroy is due after both, and takes NULL. */
WEFT_NODISCARD weft_status wefti_hosts_create(int nranks,
                                              wefti_hosts **hosts_out);
void wefti_hosts_destroy(wefti_hosts *hosts);

/*
 * wefti_hosts_read - before the meeting's verdict: the lowest rank of a domain
 * describes its host. What it cannot read it logs; the job goes on without.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_hosts_read(wefti_engine *engine,
                                            const wefti_membership *members);

/*
 * wefti_hosts_trade - collective over comm, for whose ranks hosts is; then it
 * is complete, unless one is unreadable.
 *
 * Returns     OK | ERR_NO_MEMORY: this rank cannot go on | the communicator's
 *             fault.
 */
WEFT_NODISCARD weft_status wefti_hosts_trade(weft_comm *comm,
                                             wefti_purpose purpose,
                                             wefti_hosts *hosts);

/* The first rank that could not read its host; -1: none. */
int wefti_hosts_find_unreadable(const wefti_hosts *hosts);

/*
 * wefti_hosts_find - the description of the host of a domain, by the domain's
 * lowest rank in the world; NULL: not all hosts have described themselves, the
 * same on all ranks.
 */
const unsigned char *wefti_hosts_find(const wefti_engine *engine, int leader,
                                      size_t *byte_count_out);

#endif
