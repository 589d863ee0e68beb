/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_pieces.h - who sends what of which expert to whom, where
 * experts move and where their replicas' gradients are summed: it follows from
 * the plan's map and the next, and comes in one order on all ranks.
 *
 *   slot 1 of part 0    |--- share of replica 0 ---|--- of replica 1 ---|
 *   slot 4 of part 1       |------- share of replica 0 ------|-- of 1 --|
 *   pieces              |--|-----------------------|---------|----------|
 */
#ifndef TRAINER_EXPERT_PIECES_H
#define TRAINER_EXPERT_PIECES_H

#include "trainer/model/parameters.h"

enum { WEFTI_MOVED_ARRAYS_MOST = 4 };

/*
 * What of an expert moves.
 *
 * of_share   to the rank with the share that it will be in; else to all
 *            replicas of its part
 * flat       base is the group's array; else the rank's shares alone
 */
typedef struct wefti_moved_array {
    unsigned char *base;
    size_t elem_bytes;
    bool of_share, flat;
} wefti_moved_array;

/* Elements that one rank sends to another, and where they are on both. */
typedef struct wefti_moved_piece {
    const wefti_moved_array *array;
    int from, to;
    size_t from_at, to_at, elems;
    bool adds; /* to what is there; else it takes its place */
} wefti_moved_piece;

/*
 * What an exchange moves, of buckets first .. end - 1: of slots whose expert
 * next changes; next NULL: of all replicas of an expert to each of them, in
 * their order, to be summed.
 *
 * plan    has the map of what slots have now; borrowed, like ranks
 * ranks   [parts][replicas of the group of experts] who each is
 * next    [layers][slots]
 */
typedef struct wefti_moved_list {
    const wefti_parameters *plan;
    const int *ranks;
    size_t first, end;
    const int32_t *next;
    wefti_moved_array arrays[WEFTI_MOVED_ARRAYS_MOST];
    size_t array_count;
} wefti_moved_list;

typedef void wefti_on_piece(void *context, const wefti_moved_piece *piece);

/* Calls on for each piece, whoever sends it. */
void wefti_expert_pieces_list(const wefti_moved_list *what, wefti_on_piece *on,
                              void *context);

#endif
