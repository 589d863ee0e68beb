/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_placement.h - where the ranks of a job would go.
 */
#ifndef PERF_INFO_PLACEMENT_H
#define PERF_INFO_PLACEMENT_H

#include "base/json.h"
#include "topo/report.h"

#include <stdio.h>

/*
 * wefti_info_placement_show - as a member of json or as text; neither: only
 * whether that can be said.
 *
 * Returns     OK | ERR_INVALID: sizes | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_info_placement_show(const wefti_report *report,
                                                     const char *sizes,
                                                     wefti_json *json,
                                                     FILE *file);

#endif
