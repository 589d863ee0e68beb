/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/least_traffic.c - adds up what no algorithm can leave out, pair by
 * pair of ranks.
 */
#include "tests/comm/least_traffic.h"

#include "comm/pattern/shape.h"

int least_hosts(const int *hosts, int nranks)
{
    int count = 0;
    for (int rank = 0; rank < nranks; rank++) {
        count += hosts[rank] == rank;
    }
    return count;
}

/* What rank `from` has for `to`, or of a sum, what `to` gets. counts: those of
 * a v form, or NULL. */
static size_t part_elems(const wefti_problem *problem, const size_t *counts,
                         int from, int to)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    size_t ranks = (size_t)problem->nranks, a = (size_t)from, b = (size_t)to;
    return !counts                                  ? problem->count
           : shape->send_parts && shape->recv_parts ? counts[a * ranks + b]
           : shape->send_parts                      ? counts[b]
                                                    : counts[a];
}

/* Whether a byte that `from` has for `to` must cross the network: data that all
 * ranks get alike go to a host once, for its lowest rank. */
static bool must_cross(const wefti_problem *problem, const int *hosts, int from,
                       int to)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    bool alike = !shape->send_parts && shape->receives == WEFTI_WHO_ALL;
    return hosts[from] != hosts[to] && (!alike || hosts[to] == to) &&
           wefti_shape_moves(shape, problem->root, from, to);
}

size_t least_elems(const wefti_problem *problem, const size_t *counts,
                   const int *hosts)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    int nranks = problem->nranks;
    size_t others = (size_t)least_hosts(hosts, nranks) - 1, elems = 0;
    if (problem->collective == WEFT_COLLECTIVE_ALLREDUCE) {
        return 2 * others * problem->count;
    }
    for (int to = 0; to < nranks && shape->reduces; to++) {
        bool gets = wefti_who_has(shape->receives, to, problem->root);
        elems += gets ? others * part_elems(problem, counts, to, to) : 0;
    }
    for (int from = 0; from < nranks && !shape->reduces; from++) {
        for (int to = 0; to < nranks; to++) {
            elems += must_cross(problem, hosts, from, to)
                         ? part_elems(problem, counts, from, to)
                         : 0;
        }
    }
    return elems;
}
