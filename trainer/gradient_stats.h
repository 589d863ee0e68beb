/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/gradient_stats.h - what the gradient of each tensor was in a step,
 * before clipping: the same numbers on every layout that gives the same
 * gradient.
 *
 * Norms are sums over the blocks whose squares all ranks have after a step
 * anyway (trainer/optimizer.h), in the blocks' order. The largest value and the
 * zeros are looked for by each rank in its own shares and put together, which
 * no order changes.
 */
#ifndef TRAINER_GRADIENT_STATS_H
#define TRAINER_GRADIENT_STATS_H

#include "trainer/replica.h"

typedef struct wefti_gradient_stats {
    uint64_t step;            /* that they are of; 0: none yet */
    size_t count;             /* of the model, without a copy of the head */
    wefti_tensor_info *infos; /* [count] */
    double *norms;            /* [count] */
    double *most;             /* [count] of the absolute values */
    double *zeros;            /* [count] how many */
    double *squares;          /* [block_count], room for the step's */
} wefti_gradient_stats;

/* Room for those of a replica, which stays until fini.
 * Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_gradient_stats_init(
    wefti_gradient_stats *stats, const wefti_replica *replica);
void wefti_gradient_stats_fini(wefti_gradient_stats *stats); /* of zeros too */

/*
 * wefti_gradient_stats_take - those of the step that has just been done; all
 * ranks together, before anything else uses the replica.
 *
 * Returns     OK | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_gradient_stats_take(
    wefti_gradient_stats *stats, const wefti_replica *replica);

#endif
