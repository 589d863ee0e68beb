/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/direct.c - every rank talks to every other without relays.
 *
 * Sums deal the elements out, evenly or as counts say: each rank reduces its
 * own part from all ranks at once. All-reduce then gathers the parts:
 *
 *      list 0   SEND p's chunk j of the input to p           channel 0
 *      list 1   REDUCE own chunk j from all, SEND it to all    channel 0, 1
 *      list 2   RECV p's chunk j of the result from p        channel 1
 *
 * A gathering sends each rank's own part instead:
 *
 *      list 0   SEND own chunk j to all                      channel 0
 *      list 1   RECV round by round                          channel 0
 *      list 2   COPY own
 *
 * Rounds (parts.h): round j deals with chunk j of every part that has one. No
 * rank can starve: take the earliest round in which anything is missing. All
 * earlier messages have been read, so what is staged belongs to this round or
 * later ones, and one round of a rank is at most n - 1 messages on channel 0
 * and one on channel 1; reduces take the rounds in order too.
 *
 * In place is safe: a part of the result arrives only after its owner has read
 * this rank's input to it.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (reduce-scatter and all-gather by
 * pairwise exchange).
 */
#include "comm/pattern/parts.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/shape.h"

enum { LIST_OUT, LIST_OWN, LIST_RESULT };   /* of sums */
enum { GATHER_OUT, GATHER_IN, GATHER_OWN }; /* of gatherings */
enum { STAGED_DEPTH = 4 }; /* messages under way of one stream of chunks */

static bool supports(const wefti_problem *problem)
{
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_ALLGATHERV:
    case WEFT_COLLECTIVE_REDUCESCATTER:
    case WEFT_COLLECTIVE_REDUCESCATTERV:
    case WEFT_COLLECTIVE_BROADCAST:
        return true;
    default:
        return false;
    }
}

static bool is_rooted(const wefti_problem *problem)
{
    return wefti_shape_get(problem->collective)->rooted;
}

static bool reduces(const wefti_problem *problem)
{
    return wefti_shape_get(problem->collective)->reduces;
}

/* Whether what has been summed goes to all. */
static bool returns(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_ALLREDUCE &&
           problem->nranks > 1;
}

/* Chunks of what this rank reduces, or gives to all. */
static size_t own_chunks(const wefti_problem *problem)
{
    return wefti_part_chunks(problem,
                             is_rooted(problem)
                                 ? problem->count
                                 : wefti_part_to(problem, problem->rank).elems);
}

static size_t other_chunks(const wefti_problem *problem, bool outward)
{
    int peers;
    wefti_part_side side = {problem, outward, NULL};
    return wefti_side_count(&side, &peers);
}

static size_t rooted_count(const wefti_problem *problem, int list)
{
    const bool owns = !reduces(problem) && problem->rank == problem->root;
    const bool moves = reduces(problem) || problem->nranks > 1;
    return (list == 0 && moves) || (list == 1 && owns) ? own_chunks(problem)
                                                       : 0;
}

static size_t step_count(const wefti_problem *problem, int list)
{
    if (list > LIST_RESULT) {
        return 0;
    }
    if (is_rooted(problem)) {
        return rooted_count(problem, list);
    }
    if (!reduces(problem)) {
        return list == GATHER_IN ? other_chunks(problem, false)
               : list == GATHER_OUT && problem->nranks == 1
                   ? 0
                   : own_chunks(problem);
    }
    return list == LIST_OUT   ? other_chunks(problem, true)
           : list == LIST_OWN ? own_chunks(problem) * (1 + returns(problem))
           : returns(problem) ? other_chunks(problem, false)
                              : 0;
}

/* An own chunk, from where it lies in src, to all. */
static wefti_step send_own(wefti_step step, wefti_buffer src, int channel)
{
    step.kind = WEFTI_STEP_SEND;
    step.src_elem = src == WEFTI_BUFFER_RECV ? step.dst_elem : step.src_elem;
    step.src = src;
    step.dst = WEFTI_BUFFER_NONE;
    step.dst_elem = 0;
    step.peer = WEFTI_ALL_PEERS;
    step.channel = channel;
    return step;
}

static wefti_step reduce_own(wefti_step step)
{
    step.kind = WEFTI_STEP_REDUCE;
    step.peer = WEFTI_ALL_PEERS;
    return step;
}

static wefti_step rooted_step(const wefti_problem *problem, int list,
                              size_t index)
{
    const wefti_part chunk =
        wefti_part_chunk(problem, (wefti_part){0, problem->count}, index);
    wefti_step step = {.kind = WEFTI_STEP_COPY,
                       .src = WEFTI_BUFFER_SEND,
                       .dst = WEFTI_BUFFER_RECV,
                       .peer = problem->rank,
                       .src_elem = chunk.begin,
                       .dst_elem = chunk.begin,
                       .elems = chunk.elems};
    const bool is_root = problem->rank == problem->root;
    if (list == 1) {
        return step;
    }
    if (is_root && reduces(problem)) {
        return reduce_own(step);
    }
    if (is_root || reduces(problem)) {
        step = send_own(step, WEFTI_BUFFER_SEND, 0);
        step.peer = is_root ? WEFTI_ALL_PEERS : problem->root;
        return step;
    }
    step.kind = WEFTI_STEP_RECV;
    step.src = WEFTI_BUFFER_NONE;
    step.src_elem = 0;
    step.peer = problem->root;
    return step;
}

static wefti_step gather_step(const wefti_problem *problem, int list,
                              size_t index)
{
    wefti_part_side in = {problem, false, NULL};
    if (list == GATHER_IN) {
        return wefti_side_step(&in, index);
    }
    const wefti_step own = wefti_part_own_step(problem, index);
    return list == GATHER_OWN ? own : send_own(own, WEFTI_BUFFER_SEND, 0);
}

static wefti_step sum_step(const wefti_problem *problem, int list, size_t index)
{
    wefti_part_side side = {problem, list == LIST_OUT, NULL};
    if (list == LIST_OWN) {
        const size_t steps = 1 + returns(problem);
        const wefti_step own = wefti_part_own_step(problem, index / steps);
        return index % steps == 0 ? reduce_own(own)
                                  : send_own(own, WEFTI_BUFFER_RECV, 1);
    }
    wefti_step step = wefti_side_step(&side, index);
    step.channel = list == LIST_RESULT;
    return step;
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    *step_out = is_rooted(problem) ? rooted_step(problem, list, index)
                : reduces(problem) ? sum_step(problem, list, index)
                                   : gather_step(problem, list, index);
}

static int slots(const wefti_problem *problem, int channel)
{
    const size_t round = (size_t)problem->nranks - 1;
    const bool sums = reduces(problem) && !is_rooted(problem);
    const bool sends = !is_rooted(problem) ||
                       reduces(problem) == (problem->rank != problem->root);
    if (round == 0 || !sends || channel > (sums && returns(problem))) {
        return 0;
    }
    return sums && channel == 0
               ? wefti_slots_at_most(other_chunks(problem, true), 2 * round)
               : wefti_slots_at_most(own_chunks(problem), STAGED_DEPTH);
}

/* Each rank sends every other its part, and adds up its own. */
static void cost_scatter(const wefti_sizes *sizes, wefti_cost *out)
{
    double part = sizes->bytes / sizes->ranks;
    double rounds = wefti_sizes_chunks(sizes, sizes->longest);
    wefti_cost_hops(out, sizes, 1);
    wefti_cost_to_each(out, sizes, rounds);
    wefti_cost_from_each(out, sizes, rounds);
    out->copied_bytes += sizes->bytes - part;
    out->reduced_bytes += sizes->bytes;
    wefti_cost_reads(out, sizes, part * (sizes->locals - 1));
    out->link_bytes += sizes->locals * (sizes->ranks - sizes->locals) * part;
}

/* Each rank sends its part to all others. */
static void cost_gather(const wefti_sizes *sizes, wefti_cost *out)
{
    double part = sizes->bytes / sizes->ranks;
    double rounds = wefti_sizes_chunks(sizes, sizes->longest);
    wefti_cost_hops(out, sizes, 1);
    wefti_cost_to_all(out, sizes, rounds);
    wefti_cost_from_each(out, sizes, rounds);
    wefti_cost_reads_alike(out, sizes, part * (sizes->locals - 1));
    out->copied_bytes += sizes->bytes;
    out->link_bytes += sizes->locals * (sizes->ranks - sizes->locals) * part;
}

/* The root is the busiest: it sends to all, or adds up all. */
static void cost_rooted(const wefti_sizes *sizes, bool reduces, wefti_cost *out)
{
    double chunks = wefti_sizes_chunks(sizes, sizes->bytes);
    wefti_cost_hops(out, sizes, 1);
    if (reduces) {
        wefti_cost_from_each(out, sizes, chunks);
        out->reduced_bytes += sizes->ranks * sizes->bytes;
        wefti_cost_root_reads(out, sizes, sizes->bytes);
    } else {
        wefti_cost_to_all(out, sizes, chunks);
        wefti_cost_reads_one(out, sizes, sizes->bytes);
        out->copied_bytes += 2 * sizes->bytes; /* its own result, too */
    }
    out->link_bytes += (sizes->ranks - sizes->locals) * sizes->bytes;
}

static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        cost_scatter(sizes, cost_out);
        cost_gather(sizes, cost_out);
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
    case WEFT_COLLECTIVE_REDUCESCATTERV:
        cost_scatter(sizes, cost_out);
        break;
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_ALLGATHERV:
        cost_gather(sizes, cost_out);
        cost_out->copied_bytes += sizes->bytes / sizes->ranks;
        break;
    default:
        cost_rooted(sizes, problem->collective == WEFT_COLLECTIVE_REDUCE,
                    cost_out);
        break;
    }
}

const wefti_pattern wefti_pattern_direct = {.name = "direct",
                                            .supports = supports,
                                            .step_count = step_count,
                                            .step_at = step_at,
                                            .slots = slots,
                                            .cost = cost};
