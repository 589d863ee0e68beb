/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_costs.h - what each stage costs, where weft-sched is told of an
 * encoder or of the model's two ends.
 */
#ifndef PERF_SCHED_COSTS_H
#define PERF_SCHED_COSTS_H

#include "perf/sched_options.h"

/*
 * wefti_sched_costs - the options' cost with stages of their own, if there are
 * such; of B alone half is I and half W.
 *
 * stages, directions, chunks   of the schedule
 * cost_out     stages belong to the caller: free them; NULL: equal
 *
 * Returns      OK | ERR_NO_MEMORY | ERR_INVALID (more of an encoder than there
 *              is).
 */
WEFT_NODISCARD weft_status wefti_sched_costs(const wefti_sched_options *options,
                                             int stages, int directions,
                                             int chunks,
                                             weft_schedule_cost *cost_out);

#endif
