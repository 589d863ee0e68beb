/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/tree.c - binomial trees: log2(n) hops, for what is short.
 *
 * The parent of rank r > 0 is r without its lowest set bit; its children are
 * r + 1, r + 2, r + 4, .. as far as they keep r's higher bits. Who combines
 * children in this order holds the balanced tree over its ranks, split at the
 * largest power of two, so the sum is the same as everywhere in weft:
 *
 *      0 ((01)(23))(45)         up, channel 0, wide: each chunk is widened,
 *      |-- 1                    combined with the children's, and goes on to
 *      |-- 2 (23)               the parent
 *      |   `-- 3                down, channel 1: largest subtree first
 *      `-- 4 (45)
 *          `-- 5
 *
 * Where sums have levels there is such a tree over the ranks of each host, and
 * one over the hosts' lowest ranks. These round the host's sum before they
 * combine it with others:
 *
 *      hosts 0 1 2 | 3 4      0 (01)2 round, (34)
 *                             |-- 1
 *                             |-- 2
 *                             `-- 3 (34) round
 *                                 `-- 4
 *
 * All-reduce goes up to rank 0 and down again; reduce goes up to rank 0, which
 * hands the unfinished sum to the root; broadcast goes down a tree over
 * (rank - root) mod n. Up and down are lists of their own, so that chunks
 * overlap. One staged message a child is enough for progress: a rank takes the
 * chunks in one order and never waits for its children on the way down nor for
 * its parent on the way up.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (binomial trees).
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/parts.h"

enum { LIST_UP, LIST_DOWN, LIST_OWN };
enum { CHANNEL_UP, CHANNEL_DOWN };
enum { STAGED_DEPTH = 4, STAGED_DEPTH_CHILD = 2 };

/* A rank's place in a tree: node of nodes, whose ranks are members. */
typedef struct spot {
    unsigned node, nodes;
} spot;

static bool reduces(const wefti_problem *problem)
{
    return problem->collective != WEFT_COLLECTIVE_BROADCAST;
}

/* Two trees: one over the ranks of this host, one over the hosts. */
static bool has_hosts(const wefti_problem *problem)
{
    return reduces(problem) && wefti_problem_has_levels(problem);
}

/* In the tree over all ranks, or those of this host. */
static spot local_spot(const wefti_problem *problem)
{
    const wefti_grouping *grouping = problem->grouping;
    if (has_hosts(problem)) {
        int host = grouping->hosts[problem->rank];
        return (spot){(unsigned)(grouping->places[problem->rank] -
                                 grouping->begins[host]),
                      (unsigned)wefti_grouping_ranks(grouping, host)};
    }
    int node = problem->rank;
    if (!reduces(problem)) {
        node -= problem->root;
        node += node < 0 ? problem->nranks : 0;
    }
    return (spot){(unsigned)node, (unsigned)problem->nranks};
}

/* In the tree over the hosts, of their lowest ranks. */
static spot host_spot(const wefti_problem *problem)
{
    if (!has_hosts(problem) || local_spot(problem).node != 0) {
        return (spot){0, 1};
    }
    return (spot){(unsigned)problem->grouping->hosts[problem->rank],
                  (unsigned)problem->grouping->host_count};
}

static int local_rank(const wefti_problem *problem, unsigned node)
{
    if (has_hosts(problem)) {
        const wefti_grouping *grouping = problem->grouping;
        int host = grouping->hosts[problem->rank];
        return grouping->members[grouping->begins[host] + (int)node];
    }
    if (reduces(problem)) {
        return (int)node;
    }
    return (int)((node + (unsigned)problem->root) % (unsigned)problem->nranks);
}

static int host_rank(const wefti_problem *problem, unsigned node)
{
    const wefti_grouping *grouping = problem->grouping;
    return grouping->members[grouping->begins[node]];
}

/* Child i is node + 2^i. */
static unsigned count_children(spot at)
{
    unsigned children = 0;
    while ((at.node >> children & 1U) == 0 &&
           (1U << children) < at.nodes - at.node) {
        children++;
    }
    return children;
}

/*
 * This rank in both trees. Children are numbered upward in the order of
 * combining: those of the host, then other hosts' lowest ranks.
 */
typedef struct standing {
    spot local, host;
    unsigned locals, hosts; /* children */
} standing;

static standing standing_of(const wefti_problem *problem)
{
    standing own = {.local = local_spot(problem), .host = host_spot(problem)};
    own.locals = count_children(own.local);
    own.hosts = count_children(own.host);
    return own;
}

static bool is_top(const standing *own)
{
    return own->local.node == 0 && own->host.node == 0;
}

static int child_of(const wefti_problem *problem, const standing *own,
                    unsigned child)
{
    return child < own->locals
               ? local_rank(problem, own->local.node + (1U << child))
               : host_rank(problem,
                           own->host.node + (1U << (child - own->locals)));
}

/* Of a rank that is not the top. */
static int parent_of(const wefti_problem *problem, const standing *own)
{
    unsigned local = own->local.node, host = own->host.node;
    return local != 0 ? local_rank(problem, local & (local - 1))
                      : host_rank(problem, host & (host - 1));
}

/* Whether this rank ends the level of its host. */
static bool rounds(const wefti_problem *problem, const standing *own)
{
    return has_hosts(problem) && own->local.node == 0;
}

/* Reduce to another root than 0: rank 0 hands over what the root finishes. */
static bool hands_over(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_REDUCE && problem->root != 0;
}

static bool supports(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_ALLREDUCE ||
           problem->collective == WEFT_COLLECTIVE_REDUCE ||
           problem->collective == WEFT_COLLECTIVE_BROADCAST;
}

/* Steps of one list for each chunk. */
static size_t steps_per_chunk(const wefti_problem *problem, int list)
{
    standing own = standing_of(problem);
    size_t children = own.locals + own.hosts;
    bool turns =
        problem->collective == WEFT_COLLECTIVE_ALLREDUCE && is_top(&own);

    switch (list) {
    case LIST_UP: /* WIDEN, COMBINE of each child, SEND or NARROW */
        if (!reduces(problem)) {
            return 0;
        }
        return 1 + children + rounds(problem, &own) + 1 +
               (turns ? children : 0);
    case LIST_DOWN: /* RECV below the top, SEND to each child */
        if (problem->collective == WEFT_COLLECTIVE_REDUCE) {
            bool finishes =
                hands_over(problem) && problem->rank == problem->root;
            return finishes ? 2 : 0;
        }
        return turns ? 0 : !is_top(&own) + children;
    case LIST_OWN: /* COPY */
        return !reduces(problem) && problem->rank == problem->root;
    default:
        return 0;
    }
}

static size_t step_count(const wefti_problem *problem, int list)
{
    return wefti_part_chunks(problem, problem->count) *
           steps_per_chunk(problem, list);
}

/* Step of the way up: the sum of this node's subtree to the rank that needs it.
 */
static void set_up(const wefti_problem *problem, const standing *own,
                   size_t index, wefti_step *step)
{
    /* The level's end stands between the host's children and the hosts'. */
    size_t round = rounds(problem, own) ? 1 + own->locals : SIZE_MAX;
    size_t child = index - 1 - (index > round);

    if (index == 0) {
        step->kind = WEFTI_STEP_WIDEN;
        step->src = WEFTI_BUFFER_SEND;
        step->dst = WEFTI_BUFFER_SCRATCH;
    } else if (index == round) {
        step->kind = WEFTI_STEP_ROUND;
        step->src = step->dst = WEFTI_BUFFER_SCRATCH;
    } else if (child < own->locals + own->hosts) {
        step->kind = WEFTI_STEP_COMBINE;
        step->dst = WEFTI_BUFFER_SCRATCH;
        step->peer = child_of(problem, own, (unsigned)child);
        step->channel = CHANNEL_UP;
    } else if (is_top(own) && !hands_over(problem)) {
        step->kind = WEFTI_STEP_NARROW;
        step->src = WEFTI_BUFFER_SCRATCH;
        step->dst = WEFTI_BUFFER_RECV;
    } else {
        step->kind = WEFTI_STEP_SEND;
        step->src = WEFTI_BUFFER_SCRATCH;
        step->peer = is_top(own) ? problem->root : parent_of(problem, own);
        step->channel = is_top(own) ? CHANNEL_DOWN : CHANNEL_UP;
    }
}

/* Step of the way down; the largest subtree goes first, it takes longest, and
 * other hosts before this one. */
static void set_down(const wefti_problem *problem, const standing *own,
                     size_t index, wefti_step *step)
{
    unsigned children = own->locals + own->hosts;

    step->channel = CHANNEL_DOWN;
    if (!is_top(own) && index == 0) {
        step->kind = WEFTI_STEP_RECV;
        step->dst = WEFTI_BUFFER_RECV;
        step->peer = parent_of(problem, own);
        return;
    }
    unsigned child = children - 1 - (unsigned)(index - !is_top(own));
    bool is_input = is_top(own) && !reduces(problem);
    step->kind = WEFTI_STEP_SEND;
    step->src = is_input ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_RECV;
    step->peer = child_of(problem, own, child);
}

/* Step of a reduce's root that is not rank 0: take over and finish. */
static void set_finish(size_t index, wefti_step *step)
{
    if (index == 0) {
        step->kind = WEFTI_STEP_RECV;
        step->dst = WEFTI_BUFFER_SCRATCH;
        step->peer = 0;
        step->channel = CHANNEL_DOWN;
    } else {
        step->kind = WEFTI_STEP_NARROW;
        step->src = WEFTI_BUFFER_SCRATCH;
        step->dst = WEFTI_BUFFER_RECV;
    }
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    size_t steps = steps_per_chunk(problem, list);
    WEFTI_ASSERT(steps > 0 && index < step_count(problem, list));
    const wefti_part chunk = wefti_part_chunk(
        problem, (wefti_part){0, problem->count}, index / steps);
    const size_t offset = chunk.begin, place = index % steps;

    *step_out = (wefti_step){.src = WEFTI_BUFFER_NONE,
                             .dst = WEFTI_BUFFER_NONE,
                             .peer = problem->rank,
                             .elems = chunk.elems};
    standing own = standing_of(problem);
    if (list == LIST_OWN) {
        step_out->kind = WEFTI_STEP_COPY;
        step_out->src = WEFTI_BUFFER_SEND;
        step_out->dst = WEFTI_BUFFER_RECV;
    } else if (list == LIST_DOWN) {
        if (problem->collective == WEFT_COLLECTIVE_REDUCE) {
            set_finish(place, step_out);
        } else {
            set_down(problem, &own, place, step_out);
        }
    } else {
        size_t up = 2 + own.locals + own.hosts + rounds(problem, &own);
        if (place < up) {
            set_up(problem, &own, place, step_out);
        } else {
            set_down(problem, &own, place - up, step_out);
        }
    }
    /* Scratch holds one chunk, from its start. */
    bool from_user = step_out->src == WEFTI_BUFFER_SEND ||
                     step_out->src == WEFTI_BUFFER_RECV;
    step_out->src_elem = from_user ? offset : 0;
    step_out->dst_elem = step_out->dst == WEFTI_BUFFER_RECV ? offset : 0;
}

static int slots(const wefti_problem *problem, int channel)
{
    standing own = standing_of(problem);
    size_t children = own.locals + own.hosts;
    size_t chunks = wefti_part_chunks(problem, problem->count);
    bool top = is_top(&own);

    if (channel == CHANNEL_UP) {
        return reduces(problem) && !top
                   ? wefti_slots_at_most(chunks, STAGED_DEPTH)
                   : 0;
    }
    if (channel != CHANNEL_DOWN) {
        return 0;
    }
    if (problem->collective == WEFT_COLLECTIVE_REDUCE) {
        return hands_over(problem) && top
                   ? wefti_slots_at_most(chunks, STAGED_DEPTH)
                   : 0;
    }
    return wefti_slots_at_most(chunks * children,
                               STAGED_DEPTH_CHILD * children);
}

/*
 * The top is the busiest: it takes in from a child of each hop on the way up,
 * and sends to each on the way down. What a rank passes on it widens, narrows
 * or stages, and what its parent has read of it counts once more for the hop
 * before.
 */
static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    double chunks = wefti_sizes_chunks(sizes, sizes->bytes);
    double locals = wefti_cost_depth(sizes->locals);
    double hosts = wefti_cost_depth(sizes->hosts);
    bool up = reduces(problem);
    bool down = problem->collective != WEFT_COLLECTIVE_REDUCE;
    double ways = (double)up + (double)down;
    cost_out->local_hops = ways * locals;
    cost_out->network_hops = ways * hosts;
    cost_out->local_messages = ways * chunks * locals;
    cost_out->network_messages = ways * chunks * hosts;
    cost_out->link_bytes = hosts * sizes->bytes;
    if (sizes->inner < sizes->locals) { /* one of its edges crosses it */
        cost_out->border_bytes = ways * sizes->bytes;
    }
    if (up) {
        cost_out->copied_bytes += 2 * sizes->bytes;
        cost_out->reduced_bytes += (locals + hosts) * sizes->bytes;
    }
    if (down) {
        cost_out->copied_bytes += (locals + hosts + 1) * sizes->bytes;
    }
    if (hands_over(problem)) {
        wefti_cost_hops(cost_out, sizes, 1);
        cost_out->copied_bytes += 2 * sizes->bytes;
        cost_out->link_bytes += sizes->hosts > 1 ? sizes->bytes : 0;
    }
}

const wefti_pattern wefti_pattern_tree = {.name = "tree",
                                          .is_tree = true,
                                          .supports = supports,
                                          .step_count = step_count,
                                          .step_at = step_at,
                                          .slots = slots,
                                          .cost = cost};
