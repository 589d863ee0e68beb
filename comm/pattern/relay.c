/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/relay.c - which parts are small, and the steps that move them:
 * see relay.h.
 */
#include "comm/pattern/relay.h"

#include "base/check.h"
#include "comm/pattern/host_view.h"
#include "comm/pattern/parts.h"

enum { LIST_IN, LIST_OUT, LIST_TAKE, LIST_AWAY_OUT, LIST_AWAY_IN };
enum { CHANNEL_IN, CHANNEL_OUT, CHANNEL_AWAY };
enum { DEPTH_IN = 8 };

typedef wefti_host_view view;

/* Elements of a part if it is a small one of that host, else 0. */
static size_t small(const wefti_problem *problem, int host, size_t elems)
{
    size_t ranks = (size_t)wefti_grouping_ranks(problem->grouping, host);
    size_t most = problem->chunk_elems / ranks;
    most = most < problem->relay_elems ? most : problem->relay_elems;
    return ranks > 1 && elems <= most ? elems : 0;
}

/* What this rank has for peer, or gets from it, by way of an agent. */
static size_t relayed(const wefti_problem *problem, bool outward, int peer)
{
    const int *hosts = problem->grouping->hosts;
    if (hosts[peer] == hosts[problem->rank]) {
        return 0;
    }
    return outward ? small(problem, hosts[problem->rank],
                           wefti_part_to(problem, peer).elems)
                   : small(problem, hosts[peer],
                           wefti_part_from(problem, peer).elems);
}

static bool is_relayed(const wefti_problem *problem, bool outward, int peer)
{
    return relayed(problem, outward, peer) > 0;
}

/* The same of the rank at a place of this host. */
static size_t relayed_by(const view *v, size_t place, int to)
{
    const void *const *rows = v->problem->host_counts;
    if (place == v->local) {
        return relayed(v->problem, true, to);
    }
    return rows
               ? small(v->problem, v->host, ((const uint16_t *)rows[place])[to])
               : 0; /* before the operation begins none is known */
}

static wefti_step send_part(const wefti_problem *problem, int to, int peer,
                            int channel)
{
    wefti_part part = wefti_part_to(problem, to);
    return (wefti_step){.kind = WEFTI_STEP_SEND,
                        .src = WEFTI_BUFFER_SEND,
                        .dst = WEFTI_BUFFER_NONE,
                        .peer = peer,
                        .owner = to,
                        .channel = channel,
                        .src_elem = part.begin,
                        .elems = part.elems};
}

/* ---- IN, OUT ----------------------------------------------------------------
 */

/* Own small parts for ranks whose agent is another rank of this host; the rank
 * that number `index` of them is for, where there are more than that. */
static size_t count_in(const view *v, size_t index, int *to_out)
{
    size_t found = 0;
    for (size_t distance = 0; distance < v->remotes; distance++) {
        int to = wefti_host_view_remote(v, distance);
        if (distance % v->ranks == v->local ||
            !is_relayed(v->problem, true, to)) {
            continue;
        }
        if (found++ == index) {
            *to_out = to;
        }
    }
    return found;
}

static wefti_step in_step(const view *v, size_t index)
{
    int to = -1;
    (void)count_in(v, index, &to);
    int agent = wefti_grouping_agent(v->grouping, v->host, to, 0);
    return send_part(v->problem, to, agent, CHANNEL_IN);
}

/* What this host's ranks have for one rank, whose agent this one is. */
typedef struct bundle {
    size_t parts, elems;
    size_t steps; /* one for each part, and the SEND of all */
} bundle;

static bundle bundle_for(const view *v, int to)
{
    bundle b = {0};
    for (size_t place = 0; place < v->ranks; place++) {
        size_t elems = relayed_by(v, place, to);
        b.parts += elems > 0;
        b.elems += elems;
    }
    bool alone = b.parts == 1 && is_relayed(v->problem, true, to);
    b.steps = b.parts == 0 || alone ? b.parts : b.parts + 1;
    return b;
}

/* Part number i of a bundle, into scratch. */
static wefti_step gather_step(const view *v, int to, size_t i)
{
    size_t begin = 0, place = 0, elems;
    while ((elems = relayed_by(v, place, to)) == 0 || i-- > 0) {
        begin += elems;
        place++;
        WEFTI_ASSERT(place < v->ranks);
    }
    int from =
        v->grouping->members[(size_t)v->grouping->begins[v->host] + place];
    bool own = place == v->local;
    return (wefti_step){.kind = own ? WEFTI_STEP_COPY : WEFTI_STEP_RECV,
                        .src = own ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_NONE,
                        .dst = WEFTI_BUFFER_SCRATCH,
                        .peer = from,
                        .owner = to,
                        .channel = CHANNEL_IN,
                        .src_elem =
                            own ? wefti_part_to(v->problem, to).begin : 0,
                        .dst_elem = begin,
                        .elems = elems};
}

static size_t count_out(const view *v, size_t *bundles_out)
{
    size_t steps = 0;
    *bundles_out = 0;
    for (size_t at = v->local; at < v->remotes; at += v->ranks) {
        bundle b = bundle_for(v, wefti_host_view_remote(v, at));
        steps += b.steps;
        *bundles_out += b.parts > 0;
    }
    return steps;
}

static wefti_step out_step(const view *v, size_t index)
{
    size_t at = v->local;
    int to = wefti_host_view_remote(v, at);
    bundle b = bundle_for(v, to);
    while (index >= b.steps) {
        index -= b.steps;
        at += v->ranks;
        WEFTI_ASSERT(at < v->remotes);
        to = wefti_host_view_remote(v, at);
        b = bundle_for(v, to);
    }
    if (b.steps == 1) { /* nobody else has anything: as it lies */
        return send_part(v->problem, to, to, CHANNEL_OUT);
    }
    return index < b.parts ? gather_step(v, to, index)
                           : (wefti_step){.kind = WEFTI_STEP_SEND,
                                          .src = WEFTI_BUFFER_SCRATCH,
                                          .dst = WEFTI_BUFFER_NONE,
                                          .peer = to,
                                          .owner = to,
                                          .channel = CHANNEL_OUT,
                                          .elems = b.elems};
}

/* ---- TAKE -------------------------------------------------------------------
 */

/* What comes from one host by its agent. */
static bundle bundle_from(const view *v, int host)
{
    bundle b = {0};
    for (int place = v->grouping->begins[host];
         place < v->grouping->begins[host + 1]; place++) {
        size_t elems = relayed(v->problem, false, v->grouping->members[place]);
        b.parts += elems > 0;
        b.elems += elems;
    }
    b.steps = b.parts > 1 ? b.parts + 1 : b.parts;
    return b;
}

static size_t count_takes(const view *v)
{
    size_t steps = 0;
    for (int back = 1; back < v->grouping->host_count; back++) {
        steps += bundle_from(v, wefti_host_view_before(v, back)).steps;
    }
    return steps;
}

/* Part number i of what host sends, from scratch or straight to its place. */
static wefti_step place_step(const view *v, int host, size_t i, bool straight)
{
    size_t begin = 0, elems;
    int place = v->grouping->begins[host];
    while ((elems = relayed(v->problem, false, v->grouping->members[place])) ==
               0 ||
           i-- > 0) {
        begin += elems;
        place++;
        WEFTI_ASSERT(place < v->grouping->begins[host + 1]);
    }
    int from = v->grouping->members[place];
    return (wefti_step){.kind = straight ? WEFTI_STEP_RECV : WEFTI_STEP_COPY,
                        .src =
                            straight ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_SCRATCH,
                        .dst = WEFTI_BUFFER_RECV,
                        .peer = v->problem->rank,
                        .owner = from,
                        .channel = CHANNEL_OUT,
                        .src_elem = straight ? 0 : begin,
                        .dst_elem = wefti_part_from(v->problem, from).begin,
                        .elems = elems};
}

static wefti_step take_step(const view *v, size_t index)
{
    int back = 1, host = wefti_host_view_before(v, back);
    bundle b = bundle_from(v, host);
    while (index >= b.steps) {
        index -= b.steps;
        host = wefti_host_view_before(v, ++back);
        WEFTI_ASSERT(back < v->grouping->host_count);
        b = bundle_from(v, host);
    }
    int rank = v->problem->rank;
    int agent = wefti_grouping_agent(v->grouping, host, rank, 0);
    if (b.parts == 1) {
        wefti_step step = place_step(v, host, 0, true);
        step.peer = agent;
        step.bundled = true;
        return step;
    }
    return index > 0 ? place_step(v, host, index - 1, false)
                     : (wefti_step){.kind = WEFTI_STEP_RECV,
                                    .src = WEFTI_BUFFER_NONE,
                                    .dst = WEFTI_BUFFER_SCRATCH,
                                    .peer = agent,
                                    .owner = rank,
                                    .channel = CHANNEL_OUT,
                                    .elems = b.elems,
                                    .bundled = true};
}

/* ---- straight ---------------------------------------------------------------
 */

static wefti_part_side away(const view *v, bool outward)
{
    return (wefti_part_side){v->problem, outward, is_relayed};
}

static size_t count_own(const view *v)
{
    return wefti_part_chunks(v->problem,
                             wefti_part_to(v->problem, v->problem->rank).elems);
}

static wefti_step away_step(const view *v, bool outward, size_t index)
{
    wefti_part_side side = away(v, outward);
    wefti_step step = wefti_side_step(&side, index);
    step.channel = CHANNEL_AWAY;
    return step;
}

/* ---- the pattern ------------------------------------------------------------
 */

size_t wefti_relay_step_count(const wefti_problem *problem, int list)
{
    view v = wefti_host_view_of(problem);
    wefti_part_side side = away(&v, list == LIST_AWAY_OUT);
    size_t bundles;
    int to, peers;
    switch (list) {
    case LIST_IN:
        return count_in(&v, SIZE_MAX, &to);
    case LIST_OUT:
        return count_out(&v, &bundles);
    case LIST_TAKE:
        return count_takes(&v);
    case LIST_AWAY_OUT:
        return wefti_side_count(&side, &peers);
    default:
        return count_own(&v) + wefti_side_count(&side, &peers);
    }
}

void wefti_relay_step_at(const wefti_problem *problem, int list, size_t index,
                         wefti_step *step_out)
{
    view v = wefti_host_view_of(problem);
    size_t own = list == LIST_AWAY_IN ? count_own(&v) : 0;
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
    default:
        *step_out = index < own
                        ? wefti_part_own_step(problem, index)
                        : away_step(&v, list == LIST_AWAY_OUT, index - own);
        break;
    }
}

int wefti_relay_slots(const wefti_problem *problem, int channel)
{
    view v = wefti_host_view_of(problem);
    wefti_part_side out = away(&v, true);
    size_t bundles;
    int to;
    switch (channel) {
    case CHANNEL_IN:
        return wefti_slots_at_most(count_in(&v, SIZE_MAX, &to), DEPTH_IN);
    case CHANNEL_OUT:
        (void)count_out(&v, &bundles);
        return (int)bundles;
    case CHANNEL_AWAY:
        return wefti_side_slots(&out);
    default:
        return 0;
    }
}
