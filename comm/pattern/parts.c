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

wefti_part wefti_part_to(const wefti_problem *problem, int peer)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    size_t place = (size_t)peer;
    if (!wefti_shape_moves(shape, problem->root, problem->rank, peer)) {
        return (wefti_part){0, 0};
    }
    if (!shape->send_parts) {
        return (wefti_part){0, problem->count};
    }
    return shape->varied ? (wefti_part){problem->send_displs[place],
                                        problem->send_counts[place]}
                         : (wefti_part){place * problem->count, problem->count};
}

wefti_part wefti_part_from(const wefti_problem *problem, int peer)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    size_t place = (size_t)peer;
    if (!wefti_shape_moves(shape, problem->root, peer, problem->rank)) {
        return (wefti_part){0, 0};
    }
    if (!shape->recv_parts) {
        return (wefti_part){0, problem->count};
    }
    return shape->varied ? (wefti_part){problem->recv_displs[place],
                                        problem->recv_counts[place]}
                         : (wefti_part){place * problem->count, problem->count};
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

size_t wefti_side_count(const wefti_part_side *side, int *peers_out)
{
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
