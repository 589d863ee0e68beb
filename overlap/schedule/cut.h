/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/cut.h - places in the middle of a step at which all ranks
 * can stop with nothing under way between them.
 */
#ifndef OVERLAP_SCHEDULE_CUT_H
#define OVERLAP_SCHEDULE_CUT_H

#include "weft/schedule.h"

/*
 * wefti_schedule_cut - count prefixes of the checker's order, evenly spread,
 * each moved forward to the nearest that has both sides of every message and
 * every member of every reduction. Where two would be the same, or one all of
 * the step, there are fewer.
 *
 * schedule    lowered
 * count       1 or more
 * ends_out    [count][ranks]: how many actions of each rank's list are before
 *             the cut; later cuts have no fewer, of any rank
 * found_out   how many of them there are
 *
 * Returns     OK | ERR_INVALID (not valid, or it has a BARRIER) |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_schedule_cut(const weft_schedule *schedule,
                                              size_t count, size_t *ends_out,
                                              size_t *found_out);

#endif
