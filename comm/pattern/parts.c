/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/parts.c - parts, pieces, rounds: see parts.h.
 *
 * Piece `index` is in the last round before which at most index pieces lie.
 * Every round has at most one piece of each peer, so that round is at least
 * index / peers; with equal parts it is just that, and the search ends at
 * once.
 */
#include "comm/pattern/parts.h"

#include "base/check.h"
#include "comm/pattern/shape.h"

/* rank's part of a buffer that has one for each, if parts, or else the whole;
 * counts, displs: of the v forms. */
static wefti_part find_part(const wefti_problem *problem, int rank, bool parts,
                            const size_t *counts, const size_t *displs)
{
    const size_t place = (size_t)rank;
    if (problem->collective == WEFT_COLLECTIVE_ALLREDUCE) {
        wefti_part share;
        share.elems =
            wefti_share(problem->count, problem->nranks, rank, &share.begin);
        return share;
    }
    return !parts   ? (wefti_part){0, problem->count}
           : counts ? (wefti_part){displs[place], counts[place]}
                    : (wefti_part){place * problem->count, problem->count};
}

wefti_part wefti_part_to(const wefti_problem *problem, int peer)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    return wefti_shape_moves(shape, problem->root, problem->rank, peer)
               ? find_part(problem, peer, shape->send_parts,
                           problem->send_counts, problem->send_displs)
               : (wefti_part){0, 0};
}

wefti_part wefti_part_from(const wefti_problem *problem, int peer)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    return wefti_shape_moves(shape, problem->root, peer, problem->rank)
               ? find_part(problem, peer, shape->recv_parts,
                           problem->recv_counts, problem->recv_displs)
               : (wefti_part){0, 0};
}

size_t wefti_part_chunks(const wefti_problem *problem, size_t elems)
{
    if (elems <= problem->chunk_elems) {
        return elems != 0; /* often so, and divisions are slow */
    }
    return (elems - 1) / problem->chunk_elems + 1;
}

wefti_part wefti_part_chunk(const wefti_problem *problem, wefti_part part,
                            size_t index)
{
    size_t offset = index * problem->chunk_elems;
    WEFTI_ASSERT(offset < part.elems);
    size_t left = part.elems - offset;
    return (wefti_part){part.begin + offset, left < problem->chunk_elems
                                                 ? left
                                                 : problem->chunk_elems};
}

static wefti_part part_of(const wefti_part_side *side, int peer)
{
    return side->outward ? wefti_part_to(side->problem, peer)
                         : wefti_part_from(side->problem, peer);
}

static size_t elems_of(const wefti_part_side *side, int peer)
{
    return side->leaves_out &&
                   side->leaves_out(side->problem, side->outward, peer)
               ? 0
               : part_of(side, peer).elems;
}

/* Pieces of the rounds before `round`. */
static size_t pieces_before(const wefti_part_side *side, size_t round)
{
    const wefti_problem *problem = side->problem;
    size_t pieces = 0;
    if (round == 0) {
        return 0;
    }
    for (int peer = 0; peer < problem->nranks; peer++) {
        size_t elems = peer == problem->rank ? 0 : elems_of(side, peer);
        bool longer = elems > (round - 1) * problem->chunk_elems;
        pieces += longer ? round : wefti_part_chunks(problem, elems);
    }
    return pieces;
}

/* The longest part has so many chunks; *peers_out: parts that have any. */
static size_t count_rounds(const wefti_part_side *side, int *peers_out)
{
    size_t most_elems = 0;
    *peers_out = 0;
    for (int peer = 0; peer < side->problem->nranks; peer++) {
        size_t elems = peer == side->problem->rank ? 0 : elems_of(side, peer);
        *peers_out += elems > 0;
        most_elems = elems > most_elems ? elems : most_elems;
    }
    return wefti_part_chunks(side->problem, most_elems);
}

/* How many ranks' shares have the chunk: these are ranks 0, 1, .. */
static int ranks_having(const wefti_part_side *side, size_t chunk)
{
    const size_t before = chunk * side->problem->chunk_elems;
    int have = 0, lack = side->problem->nranks;
    if (part_of(side, lack - 1).elems > before) {
        return lack; /* the usual case */
    }
    while (have < lack) {
        const int middle = have + (lack - have) / 2;
        if (part_of(side, middle).elems > before) {
            have = middle + 1;
        } else {
            lack = middle;
        }
    }
    return have;
}

/*
 * Piece index of the shares of all others, where there are as many: sets it,
 * and returns index. Else how many there are. Rounds that equally many ranks
 * have are passed in one go; shares have at most three lengths.
 */
static size_t walk_shares(const wefti_part_side *side, size_t index,
                          int *peer_out, size_t *round_out)
{
    const wefti_problem *problem = side->problem;
    const size_t rounds = wefti_part_chunks(problem, part_of(side, 0).elems);
    size_t passed = 0;
    for (size_t round = 0; round < rounds;) {
        const size_t ranks = (size_t)ranks_having(side, round);
        const size_t others = ranks - ((size_t)problem->rank < ranks);
        const size_t until =
            wefti_part_chunks(problem, part_of(side, (int)ranks - 1).elems);
        const size_t pieces = (until - round) * others;
        if (index - passed < pieces) {
            const size_t place = 1 + (index - passed) % others;
            *round_out = round + (index - passed) / others;
            *peer_out = (int)(((size_t)problem->rank + place) % ranks);
            return index;
        }
        passed += pieces;
        round = until;
    }
    return passed;
}

static bool has_shares(const wefti_part_side *side)
{
    return side->problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
}

size_t wefti_side_count(const wefti_part_side *side, int *peers_out)
{
    size_t round;
    if (has_shares(side)) {
        *peers_out = side->problem->nranks - 1;
        return walk_shares(side, SIZE_MAX, peers_out, &round);
    }
    return pieces_before(side, count_rounds(side, peers_out));
}

/* The round that piece index is in; *passed_out: pieces before it. */
static size_t find_round(const wefti_part_side *side, size_t index,
                         size_t *passed_out)
{
    int peers;
    size_t rounds = count_rounds(side, &peers);
    WEFTI_ASSERT(peers > 0);
    size_t low = index / (size_t)peers, high = low + 1, step = 1;
    while (high < rounds && pieces_before(side, high) <= index) {
        low = high;
        step *= 2;
        high = rounds - high > step ? high + step : rounds;
    }
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (pieces_before(side, middle) <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *passed_out = pieces_before(side, low);
    return low;
}

static int peer_at(const wefti_part_side *side, int place)
{
    int nranks = side->problem->nranks;
    int peer = side->problem->rank + (side->outward ? place : -place);
    return peer < 0 ? peer + nranks : peer >= nranks ? peer - nranks : peer;
}

static wefti_piece_place piece_of(const wefti_part_side *side, int peer,
                                  size_t round)
{
    wefti_part chunk =
        wefti_part_chunk(side->problem, part_of(side, peer), round);
    return (wefti_piece_place){peer, chunk.begin, chunk.elems};
}

/* Some parts may be longer than others. */
static wefti_piece_place varied_at(const wefti_part_side *side, size_t index)
{
    size_t passed;
    size_t round = find_round(side, index, &passed);
    size_t begin = round * side->problem->chunk_elems;
    int place = 1;
    while (elems_of(side, peer_at(side, place)) <= begin || passed++ < index) {
        place++;
        WEFTI_ASSERT(place < side->problem->nranks);
    }
    return piece_of(side, peer_at(side, place), round);
}

wefti_piece_place wefti_side_at(const wefti_part_side *side, size_t index)
{
    const wefti_problem *problem = side->problem;
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    wefti_who who = side->outward ? shape->receives : shape->sends;
    size_t peers = (size_t)problem->nranks - 1;
    if (who == WEFTI_WHO_ROOT) {
        return piece_of(side, problem->root, index);
    }
    if (has_shares(side)) {
        int peer = 0;
        size_t round = 0;
        (void)walk_shares(side, index, &peer, &round);
        return piece_of(side, peer, round);
    }
    if (shape->varied) {
        return varied_at(side, index);
    }
    return piece_of(side, peer_at(side, 1 + (int)(index % peers)),
                    index / peers);
}

wefti_step wefti_side_step(const wefti_part_side *side, size_t index)
{
    const bool send = side->outward;
    const wefti_piece_place at = wefti_side_at(side, index);
    return (wefti_step){.kind = send ? WEFTI_STEP_SEND : WEFTI_STEP_RECV,
                        .src = send ? WEFTI_BUFFER_SEND : WEFTI_BUFFER_NONE,
                        .dst = send ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_RECV,
                        .peer = at.peer,
                        .owner = at.peer,
                        .src_elem = send ? at.begin : 0,
                        .dst_elem = send ? 0 : at.begin,
                        .elems = at.elems};
}

int wefti_side_slots(const wefti_part_side *side)
{
    enum { DEPTH_LEAST = 4, DEPTH_PEER = 2 };
    int peers;
    const size_t messages = wefti_side_count(side, &peers);
    const size_t depth = DEPTH_PEER * (size_t)peers;
    return wefti_slots_at_most(messages,
                               depth < DEPTH_LEAST ? DEPTH_LEAST : depth);
}

wefti_step wefti_part_own_step(const wefti_problem *problem, size_t index)
{
    const int rank = problem->rank;
    const wefti_part src =
        wefti_part_chunk(problem, wefti_part_to(problem, rank), index);
    const wefti_part dst =
        wefti_part_chunk(problem, wefti_part_from(problem, rank), index);
    return (wefti_step){.kind = WEFTI_STEP_COPY,
                        .src = WEFTI_BUFFER_SEND,
                        .dst = WEFTI_BUFFER_RECV,
                        .peer = rank,
                        .owner = rank,
                        .src_elem = src.begin,
                        .dst_elem = dst.begin,
                        .elems = src.elems};
}
