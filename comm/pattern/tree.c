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
 * All-reduce goes up to rank 0 and down again; reduce goes up to rank 0, which
 * hands the unfinished sum to the root; broadcast goes down a tree over
 * (rank - root) mod n. Up and down are tracks of their own, so that chunks
 * overlap. One staged message a child is enough for progress: a rank takes the
 * chunks in one order and never waits for its children on the way down nor for
 * its parent on the way up.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (binomial trees).
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"

enum { TRACK_UP, TRACK_DOWN, TRACK_OWN };
enum { CHANNEL_UP, CHANNEL_DOWN };
enum { STAGED_DEPTH = 4, STAGED_DEPTH_CHILD = 2 };

static size_t chunks_of(const wefti_problem *problem)
{
    return problem->count / problem->chunk_elems +
           (problem->count % problem->chunk_elems != 0);
}

/* This rank's place in the tree. */
static unsigned node_of(const wefti_problem *problem)
{
    int node = problem->rank;
    if (problem->collective == WEFT_COLLECTIVE_BROADCAST) {
        node -= problem->root;
        node += node < 0 ? problem->nranks : 0;
    }
    return (unsigned)node;
}

static int rank_of(const wefti_problem *problem, unsigned node)
{
    if (problem->collective != WEFT_COLLECTIVE_BROADCAST) {
        return (int)node;
    }
    return (int)((node + (unsigned)problem->root) % (unsigned)problem->nranks);
}

static unsigned parent_of(unsigned node)
{
    return node & (node - 1);
}

/* Child i is node + 2^i. */
static unsigned count_children(const wefti_problem *problem, unsigned node)
{
    unsigned children = 0;
    unsigned nodes = (unsigned)problem->nranks;
    while ((node >> children & 1U) == 0 && (1U << children) < nodes - node) {
        children++;
    }
    return children;
}

static bool reduces(const wefti_problem *problem)
{
    return problem->collective != WEFT_COLLECTIVE_BROADCAST;
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

/* Steps of one track for each chunk. */
static size_t steps_per_chunk(const wefti_problem *problem, int track)
{
    unsigned node = node_of(problem);
    size_t children = count_children(problem, node);
    bool turns = problem->collective == WEFT_COLLECTIVE_ALLREDUCE && node == 0;

    switch (track) {
    case TRACK_UP: /* WIDEN, COMBINE of each child, SEND or NARROW */
        if (!reduces(problem)) {
            return 0;
        }
        return 1 + children + 1 + (turns ? children : 0);
    case TRACK_DOWN: /* RECV below the top, SEND to each child */
        if (problem->collective == WEFT_COLLECTIVE_REDUCE) {
            bool finishes =
                hands_over(problem) && problem->rank == problem->root;
            return finishes ? 2 : 0;
        }
        return turns ? 0 : (node != 0) + children;
    default: /* COPY */
        return !reduces(problem) && problem->rank == problem->root;
    }
}

static size_t step_count(const wefti_problem *problem, int track)
{
    return chunks_of(problem) * steps_per_chunk(problem, track);
}

/* Step of the way up: the sum of this node's subtree to whoever needs it. */
static void set_up(const wefti_problem *problem, size_t index, wefti_step *step)
{
    unsigned node = node_of(problem);
    size_t children = count_children(problem, node);

    if (index == 0) {
        step->kind = WEFTI_STEP_WIDEN;
        step->src = WEFTI_BUFFER_SEND;
        step->dst = WEFTI_BUFFER_SCRATCH;
    } else if (index <= children) {
        step->kind = WEFTI_STEP_COMBINE;
        step->dst = WEFTI_BUFFER_SCRATCH;
        step->peer = rank_of(problem, node + (1U << (index - 1)));
        step->channel = CHANNEL_UP;
    } else if (node == 0 && !hands_over(problem)) {
        step->kind = WEFTI_STEP_NARROW;
        step->src = WEFTI_BUFFER_SCRATCH;
        step->dst = WEFTI_BUFFER_RECV;
    } else {
        step->kind = WEFTI_STEP_SEND;
        step->src = WEFTI_BUFFER_SCRATCH;
        step->peer = node == 0 ? problem->root : (int)parent_of(node);
        step->channel = node == 0 ? CHANNEL_DOWN : CHANNEL_UP;
    }
}

/* Step of the way down; the largest subtree goes first, it takes longest. */
static void set_down(const wefti_problem *problem, size_t index,
                     wefti_step *step)
{
    unsigned node = node_of(problem);
    unsigned children = count_children(problem, node);

    step->channel = CHANNEL_DOWN;
    if (node != 0 && index == 0) {
        step->kind = WEFTI_STEP_RECV;
        step->dst = WEFTI_BUFFER_RECV;
        step->peer = rank_of(problem, parent_of(node));
        return;
    }
    unsigned child = children - 1 - (unsigned)(index - (node != 0));
    bool is_input = node == 0 && !reduces(problem);
    step->kind = WEFTI_STEP_SEND;
    step->src = is_input ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_RECV;
    step->peer = rank_of(problem, node + (1U << child));
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

static void step_at(const wefti_problem *problem, int track, size_t index,
                    wefti_step *step_out)
{
    size_t steps = steps_per_chunk(problem, track);
    WEFTI_ASSERT(steps > 0 && index < step_count(problem, track));
    size_t offset = index / steps * problem->chunk_elems;
    size_t left = problem->count - offset;
    size_t place = index % steps;

    *step_out = (wefti_step){
        .src = WEFTI_BUFFER_NONE,
        .dst = WEFTI_BUFFER_NONE,
        .peer = problem->rank,
        .elems = left < problem->chunk_elems ? left : problem->chunk_elems};
    if (track == TRACK_OWN) {
        step_out->kind = WEFTI_STEP_COPY;
        step_out->src = WEFTI_BUFFER_SEND;
        step_out->dst = WEFTI_BUFFER_RECV;
    } else if (track == TRACK_DOWN) {
        if (problem->collective == WEFT_COLLECTIVE_REDUCE) {
            set_finish(place, step_out);
        } else {
            set_down(problem, place, step_out);
        }
    } else {
        size_t up = 2 + count_children(problem, node_of(problem));
        if (place < up) {
            set_up(problem, place, step_out);
        } else {
            set_down(problem, place - up, step_out);
        }
    }
    /* Scratch holds one chunk, from its start. */
    bool from_user = step_out->src == WEFTI_BUFFER_SEND ||
                     step_out->src == WEFTI_BUFFER_RECV;
    step_out->src_elem = from_user ? offset : 0;
    step_out->dst_elem = step_out->dst == WEFTI_BUFFER_RECV ? offset : 0;
}

static int at_most(size_t messages, size_t depth)
{
    return (int)(messages < depth ? messages : depth);
}

static int slots(const wefti_problem *problem, int channel)
{
    unsigned node = node_of(problem);
    size_t children = count_children(problem, node);
    size_t chunks = chunks_of(problem);

    if (channel == CHANNEL_UP) {
        return reduces(problem) && node != 0 ? at_most(chunks, STAGED_DEPTH)
                                             : 0;
    }
    if (problem->collective == WEFT_COLLECTIVE_REDUCE) {
        return hands_over(problem) && node == 0 ? at_most(chunks, STAGED_DEPTH)
                                                : 0;
    }
    return at_most(chunks * children, STAGED_DEPTH_CHILD * children);
}

const wefti_pattern wefti_pattern_tree = {.name = "tree",
                                          .supports = supports,
                                          .step_count = step_count,
                                          .step_at = step_at,
                                          .slots = slots};
