/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_move.h - experts that go to other ranks: their weights, master
 * copies, moments and averages, between two steps.
 *
 *   update of bucket b | post b | ... next step's forward: land b, use it
 *                        ------ bytes are under way ------
 *
 * What is posted is copied at once, and comes into memory of its own: so a slot
 * may send and receive, and the gathering of the same bucket goes on as ever.
 * Behind both, land puts what came in its place. State goes from the rank that
 * has the share that it lies in to the one that will, weights to all of the
 * replicas that will have the expert.
 *
 * The host computes. All ranks of a stage make the same calls in one order.
 */
#ifndef TRAINER_EXPERT_MOVE_H
#define TRAINER_EXPERT_MOVE_H

#include "trainer/replica.h"

typedef struct wefti_expert_move wefti_expert_move;

/*
 * wefti_expert_move_create - for a replica whose plan has a map of experts; its
 * group of experts lands what comes from now on. Collective over the replica's
 * communicator.
 *
 * Returns     OK | ERR_NO_MEMORY | as weft_comm_split, weft_ledger_attach.
 */
WEFT_NODISCARD weft_status
wefti_expert_move_create(wefti_replica *replica, wefti_expert_move **move_out);

/* Waits for what is under way: after a failure abort first. NULL is legal. */
void wefti_expert_move_destroy(wefti_expert_move *move);
void wefti_expert_move_abort(wefti_expert_move *move); /* NULL is legal */

/* The communicator's fault, if it has one. NULL is legal. */
WEFT_NODISCARD weft_status
wefti_expert_move_check(const wefti_expert_move *move);

/* Bytes of an expert of one layer: what it takes to move it. */
size_t wefti_expert_move_bytes(const wefti_replica *replica);

/*
 * wefti_expert_move_post - of a bucket of experts, updated and sent to its
 * replicas, what goes to other slots.
 *
 * next      [layers][slots] what each slot will have; the plan's map says
 *           what it has
 */
WEFT_NODISCARD weft_status wefti_expert_move_post(wefti_expert_move *move,
                                                  size_t bucket,
                                                  const int32_t *next);

/*
 * wefti_expert_move_sum - of a bucket whose gradients are reduced: those of the
 * replicas of each expert become their sum, the same bits in all. Done on
 * return. Nothing without replicas.
 */
WEFT_NODISCARD weft_status wefti_expert_move_sum(wefti_expert_move *move,
                                                 size_t bucket);

/* The averages of all buckets, which have settled: done on return. */
WEFT_NODISCARD weft_status wefti_expert_move_averages(wefti_expert_move *move,
                                                      const int32_t *next);

#endif
