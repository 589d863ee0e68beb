/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/price.h - what each action takes, from a cost model.
 */
#ifndef OVERLAP_SCHEDULE_PRICE_H
#define OVERLAP_SCHEDULE_PRICE_H

#include "overlap/schedule/schedule.h"

/* A caller's costs, of whatever version, as of this one; or ERR_INVALID. */
WEFT_NODISCARD weft_status wefti_price_read(const weft_schedule_cost *given,
                                            weft_schedule_cost *cost_out);

/* Refuses what cannot be a cost of this schedule. */
WEFT_NODISCARD weft_status wefti_price_check(const weft_schedule *schedule,
                                             const weft_schedule_cost *cost);

/* Compute, OPT and RECOMPUTE take a rank's time; anything else 0. */
double wefti_price_action(const weft_schedule *schedule,
                          const weft_schedule_cost *cost,
                          const weft_action *action);

#endif
