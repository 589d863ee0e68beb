/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_routes.h - which way each collective takes at each size: the
 * levels it crosses, the algorithm, the fabric, the chunks, and why.
 */
#ifndef PERF_INFO_ROUTES_H
#define PERF_INFO_ROUTES_H

#include "base/json.h"
#include "perf/info_job.h"
#include "topo/report.h"

#include <stdio.h>

/*
 * wefti_info_routes_show - as a member of json or as text; neither: only
 * whether it can be said.
 *
 * ranks       how many, as given; NULL: those of the job, else one a GPU, else
 *             one a CPU that may be used
 * job         what really runs; NULL: nothing, then ranks fill host by host
 * live        the report is of this machine
 *
 * Returns     OK | ERR_INVALID: ranks, or a setting that weft refuses |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_info_routes_show(const wefti_report *report,
                                                  const char *ranks,
                                                  const wefti_info_job *job,
                                                  bool live, wefti_json *json,
                                                  FILE *file);

#endif
