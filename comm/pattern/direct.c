/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/direct.c - every rank talks to every other without relays.
 *
 * Reductions deal the elements out: each rank reduces its own part from all
 * ranks at once. All-reduce then gathers the parts:
 *
 *      list 0   SEND p's chunk j of the input to p           channel 0
 *      list 1   REDUCE own chunk j from all, SEND it to all    channel 0, 1
 *      list 2   RECV p's chunk j of the result from p        channel 1
 *
 * Rounds: round j deals with chunk j of every part, first the next higher
 * rank's, so that no rank is every rank's first. No rank can starve: take the
 * earliest round in which anything is missing. All earlier messages have been
 * read, so what is staged belongs to this round or later ones, and one round
 * of a rank is n - 1 messages on channel 0 and one on channel 1.
 *
 * In place is safe: a part of the result arrives only after its owner has read
 * this rank's input to it.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (reduce-scatter and all-gather by
 * pairwise exchange).
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/parts.h"

enum { STAGED_DEPTH = 4 }; /* messages under way of one stream of chunks */

/* rank's part of the buffer that has all parts. Never grows with the rank. */
static size_t part_of(const wefti_problem *problem, int rank, size_t *begin_out)
{
    if (problem->collective == WEFT_COLLECTIVE_ALLREDUCE) {
        return wefti_share(problem->count, problem->nranks, rank, begin_out);
    }
    *begin_out = (size_t)rank * problem->count;
    return problem->count;
}

static size_t part_chunks(const wefti_problem *problem, int rank)
{
    size_t begin;
    return wefti_part_chunks(problem, part_of(problem, rank, &begin));
}

/* One message of a part: chunk of rank's part. */
typedef struct piece {
    int rank;
    size_t chunk;
} piece;

/* How many ranks' parts have the chunk: these are ranks 0, 1, .. */
static int ranks_having(const wefti_problem *problem, size_t chunk)
{
    int have = 0;
    int lack = problem->nranks;
    if (part_chunks(problem, lack - 1) > chunk) {
        return lack; /* the usual case */
    }
    while (have < lack) {
        int middle = have + (lack - have) / 2;
        if (part_chunks(problem, middle) > chunk) {
            have = middle + 1;
        } else {
            lack = middle;
        }
    }
    return have;
}

/*
 * The pieces of all other ranks' parts, round by round. Returns how many there
 * are, or, where index is one of them, index itself with *piece_out set.
 * Rounds with equally many ranks are skipped in one go; parts have at most
 * three lengths.
 */
static size_t walk_pieces(const wefti_problem *problem, size_t index,
                          piece *piece_out)
{
    size_t rounds = part_chunks(problem, 0);
    size_t passed = 0;

    for (size_t round = 0; round < rounds;) {
        int ranks = ranks_having(problem, round);
        WEFTI_ASSERT(ranks > 0); /* or round would be none */
        size_t until = part_chunks(problem, ranks - 1);
        size_t others = (size_t)ranks - (problem->rank < ranks);
        size_t pieces = (until - round) * others;
        if (index - passed < pieces) {
            size_t place = (index - passed) % others;
            piece_out->chunk = round + (index - passed) / others;
            piece_out->rank =
                (int)(((size_t)problem->rank + 1 + place) % (size_t)ranks);
            return index;
        }
        passed += pieces;
        round = until;
    }
    return passed;
}

static size_t count_pieces(const wefti_problem *problem)
{
    piece unused;
    return walk_pieces(problem, SIZE_MAX, &unused);
}

/* Sets where the piece lies in the buffer of all parts, and its length. */
static size_t locate(const wefti_problem *problem, const piece *at,
                     size_t *begin_out)
{
    wefti_part part;
    part.elems = part_of(problem, at->rank, &part.begin);
    const wefti_part chunk = wefti_part_chunk(problem, part, at->chunk);
    *begin_out = chunk.begin;
    return chunk.elems;
}

/* Chunk `index` of count elements that start at 0. */
static wefti_step whole_chunk(const wefti_problem *problem, size_t index)
{
    const wefti_part chunk =
        wefti_part_chunk(problem, (wefti_part){0, problem->count}, index);
    return (wefti_step){.src = WEFTI_BUFFER_SEND,
                        .dst = WEFTI_BUFFER_RECV,
                        .peer = WEFTI_ALL_PEERS,
                        .src_elem = chunk.begin,
                        .dst_elem = chunk.begin,
                        .elems = chunk.elems};
}

static wefti_step other_piece(const wefti_problem *problem, size_t index,
                              wefti_step_kind kind, int channel)
{
    piece at = {0, 0};
    size_t begin;
    walk_pieces(problem, index, &at);
    size_t elems = locate(problem, &at, &begin);
    bool send = kind == WEFTI_STEP_SEND;
    return (wefti_step){.kind = kind,
                        .src = send ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_NONE,
                        .dst = send ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_RECV,
                        .peer = at.rank,
                        .channel = channel,
                        .src_elem = send ? begin : 0,
                        .dst_elem = send ? 0 : begin,
                        .elems = elems};
}

static wefti_step reduce_own(const wefti_problem *problem, size_t chunk)
{
    piece at = {problem->rank, chunk};
    size_t begin;
    size_t elems = locate(problem, &at, &begin);
    bool gathers = problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    return (wefti_step){.kind = WEFTI_STEP_REDUCE,
                        .src = WEFTI_BUFFER_SEND,
                        .dst = WEFTI_BUFFER_RECV,
                        .peer = WEFTI_ALL_PEERS,
                        .channel = 0,
                        .src_elem = begin,
                        .dst_elem =
                            gathers ? begin : chunk * problem->chunk_elems,
                        .elems = elems};
}

/* The reduced chunk, from where it was put, to every rank. */
static wefti_step send_own(const wefti_problem *problem, size_t chunk)
{
    wefti_step step = reduce_own(problem, chunk);
    step.kind = WEFTI_STEP_SEND;
    step.src = WEFTI_BUFFER_RECV;
    step.dst = WEFTI_BUFFER_NONE;
    step.channel = 1;
    step.dst_elem = 0;
    return step;
}

static bool supports(const wefti_problem *problem)
{
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_REDUCESCATTER:
    case WEFT_COLLECTIVE_BROADCAST:
        return true;
    default:
        return false;
    }
}

static size_t step_count(const wefti_problem *problem, int list)
{
    bool alone = problem->nranks == 1;
    bool is_root = problem->rank == problem->root;
    size_t chunks = wefti_part_chunks(problem, problem->count);

    if (list > 2) {
        return 0;
    }
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        if (list == 1) {
            return part_chunks(problem, problem->rank) * (alone ? 1 : 2);
        }
        return count_pieces(problem);
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return list == 0 ? count_pieces(problem) : list == 1 ? chunks : 0;
    case WEFT_COLLECTIVE_ALLGATHER:
        return list == 1            ? count_pieces(problem)
               : list == 0 && alone ? 0
                                    : chunks;
    case WEFT_COLLECTIVE_BROADCAST:
        if (list == 0) {
            return alone ? 0 : chunks;
        }
        return list == 1 && is_root ? chunks : 0;
    case WEFT_COLLECTIVE_REDUCE:
        return list == 0 ? chunks : 0;
    default:
        return 0;
    }
}

static wefti_step allreduce_step(const wefti_problem *problem, int list,
                                 size_t index)
{
    if (list == 0) {
        return other_piece(problem, index, WEFTI_STEP_SEND, 0);
    }
    if (list == 2) {
        return other_piece(problem, index, WEFTI_STEP_RECV, 1);
    }
    if (problem->nranks == 1) {
        return reduce_own(problem, index);
    }
    return index % 2 == 0 ? reduce_own(problem, index / 2)
                          : send_own(problem, index / 2);
}

static wefti_step allgather_step(const wefti_problem *problem, int list,
                                 size_t index)
{
    if (list == 1) {
        return other_piece(problem, index, WEFTI_STEP_RECV, 0);
    }
    wefti_step step = whole_chunk(problem, index);
    if (list == 0) {
        step.kind = WEFTI_STEP_SEND;
        step.dst = WEFTI_BUFFER_NONE;
        step.dst_elem = 0;
    } else {
        step.kind = WEFTI_STEP_COPY;
        step.peer = problem->rank;
        step.dst_elem += (size_t)problem->rank * problem->count;
    }
    return step;
}

static wefti_step rooted_step(const wefti_problem *problem, int list,
                              size_t index)
{
    bool is_root = problem->rank == problem->root;
    bool reduces = problem->collective == WEFT_COLLECTIVE_REDUCE;
    wefti_step step = whole_chunk(problem, index);

    if (list == 1) {
        step.kind = WEFTI_STEP_COPY;
        step.peer = problem->rank;
    } else if (is_root == reduces) { /* the side that takes in */
        step.kind = reduces ? WEFTI_STEP_REDUCE : WEFTI_STEP_RECV;
        step.peer = reduces ? WEFTI_ALL_PEERS : problem->root;
        if (!reduces) {
            step.src = WEFTI_BUFFER_NONE;
            step.src_elem = 0;
        }
    } else {
        step.kind = WEFTI_STEP_SEND;
        step.peer = reduces ? problem->root : WEFTI_ALL_PEERS;
        step.dst = WEFTI_BUFFER_NONE;
        step.dst_elem = 0;
    }
    return step;
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    WEFTI_ASSERT(index < step_count(problem, list));
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        *step_out = allreduce_step(problem, list, index);
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        *step_out = list == 0 ? other_piece(problem, index, WEFTI_STEP_SEND, 0)
                              : reduce_own(problem, index);
        break;
    case WEFT_COLLECTIVE_ALLGATHER:
        *step_out = allgather_step(problem, list, index);
        break;
    default:
        *step_out = rooted_step(problem, list, index);
        break;
    }
}

static int slots(const wefti_problem *problem, int channel)
{
    bool is_root = problem->rank == problem->root;
    size_t chunks = wefti_part_chunks(problem, problem->count);
    size_t round = (size_t)problem->nranks - 1;

    if (round == 0 || channel > 1) {
        return 0;
    }
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCESCATTER:
        if (channel == 0) {
            return wefti_slots_at_most(count_pieces(problem), 2 * round);
        }
        return problem->collective == WEFT_COLLECTIVE_ALLREDUCE
                   ? wefti_slots_at_most(part_chunks(problem, problem->rank),
                                         STAGED_DEPTH)
                   : 0;
    case WEFT_COLLECTIVE_ALLGATHER:
        return channel == 0 ? wefti_slots_at_most(chunks, STAGED_DEPTH) : 0;
    case WEFT_COLLECTIVE_BROADCAST:
        return channel == 0 && is_root
                   ? wefti_slots_at_most(chunks, STAGED_DEPTH)
                   : 0;
    default:
        return channel == 0 && !is_root
                   ? wefti_slots_at_most(chunks, STAGED_DEPTH)
                   : 0;
    }
}

/* Each rank sends every other its part, and adds up its own. */
static void cost_scatter(const wefti_sizes *sizes, wefti_cost *out)
{
    double part = sizes->bytes / sizes->ranks;
    double rounds = wefti_sizes_chunks(sizes, part);
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
    double rounds = wefti_sizes_chunks(sizes, part);
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
        cost_scatter(sizes, cost_out);
        break;
    case WEFT_COLLECTIVE_ALLGATHER:
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
