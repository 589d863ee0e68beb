/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/placed_experts.h - of a run whose experts move, the rest
 * of its state: where they are, and the loads by which they will be placed
 * next.
 *
 *   moe.placed_12_on_4   i32 [layers][12] the experts of 12 slots of 4 ranks
 *   moe.loads            f64 [layers][experts] since they were placed
 *   moe.loads_steps      u64 [1] of so many steps
 *
 * All ranks have the same, and rank 0 saves it. A run that has other slots or
 * ranks finds no map of its name, and begins with experts in order.
 */
#ifndef TRAINER_CHECKPOINT_PLACED_EXPERTS_H
#define TRAINER_CHECKPOINT_PLACED_EXPERTS_H

#include "trainer/checkpoint/state.h"

enum { WEFTI_PLACED_PIECES = 3 };

typedef struct wefti_placed_experts {
    int32_t *expert; /* [layers][slots]; NULL: none was found */
    double *loads;   /* [layers][experts]; NULL: none were found */
    uint64_t steps;
} wefti_placed_experts;

/* Adds its pieces, where this rank saves any. There is room for them. */
void wefti_placed_experts_list(const wefti_replica *replica,
                               wefti_state_list *list);

/*
 * wefti_placed_experts_read - what of it a step has for this replica.
 *
 * Returns     OK (to be ended with fini) | ERR_INVALID: it is damaged |
 *             ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_placed_experts_read(
    const wefti_replica *replica, wefti_checkpoint_reader *reader,
    wefti_placed_experts *out);

/* Exchanges it with the replica's: twice, and nothing has changed. */
void wefti_placed_experts_swap(wefti_replica *replica,
                               wefti_placed_experts *other);

void wefti_placed_experts_fini(wefti_placed_experts *placement);

#endif
