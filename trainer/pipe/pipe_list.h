/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_list.h - a schedule that the user states as a file: read,
 * compared with the configuration, and proved, before anything runs.
 *
 *   compute alone                    all else is put in, as for a generator's
 *   with REDUCE_GRAD or RELEASE      these stay where they are
 *   with messages                    run as it is
 *
 * OFFLOAD and RELOAD, RECOMPUTE and BARRIER may be in any.
 */
#ifndef TRAINER_PIPE_PIPE_LIST_H
#define TRAINER_PIPE_PIPE_LIST_H

#include "trainer/config/config.h"
#include "weft/schedule.h"

/*
 * wefti_pipe_list_read - the list of parallel.schedule_file.
 *
 * Returns     OK | ERR_INVALID (what breaks a rule, is for another number of
 *             ranks or micro-batches, or holds what the trainer does by itself;
 *             the text begins with the file's path) | ERR_SYSTEM |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_pipe_list_read(const wefti_config *config,
                                                int64_t microbatches,
                                                weft_schedule **schedule_out);

/* Whether any rank has an action of that kind. */
bool wefti_pipe_list_has(const weft_schedule *schedule, weft_action_type type);

/*
 * The first W or B that does not come in the order of micro-batches, as text;
 * false: there is none, so that sums have the order of a single rank's.
 */
bool wefti_pipe_list_is_disordered(const weft_schedule *schedule,
                                   char text[WEFT_ACTION_TEXT_BYTES]);

#endif
