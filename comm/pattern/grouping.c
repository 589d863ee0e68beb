/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/grouping.c - sorting ranks into hosts; one allocation.
 */
#include "comm/pattern/grouping.h"

#include "base/check.h"

#include <stdlib.h>

static int count_hosts(const int *firsts, int nranks)
{
    int hosts = 0;
    for (int rank = 0; rank < nranks; rank++) {
        WEFTI_ASSERT(firsts[rank] >= 0 && firsts[rank] <= rank);
        hosts += firsts[rank] == rank;
    }
    return hosts;
}

/* Numbers the hosts and counts the ranks of each into begins[host + 1]. */
static void number_hosts(wefti_grouping *made, const int *firsts)
{
    int hosts = 0;
    for (int rank = 0; rank < made->nranks; rank++) {
        made->hosts[rank] =
            firsts[rank] == rank ? hosts++ : made->hosts[firsts[rank]];
        made->begins[made->hosts[rank] + 1]++;
    }
}

static void sort_members(wefti_grouping *made)
{
    made->least_ranks = made->nranks;
    for (int host = 0; host < made->host_count; host++) {
        int ranks = made->begins[host + 1];
        made->least_ranks =
            ranks < made->least_ranks ? ranks : made->least_ranks;
        made->most_ranks = ranks > made->most_ranks ? ranks : made->most_ranks;
        made->begins[host + 1] += made->begins[host];
    }
    /* begins[host] serves as the next free place, then is put back. */
    for (int rank = 0; rank < made->nranks; rank++) {
        made->places[rank] = made->begins[made->hosts[rank]]++;
        made->members[made->places[rank]] = rank;
    }
    for (int host = made->host_count; host > 0; host--) {
        made->begins[host] = made->begins[host - 1];
    }
    made->begins[0] = 0;
}

bool wefti_grouping_create(const int *firsts, int nranks,
                           wefti_grouping **grouping_out)
{
    int host_count = count_hosts(firsts, nranks);
    *grouping_out = NULL;
    if (host_count == 1 || host_count == nranks) {
        return true;
    }
    size_t ranks = (size_t)nranks;
    size_t ints = 3 * ranks + (size_t)host_count + 1;
    wefti_grouping *made = calloc(1, sizeof(*made) + ints * sizeof(int));
    if (!made) {
        return false;
    }
    made->nranks = nranks;
    made->host_count = host_count;
    made->hosts = (int *)(made + 1);
    made->places = made->hosts + ranks;
    made->members = made->places + ranks;
    made->begins = made->members + ranks;
    number_hosts(made, firsts);
    sort_members(made);
    *grouping_out = made;
    return true;
}

int wefti_grouping_agent(const wefti_grouping *grouping, int host, int owner,
                         size_t round)
{
    if (grouping->hosts[owner] == host) {
        return owner;
    }
    size_t ranks = (size_t)wefti_grouping_ranks(grouping, host);
    size_t distance = (size_t)wefti_grouping_distance(grouping, host, owner);
    size_t local = (distance + round % ranks) % ranks;
    return grouping->members[(size_t)grouping->begins[host] + local];
}
