/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/hierarchical.c - levels: ranks of a host share memory, and each
 * byte crosses the network as seldom as can be; nested, levels inside too, for
 * results, or with nested_sums for sums as well.
 *
 * The result is cut into blocks (blocks.h). The rank that finishes a block, or
 * whose data it is, owns it; on each host one rank, the block's agent, sends or
 * receives it over the network. On the owner's host that is the owner;
 * elsewhere blocks are dealt out over the host's ranks.
 *
 *       host A              network            host B
 *      0 --IN--> 1 agent ----REMOTE----> 2 owner <--IN-- 3      sums
 *      0 <-PASS- 1 agent <-----OUT------ 2 owner --OUT-> 3      results
 *
 *      list IN       SEND own input of a block to the host's agent
 *      list REMOTE   RELAY the host's sum of a block to its owner
 *      list OWN      REDUCE the hosts' sums of an own block; SEND the result
 *      list PASS     RECV a block from its owner, SEND it to the host
 *      list TAKE     RECV a block from the host's agent
 *
 * Reductions have the first three lists, gathers the last three (OWN then
 * sends its input), all-reduce has all. The v forms differ in how many blocks
 * an owner has, and in nothing else. Between two hosts an all-reduce needs
 * no owner: both agents send each other their sums and finish the block, so
 * that bytes are as few and hops one less, and a round has only as many blocks
 * as the larger host ranks.
 *
 * With nested levels (nest.h) a host's sum is the same, with the bits it has
 * without them. By nested_sums it goes up through groups that are nodes of its
 * tree, always by IN and REMOTE: a rank gives its input to the agent of its
 * innermost group, and whoever is an agent RELAYs what it is given, unfinished,
 * to the agent around, as far as the host's; that one ends the host's sum, as
 * ever. On one host the owner is the last, and takes what it has finished from
 * itself in OWN. For a pair of ranks it is always the same list: two of one
 * host exchange sums that REMOTE reads, others what OWN reads. By nested agents
 * of hosts take all inputs, or on one host owners do; between two hosts blocks
 * have owners. Results go down through the levels: whoever is
 * the agent of a group has the block in PASS, and SENDs it to the agents of the
 * groups inside and to the ranks of its own innermost one; who is not has it in
 * TAKE. For a pair of ranks that is always the same list: where the one sends
 * to the other, the other is the agent of the largest of its groups that the
 * first is not in, and it is PASS where that has more ranks, else TAKE.
 *
 * No rank can starve: take the earliest round in which a message is missing.
 * All of earlier rounds have been read, and REMOTE has a slot for each message
 * of a round, so every RELAY of the round can be staged once its sources are
 * there. Of what moves inside a host take the first block in the host's order:
 * all that came before has been read, so it has a slot. The same holds inside
 * an outermost group of nested levels, which has one order, from agent to
 * agent; and for sums on their way up, which have one order in all of a host.
 *
 * In place is safe: a block is written on a rank after that rank's input to it
 * has been staged, as the sum holds it.
 *
 * Source: the two-level all-reduce of Cho et al. 2019 (BlueConnect, section 3)
 * and Luo et al. 2020 (HAN, section III); dealing blocks over a host's ranks is
 * our own.
 */
#include "comm/pattern/blocks.h"

#include "base/check.h"
#include "comm/pattern/cost.h"

enum { LIST_IN, LIST_REMOTE, LIST_OWN, LIST_PASS, LIST_TAKE };
enum { CHANNEL_IN, CHANNEL_REMOTE, CHANNEL_OUT, CHANNEL_PASS };
enum { DEPTH = 4, DEPTH_IN = 8 };

static bool supports(const wefti_problem *problem)
{
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
    case WEFT_COLLECTIVE_REDUCESCATTER:
    case WEFT_COLLECTIVE_REDUCESCATTERV:
        return wefti_problem_has_levels(problem);
    case WEFT_COLLECTIVE_ALLGATHERV: /* an agent of a chunk behind the end
                                        would not see the end */
        return problem->grouping != NULL && !problem->deferred;
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_BROADCAST:
        return problem->grouping != NULL;
    default:
        return false;
    }
}

static bool supports_nested(const wefti_problem *problem)
{
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_BROADCAST:
        return problem->nest != NULL;
    case WEFT_COLLECTIVE_ALLGATHERV:
        return problem->nest != NULL && !problem->deferred;
    default:
        return false;
    }
}

static bool supports_nested_sums(const wefti_problem *problem)
{
    return wefti_shape_get(problem->collective)->reduces && problem->nest &&
           problem->nest->sums && !problem->flat && !problem->deferred;
}

/* The levels that sums go through; NULL also where there are none to make. */
static const wefti_nest *sums_of(const wefti_problem *problem)
{
    return wefti_shape_get(problem->collective)->reduces
               ? wefti_problem_sums(problem)
               : NULL;
}

/* What enters the sums goes to a rank of the host, or of a group inside;
 * results go to one of each group. */
static wefti_block_level level_of(const wefti_problem *problem, int list)
{
    bool up = list == LIST_IN || list == LIST_REMOTE;
    return list == LIST_PASS || list == LIST_TAKE ? WEFTI_BLOCKS_SPREAD
           : up && sums_of(problem)               ? WEFTI_BLOCKS_INPUTS
                                                  : WEFTI_BLOCKS_SUMS;
}

/* Whether owners take all inputs themselves, as sums have no levels. */
static bool sums_straight(const wefti_blocks *v)
{
    return !wefti_problem_has_levels(v->problem) && !sums_of(v->problem);
}

/* What a list goes through, and in how many steps each. */
static wefti_block_list list_of(const wefti_blocks *v, int list,
                                size_t *steps_out)
{
    bool shares = v->ranks > 1; /* the host has someone to pass results to */
    switch (list) {
    case LIST_IN:
        *steps_out = v->shape->reduces;
        return WEFTI_BLOCKS_OTHERS;
    case LIST_REMOTE:
        *steps_out = v->shape->reduces && !sums_straight(v);
        return WEFTI_BLOCKS_HANDLED;
    case LIST_OWN: /* REDUCE or COPY, SEND */
        *steps_out = 1 + (v->gathers && (shares || !v->twin));
        return v->twin ? WEFTI_BLOCKS_HANDLED : WEFTI_BLOCKS_OWN;
    case LIST_PASS: /* RECV, SEND */
        *steps_out = v->gathers && !v->twin ? 1 + shares : 0;
        return WEFTI_BLOCKS_REMOTE;
    default:
        *steps_out = v->gathers;
        return WEFTI_BLOCKS_OTHERS;
    }
}

static size_t step_count(const wefti_problem *problem, int list)
{
    size_t steps;
    wefti_blocks v = wefti_blocks_of(problem, level_of(problem, list));
    wefti_block_list which = list_of(&v, list, &steps);
    return steps ? steps * wefti_blocks_count(&v, which) : 0;
}

/* A step with the block's place in both buffers. */
static wefti_step place_block(const wefti_blocks *v, const wefti_block *at)
{
    wefti_part place = wefti_blocks_place(v, at);
    size_t src = place.begin, dst = place.begin;
    if (v->shape->send_parts) {
        src += wefti_part_to(v->problem, at->owner).begin;
    }
    if (v->shape->recv_parts) {
        dst += wefti_part_from(v->problem, at->owner).begin;
    }
    return (wefti_step){.owner = at->owner,
                        .round = at->round,
                        .src_elem = src,
                        .dst_elem = dst,
                        .elems = place.elems};
}

static void set_send(wefti_step *step, wefti_buffer src, int peer, int channel)
{
    step->kind = WEFTI_STEP_SEND;
    step->src = src;
    step->src_elem = src == WEFTI_BUFFER_RECV ? step->dst_elem : step->src_elem;
    step->dst_elem = 0;
    step->peer = peer;
    step->channel = channel;
}

static void set_recv(wefti_step *step, int peer, int channel)
{
    step->kind = WEFTI_STEP_RECV;
    step->dst = WEFTI_BUFFER_RECV;
    step->src_elem = 0;
    step->peer = peer;
    step->channel = channel;
}

static void set_relay(const wefti_blocks *v, wefti_step *step)
{
    const wefti_nest *sums = sums_of(v->problem);
    step->kind = WEFTI_STEP_RELAY;
    step->src = WEFTI_BUFFER_SEND;
    step->dst_elem = 0;
    step->peer = v->twin ? WEFTI_AGENT_PEERS : step->owner;
    step->channel = CHANNEL_IN;
    step->to_channel = CHANNEL_REMOTE;
    if (sums && !wefti_nest_ends_sum(sums, v->problem->rank, step->owner,
                                     step->round)) {
        step->peer =
            wefti_nest_parent(sums, v->problem->rank, step->owner, step->round);
        step->wide = true;
    }
}

static void set_reduce(const wefti_blocks *v, wefti_step *step)
{
    if (sums_of(v->problem) && !wefti_problem_has_levels(v->problem)) {
        set_recv(step, step->owner, CHANNEL_REMOTE);
        return;
    }
    step->kind = WEFTI_STEP_REDUCE;
    if (sums_straight(v)) {
        step->src = WEFTI_BUFFER_SEND;
        step->peer = WEFTI_ALL_PEERS;
        step->channel = CHANNEL_IN;
    } else {
        step->src_elem = 0;
        step->peer = WEFTI_AGENT_PEERS;
        step->channel = CHANNEL_REMOTE;
    }
}

/* All that take an own block from here. */
static int takers_of(const wefti_blocks *v)
{
    return v->problem->nest ? WEFTI_CHILD_PEERS
           : v->twin        ? WEFTI_LOCAL_PEERS
                            : WEFTI_SPREAD_PEERS;
}

/* Finishes an own block, or sends this rank's data: SEND comes first then. */
static void set_own(const wefti_blocks *v, bool second, wefti_step *step)
{
    bool sends = v->shape->reduces ? second : !second;
    if (sends) {
        set_send(step,
                 v->shape->reduces ? WEFTI_BUFFER_RECV : WEFTI_BUFFER_SEND,
                 takers_of(v), CHANNEL_OUT);
        return;
    }
    step->dst = WEFTI_BUFFER_RECV;
    if (v->shape->reduces) {
        set_reduce(v, step);
    } else {
        step->kind = WEFTI_STEP_COPY;
        step->src = WEFTI_BUFFER_SEND;
        step->peer = v->problem->rank;
    }
}

static int host_agent(const wefti_problem *problem, const wefti_block *at)
{
    const wefti_grouping *grouping = problem->grouping;
    WEFTI_ASSERT(!sums_of(problem));
    return wefti_grouping_agent(grouping, grouping->hosts[problem->rank],
                                at->owner, at->round);
}

/* The rank that this one gives its input to. */
static int adder_of(const wefti_blocks *v, const wefti_block *at)
{
    const wefti_nest *sums = sums_of(v->problem);
    return sums
               ? wefti_nest_parent(sums, v->problem->rank, at->owner, at->round)
           : sums_straight(v) ? at->owner
                              : host_agent(v->problem, at);
}

/* The rank from which this one takes a block: its owner, the agent of its host,
 * or of a level further in. */
static int source_of(const wefti_blocks *v, const wefti_block *at, bool handled)
{
    if (v->problem->nest) {
        return wefti_nest_parent(v->problem->nest, v->problem->rank, at->owner,
                                 at->round);
    }
    return handled ? at->owner : host_agent(v->problem, at);
}

static void set_take(const wefti_blocks *v, const wefti_block *at, bool handled,
                     wefti_step *step)
{
    int source = source_of(v, at, handled);
    set_recv(step, source,
             v->twin || source == at->owner ? CHANNEL_OUT : CHANNEL_PASS);
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    size_t steps;
    wefti_blocks v = wefti_blocks_of(problem, level_of(problem, list));
    wefti_block_list which = list_of(&v, list, &steps);
    WEFTI_ASSERT(steps > 0 && index / steps < wefti_blocks_count(&v, which));
    wefti_block at = wefti_blocks_at(&v, which, index / steps);
    bool second = index % steps == 1;

    *step_out = place_block(&v, &at);
    switch (list) {
    case LIST_IN:
        set_send(step_out, WEFTI_BUFFER_SEND, adder_of(&v, &at), CHANNEL_IN);
        break;
    case LIST_REMOTE:
        set_relay(&v, step_out);
        break;
    case LIST_OWN:
        set_own(&v, second, step_out);
        break;
    case LIST_PASS:
        if (second) {
            set_send(step_out, WEFTI_BUFFER_RECV,
                     problem->nest ? WEFTI_CHILD_PEERS : WEFTI_LOCAL_PEERS,
                     CHANNEL_PASS);
        } else {
            set_take(&v, &at, true, step_out);
        }
        break;
    default:
        set_take(&v, &at, false, step_out);
        break;
    }
}

static int slots(const wefti_problem *problem, int channel)
{
    static const int lists[WEFTI_CHANNELS] = {LIST_IN, LIST_REMOTE, LIST_OWN,
                                              LIST_PASS};
    size_t steps, depth = DEPTH;
    wefti_blocks v =
        wefti_blocks_of(problem, level_of(problem, lists[channel]));
    wefti_block_list which = list_of(&v, lists[channel], &steps);
    bool sends = channel == CHANNEL_IN || channel == CHANNEL_REMOTE
                     ? steps == 1
                     : steps == 2;
    if (!sends) {
        return 0;
    }
    if (channel == CHANNEL_IN && sums_straight(&v)) {
        depth = 2 * (v.ranks - 1); /* two rounds */
    } else if (channel <= CHANNEL_REMOTE && sums_of(problem) &&
               !wefti_problem_has_levels(problem)) {
        /* With OUT and PASS as many as comm/core/select.c cuts chunks for. */
        depth = 2 * (size_t)problem->nranks - DEPTH;
        depth = depth < DEPTH_IN ? depth : DEPTH_IN;
    } else if (channel == CHANNEL_IN) {
        depth = v.ranks < DEPTH_IN / 2 ? 2 * v.ranks : DEPTH_IN;
    } else if (channel == CHANNEL_REMOTE) { /* two rounds */
        depth = 2 * (v.remotes / v.ranks + (v.remotes % v.ranks != 0) + 1);
    }
    return wefti_slots_at_most(wefti_blocks_count(&v, which), depth);
}

const wefti_pattern wefti_pattern_hierarchical = {.name = "hierarchical",
                                                  .supports = supports,
                                                  .step_count = step_count,
                                                  .step_at = step_at,
                                                  .slots = slots,
                                                  .cost =
                                                      wefti_hierarchical_cost};

const wefti_pattern wefti_pattern_nested = {.name = "nested",
                                            .supports = supports_nested,
                                            .step_count = step_count,
                                            .step_at = step_at,
                                            .slots = slots,
                                            .cost = wefti_nested_cost};

const wefti_pattern wefti_pattern_nested_sums = {.name = "nested_sums",
                                                 .supports =
                                                     supports_nested_sums,
                                                 .step_count = step_count,
                                                 .step_at = step_at,
                                                 .slots = slots,
                                                 .cost = wefti_nested_cost};
