/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/advice_text.h - advice in words.
 */
#ifndef OVERLAP_SCHEDULE_ADVICE_TEXT_H
#define OVERLAP_SCHEDULE_ADVICE_TEXT_H

#include "weft/advice.h"

/* Whether so much of the step is idle that the advice has a warning. */
bool wefti_advice_is_warned(const weft_schedule_candidate *best);

/*
 * wefti_advice_explain - reason and warning of an advice whose candidates are
 * in their order.
 *
 * helped   more micro-batches make the bubble of the best less
 */
void wefti_advice_explain(const weft_advice_config *config, weft_advice *advice,
                          bool helped);

#endif
