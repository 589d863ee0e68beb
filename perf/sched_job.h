/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_job.h - one call of weft-sched: the schedule, what was proved and
 * priced of it, and how that is told.
 */
#ifndef PERF_SCHED_JOB_H
#define PERF_SCHED_JOB_H

#include "perf/sched_options.h"

typedef struct wefti_sched_job {
    const wefti_sched_options *options;
    weft_schedule *schedule;
    weft_schedule_info info; /* as it was before messages were placed */
    weft_schedule_cost cost; /* the options', with stages of their own */
    weft_verdict verdict;
    weft_schedule_run run;
    bool file;    /* the schedule was read, not generated */
    bool refuted; /* a proof went against it: nothing is priced */
    bool priced;  /* run holds something */
    bool text;    /* people read stdout: no file was sent there */
} wefti_sched_job;

/*
 * wefti_sched_job_do - makes, proves and prices what the options ask for, and
 * writes the files. fini in any case.
 *
 * Returns     OK, also where the verdict is against the schedule | an error.
 */
WEFT_NODISCARD weft_status
wefti_sched_job_do(const wefti_sched_options *options, wefti_sched_job *job);
void wefti_sched_job_fini(wefti_sched_job *job);

/* What people read, by command. */
WEFT_NODISCARD weft_status wefti_sched_print(const wefti_sched_job *job);
/* All schedules there are; with json_path as JSON. */
WEFT_NODISCARD weft_status wefti_sched_print_names(const char *json_path);

/* The same facts for programs. */
WEFT_NODISCARD weft_status wefti_sched_write_json(const wefti_sched_job *job);
/* Chrome's trace format: one ms for each unit of cost. */
WEFT_NODISCARD weft_status wefti_sched_write_trace(const wefti_sched_job *job);

/* All schedules compared: for people, or as JSON where a path is given. */
WEFT_NODISCARD weft_status
wefti_sched_compare(const wefti_sched_options *options);

#endif
