/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/grouping.h - the two levels that a communicator's ranks form:
 * hosts, inside which ranks share memory, and the network between them.
 *
 *      rank       0  1  2  3            3 + 1, placed 0 1 0 0
 *      host       0  1  0  0            numbered by their lowest ranks
 *      members    0  2  3 | 1           host by host
 *      place      0  3  1  2            of each rank in members
 *
 * Only what can reach what counts, nothing else about the machine.
 */
#ifndef COMM_PATTERN_GROUPING_H
#define COMM_PATTERN_GROUPING_H

#include <stdbool.h>
#include <stddef.h>

typedef struct wefti_grouping {
    int nranks, host_count;
    int least_ranks, most_ranks; /* that one host has */
    int *hosts;                  /* [nranks] of each rank */
    int *places;                 /* [nranks] of each rank in members */
    int *members;                /* [nranks] host by host, ascending in each */
    int *begins;                 /* [host_count + 1] in members */
} wefti_grouping;

/*
 * wefti_grouping_create - from the lowest rank that shares memory with each
 * rank.
 *
 * firsts        [nranks] firsts[rank] <= rank
 * grouping_out  NULL where there is one level only: all ranks on one host, or
 *               each on its own. Freed with free().
 *
 * Returns     whether there was memory for it.
 */
bool wefti_grouping_create(const int *firsts, int nranks,
                           wefti_grouping **grouping_out);

static inline int wefti_grouping_ranks(const wefti_grouping *grouping, int host)
{
    return grouping->begins[host + 1] - grouping->begins[host];
}

/* How far an owner's place is behind host's last, going round: 0 is next. */
static inline int wefti_grouping_distance(const wefti_grouping *grouping,
                                          int host, int owner)
{
    int behind = grouping->places[owner] - grouping->begins[host + 1];
    return behind < 0 ? behind + grouping->nranks : behind;
}

/*
 * wefti_grouping_agent - the rank of a host that handles chunk number `round`
 * of what owner owns. It is the owner on its own host; elsewhere chunks and
 * owners are dealt out evenly.
 */
int wefti_grouping_agent(const wefti_grouping *grouping, int host, int owner,
                         size_t round);

#endif
