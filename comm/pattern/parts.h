/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/parts.h - which run of elements goes from one rank to another,
 * and in which order its chunks take turns with every other rank's.
 *
 *      part of peer:  +1      +2      +3       round 0: a0 b0 c0
 *                     a0 a1   b0      c0 c1    round 1: a1    c1
 *
 * A piece is one chunk of one part. Pieces are dealt with round by round, round
 * j being chunk j of every part that has one, so that one long part holds
 * no other rank up. Lengths may be anything: a round leaves out who has no
 * more.
 */
#ifndef COMM_PATTERN_PARTS_H
#define COMM_PATTERN_PARTS_H

#include "comm/pattern/pattern.h"

/* A run of elements in a buffer. */
typedef struct wefti_part {
    size_t begin, elems;
} wefti_part;

/* What this rank's send buffer holds for peer, and its receive buffer from
 * peer; either may be this rank. No elements: nothing. Of an all-reduce, the
 * share that peer finishes. */
wefti_part wefti_part_to(const wefti_problem *problem, int peer);
wefti_part wefti_part_from(const wefti_problem *problem, int peer);

/*
 * The pieces this rank sends to all others, or gets from them. A round takes
 * the peers outward in the order rank + 1, rank + 2, .., inward in the order
 * rank - 1, rank - 2, .., so that both ends of a message have it in the same
 * place.
 */
typedef struct wefti_part_side {
    const wefti_problem *problem;
    bool outward;
    /* Of the v forms: whose parts move in another way; NULL: none. */
    bool (*leaves_out)(const wefti_problem *problem, bool outward, int peer);
} wefti_part_side;

typedef struct wefti_piece_place {
    int peer;
    size_t begin; /* element of the buffer */
    size_t elems; /* 1 .. chunk_elems */
} wefti_piece_place;

/* How many messages there are, and with how many peers. */
size_t wefti_side_count(const wefti_part_side *side, int *peers_out);

/* Piece index, of wefti_side_count. */
wefti_piece_place wefti_side_at(const wefti_part_side *side, size_t index);

/* The step that sends, or gets, piece index, on channel 0. */
wefti_step wefti_side_step(const wefti_part_side *side, size_t index);

/* Slots for what goes outward: two pieces for each peer, some for few. */
int wefti_side_slots(const wefti_part_side *side);

/* The step that copies chunk index of what this rank has for itself. */
wefti_step wefti_part_own_step(const wefti_problem *problem, size_t index);

/* Where a buffer of count elements, in parts for each rank, or else one for
 * all, has element elem of a block: of elems of each part, from begin on. */
static inline size_t wefti_part_whole_elem(bool parts, size_t count,
                                           size_t elems, size_t begin,
                                           size_t elem)
{
    return parts ? elem / elems * count + begin + elem % elems : begin + elem;
}

/* Chunk index of one part. */
size_t wefti_part_chunks(const wefti_problem *problem, size_t elems);
wefti_part wefti_part_chunk(const wefti_problem *problem, wefti_part part,
                            size_t index);

#endif
