/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_mode.h - how a pipeline's messages go, for who measures what
 * it is worth that they go beside compute.
 */
#ifndef OVERLAP_PIPELINE_MODE_H
#define OVERLAP_PIPELINE_MODE_H

#include "weft/bucket.h"
#include "weft/pipeline.h"

/*
 * wefti_pipeline_set_mode - between steps, all ranks the same.
 *
 * OVERLAPPED   as ever
 * BLOCKING     messages are posted where the list has them, and no compute
 *              begins while one is under way. Lists stand that: they are
 *              checked with WEFT_SEMANTICS_GROUPED
 * OFF          of each chunk goes a single element, so all waits for what it
 *              waits for; the other rows are what they were
 */
void wefti_pipeline_set_mode(weft_pipeline *pipeline, weft_bucket_mode mode);

#endif
