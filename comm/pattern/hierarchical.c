/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/hierarchical.c - two levels: ranks of a host share memory, and
 * each byte crosses the network as seldom as can be.
 *
 * The result is cut into blocks. A block has an owner, the rank that finishes
 * it (or whose data it is), and on each host an agent, the only rank there that
 * sends or receives it over the network. On the owner's host that is the owner;
 * elsewhere blocks are dealt out over the host's ranks.
 *
 *       host A              network            host B
 *      0 --IN--> 1 agent ----REMOTE----> 2 owner <--IN-- 3      sums
 *      0 <-PASS- 1 agent <-----OUT------ 2 owner --OUT-> 3      results
 *
 *      track IN       SEND own input of a block to the host's agent
 *      track REMOTE   RELAY the host's sum of a block to its owner
 *      track OWN      FOLD the hosts' sums of an own block; SEND the result
 *      track PASS     RECV a block from its owner, SEND it to the host
 *      track TAKE     RECV a block from the host's agent
 *
 * Reductions have the first three tracks, gathers the last three (OWN then
 * sends its input), all-reduce has all. Between two hosts an all-reduce needs
 * no owner: both agents send each other their sums and finish the block, so
 * that bytes are as few and hops one less.
 *
 * A round is one block of each owner. The ranks of a host go through a round in
 * one order: blocks of other hosts first where sums are under way (the network
 * is the slower one), own ones first where data are only spread. Between two
 * hosts without owners the order is the same on both: messages of a pair are
 * read as they were sent.
 *
 * Nobody can starve: take the earliest round in which a message is missing. All
 * of earlier rounds have been read, and REMOTE has a slot for each message of a
 * round, so every RELAY of the round can be staged once its sources are there.
 * Of what moves inside a host take the first block in the host's order: all
 * that came before has been read, so it has a slot.
 *
 * In place is safe: a block is written on a rank after that rank's input to it
 * has been staged, as the sum holds it.
 *
 * Source: the two-level all-reduce of Cho et al. 2019 (BlueConnect, section 3)
 * and Luo et al. 2020 (HAN, section III); dealing blocks over a host's ranks is
 * our own.
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/shape.h"

enum { TRACK_IN, TRACK_REMOTE, TRACK_OWN, TRACK_PASS, TRACK_TAKE };
enum { CHANNEL_IN, CHANNEL_REMOTE, CHANNEL_OUT, CHANNEL_PASS };
enum { DEPTH = 4, DEPTH_IN = 8, UNIT_ELEMS = 16 };

/* The problem as this rank stands in it. */
typedef struct view {
    const wefti_problem *problem;
    const wefti_grouping *grouping;
    const wefti_shape *shape;
    int host;
    size_t ranks;   /* of this host */
    size_t local;   /* this rank's place on it */
    size_t remotes; /* ranks of other hosts */
    bool gathers;   /* results go to all; else sums to their owners only */
    bool twin;      /* two agents finish each block: there is no owner */
    int sole;       /* the only owner; -1: every rank is one */
    size_t rounds;
    size_t blocks; /* of one run of elements */
    size_t unit;
} view;

typedef struct block {
    int owner;
    size_t round;
} block;

/* Cuts count elements into the same number of nearly equal blocks for each of
 * `parts` owners; none is empty. */
static bool cut(view *v, size_t count, size_t parts)
{
    size_t chunk = v->problem->chunk_elems;
    v->unit = chunk >= 4 * UNIT_ELEMS && count / (4 * UNIT_ELEMS) >= parts
                  ? UNIT_ELEMS
                  : 1;
    size_t units = count / v->unit + (count % v->unit != 0);
    size_t most = chunk / v->unit; /* at least 1 */
    size_t blocks = units / most + (units % most != 0);
    v->rounds = blocks / parts + (blocks % parts != 0);
    v->blocks = v->rounds * parts;
    return v->blocks <= units;
}

static view view_of(const wefti_problem *problem)
{
    const wefti_grouping *grouping = problem->grouping;
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    int host = grouping->hosts[problem->rank];
    view v = {.problem = problem,
              .grouping = grouping,
              .shape = shape,
              .host = host,
              .ranks = (size_t)wefti_grouping_ranks(grouping, host),
              .local = (size_t)(grouping->places[problem->rank] -
                                grouping->begins[host]),
              .sole = shape->rooted ? problem->root : -1};
    v.remotes = (size_t)problem->nranks - v.ranks;
    v.gathers =
        !shape->reduces || problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    v.twin = shape->reduces && v.gathers && grouping->host_count == 2;
    bool dealt = problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    if (!cut(&v, problem->count, dealt ? (size_t)problem->nranks : 1)) {
        v.sole = 0; /* too few for each rank to own some */
        cut(&v, problem->count, 1);
    }
    return v;
}

/* ---- who handles what ------------------------------------------------------
 */

/* The lowest distance whose owner this rank is agent of in a round; from there
 * on it is each ranks-th. */
static size_t first_distance(const view *v, size_t round)
{
    return (v->local + v->ranks - round % v->ranks) % v->ranks;
}

/* How many of [0, end) lie in the circle's run of `run` that ends at local. */
static size_t count_in_run(const view *v, size_t run, size_t end)
{
    size_t below = v->local + 1 < end ? v->local + 1 : end;
    if (run <= v->local + 1) {
        size_t begin = v->local + 1 - run;
        return below > begin ? below - begin : 0;
    }
    size_t begin = v->ranks - (run - v->local - 1);
    return below + (end > begin ? end - begin : 0);
}

/* Owners nearer than distance whose agent this rank is, over all rounds before
 * `rounds`. */
static size_t count_nearer(const view *v, size_t rounds, size_t distance)
{
    size_t turns = rounds / v->ranks, rest = rounds % v->ranks;
    size_t cycles = distance / v->ranks, part = distance % v->ranks;
    return distance * turns + cycles * rest + count_in_run(v, rest, part);
}

static size_t count_remote(const view *v, size_t rounds)
{
    if (v->sole < 0) {
        return count_nearer(v, rounds, v->remotes);
    }
    if (v->grouping->hosts[v->sole] == v->host) {
        return 0;
    }
    size_t distance =
        (size_t)wefti_grouping_distance(v->grouping, v->host, v->sole);
    return count_nearer(v, rounds, distance + 1) -
           count_nearer(v, rounds, distance);
}

static bool owns(const view *v)
{
    return v->sole < 0 || v->sole == v->problem->rank;
}

typedef enum list {
    LIST_OWN,     /* blocks of this rank's */
    LIST_REMOTE,  /* of owners elsewhere, whose agent this rank is */
    LIST_HANDLED, /* both */
    LIST_OTHERS   /* the rest: another rank of this host is the agent */
} list;

/* Blocks of all rounds before `rounds`. */
static size_t count_list(const view *v, list which, size_t rounds)
{
    size_t own = owns(v) * rounds, remote = count_remote(v, rounds);
    size_t owners = v->sole >= 0 ? 1 : (size_t)v->problem->nranks;
    switch (which) {
    case LIST_OWN:
        return own;
    case LIST_REMOTE:
        return remote;
    case LIST_HANDLED:
        return own + remote;
    default:
        return owners * rounds - own - remote;
    }
}

/* The round that a list's block is in: as many rounds as the host has ranks are
 * the same again. */
static size_t find_round(const view *v, list which, size_t index)
{
    size_t period = count_list(v, which, v->ranks);
    size_t least = period / v->ranks; /* of a round; most is one more */
    size_t first = index / period * v->ranks, left = index % period;
    size_t low = first + left / (least + 1);
    size_t high = first + (least && left / least < v->ranks ? left / least + 1
                                                            : v->ranks);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (count_list(v, which, middle) <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static int rank_at_distance(const view *v, size_t distance)
{
    size_t nranks = (size_t)v->problem->nranks;
    size_t place = (size_t)v->grouping->begins[v->host + 1] + distance;
    return v->grouping->members[place % nranks];
}

/* Owner number i of the remote ones, handled by this rank or by others. */
static int remote_at(const view *v, list which, size_t round, size_t i)
{
    size_t skipped = first_distance(v, round);
    if (v->sole >= 0) {
        return v->sole;
    }
    if (which != LIST_OTHERS) {
        return rank_at_distance(v, skipped + i * v->ranks);
    }
    size_t turn = i / (v->ranks - 1), at = i % (v->ranks - 1);
    return rank_at_distance(v, turn * v->ranks + at + (at >= skipped));
}

/* Owner number i of this host's. */
static int local_at(const view *v, list which, size_t i)
{
    if (which != LIST_OTHERS || v->sole >= 0) {
        return which == LIST_OTHERS ? v->sole : v->problem->rank;
    }
    size_t place = (size_t)v->grouping->begins[v->host] + i + (i >= v->local);
    return v->grouping->members[place];
}

/* This host's owners among those of a round of the list. */
static size_t count_locals(const view *v, list which)
{
    if (which != LIST_OTHERS) {
        return which != LIST_REMOTE && owns(v);
    }
    return v->sole < 0 ? v->ranks - 1
                       : v->grouping->hosts[v->sole] == v->host && !owns(v);
}

static block block_at(const view *v, list which, size_t index)
{
    block at = {.round = find_round(v, which, index)};
    size_t before = count_list(v, which, at.round);
    size_t here = count_list(v, which, at.round + 1) - before;
    size_t locals = count_locals(v, which), remotes = here - locals;
    bool locals_first = v->twin ? v->host == 0 : !v->shape->reduces;
    size_t first = locals_first ? locals : remotes;
    size_t i = index - before;
    bool is_local = locals_first == (i < first);
    i -= i < first ? 0 : first;
    at.owner =
        is_local ? local_at(v, which, i) : remote_at(v, which, at.round, i);
    return at;
}

/* ---- steps -----------------------------------------------------------------
 */

static bool supports(const wefti_problem *problem)
{
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return wefti_problem_has_levels(problem);
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_BROADCAST:
        return problem->grouping != NULL;
    default:
        return false;
    }
}

/* What a track goes through, and in how many steps each. */
static list list_of(const view *v, int track, size_t *steps_out)
{
    bool shares = v->ranks > 1; /* the host has someone to pass results to */
    switch (track) {
    case TRACK_IN:
        *steps_out = v->shape->reduces;
        return LIST_OTHERS;
    case TRACK_REMOTE:
        *steps_out = v->shape->reduces;
        return LIST_HANDLED;
    case TRACK_OWN: /* FOLD or COPY, SEND */
        *steps_out = 1 + (v->gathers && (shares || !v->twin));
        return v->twin ? LIST_HANDLED : LIST_OWN;
    case TRACK_PASS: /* RECV, SEND */
        *steps_out = v->gathers && !v->twin ? 1 + shares : 0;
        return LIST_REMOTE;
    default:
        *steps_out = v->gathers;
        return LIST_OTHERS;
    }
}

static size_t step_count(const wefti_problem *problem, int track)
{
    size_t steps;
    if (problem->count == 0) {
        return 0;
    }
    view v = view_of(problem);
    list which = list_of(&v, track, &steps);
    return steps ? steps * count_list(&v, which, v.rounds) : 0;
}

/* A step with the block's place in both buffers. */
static wefti_step place_block(const view *v, const block *at)
{
    size_t begin, number = at->round, owners = v->blocks / v->rounds;
    number = number * owners + (owners > 1 ? (size_t)at->owner : 0);
    size_t elems =
        wefti_deal(v->problem->count, v->unit, v->blocks, number, &begin);
    size_t part = (size_t)at->owner * v->problem->count;
    return (wefti_step){.owner = at->owner,
                        .round = at->round,
                        .src_elem = begin + (v->shape->send_parts ? part : 0),
                        .dst_elem = begin + (v->shape->recv_parts ? part : 0),
                        .elems = elems};
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

static void set_relay(const view *v, wefti_step *step)
{
    step->kind = WEFTI_STEP_RELAY;
    step->src = WEFTI_BUFFER_SEND;
    step->dst_elem = 0;
    step->peer = v->twin ? WEFTI_AGENT_PEERS : step->owner;
    step->channel = CHANNEL_IN;
    step->to_channel = CHANNEL_REMOTE;
}

/* Finishes an own block, or sends this rank's data: SEND comes first then. */
static void set_own(const view *v, bool second, wefti_step *step)
{
    bool sends = v->shape->reduces ? second : !second;
    if (sends) {
        set_send(step,
                 v->shape->reduces ? WEFTI_BUFFER_RECV : WEFTI_BUFFER_SEND,
                 v->twin ? WEFTI_LOCAL_PEERS : WEFTI_SPREAD_PEERS, CHANNEL_OUT);
        return;
    }
    step->dst = WEFTI_BUFFER_RECV;
    if (v->shape->reduces) {
        step->kind = WEFTI_STEP_FOLD;
        step->src_elem = 0;
        step->peer = WEFTI_AGENT_PEERS;
        step->channel = CHANNEL_REMOTE;
    } else {
        step->kind = WEFTI_STEP_COPY;
        step->src = WEFTI_BUFFER_SEND;
        step->peer = v->problem->rank;
    }
}

static void step_at(const wefti_problem *problem, int track, size_t index,
                    wefti_step *step_out)
{
    size_t steps;
    view v = view_of(problem);
    list which = list_of(&v, track, &steps);
    WEFTI_ASSERT(steps > 0 && index / steps < count_list(&v, which, v.rounds));
    block at = block_at(&v, which, index / steps);
    int agent = wefti_grouping_agent(v.grouping, v.host, at.owner, at.round);
    bool second = index % steps == 1;
    bool finished_here = v.twin || v.grouping->hosts[at.owner] == v.host;

    *step_out = place_block(&v, &at);
    switch (track) {
    case TRACK_IN:
        set_send(step_out, WEFTI_BUFFER_SEND, agent, CHANNEL_IN);
        break;
    case TRACK_REMOTE:
        set_relay(&v, step_out);
        break;
    case TRACK_OWN:
        set_own(&v, second, step_out);
        break;
    case TRACK_PASS:
        if (second) {
            set_send(step_out, WEFTI_BUFFER_RECV, WEFTI_LOCAL_PEERS,
                     CHANNEL_PASS);
        } else {
            set_recv(step_out, at.owner, CHANNEL_OUT);
        }
        break;
    default:
        set_recv(step_out, agent, finished_here ? CHANNEL_OUT : CHANNEL_PASS);
        break;
    }
}

static int at_most(size_t messages, size_t depth)
{
    return (int)(messages < depth ? messages : depth);
}

static int slots(const wefti_problem *problem, int channel)
{
    static const int tracks[WEFTI_CHANNELS] = {TRACK_IN, TRACK_REMOTE,
                                               TRACK_OWN, TRACK_PASS};
    size_t steps, depth = DEPTH;
    if (problem->count == 0) {
        return 0;
    }
    view v = view_of(problem);
    list which = list_of(&v, tracks[channel], &steps);
    bool sends = channel == CHANNEL_IN || channel == CHANNEL_REMOTE
                     ? steps == 1
                     : steps == 2;
    if (!sends) {
        return 0;
    }
    if (channel == CHANNEL_IN) {
        depth = v.ranks < DEPTH_IN / 2 ? 2 * v.ranks : DEPTH_IN;
    } else if (channel == CHANNEL_REMOTE) { /* two rounds */
        depth = 2 * (v.remotes / v.ranks + (v.remotes % v.ranks != 0) + 1);
    }
    return at_most(count_list(&v, which, v.rounds), depth);
}

const wefti_pattern wefti_pattern_hierarchical = {.name = "hierarchical",
                                                  .supports = supports,
                                                  .step_count = step_count,
                                                  .step_at = step_at,
                                                  .slots = slots,
                                                  .cost =
                                                      wefti_hierarchical_cost};
