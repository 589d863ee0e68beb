/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/dissemination.c - small payloads that all ranks of several hosts
 * need: each host's leader sends what it has of hosts, its own first, to the
 * leader 2^k hosts further in round k. So a host sends log2(hosts) messages,
 * and not one from each of its ranks to each rank elsewhere, as oneshot's would
 * be.
 *
 *      ranks --entries--> leader --blocks of 1, 2, 4 ... hosts--> leaders
 *            <--- blocks of all hosts ---
 *
 * A host's block is its ranks' sum, or what they have one after another where
 * nothing is added up, or sums follow one tree. There are no steps:
 * comm/steps/entry.c carries it out, by comm/steps/host_blocks.c.
 *
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby 1997 (all-gather in log2
 * rounds).
 */
#include "comm/pattern/dissemination.h"

#include "comm/pattern/cost.h"
#include "comm/pattern/shape.h"

static bool supports(const wefti_problem *problem)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    return (problem->grouping || problem->apart) && !shape->varied &&
           shape->sends == WEFTI_WHO_ALL && shape->receives == WEFTI_WHO_ALL &&
           (shape->reduces || !shape->send_parts);
}

bool wefti_dissemination_sums(const wefti_problem *problem)
{
    return wefti_shape_get(problem->collective)->reduces &&
           wefti_problem_has_levels(problem);
}

/* A round sends at most half of the hosts' blocks. */
bool wefti_dissemination_fits(const wefti_problem *problem, size_t shown_bytes)
{
    const wefti_grouping *grouping = problem->grouping;
    const size_t hosts =
        (size_t)(grouping ? grouping->host_count : problem->nranks);
    const size_t ranks = grouping && !wefti_dissemination_sums(problem)
                             ? (size_t)grouping->most_ranks
                             : 1;
    return shown_bytes <= WEFTI_ENTRIES_BYTES &&
           hosts / 2 * ranks * shown_bytes <= WEFTI_ENTRIES_BYTES;
}

static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    const double rounds = wefti_cost_depth(sizes->hosts);
    const double shown =
        shape->reduces ? sizes->bytes : sizes->bytes / sizes->ranks;
    const double block =
        wefti_dissemination_sums(problem) ? shown : sizes->locals * shown;
    const bool shared = sizes->locals > 1;
    cost_out->network_hops += rounds;
    cost_out->local_hops += shared ? 2 : 0;
    cost_out->network_messages += 2 * rounds;
    cost_out->local_messages += shared ? sizes->locals : 0;
    cost_out->copied_bytes += shown + sizes->hosts * block;
    if (shape->reduces) {
        cost_out->reduced_bytes +=
            (sizes->locals + sizes->hosts) * sizes->bytes;
    } else {
        cost_out->copied_bytes += sizes->bytes;
    }
    cost_out->link_bytes += (sizes->hosts - 1) * block;
}

const wefti_pattern wefti_pattern_dissemination = {
    .name = "dissemination",
    .in_entries = true,
    .rewrites = true,
    .supports = supports,
    .cost = cost,
};
