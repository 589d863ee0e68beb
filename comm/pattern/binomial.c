/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/binomial.c - gather and scatter along a binomial tree: the root
 * has log2(n) messages, not n - 1. For small parts, since each is copied once
 * more on every rank that passes it on.
 *
 * Ranks are nodes, host by host, the root's host and there the root first.
 * Each host has as many nodes as the power of two that its ranks need, some of
 * them perhaps without a rank. A node's parent is the node without its lowest
 * set bit, so that what a node passes on is of its own host, and of whole hosts
 * behind it. Two hosts of three ranks, root 1:
 *
 *      node   0 1 2 . | 4 5 6 .         0 (rank 1)
 *      rank   1 2 0   | 3 4 5           |-- 1 (rank 2)
 *                                       |-- 2 (rank 0)
 *                                       `-- 4 (rank 3)
 *                                           |-- 5 (rank 4)
 *                                           `-- 6 (rank 5)
 *
 * A message has the same run of elements of each rank below its edge, one after
 * the other, in the order of nodes. A round is as many elements of each part as
 * let the longest message fit a chunk. Where a chunk has fewer elements than a
 * subtree has ranks, subtrees end at the largest power of two that it has, and
 * all these hang on the root.
 *
 *      gather, list TREE    per round:  root      of each child: RECV into
 *                                                 scratch, COPY each part to
 *                                                 its place
 *                                       others    COPY own part into scratch,
 *                                                 RECV of each child behind
 *                                                 it, SEND all to the parent
 *      list OWN             COPY of the root's own part
 *
 * What has one part only is sent, or received, where it belongs, without
 * scratch. A scatter is all this backwards: steps from last to first, SEND for
 * RECV, source for destination.
 *
 * No rank can starve, with one slot: messages go one way along the tree, every
 * rank has those of a round in the same order as its peers, and waits for
 * nothing of the other way.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (binomial gather and scatter); the
 * order of hosts as in Karonis et al. 2000 (trees over levels of networks).
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/parts.h"

enum { LIST_TREE, LIST_OWN };
enum { CHANNEL_TREE };
enum { STAGED_DEPTH = 4, STAGED_DEPTH_CHILD = 2 };

/*
 * The tree of a problem, and this rank's node in it.
 *
 * width   nodes of a host, a power of two; without a grouping all are one
 * nodes   before the end of the last host's
 * most    nodes of a subtree below the root; a power of two
 * elems   of each part in one round, the last perhaps of fewer
 */
typedef struct rooted_tree {
    const wefti_problem *problem;
    size_t width, nodes, most, own;
    size_t elems, rounds;
} rooted_tree;

/* The least power of two that is not below count. */
static size_t power_from(size_t count)
{
    size_t power = 1;
    while (power < count) {
        power *= 2;
    }
    return power;
}

/* Host number `host` from the root's on, going round. */
static int host_at(const wefti_problem *problem, size_t host)
{
    const wefti_grouping *grouping = problem->grouping;
    return (grouping->hosts[problem->root] + (int)host) % grouping->host_count;
}

/* How far rank is behind the root, of so many that go round. */
static size_t behind(int rank, int root, int count)
{
    return (size_t)(rank < root ? rank - root + count : rank - root);
}

static size_t node_of(const rooted_tree *tree, int rank)
{
    const wefti_problem *problem = tree->problem;
    const wefti_grouping *grouping = problem->grouping;
    if (!grouping) {
        return behind(rank, problem->root, problem->nranks);
    }
    const int host = grouping->hosts[rank];
    const int root_host = grouping->hosts[problem->root];
    const int place = grouping->places[rank];
    return behind(host, root_host, grouping->host_count) * tree->width +
           (host == root_host ? behind(place, grouping->places[problem->root],
                                       wefti_grouping_ranks(grouping, host))
                              : (size_t)(place - grouping->begins[host]));
}

/* How many ranks stand before a node. */
static size_t ranks_before(const rooted_tree *tree, size_t node)
{
    const wefti_problem *problem = tree->problem;
    const wefti_grouping *grouping = problem->grouping;
    if (node >= tree->nodes) {
        return (size_t)problem->nranks;
    }
    if (!grouping) {
        return node;
    }
    const int host = host_at(problem, node / tree->width);
    const int first = grouping->begins[host_at(problem, 0)];
    const size_t ranks = (size_t)wefti_grouping_ranks(grouping, host);
    const size_t local = node % tree->width;
    return behind(grouping->begins[host], first, problem->nranks) +
           (local < ranks ? local : ranks);
}

/* The rank that so many stand before. */
static int rank_at(const rooted_tree *tree, size_t before)
{
    const wefti_problem *problem = tree->problem;
    const wefti_grouping *grouping = problem->grouping;
    if (!grouping) {
        return (int)(((size_t)problem->root + before) %
                     (size_t)problem->nranks);
    }
    const int host = grouping->hosts[problem->root];
    const int first = grouping->begins[host];
    const size_t ranks = (size_t)wefti_grouping_ranks(grouping, host);
    if (before < ranks) {
        before += (size_t)(grouping->places[problem->root] - first);
        before %= ranks;
    }
    return grouping
        ->members[((size_t)first + before) % (size_t)problem->nranks];
}

/* Nodes of a subtree that is not the whole. */
static size_t span_of(const rooted_tree *tree, size_t node)
{
    const size_t lowest = node & (~node + 1);
    return lowest < tree->most ? lowest : tree->most;
}

/* Its ranks; 0: the node has none. */
static size_t ranks_below(const rooted_tree *tree, size_t node)
{
    return ranks_before(tree, node + span_of(tree, node)) -
           ranks_before(tree, node);
}

static size_t parent_of(const rooted_tree *tree)
{
    return tree->own % tree->most ? tree->own & (tree->own - 1) : 0;
}

static rooted_tree tree_of(const wefti_problem *problem)
{
    const wefti_grouping *grouping = problem->grouping;
    rooted_tree tree = {.problem = problem,
                        .width = 1,
                        .nodes = (size_t)problem->nranks,
                        .most = 1};
    if (grouping) {
        tree.width = power_from((size_t)grouping->most_ranks);
        tree.nodes = tree.width * (size_t)grouping->host_count;
    }
    while (2 * tree.most < tree.nodes &&
           2 * tree.most <= problem->chunk_elems) {
        tree.most *= 2;
    }
    tree.own = node_of(&tree, problem->rank);
    tree.elems = problem->chunk_elems / tree.most;
    tree.rounds =
        problem->count / tree.elems + (problem->count % tree.elems != 0);
    return tree;
}

/*
 * The children of this rank's node, from the smallest subtree on: `at` is 0
 * before the first. Returns the next; 0: there is none.
 */
static size_t next_child(const rooted_tree *tree, size_t at)
{
    const bool root = tree->own == 0;
    const size_t end =
        root ? tree->nodes : tree->own + span_of(tree, tree->own);
    size_t below = at ? at - tree->own : 0;
    do {
        below += below == 0 ? 1 : below < tree->most ? below : tree->most;
        at = tree->own + below;
    } while (at < end && ranks_below(tree, at) == 0);
    return at < end ? at : 0;
}

/* Steps of the root for what one child has. */
static size_t steps_for(const rooted_tree *tree, size_t child)
{
    const size_t ranks = ranks_below(tree, child);
    return ranks > 1 ? 1 + ranks : 1;
}

static size_t count_children(const rooted_tree *tree)
{
    size_t children = 0;
    for (size_t child = 0; (child = next_child(tree, child)) != 0;) {
        children++;
    }
    return children;
}

static size_t steps_per_round(const rooted_tree *tree)
{
    size_t steps = 0;
    if (tree->own != 0) {
        return ranks_below(tree, tree->own) > 1 ? 2 + count_children(tree) : 1;
    }
    for (size_t child = 0; (child = next_child(tree, child)) != 0;) {
        steps += steps_for(tree, child);
    }
    return steps;
}

/* ---- a gather's steps ------------------------------------------------------
 */

/* Of a round: so many elements of each part, from `begin` on. */
typedef struct round_run {
    size_t begin, elems;
} round_run;

static wefti_step receive(const rooted_tree *tree, const round_run *run,
                          size_t child, size_t place)
{
    return (wefti_step){.kind = WEFTI_STEP_RECV,
                        .dst = WEFTI_BUFFER_SCRATCH,
                        .dst_elem = place * run->elems,
                        .peer = rank_at(tree, ranks_before(tree, child)),
                        .elems = ranks_below(tree, child) * run->elems};
}

/* Step number i for the child that it is of. */
static wefti_step root_step(const rooted_tree *tree, const round_run *run,
                            size_t i)
{
    size_t child = next_child(tree, 0);
    while (i >= steps_for(tree, child)) {
        i -= steps_for(tree, child);
        child = next_child(tree, child);
        WEFTI_ASSERT(child != 0);
    }
    const bool single = ranks_below(tree, child) == 1;
    const size_t before = ranks_before(tree, child) + (i > 0 ? i - 1 : 0);
    const size_t part = (size_t)rank_at(tree, before) * tree->problem->count;
    wefti_step step = receive(tree, run, child, 0);
    if (i > 0) {
        step.kind = WEFTI_STEP_COPY;
        step.src = WEFTI_BUFFER_SCRATCH;
        step.src_elem = (i - 1) * run->elems;
        step.elems = run->elems;
        step.peer = tree->problem->rank;
    }
    if (i > 0 || single) {
        step.dst = WEFTI_BUFFER_RECV;
        step.dst_elem = part + run->begin;
    }
    return step;
}

/* Of any other rank. */
static wefti_step passing_step(const rooted_tree *tree, const round_run *run,
                               size_t i)
{
    const size_t ranks = ranks_below(tree, tree->own);
    const bool single = ranks == 1;
    size_t child = 0;
    if (!single && i == 0) {
        return (wefti_step){.kind = WEFTI_STEP_COPY,
                            .src = WEFTI_BUFFER_SEND,
                            .dst = WEFTI_BUFFER_SCRATCH,
                            .peer = tree->problem->rank,
                            .src_elem = run->begin,
                            .elems = run->elems};
    }
    for (size_t at = 0; !single && at < i; at++) {
        child = next_child(tree, child);
    }
    if (child != 0) {
        return receive(tree, run, child,
                       ranks_before(tree, child) -
                           ranks_before(tree, tree->own));
    }
    return (wefti_step){
        .kind = WEFTI_STEP_SEND,
        .src = single ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_SCRATCH,
        .peer = rank_at(tree, ranks_before(tree, parent_of(tree))),
        .src_elem = single ? run->begin : 0,
        .elems = ranks * run->elems};
}

/* ---- the pattern -----------------------------------------------------------
 */

static bool scatters(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_SCATTER;
}

static wefti_buffer other_end(wefti_buffer buffer)
{
    return buffer == WEFTI_BUFFER_SEND   ? WEFTI_BUFFER_RECV
           : buffer == WEFTI_BUFFER_RECV ? WEFTI_BUFFER_SEND
                                         : buffer;
}

/* What undoes a gather's step is a scatter's. */
static wefti_step backwards(const wefti_step *step)
{
    wefti_step back = *step;
    back.kind = step->kind == WEFTI_STEP_SEND   ? WEFTI_STEP_RECV
                : step->kind == WEFTI_STEP_RECV ? WEFTI_STEP_SEND
                                                : step->kind;
    back.src = other_end(step->dst);
    back.dst = other_end(step->src);
    back.src_elem = step->dst_elem;
    back.dst_elem = step->src_elem;
    return back;
}

static bool supports(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_GATHER || scatters(problem);
}

static size_t step_count(const wefti_problem *problem, int list)
{
    if (list == LIST_OWN) {
        return wefti_part_chunks(problem,
                                 wefti_part_to(problem, problem->rank).elems);
    }
    if (list != LIST_TREE) {
        return 0;
    }
    const rooted_tree tree = tree_of(problem);
    return tree.rounds * steps_per_round(&tree);
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    if (list == LIST_OWN) {
        *step_out = wefti_part_own_step(problem, index);
        return;
    }
    const rooted_tree tree = tree_of(problem);
    const size_t steps = steps_per_round(&tree), round = index / steps;
    const size_t place = index % steps, begin = round * tree.elems;
    const size_t left = problem->count - begin;
    const round_run run = {begin, left < tree.elems ? left : tree.elems};
    const size_t i = scatters(problem) ? steps - 1 - place : place;
    WEFTI_ASSERT(round < tree.rounds);
    *step_out = tree.own == 0 ? root_step(&tree, &run, i)
                              : passing_step(&tree, &run, i);
    if (scatters(problem)) {
        *step_out = backwards(step_out);
    }
    step_out->channel = CHANNEL_TREE;
}

static int slots(const wefti_problem *problem, int channel)
{
    if (channel != CHANNEL_TREE) {
        return 0;
    }
    const rooted_tree tree = tree_of(problem);
    const size_t children = count_children(&tree);
    return scatters(problem)
               ? wefti_slots_at_most(tree.rounds * children,
                                     STAGED_DEPTH_CHILD * children)
               : wefti_slots_at_most(tree.own == 0 ? 0 : tree.rounds,
                                     STAGED_DEPTH);
}

/*
 * The root is the busiest: it has a message of each child in every round, and
 * all parts, those of the larger subtrees by way of scratch. It is taken to be
 * rank 0: ranks that have weighed other roots before choose the same, and hosts
 * count as even elsewhere too (comm/pattern/cost.h).
 */
static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    wefti_problem root = *problem;
    root.rank = root.root = 0;
    const rooted_tree tree = tree_of(&root);
    const double part = sizes->bytes / sizes->ranks;
    const double rounds = (double)(tree.rounds ? tree.rounds : 1);
    for (size_t child = 0; (child = next_child(&tree, child)) != 0;) {
        const size_t ranks = ranks_below(&tree, child);
        const bool local = sizes->hosts <= 1 || child < tree.width;
        cost_out->local_messages += local ? rounds : 0;
        cost_out->network_messages += local ? 0 : rounds;
        cost_out->copied_bytes += (double)(ranks > 1 ? 2 * ranks : 1) * part;
    }
    cost_out->copied_bytes += part; /* its own to its place */
    cost_out->local_hops += wefti_cost_depth(sizes->locals);
    cost_out->network_hops += wefti_cost_depth(sizes->hosts);
    cost_out->link_bytes += (sizes->ranks - sizes->locals) * part;
}

const wefti_pattern wefti_pattern_binomial = {.name = "binomial",
                                              .is_tree = true,
                                              .passes_on = true,
                                              .supports = supports,
                                              .step_count = step_count,
                                              .step_at = step_at,
                                              .slots = slots,
                                              .cost = cost};
