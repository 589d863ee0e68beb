/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/state.h - a replica's state as parts of tensors: of each
 * tensor NAME the parameters, "NAME", and the moments, "NAME.first" and
 * "NAME.second"; of the weights' average "NAME.ema" and "NAME.ema_rest"
 * (trainer/ema.h).
 *
 *   bucket                 | share 0    | share 1    |
 *   tensors               tttttttttuuuuuuuuuuuuuvvvv.     . padding
 *   of rank 1                           uuuuuuuuvvvv
 *
 * A tensor is in one bucket, so a rank's share has one run of it at most; of a
 * tensor that ranks share, that is several parts of the whole one, as many as
 * rows where it is cut by columns. No part holds padding, and none depends on
 * buckets in any other way. All of the model's elements are saved once.
 */
#ifndef TRAINER_CHECKPOINT_STATE_H
#define TRAINER_CHECKPOINT_STATE_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/replica.h"

enum { WEFTI_STATE_PARTS = 3 }; /* parameters and both moments */

/* Pieces, in the order of a copy of them. */
typedef struct wefti_state_list {
    wefti_checkpoint_piece *pieces;
    size_t count;
    size_t shares; /* the first of them; the others are the host's */
} wefti_state_list;

/* Adds a piece, for which there is room; its place in the copy follows the last
 * one's. */
void wefti_state_add(wefti_state_list *list,
                     const wefti_checkpoint_piece *piece);

/* The bytes of a copy. */
size_t wefti_state_count_bytes(const wefti_state_list *list);

/*
 * wefti_state_cut - what of a tensor is in this rank's share: of its gradient,
 * which the piece has live, and its name not.
 *
 * Returns     whether there is any.
 */
bool wefti_state_cut(const wefti_replica *replica, const wefti_tensor *tensor,
                     wefti_checkpoint_piece *piece_out);

/*
 * wefti_state_add_shares - this rank's, WEFTI_STATE_PARTS for each part of a
 * tensor, which follow each other.
 *
 * copies    also what is read here and saved elsewhere: the copy of a tied
 *           embedding, as the embedding, and what all ranks of a layer have
 */
void wefti_state_add_shares(const wefti_replica *replica, bool copies,
                            wefti_state_list *list);

/* How many pieces those are, and of the weights' average. */
size_t wefti_state_count_pieces(const wefti_replica *replica, bool copies);

/*
 * wefti_state_list_shares - a list of those, and of the weights' average where
 * the replica has one; without copies of what else is saved of it
 * (trainer/checkpoint/placed_experts.h). Returns OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_state_list_shares(const wefti_replica *replica,
                                                   bool copies,
                                                   wefti_state_list *list_out);
void wefti_state_list_fini(wefti_state_list *list);

#endif
