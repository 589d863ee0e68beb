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
    wefti_step step = wefti_part_own_step(problem, index);
    if (list == LIST_OWN) {
        return step;
    }
    step.kind = WEFTI_STEP_REDUCE;
    step.peer = WEFTI_ALL_PEERS;
    if (gathers(problem)) {
        step.kind = WEFTI_STEP_SEND;
        step.dst = WEFTI_BUFFER_NONE;
        step.dst_elem = 0;
    }
    return step;
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    bool others = gathers(problem) ? list == LIST_IN : list == LIST_OUT;
    wefti_part_side side = {problem, !gathers(problem), NULL};
    *step_out =
        others ? wefti_side_step(&side, index) : own_step(problem, list, index);
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
