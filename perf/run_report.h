/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_report.h - how a job ended, in one line and as JSON.
 */
#ifndef PERF_RUN_REPORT_H
#define PERF_RUN_REPORT_H

#include "perf/run_job.h"

/*
 * run_report_last_line - the line for stderr, without "weft-run: ":
 * rank 2: SIGKILL after all_reduce #417 on "world"; "" if all is well.
 */
enum { RUN_REPORT_BYTES = 4096 };
void run_report_last_line(const run_job *job, char text_out[RUN_REPORT_BYTES]);

/*
 * run_report_blame - after the watch: of the failed ranks, first_failed becomes
 * the one that the others blame. Not of an elastic job: it tells each loss.
 */
void run_report_blame(run_job *job);

/* How process index, which has failed, did: the same form. */
void run_report_failure(const run_job *job, int index,
                        char text_out[RUN_REPORT_BYTES]);

/* Which limit to raise, if the kernel has ended processes of this memory cgroup
 * since the job began; else "". */
void run_report_memory(const run_job *job, char text_out[RUN_REPORT_BYTES]);

/* weft-run's own exit status. */
int run_report_exit_status(const run_job *job);

/*
 * run_report_json - to options->json_path, if there is one.
 *
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status run_report_json(const run_job *job);

/* Where a rank was: after all_reduce #417 on "world", before any operation. */
enum { RUN_PLACE_BYTES = 160 };
void run_report_place(const run_job *job, int rank,
                      char text_out[RUN_PLACE_BYTES]);

#endif
