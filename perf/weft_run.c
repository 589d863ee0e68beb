/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/weft_run.c - weft-run: the ranks of a job on this host, from start to
 * end.
 */
#include "base/descriptors.h"
#include "base/output.h"
#include "perf/run_job.h"
#include "perf/run_options.h"
#include "perf/run_report.h"
#include "weft/version.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_OWN_FAILURE = 1, EXIT_USAGE = 2 };

static int complain(int exit_status)
{
    fprintf(stderr, "weft-run: %s\n", weft_error_text());
    return exit_status;
}

static int run(const run_options *options)
{
    char last_line[RUN_REPORT_BYTES];
    run_job job;
    if (run_job_start(options, &job) != WEFT_OK) {
        return complain(EXIT_OWN_FAILURE);
    }
    int exit_status = EXIT_OWN_FAILURE;
    if (run_job_watch(&job) != WEFT_OK) {
        (void)complain(EXIT_OWN_FAILURE);
    } else {
        run_report_blame(&job);
        exit_status = run_report_exit_status(&job);
        if (run_report_json(&job) != WEFT_OK) {
            int own = complain(EXIT_OWN_FAILURE);
            exit_status = exit_status ? exit_status : own;
        }
        run_report_memory(&job, last_line);
        if (last_line[0]) {
            fprintf(stderr, "weft-run: %s\n", last_line);
        }
        run_report_last_line(&job, last_line);
        if (last_line[0]) {
            fprintf(stderr, "weft-run: %s\n", last_line);
        }
    }
    if (exit_status == 0 && job.output_errno) {
        fprintf(stderr, "weft-run: output was lost: %s\n",
                strerror(job.output_errno));
        exit_status = EXIT_OWN_FAILURE;
    }
    run_job_fini(&job);
    return exit_status;
}

int main(int argc, char **argv)
{
    run_options options;
    if (wefti_descriptors_reserve() != WEFT_OK ||
        run_options_parse(argc, argv, &options) != WEFT_OK) {
        return complain(EXIT_USAGE);
    }
    int exit_status = 0;
    switch (options.request) {
    case RUN_REQUEST_HELP:
        fputs(run_usage, stdout);
        break;
    case RUN_REQUEST_VERSION:
        printf("weft-run %s\n", weft_version_text());
        break;
    case RUN_REQUEST_JOB:
        exit_status = run(&options);
        break;
    }
    if (wefti_output_close(stdout) != WEFT_OK && exit_status == 0) {
        return complain(EXIT_OWN_FAILURE);
    }
    return exit_status;
}
