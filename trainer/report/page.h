/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page.h - the report of a run: one HTML page that needs nothing
 * but a browser, and the trace beside it.
 *
 *     every rank   init, note each step, gather at the end
 *     rank 0       try before training, add each step, write
 *
 * Both files take their places only when they are complete. What a rank keeps
 * meanwhile does not grow with the number of steps.
 */
#ifndef TRAINER_REPORT_PAGE_H
#define TRAINER_REPORT_PAGE_H

#include "trainer/config/config.h"
#include "trainer/pipe/step_log.h"
#include "trainer/pipe/trials.h"
#include "trainer/report/history.h"
#include "trainer/report/page_plan.h"
#include "trainer/report/summary.h"
#include "trainer/report/trace.h"
#include "weft/pipeline.h"

typedef struct wefti_page {
    char *path, *trace_path;
    wefti_history history;
    wefti_rank_sums sums; /* of this rank */
    wefti_trace trace;    /* rank 0's, once gathered */
    int nranks;
    const char *fabric;   /* that carries collectives */
    char *machine;        /* the text of it; NULL: could not be read */
    char *trace_error;    /* why the trace was not written; NULL: it was */
    wefti_step_log steps; /* of a pipeline, on this rank */
    wefti_page_plan plan; /* schedule NULL: no pipeline */
    const wefti_trials *trials; /* borrowed; NULL: none */
} wefti_page;

/*
 * wefti_page_init - for a report in path; the trace goes to the same name with
 * .trace.json in place of .html.
 *
 * Returns     OK | ERR_INVALID ("-", or nothing) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_page_init(wefti_page *page, const char *path);
void wefti_page_fini(wefti_page *page); /* also of zeros */

/* Whether both files can be written. Leaves what is there as it is. */
WEFT_NODISCARD weft_status wefti_page_try(const wefti_page *page);

/* A step's times on this rank. */
void wefti_page_note(wefti_page *page, const wefti_metrics_step *step);

/* Room for the steps of a pipeline in which this rank has so many actions.
 * Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_page_open_steps(wefti_page *page,
                                                 size_t actions);

/* Rank 0: the same step, once all is known of it. */
void wefti_page_add(wefti_page *page, const wefti_metrics_step *step);

/*
 * wefti_page_gather - what the other ranks know, and the trace; all ranks
 * together, before anything else is recorded in the ledger.
 *
 * Returns     OK | the communicator's fault | ERR_NO_MEMORY. A trace that
 *             cannot be written is reported by wefti_page_write.
 */
WEFT_NODISCARD weft_status wefti_page_gather(wefti_page *page, weft_comm *comm,
                                             const weft_ledger *ledger);

/*
 * wefti_page_gather_plan - of the pipeline's steps that were kept the median
 * one, and what it would have been on paper; nothing where none was.
 *
 * schedule    what the pipeline runs; borrowed until the page is gone.
 *
 * Returns     OK | as weft_pipeline_measure and wefti_page_plan_init.
 */
WEFT_NODISCARD weft_status wefti_page_gather_plan(wefti_page *page,
                                                  weft_comm *comm,
                                                  weft_pipeline *pipeline,
                                                  const weft_schedule *schedule,
                                                  const wefti_pipe_job *job);

/* Rank 0, after gather. Returns OK | ERR_SYSTEM | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_page_write(const wefti_page *page,
                                            const wefti_config *config,
                                            const wefti_summary *summary);

#endif
