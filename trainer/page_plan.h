/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/page_plan.h - a pipeline's step as it was measured, beside what the
 * simulator makes of the costs found in it, and which schedule would suit them
 * best.
 *
 * A cost is the median of its kind and stage. Where a stage's backward is not
 * split, it would be as in those that are; where none is, in halves. What a
 * message takes is the median of the time from the end of its maker to the
 * begin of its user, where that one waited for it; stages that begin with a
 * first chunk make it 0.
 */
#ifndef TRAINER_PAGE_PLAN_H
#define TRAINER_PAGE_PLAN_H

#include "weft/advice.h"

typedef struct wefti_page_plan {
    const weft_schedule *schedule; /* borrowed */
    weft_schedule_run measured, planned;
    weft_stage_cost *stages; /* [stages] of the schedule */
    weft_schedule_cost cost; /* of a rank, on average; without stages */
    weft_advice advice;
    bool split_known; /* I and W were measured, of some stage */
} wefti_page_plan;

/*
 * wefti_page_plan_init - from a step of all ranks with its spans, which is
 * taken over.
 *
 * layers      of the model.
 *
 * Returns     OK | ERR_NO_MEMORY | what the simulator says. After an error
 *             there is nothing to finish; measured is gone too.
 */
WEFT_NODISCARD weft_status wefti_page_plan_init(wefti_page_plan *plan,
                                                const weft_schedule *schedule,
                                                weft_schedule_run *measured,
                                                int layers);
void wefti_page_plan_fini(wefti_page_plan *plan); /* also of zeros */

/* What a rank put off: W that did not follow its I at once, and how many of
 * them waited at most. */
void wefti_page_plan_deferred(const weft_schedule *schedule, int rank,
                              size_t *deferred_out, size_t *waiting_out);

#endif
