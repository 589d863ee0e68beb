/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run.h - one rank's whole run of weft-train, from its configuration
 * to its last line. Several ranks may run as threads of one process.
 */
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include "comm/watch/flight.h"
#include "trainer/options.h"
#include "trainer/overlap_trial.h"
#include "trainer/train_step.h"
#include "weft/comm.h"

#include <stdio.h>

/* Called after training with the final state, before it goes. For tests. */
typedef void wefti_run_inspect(void *context, const wefti_replica *replica);

/*
 * options        borrowed
 * id             NULL: the environment's job
 * rank, nranks   0, 0: those of the environment, or alone where it has none
 * out, err       rank 0's summary or generated text, and its progress
 * flight         watches the communicator; NULL: none
 * inspect        NULL: not called
 * clock          of trials of overlap; NULL: the steps' own time
 */
typedef struct wefti_run_config {
    const wefti_options *options;
    const weft_unique_id *id;
    int rank, nranks;
    FILE *out, *err;
    wefti_flight *flight;
    wefti_run_inspect *inspect;
    void *inspect_context;
    wefti_overlap_clock *clock;
    void *clock_context;
} wefti_run_config;

enum { WEFTI_RUN_ERROR_BYTES = 768 };

/*
 * wefti_run - trains as the options say.
 *
 * error_out   room for WEFTI_RUN_ERROR_BYTES: one line, after an error.
 * everywhere  whether every rank fails alike, so that one may print for all.
 *
 * Returns     OK | the first error of this rank. If other ranks take part,
 *             they end too: its communicator is aborted.
 */
WEFT_NODISCARD weft_status wefti_run(const wefti_run_config *config,
                                     char *error_out, bool *everywhere);

#endif
