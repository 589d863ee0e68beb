/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_check.h - whether what a config asks for can be executed.
 */
#ifndef OVERLAP_PIPELINE_CHECK_H
#define OVERLAP_PIPELINE_CHECK_H

#include "weft/pipeline.h"

/* The sizes and the schedule, which is proved. Returns OK | ERR_INVALID |
 * ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status
wefti_pipeline_check_list(const weft_pipeline_config *config);

/* Those, the ranks, and that there is a call for each action of this rank. */
WEFT_NODISCARD weft_status
wefti_pipeline_check(const weft_pipeline_config *config);

#endif
