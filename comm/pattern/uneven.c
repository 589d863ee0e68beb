/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/uneven.c - all-gather and reduce-scatter without relays, where
 * each rank's part has a length of its own; direct.c is their even form.
 *
 *      all_gatherv        list 0   SEND own chunk j to all      channel 0
 *                         list 1   RECV round by round          channel 0
 *                         list 2   COPY own
 *      reduce_scatterv    list 0   SEND p's chunk j to p        channel 0
 *                         list 1   REDUCE own chunk j from all    channel 0
 *
 * No rank can starve: take the earliest round in which anything is missing. All
 * messages of earlier rounds have been read. So a gather has a slot for its
 * chunk of this round. A reduction that has not yet sent all of this round has
 * staged less than a round, n - 1 messages, and nothing beyond it; reduces take
 * the rounds in order too.
 *
 * In place is safe as in direct.c: a rank's own part is written only by
 * itself, and only it reads the own part of its input.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (pairwise exchange).
 */
#include "comm/pattern/parts.h"

enum { LIST_OUT, LIST_IN, LIST_OWN };
enum { STAGED_DEPTH = 4 };

static bool gathers(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_ALLGATHERV;
}

static bool supports(const wefti_problem *problem)
{
    return gathers(problem) ||
           problem->collective == WEFT_COLLECTIVE_REDUCESCATTERV;
}

/* Chunks of what this rank gives to the gather, or gets of the reduction. */
static size_t own_chunks(const wefti_problem *problem)
{
    return wefti_part_chunks(problem, problem->count);
}

static size_t step_count(const wefti_problem *problem, int list)
{
    int peers;
    wefti_part_side side = {problem, list == LIST_OUT, NULL};
    bool counts_others = gathers(problem) == (list == LIST_IN);
    if (list > LIST_OWN) {
        return 0;
    }
    if (list == LIST_OWN) {
        return gathers(problem) ? own_chunks(problem) : 0;
    }
    if (counts_others) {
        return wefti_side_count(&side, &peers);
    }
    return gathers(problem) && problem->nranks == 1 ? 0 : own_chunks(problem);
}

/* Own chunk: to all, to its own place, or the sum of all of its place. */
static wefti_step own_step(const wefti_problem *problem, int list, size_t index)
{
    int rank = problem->rank;
    wefti_part src =
        wefti_part_chunk(problem, wefti_part_to(problem, rank), index);
    wefti_part dst =
        wefti_part_chunk(problem, wefti_part_from(problem, rank), index);
    bool send = gathers(problem) && list == LIST_OUT;
    bool copy = list == LIST_OWN;
    return (wefti_step){.kind = send   ? WEFTI_STEP_SEND
                                : copy ? WEFTI_STEP_COPY
                                       : WEFTI_STEP_REDUCE,
                        .src = WEFTI_BUFFER_SEND,
                        .dst = send ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_RECV,
                        .peer = copy ? rank : WEFTI_ALL_PEERS,
                        .owner = rank,
                        .src_elem = src.begin,
                        .dst_elem = send ? 0 : dst.begin,
                        .elems = src.elems};
}

static wefti_step other_step(const wefti_problem *problem, size_t index)
{
    bool send = !gathers(problem);
    wefti_part_side side = {problem, send, NULL};
    wefti_piece_place at = wefti_side_at(&side, index);
    return (wefti_step){.kind = send ? WEFTI_STEP_SEND : WEFTI_STEP_RECV,
                        .src = send ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_NONE,
                        .dst = send ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_RECV,
                        .peer = at.peer,
                        .owner = at.peer,
                        .src_elem = send ? at.begin : 0,
                        .dst_elem = send ? 0 : at.begin,
                        .elems = at.elems};
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    bool others = gathers(problem) ? list == LIST_IN : list == LIST_OUT;
    *step_out =
        others ? other_step(problem, index) : own_step(problem, list, index);
}

static int slots(const wefti_problem *problem, int channel)
{
    int peers;
    wefti_part_side out = {problem, true, NULL};
    size_t round = (size_t)problem->nranks - 1;
    size_t messages, depth;
    if (channel > 0 || round == 0) {
        return 0;
    }
    if (gathers(problem)) {
        messages = own_chunks(problem);
        depth = STAGED_DEPTH;
    } else {
        messages = wefti_side_count(&out, &peers);
        depth = 2 * round;
    }
    return (int)(messages < depth ? messages : depth);
}

const wefti_pattern wefti_pattern_uneven = {
    .name = "uneven",
    .supports = supports,
    .step_count = step_count,
    .step_at = step_at,
    .slots = slots,
};
