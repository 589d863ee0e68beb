/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_balance.h - how evenly tokens go to experts, and the biases
 * that even it out. Loads are a step's, of all ranks (trainer/step_sums.h).
 */
#ifndef TRAINER_EXPERT_BALANCE_H
#define TRAINER_EXPERT_BALANCE_H

#include "trainer/replica.h"

/*
 * wefti_expert_balance_ratio - of the layer where it is worst, the largest load
 * over the mean. NAN: the model has no experts, or none has anything.
 *
 * loads      [layers][experts]
 */
double wefti_expert_balance_ratio(const wefti_replica *replica,
                                  const double *loads);

/*
 * wefti_expert_balance_step - moves this rank's shares of the biases; before
 * they are gathered. Nothing in a step that does not balance; the host waits in
 * one that does, as loads are its then.
 *
 * step       counted from 1
 */
WEFT_NODISCARD weft_status wefti_expert_balance_step(wefti_replica *replica,
                                                     uint64_t step);

#endif
