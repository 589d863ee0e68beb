/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_schedule.h - the schedule that a configuration asks for.
 */
#ifndef TRAINER_PIPE_PIPE_SCHEDULE_H
#define TRAINER_PIPE_PIPE_SCHEDULE_H

#include "trainer/config/config.h"
#include "trainer/pipe/pipe_advice.h"
#include "weft/schedule.h"

/* Whether the model is cut over ranks at all. */
bool wefti_pipe_schedule_wanted(const wefti_config *config);

/* Stages of the model's encoder, the first ones of the schedule; 0: it has
 * none. */
int wefti_pipe_schedule_encoder(const wefti_config *config);

/*
 * wefti_pipe_schedule_config - the same job under another schedule, and nothing
 * compared. Shallow: as long as config stands, and not to be finished.
 *
 * name        of a generator; chunks: V
 */
wefti_config wefti_pipe_schedule_config(const wefti_config *config,
                                        const char *name, int chunks);

/*
 * wefti_pipe_schedule_chunks - V of a schedule that is compared: interleaved's
 * is the configuration's, else the least that the layers allow; 0: none.
 */
int wefti_pipe_schedule_chunks(const wefti_config *config, const char *name);

/* What there is to advise on in a job of so many ranks: any V and N. */
wefti_pipe_job wefti_pipe_schedule_job(const wefti_config *config, int nranks);

/*
 * wefti_pipe_schedule_make - the list for microbatches of a step: a generator's
 * compute actions, or the file's (trainer/pipe/pipe_list.h).
 *
 * Returns     OK | ERR_INVALID | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
wefti_pipe_schedule_make(const wefti_config *config, int64_t microbatches,
                         weft_schedule **schedule_out);

/*
 * Both, of a rank of a job of so many ranks: make, and pass. Its copy may have
 * a micro-batch more than others (train.elastic).
 */
WEFT_NODISCARD weft_status
wefti_pipe_schedule_open(const wefti_config *config, int rank, int nranks,
                         weft_schedule **schedule_out);

/* Whether a rank's list has an action of a type. */
bool wefti_pipe_schedule_has(const weft_schedule *schedule, int rank,
                             weft_action_type type);

#endif
