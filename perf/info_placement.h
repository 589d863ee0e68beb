/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_placement.h - where the ranks of a job would go.
 */
#ifndef PERF_INFO_PLACEMENT_H
#define PERF_INFO_PLACEMENT_H

#include "base/json.h"
#include "perf/info_job.h"
#include "topo/report.h"

#include <stdio.h>

/*
 * wefti_info_placement_show - as a member of json or as text; neither: only
 * whether that can be said. running: ranks that a launcher has started have
 * the places; NULL: every GPU is one, and each host without.
 *
 * Returns     OK | ERR_INVALID: sizes | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_info_placement_show(
    const wefti_report *report, const char *sizes,
    const wefti_info_job *running, wefti_json *json, FILE *file);

#endif
