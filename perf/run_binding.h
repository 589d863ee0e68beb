/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_binding.h - which cores each process of a job gets, and whose
 * memory is near.
 */
#ifndef PERF_RUN_BINDING_H
#define PERF_RUN_BINDING_H

#include "topo/binding.h"

/*
 * run_binding_plan - from this machine as it is now; a process of several ranks
 * gets what they would get.
 *
 * bounds_out  [nranks / ranks_per_process]
 * Returns     OK | what reading the machine finds wrong.
 */
WEFT_NODISCARD weft_status run_binding_plan(int nranks, int ranks_per_process,
                                            wefti_bound *bounds_out);

#endif
