/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_gather.h - the times that all ranks have written down in a
 * step, as one run.
 */
#ifndef OVERLAP_PIPELINE_GATHER_H
#define OVERLAP_PIPELINE_GATHER_H

#include "overlap/schedule/schedule.h"
#include "weft/pipeline.h"

/* What the spans' times are read from: wefti_clock_ns, but for tests. */
typedef int64_t wefti_pipeline_clock(void);

/*
 * wefti_pipeline_gather - collective over comm.
 *
 * spans         [actions of this rank]
 * activations   this rank's peak, in device units
 * error_out     by how much a rank's clock may be off, at most; 0: all share
 * one
 *
 * Returns     OK (weft_schedule_run_fini it) | ERR_NO_MEMORY | the fault.
 */
WEFT_NODISCARD weft_status
wefti_pipeline_gather(const weft_schedule *schedule, weft_comm *comm,
                      const weft_pipeline_span *spans, double activations,
                      double unit_ns, wefti_pipeline_clock *clock,
                      weft_schedule_run *run_out, int64_t *error_out);

#endif
