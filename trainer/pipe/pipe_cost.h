/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_cost.h - what a pipeline's actions cost, found in steps as
 * they ran, and what another cut of the same model would cost.
 *
 * A cost is the median of its kind and stage. Where a stage's backward is not
 * split, it would be as in those that are; where none is, in halves. What a
 * message takes is the median of the time from the end of its maker to the
 * begin of its user, where that one waited for it; stages that begin with a
 * first chunk make it 0.
 */
#ifndef TRAINER_PIPE_PIPE_COST_H
#define TRAINER_PIPE_PIPE_COST_H

#include "weft/schedule_cost.h"

typedef struct wefti_pipe_cost {
    weft_stage_cost *stages; /* [stages] of the schedule */
    double hidden;           /* share of a pair's shorter half */
    double p2p;
    bool split_known; /* I and W were measured, of some stage */
} wefti_pipe_cost;

/*
 * wefti_pipe_cost_init - from run_count steps of one schedule with their spans,
 * one at least.
 *
 * Returns     OK | ERR_NO_MEMORY; after an error there is nothing to finish.
 */
WEFT_NODISCARD weft_status wefti_pipe_cost_init(wefti_pipe_cost *cost,
                                                const weft_schedule *schedule,
                                                const weft_schedule_run *runs,
                                                size_t run_count);
void wefti_pipe_cost_fini(wefti_pipe_cost *cost); /* also of zeros */

/* A rank's on average over ranks; without stages. */
weft_schedule_cost wefti_pipe_cost_mean(const wefti_pipe_cost *cost,
                                        const weft_schedule *schedule);

/*
 * wefti_layer_cost - a model as a run of equal layers.
 *
 * first, last   what the model's two ends cost beside their layers: embedding;
 *               norm, head and loss.
 */
typedef struct wefti_layer_cost {
    weft_stage_cost layer, first, last;
} wefti_layer_cost;

/*
 * wefti_layer_cost_fit - layers from the stages between the ends; where there
 * are none, from the first stage, whose embedding then counts as nothing.
 *
 * layers      of the model, dealt out as the trainer does.
 */
wefti_layer_cost wefti_layer_cost_fit(const wefti_pipe_cost *cost,
                                      const weft_schedule *schedule,
                                      int layers);

/*
 * wefti_pipe_basis - all that other schedules of the same model are planned
 * with.
 *
 * hidden   share of a pair's shorter half
 */
typedef struct wefti_pipe_basis {
    wefti_layer_cost layer;
    double p2p, hidden;
} wefti_pipe_basis;

wefti_pipe_basis wefti_pipe_basis_fit(const wefti_pipe_cost *cost,
                                      const weft_schedule *schedule,
                                      int layers);

/* A rank's share of the layers, without the model's ends. */
weft_schedule_cost wefti_pipe_basis_rank(const wefti_pipe_basis *basis,
                                         int ranks, int layers);

/* stages_out   [stages of the schedule] */
void wefti_layer_cost_apply(const wefti_layer_cost *cost,
                            const weft_schedule *schedule, int layers,
                            weft_stage_cost *stages_out);

#endif
