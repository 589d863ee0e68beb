/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/encoder.h - schedules whose first stages are an encoder's: a
 * branch of the model with costs of its own.
 */
#ifndef OVERLAP_SCHEDULE_ENCODER_H
#define OVERLAP_SCHEDULE_ENCODER_H

#include "weft/schedule_cost.h"

/*
 * wefti_encoder_group - how many micro-batches a chunk of an interleaved
 * schedule runs in a row, where chunks cost different things: as many as ranks,
 * or twice as many where the simulator has the step at least a hundredth
 * shorter then, and the number of micro-batches suits that.
 *
 * In groups of P an F of one branch is paired with a B of the other, on each
 * rank at another time; what is longer than its partner holds up the next rank
 * once a group. A group of 2P leaves them room.
 *
 * config      of interleaved; its group is not read
 * cost        with stages: [ranks * chunks]
 *
 * Returns     OK | as weft_schedule_create and weft_schedule_simulate.
 */
WEFT_NODISCARD weft_status
wefti_encoder_group(const weft_schedule_config *config,
                    const weft_schedule_cost *cost, int *group_out);

#endif
