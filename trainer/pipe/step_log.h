/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/step_log.h - when the actions of a pipeline's last steps ran, on
 * this rank, so that a usual one can be examined when the run has ended: the
 * last one may have been anything.
 */
#ifndef TRAINER_PIPE_STEP_LOG_H
#define TRAINER_PIPE_STEP_LOG_H

#include "weft/pipeline.h"

#include <stdint.h>

/* zeros: nothing is kept yet */
typedef struct wefti_step_log {
    weft_pipeline_span *spans; /* [room][actions] */
    uint64_t *steps;           /* [room]: their numbers */
    double *times_ms;          /* [room]: as whole steps took */
    size_t actions, room;
    size_t count; /* added in all */
} wefti_step_log;

/*
 * wefti_step_log_init - for the last most steps of a list of so many actions;
 * fewer where that would be more than some megabytes.
 */
WEFT_NODISCARD weft_status wefti_step_log_init(wefti_step_log *log,
                                               size_t actions, size_t most);
void wefti_step_log_fini(wefti_step_log *log); /* also of zeros */

/* spans  [actions], copied; all ranks add the same steps. */
void wefti_step_log_add(wefti_step_log *log, uint64_t step, double time_ms,
                        const weft_pipeline_span *spans);

/*
 * wefti_step_log_find - of the steps that all ranks have kept, one at least,
 * the one whose time is the median on rank 0; collective.
 *
 * spans_out   this rank's; in log.
 *
 * Returns     OK | the communicator's fault.
 */
WEFT_NODISCARD weft_status
wefti_step_log_find(const wefti_step_log *log, weft_comm *comm,
                    uint64_t *step_out, const weft_pipeline_span **spans_out);

#endif
