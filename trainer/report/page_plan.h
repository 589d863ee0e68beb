/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_plan.h - a pipeline's step as it was measured, beside
 * what the simulator makes of the costs found in it, and which schedule would
 * suit them best (trainer/pipe/pipe_cost.h).
 */
#ifndef TRAINER_REPORT_PAGE_PLAN_H
#define TRAINER_REPORT_PAGE_PLAN_H

#include "trainer/pipe/pipe_advice.h"

typedef struct wefti_page_plan {
    const weft_schedule *schedule; /* borrowed */
    uint64_t step;                 /* that was measured */
    weft_schedule_run measured, planned;
    wefti_pipe_cost found;
    weft_schedule_cost cost;         /* of a rank, on average; without stages */
    double imbalance;                /* of planned, as in weft/advice.h */
    const wefti_pipe_advice *advice; /* own, or what auto had; NULL: the model
                                        has an encoder */
    wefti_pipe_advice own;
} wefti_page_plan;

/*
 * wefti_page_plan_init - from a step of all ranks with its spans, which is
 * taken over.
 *
 * job         NULL: no advice is made
 * given       advice that the run has had already, of the same job; borrowed.
 *             NULL: it is made from this step's costs, unless stages are of
 *             two branches.
 *
 * Returns     OK | ERR_NO_MEMORY | what the simulator says. After an error
 *             there is nothing to finish; measured is gone too.
 */
WEFT_NODISCARD weft_status wefti_page_plan_init(wefti_page_plan *plan,
                                                const weft_schedule *schedule,
                                                weft_schedule_run *measured,
                                                const wefti_pipe_job *job,
                                                const wefti_pipe_advice *given);
void wefti_page_plan_fini(wefti_page_plan *plan); /* also of zeros */

/* What a rank put off: W that did not follow its I at once, and how many of
 * them waited at most. */
void wefti_page_plan_deferred(const weft_schedule *schedule, int rank,
                              size_t *deferred_out, size_t *waiting_out);

#endif
