/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_advice.h - which schedule would suit a job, from costs that
 * were measured in it: what auto chooses its trials by, and what a report
 * shows.
 */
#ifndef TRAINER_PIPE_PIPE_ADVICE_H
#define TRAINER_PIPE_PIPE_ADVICE_H

#include "trainer/pipe/pipe_cost.h"
#include "weft/advice.h"

/*
 * wefti_pipe_job - what costs do not include.
 *
 * sequences       of a step, in one pipeline: what other numbers of
 *                 micro-batches could cut; 0: none are considered
 * chunks, group   V and N that interleaved schedules must have; 0: any
 */
typedef struct wefti_pipe_job {
    int ranks, microbatches, layers, sequences;
    int chunks, group;
} wefti_pipe_job;

typedef struct wefti_pipe_advice {
    weft_advice found;
    int microbatches; /* of the job */
    char *command;    /* of weft-sched, that asks for the same */
} wefti_pipe_advice;

/* Returns OK | ERR_NO_MEMORY | as weft_schedule_advise; after an error there is
 * nothing to finish. */
WEFT_NODISCARD weft_status
wefti_pipe_advice_init(wefti_pipe_advice *advice, const wefti_pipe_job *job,
                       const wefti_pipe_basis *basis);
void wefti_pipe_advice_fini(wefti_pipe_advice *advice); /* also of zeros */

#endif
