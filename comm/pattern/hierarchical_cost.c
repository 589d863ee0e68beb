/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/hierarchical_cost.c - what hierarchical.c's lists do, counted:
 * IN, REMOTE and the first half of OWN are sums; the other half, PASS and TAKE
 * results.
 */
#include "comm/pattern/blocks.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/shape.h"

/* Blocks of a round, and how many of them one rank handles. */
typedef struct shares {
    double owners, handled, rounds;
    bool twin;
} shares;

static shares shares_of(const wefti_problem *problem, const wefti_sizes *sizes)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    bool all = problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    shares own = {.owners = sizes->ranks,
                  .twin = all && !problem->nest && sizes->hosts == 2};
    if (own.twin) {
        own.owners = sizes->locals;
    }
    if (shape->rooted || wefti_blocks_are_one(problem) ||
        (all && (double)problem->count < own.owners)) {
        own.owners = 1;
    }
    own.handled = own.owners / sizes->locals;
    own.rounds = wefti_sizes_chunks(sizes, own.owners < sizes->ranks
                                               ? sizes->bytes / own.owners
                                               : sizes->longest);
    if (own.handled * own.rounds < 1) {
        own.handled = 1 / own.rounds; /* of fewer than ranks, some has one */
    }
    return own;
}

/* Inputs to the agents; their sums to the owners, who add those up. */
static void cost_sums(const wefti_sizes *sizes, const shares *own, bool rooted,
                      wefti_cost *out)
{
    double agent = sizes->bytes / sizes->locals, others = sizes->hosts - 1;
    double remote =
        own->twin ? 1 : others / sizes->hosts; /* of what it handles */
    out->local_hops += sizes->locals > 1;
    out->network_hops += 1;
    out->local_messages += own->rounds * ((own->owners - own->handled) +
                                          own->handled * (sizes->locals - 1));
    out->copied_bytes += sizes->bytes; /* to agents, and as one of them */
    out->reduced_bytes += sizes->bytes;
    if (rooted) { /* it is the agent of all on its host */
        wefti_cost_root_reads(out, sizes, sizes->bytes);
    } else {
        wefti_cost_reads(out, sizes, agent * (sizes->locals - 1));
    }
    out->network_messages += own->rounds * own->handled * remote;
    if (own->twin) {
        out->network_messages += own->rounds * own->handled;
        out->reduced_bytes += 2 * agent;
        out->link_bytes += sizes->bytes;
    } else { /* the only owner is the busiest */
        bool sole = own->owners < sizes->ranks;
        out->network_messages += own->rounds * others;
        out->reduced_bytes += sizes->hosts * sizes->bytes / own->owners;
        out->link_bytes +=
            sole ? others * sizes->bytes : others / sizes->hosts * sizes->bytes;
    }
}

/* Results from the owners to the agents, and to all of the host. */
static void cost_results(const wefti_sizes *sizes, const shares *own,
                         wefti_cost *out)
{
    double agent = sizes->bytes / sizes->locals, others = sizes->hosts - 1;
    bool sole = own->owners<sizes->ranks, shared = sizes->locals> 1;
    out->local_hops += shared;
    out->local_messages += own->rounds * (own->owners - own->handled);
    out->copied_bytes += sizes->bytes - agent; /* from other agents */
    if (own->owners == 1) {
        wefti_cost_reads_one(out, sizes, sizes->bytes);
    } else {
        wefti_cost_reads_alike(out, sizes, sizes->bytes - agent);
    }
    if (own->twin) {
        out->local_messages += shared ? own->rounds * own->handled : 0;
        out->copied_bytes += shared ? agent : 0;
        return;
    }
    double passed = own->handled * others / sizes->hosts;
    out->network_hops += 1;
    out->network_messages += own->rounds * (others + passed);
    out->local_messages += shared ? own->rounds * (1 + passed) : 0;
    out->copied_bytes += sizes->bytes / own->owners +
                         (1 + shared) * agent * others / sizes->hosts;
    out->link_bytes +=
        sole ? others * sizes->bytes : others / sizes->hosts * sizes->bytes;
}

void wefti_hierarchical_cost(const wefti_problem *problem,
                             const wefti_sizes *sizes, wefti_cost *cost_out)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    shares own = shares_of(problem, sizes);
    if (shape->reduces) {
        cost_sums(sizes, &own, shape->rooted, cost_out);
    } else { /* own input to its place in the result */
        cost_out->copied_bytes += sizes->bytes / own.owners;
    }
    if (!shape->reduces || problem->collective == WEFT_COLLECTIVE_ALLREDUCE) {
        cost_results(sizes, &own, cost_out);
    }
}

/*
 * What a host's sum costs more, or less, if it goes up through levels: a rank
 * adds up what its innermost group has, for as many blocks as it is the agent
 * of, and stages that unfinished; whoever ends the sum gets few of these in
 * place of each rank's input, and on one host takes what it has finished from
 * itself.
 */
static void cost_levels_of_sums(const wefti_sizes *sizes, bool rooted,
                                bool hosts, wefti_cost *out)
{
    const double owned = sizes->bytes / (rooted && !hosts ? 1 : sizes->locals);
    const double added = sizes->bytes / sizes->adding;
    const double sums = (sizes->sums - 1) * sizes->wide;
    const double rounds = wefti_sizes_chunks(sizes, owned);
    out->local_hops += hosts ? 1 : 2;
    out->copied_bytes += hosts ? 0 : 2 * owned;
    if (rooted && !hosts) { /* the root is the busiest */
        out->local_messages +=
            rounds * (sizes->adding + sizes->sums + 1 - sizes->locals);
        out->reduced_bytes += owned * (sizes->adding + sums - sizes->locals);
    } else {
        out->local_messages +=
            rounds * (sizes->sums + 2 - sizes->locals / sizes->adding);
        out->copied_bytes += (added - owned) * sizes->wide;
        out->reduced_bytes += owned * sums;
    }
}

/* Bytes of sums that enter a node, unfinished. */
static double count_entering(const wefti_sizes *sizes, bool rooted)
{
    const double owned =
        rooted ? sizes->bytes : sizes->bytes / sizes->locals * sizes->inner;
    return owned * sizes->sums * (1 - sizes->inner / sizes->locals) *
           sizes->wide;
}

/* Results into all nodes, from a rank of each to the others. */
static void cost_levels_of_results(const wefti_sizes *sizes, double outside,
                                   wefti_cost *out)
{
    const double taken = outside / sizes->inner; /* by each of the node */
    out->local_hops += 1;
    out->local_messages += 2 * wefti_sizes_chunks(sizes, taken);
    out->copied_bytes += taken;
    out->border_bytes = sizes->inner < sizes->locals ? outside : 0;
}

/*
 * As hierarchical between hosts, and on one as direct; but that from its host's
 * other nodes a node takes each byte once, by one of its ranks, which puts it
 * into its own memory for the others; and sums where these can be made there.
 */
void wefti_nested_cost(const wefti_problem *problem, const wefti_sizes *sizes,
                       wefti_cost *cost_out)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    const bool hosts = problem->grouping && !problem->flat;
    const double outside =
        shape->rooted
            ? sizes->bytes
            : sizes->bytes * (sizes->locals - sizes->inner) / sizes->locals;
    if (hosts) {
        wefti_hierarchical_cost(problem, sizes, cost_out);
    } else {
        wefti_pattern_direct.cost(problem, sizes, cost_out);
    }
    cost_out->border_bytes = 0;
    if (!shape->reduces || problem->collective == WEFT_COLLECTIVE_ALLREDUCE) {
        cost_levels_of_results(sizes, outside, cost_out);
    }
    if (shape->reduces && sizes->sums > 0) {
        cost_levels_of_sums(sizes, shape->rooted, hosts, cost_out);
        cost_out->border_bytes += count_entering(sizes, shape->rooted);
    } else if (shape->reduces) { /* inputs go as ever */
        wefti_cost_reads(cost_out, sizes,
                         sizes->bytes / (hosts ? sizes->locals : sizes->ranks) *
                             (sizes->locals - 1));
    }
}
