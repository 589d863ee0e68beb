/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/two_hop.c - all-to-all on several hosts: first inside the host,
 * then one message from each host to each rank of the others.
 *
 * What the ranks of a host have for a rank of another host is gathered by one
 * of them, that rank's agent (wefti_grouping_agent), and sent as one message:
 *
 *      host A                                              host B
 *      0 agent of 2   COPY \                             / COPY  from 0
 *                           > scratch --OUT--> 2 scratch
 *      1              --IN-/                             \ COPY  from 1
 *
 * so that g ranks of a host send each rank of another host one message, not g.
 * Bytes are as many as by pairs; messages, which cost a sender and a receiver
 * much more than a small part's bytes, are a g-th.
 *
 *      list IN         SEND own parts to the agents of their ranks   channel 0
 *      list OUT        as agent: COPY own part, RECV the host's,
 *                       SEND them all to their rank                   channel 1
 *      list TAKE       RECV of other hosts, COPY to their places
 *      list LOCAL_OUT  SEND round by round inside the host           channel 2
 *      list LOCAL_IN   COPY own, RECV round by round
 *
 * A message has the same run of elements of each of `width` sources, one after
 * the other: of all the host's, unless a chunk has fewer elements than the host
 * ranks. A host of one rank sends from its buffer, what a message has of one
 * source is received where it belongs, without scratch.
 *
 * No rank can starve, with one slot a channel: order what an agent sends by how
 * many hosts it goes on, then by the receiver's place, round and sources.
 * Agents send, receivers read and sources stage in that order. Take the first
 * message between hosts that has not been read: its agent has a slot, as all it
 * sent before has been read; its sources' parts are staged, as all that they
 * staged before has been read; its reader waits for it.
 *
 * Source: Bruck et al. 1997 (fewer messages for more hops); Kumar, Mamidala,
 * Panda 2008 (all-to-all on multi-core nodes).
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/host_view.h"
#include "comm/pattern/parts.h"
#include "comm/pattern/relay.h"
#include "comm/pattern/shape.h"

enum { LIST_IN, LIST_OUT, LIST_TAKE, LIST_LOCAL_OUT, LIST_LOCAL_IN };
enum { CHANNEL_IN, CHANNEL_OUT, CHANNEL_LOCAL };
enum { DEPTH_IN = 8, DEPTH_LOCAL = 4 };

typedef wefti_host_view view;

/*
 * How one host's parts for one rank are cut into messages. Of each round there
 * are `groups` messages, of width sources each, the last perhaps of fewer.
 */
typedef struct bundle {
    size_t sources, width, groups;
    size_t elems, rounds; /* most of a source in one message; how often */
} bundle;

static bundle bundle_of(const wefti_problem *problem, int host)
{
    bundle b = {.sources =
                    (size_t)wefti_grouping_ranks(problem->grouping, host)};
    size_t chunk = problem->chunk_elems;
    b.width = b.sources < chunk ? b.sources : chunk;
    b.groups = (b.sources - 1) / b.width + 1;
    b.elems = chunk / b.width;
    b.rounds = problem->count / b.elems + (problem->count % b.elems != 0);
    return b;
}

/* The rank that is `further` behind this one, going round on the host. */
static int rank_on_host(const view *v, size_t further)
{
    size_t place = (v->local + further) % v->ranks;
    return v->grouping->members[(size_t)v->grouping->begins[v->host] + place];
}

/* Elements of a part in one round, and where they begin there. */
static size_t cut(size_t count, size_t most, size_t round, size_t *begin_out)
{
    *begin_out = round * most;
    size_t left = count - *begin_out;
    return left < most ? left : most;
}

/* A step that moves a round of what peer gets from, or sends to, this rank. */
static wefti_step part_step(const view *v, wefti_step_kind kind, int peer,
                            size_t most, size_t round)
{
    size_t begin;
    size_t elems = cut(v->problem->count, most, round, &begin);
    begin += (size_t)peer * v->problem->count;
    bool takes = kind == WEFTI_STEP_RECV;
    bool gives = kind == WEFTI_STEP_SEND;
    return (wefti_step){.kind = kind,
                        .src = takes ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_SEND,
                        .dst = gives ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_RECV,
                        .peer = peer,
                        .src_elem = takes ? 0 : begin,
                        .dst_elem = gives ? 0 : begin,
                        .elems = elems};
}

static bool is_varied(const wefti_problem *problem)
{
    return wefti_shape_get(problem->collective)->varied;
}

/* With counts: comm/pattern/relay.h. */
static bool supports(const wefti_problem *problem)
{
    return problem->grouping != NULL &&
           (problem->collective == WEFT_COLLECTIVE_ALLTOALL ||
            (problem->collective == WEFT_COLLECTIVE_ALLTOALLV &&
             !problem->deferred && !problem->gated &&
             problem->nranks <= WEFTI_RELAY_RANKS));
}

/* ---- IN, OUT --------------------------------------------------------------
 */

/* Own part number i for a rank whose agent is another rank of this host. */
static wefti_step in_step(const view *v, size_t index)
{
    bundle b = bundle_of(v->problem, v->host);
    size_t i = index / b.rounds, others = v->ranks - 1;
    size_t place = i % others;
    size_t distance =
        i / others * v->ranks + place + (place >= v->local ? 1 : 0);
    int to = wefti_host_view_remote(v, distance);
    wefti_step step =
        part_step(v, WEFTI_STEP_SEND, to, b.elems, index % b.rounds);
    step.peer = wefti_grouping_agent(v->grouping, v->host, to, 0);
    step.channel = CHANNEL_IN;
    return step;
}

static size_t out_steps(const bundle *b)
{
    return b->rounds * (b->sources > 1 ? b->sources + b->groups : 1);
}

/* One source's run into scratch. */
static wefti_step gather_step(const view *v, const bundle *b, int to,
                              size_t round, size_t source)
{
    int from =
        v->grouping->members[(size_t)v->grouping->begins[v->host] + source];
    bool own = source == v->local;
    wefti_step step = part_step(v, own ? WEFTI_STEP_COPY : WEFTI_STEP_RECV, to,
                                b->elems, round);
    step.peer = from;
    step.dst = WEFTI_BUFFER_SCRATCH;
    step.dst_elem = source % b->width * step.elems;
    step.channel = CHANNEL_IN;
    return step;
}

static wefti_step out_step(const view *v, size_t index)
{
    bundle b = bundle_of(v->problem, v->host);
    size_t steps = out_steps(&b), i = index % steps;
    int to = wefti_host_view_remote(v, v->local + index / steps * v->ranks);
    size_t per_round = steps / b.rounds, round = i / per_round;
    size_t group = i % per_round / (b.width + 1);
    size_t at = i % per_round % (b.width + 1);
    size_t first = group * b.width;
    size_t width = b.sources - first < b.width ? b.sources - first : b.width;
    if (b.sources > 1 && at < width) {
        return gather_step(v, &b, to, round, first + at);
    }
    wefti_step step = part_step(v, WEFTI_STEP_SEND, to, b.elems, round);
    step.channel = CHANNEL_OUT;
    if (b.sources > 1) {
        step.src = WEFTI_BUFFER_SCRATCH;
        step.src_elem = 0;
        step.elems *= width;
    }
    return step;
}

/* ---- TAKE ------------------------------------------------------------------
 */

static size_t take_steps(const bundle *b)
{
    return b->rounds * (b->width > 1 ? b->sources + b->groups : b->sources);
}

static size_t count_takes(const view *v)
{
    size_t steps = 0;
    for (int back = 1; back < v->grouping->host_count; back++) {
        bundle b = bundle_of(v->problem, wefti_host_view_before(v, back));
        steps += take_steps(&b);
    }
    return steps;
}

/* Step number i of what comes from one host. */
static wefti_step take_from(const view *v, const bundle *b, int host, size_t i)
{
    const int *members = v->grouping->members + v->grouping->begins[host];
    int agent = wefti_grouping_agent(v->grouping, host, v->problem->rank, 0);
    size_t per_round = take_steps(b) / b->rounds, round = i / per_round;
    size_t in_round = i % per_round;
    if (b->width == 1) {
        wefti_step step =
            part_step(v, WEFTI_STEP_RECV, members[in_round], b->elems, round);
        step.peer = agent;
        step.channel = CHANNEL_OUT;
        return step;
    }
    size_t first = in_round / (b->width + 1) * b->width;
    size_t at = in_round % (b->width + 1);
    size_t width =
        b->sources - first < b->width ? b->sources - first : b->width;
    wefti_step step =
        part_step(v, at == 0 ? WEFTI_STEP_RECV : WEFTI_STEP_COPY,
                  members[first + (at ? at - 1 : 0)], b->elems, round);
    if (at == 0) {
        step.peer = agent;
        step.channel = CHANNEL_OUT;
        step.dst = WEFTI_BUFFER_SCRATCH;
        step.dst_elem = 0;
        step.elems *= width;
    } else {
        step.peer = v->problem->rank;
        step.src = WEFTI_BUFFER_SCRATCH;
        step.src_elem = (at - 1) * step.elems;
    }
    return step;
}

static wefti_step take_step(const view *v, size_t index)
{
    const wefti_grouping *grouping = v->grouping;
    bool equal = grouping->least_ranks * grouping->host_count ==
                 grouping->nranks; /* then each host sends as much */
    int back = 1;
    bundle b = bundle_of(v->problem, wefti_host_view_before(v, back));
    if (equal) {
        back += (int)(index / take_steps(&b));
        return take_from(v, &b, wefti_host_view_before(v, back),
                         index % take_steps(&b));
    }
    while (index >= take_steps(&b)) {
        index -= take_steps(&b);
        back++;
        WEFTI_ASSERT(back < grouping->host_count);
        b = bundle_of(v->problem, wefti_host_view_before(v, back));
    }
    return take_from(v, &b, wefti_host_view_before(v, back), index);
}

/* ---- inside the host -------------------------------------------------------
 */

static wefti_step local_out_step(const view *v, size_t index)
{
    size_t others = v->ranks - 1;
    wefti_step step =
        part_step(v, WEFTI_STEP_SEND, rank_on_host(v, 1 + index % others),
                  v->problem->chunk_elems, index / others);
    step.channel = CHANNEL_LOCAL;
    return step;
}

static wefti_step local_in_step(const view *v, size_t index)
{
    size_t others = v->ranks - 1,
           own = wefti_part_chunks(v->problem, v->problem->count);
    bool copies = index < own;
    size_t i = copies ? index : index - own;
    int from =
        copies ? v->problem->rank : rank_on_host(v, v->ranks - 1 - i % others);
    wefti_step step =
        part_step(v, copies ? WEFTI_STEP_COPY : WEFTI_STEP_RECV, from,
                  v->problem->chunk_elems, copies ? i : i / others);
    step.channel = CHANNEL_LOCAL;
    return step;
}

/* ---- the pattern -----------------------------------------------------------
 */

static size_t step_count(const wefti_problem *problem, int list)
{
    if (is_varied(problem)) {
        return wefti_relay_step_count(problem, list);
    }
    view v = wefti_host_view_of(problem);
    bundle b = bundle_of(problem, v.host);
    size_t chunks = wefti_part_chunks(problem, problem->count);
    switch (list) {
    case LIST_IN:
        return (v.remotes - v.handled) * b.rounds;
    case LIST_OUT:
        return v.handled * out_steps(&b);
    case LIST_TAKE:
        return count_takes(&v);
    case LIST_LOCAL_OUT:
        return (v.ranks - 1) * chunks;
    default:
        return v.ranks * chunks;
    }
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    if (is_varied(problem)) {
        wefti_relay_step_at(problem, list, index, step_out);
        return;
    }
    view v = wefti_host_view_of(problem);
    WEFTI_ASSERT(index < step_count(problem, list));
    switch (list) {
    case LIST_IN:
        *step_out = in_step(&v, index);
        break;
    case LIST_OUT:
        *step_out = out_step(&v, index);
        break;
    case LIST_TAKE:
        *step_out = take_step(&v, index);
        break;
    case LIST_LOCAL_OUT:
        *step_out = local_out_step(&v, index);
        break;
    default:
        *step_out = local_in_step(&v, index);
        break;
    }
}

static int slots(const wefti_problem *problem, int channel)
{
    if (is_varied(problem)) {
        return wefti_relay_slots(problem, channel);
    }
    view v = wefti_host_view_of(problem);
    bundle b = bundle_of(problem, v.host);
    switch (channel) {
    case CHANNEL_IN:
        return wefti_slots_at_most((v.remotes - v.handled) * b.rounds,
                                   DEPTH_IN);
    case CHANNEL_OUT: /* two for each rank that this one is the agent of */
        return wefti_slots_at_most(v.handled * b.rounds * b.groups,
                                   2 * v.handled);
    case CHANNEL_LOCAL:
        return wefti_slots_at_most(
            (v.ranks - 1) * wefti_part_chunks(problem, problem->count),
            DEPTH_LOCAL);
    default:
        return 0;
    }
}

/* Of each rank; as agent it handles as many ranks as there are other hosts. */
static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    (void)problem;
    double part = sizes->bytes / sizes->ranks, locals = sizes->locals;
    double remotes = sizes->ranks - locals, handled = sizes->hosts - 1;
    double rounds = wefti_sizes_chunks(sizes, locals * part);
    cost_out->local_hops += 1;
    cost_out->network_hops += 1;
    cost_out->local_messages +=
        2 * (locals - 1) * wefti_sizes_chunks(sizes, part) +
        rounds * ((remotes - handled) + handled * (locals - 1));
    cost_out->network_messages += 2 * rounds * handled;
    /* To agents; into scratch, out, in, out of scratch; inside the host. */
    cost_out->copied_bytes += (remotes - handled) * part + 4 * remotes * part +
                              (2 * locals - 1) * part;
    cost_out->link_bytes += locals * remotes * part;
}

const wefti_pattern wefti_pattern_two_hop = {.name = "two_hop",
                                             .supports = supports,
                                             .step_count = step_count,
                                             .step_at = step_at,
                                             .slots = slots,
                                             .cost = cost};
