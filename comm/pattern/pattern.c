/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/pattern.c - which patterns there are, whom their steps address,
 * and how elements are dealt out.
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"

const wefti_pattern *const wefti_patterns[] = {
    &wefti_pattern_oneshot,      &wefti_pattern_dissemination,
    &wefti_pattern_hierarchical, &wefti_pattern_direct,
    &wefti_pattern_tree,         &wefti_pattern_exchange,
    &wefti_pattern_pairwise,     &wefti_pattern_two_hop,
    &wefti_pattern_binomial,     &wefti_pattern_nested,
    &wefti_pattern_nested_sums,  NULL};

const wefti_pattern *wefti_pattern_first(const wefti_problem *problem)
{
    size_t i = 0;
    while (wefti_patterns[i] && (wefti_patterns[i]->in_entries ||
                                 !wefti_patterns[i]->supports(problem))) {
        i++;
    }
    return wefti_patterns[i];
}

static int own_host(const wefti_problem *problem)
{
    return problem->grouping->hosts[problem->rank];
}

/* The agent of a host. Members of the sums stand host by host, too. */
static int agent_of(const wefti_problem *problem, int host, int owner,
                    size_t round)
{
    const wefti_grouping *grouping = problem->grouping;
    const wefti_nest *sums = wefti_problem_sums(problem);
    return sums ? wefti_nest_agent(sums, sums->circle, grouping->begins[host],
                                   owner, round)
                : wefti_grouping_agent(grouping, host, owner, round);
}

int wefti_peer_count(const wefti_problem *problem, int peer, int owner,
                     size_t round)
{
    const wefti_grouping *grouping = problem->grouping;
    switch (peer) {
    case WEFTI_ALL_PEERS:
        return problem->nranks;
    case WEFTI_LOCAL_PEERS:
        return wefti_grouping_ranks(grouping, own_host(problem));
    case WEFTI_AGENT_PEERS:
        return grouping->host_count;
    case WEFTI_SPREAD_PEERS:
        return wefti_grouping_ranks(grouping, own_host(problem)) +
               grouping->host_count - 1;
    case WEFTI_CHILD_PEERS:
        return wefti_nest_child_count(problem->nest, problem->rank, owner,
                                      round);
    case WEFTI_GIVER_PEERS:
        return wefti_nest_giver_count(wefti_problem_sums(problem),
                                      problem->rank, owner, round);
    default:
        return 1;
    }
}

int wefti_peer_at(const wefti_problem *problem, int peer, int owner,
                  size_t round, int place)
{
    const wefti_grouping *grouping = problem->grouping;
    int host, locals;
    WEFTI_ASSERT(place >= 0 &&
                 place < wefti_peer_count(problem, peer, owner, round));
    switch (peer) {
    case WEFTI_ALL_PEERS:
        return wefti_problem_has_levels(problem) ? grouping->members[place]
                                                 : place;
    case WEFTI_LOCAL_PEERS:
        return grouping->members[grouping->begins[own_host(problem)] + place];
    case WEFTI_AGENT_PEERS:
        return place == own_host(problem)
                   ? problem->rank
                   : agent_of(problem, place, owner, round);
    case WEFTI_SPREAD_PEERS: /* other hosts first: they are further */
        host = own_host(problem);
        locals = grouping->host_count - 1;
        if (place < locals) {
            host = (host + 1 + place) % grouping->host_count;
            return wefti_grouping_agent(grouping, host, owner, round);
        }
        return grouping->members[grouping->begins[host] + place - locals];
    case WEFTI_CHILD_PEERS:
        return wefti_nest_child(problem->nest, problem->rank, owner, round,
                                place);
    case WEFTI_GIVER_PEERS:
        return wefti_nest_giver_at(wefti_problem_sums(problem), problem->rank,
                                   owner, round, place)
            .rank;
    default:
        return peer;
    }
}

wefti_source wefti_source_at(const wefti_problem *problem,
                             const wefti_step *step, int place)
{
    const int peers = wefti_step_sources(problem, step);
    if (peers != WEFTI_GIVER_PEERS) {
        return (wefti_source){
            wefti_peer_at(problem, peers, step->owner, step->round, place), 1,
            step->channel};
    }
    const wefti_nest_giver giver =
        wefti_nest_giver_at(wefti_problem_sums(problem), problem->rank,
                            step->owner, step->round, place);
    return (wefti_source){giver.rank, giver.ranks,
                          giver.ranks > 1 ? step->to_channel : step->channel};
}

bool wefti_peer_includes(const wefti_problem *problem, int peer, int owner,
                         size_t round, int rank)
{
    const wefti_grouping *grouping = problem->grouping;
    if (peer >= 0 || peer == WEFTI_ALL_PEERS) {
        return peer == rank || peer == WEFTI_ALL_PEERS;
    }
    if (peer == WEFTI_CHILD_PEERS) {
        return rank != owner && wefti_nest_parent(problem->nest, rank, owner,
                                                  round) == problem->rank;
    }
    if (grouping->hosts[rank] == own_host(problem)) {
        return peer != WEFTI_AGENT_PEERS || rank == problem->rank;
    }
    return peer != WEFTI_LOCAL_PEERS &&
           agent_of(problem, grouping->hosts[rank], owner, round) == rank;
}

size_t wefti_deal(size_t count, size_t unit, size_t owners, size_t owner,
                  size_t *begin_out)
{
    size_t units = count / unit + (count % unit != 0);
    size_t least = units / owners;
    /* The first so many own one unit more. */
    size_t larger = units - least * owners;

    size_t begin = owner * least + (owner < larger ? owner : larger);
    size_t end = begin + least + (owner < larger);
    *begin_out = begin * unit;
    return (owner + 1 == owners ? count : end * unit) - begin * unit;
}

size_t wefti_share(size_t count, int nranks, int rank, size_t *begin_out)
{
    WEFTI_ASSERT(nranks > 0 && rank >= 0 && rank < nranks);
    /* A run of 16 elements more or less must not matter. */
    size_t unit = count / 64 >= (size_t)nranks ? 16 : 1;
    return wefti_deal(count, unit, (size_t)nranks, (size_t)rank, begin_out);
}
