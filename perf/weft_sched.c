/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/weft_sched.c - weft-sched: pipeline schedules made, proved, priced and
 * drawn, without running any.
 */
#include "base/descriptors.h"
#include "base/error.h"
#include "base/output.h"
#include "perf/sched_job.h"
#include "weft/version.h"

#include <stdio.h>
#include <stdlib.h>

static weft_status run(const wefti_sched_options *options, bool *valid_out)
{
    wefti_sched_job job;
    if (options->command == WEFTI_SCHED_COMPARE) {
        return wefti_sched_compare(options);
    }
    if (!options->schedule) {
        return wefti_sched_print_names(options->json_path);
    }
    weft_status status = wefti_sched_job_do(options, &job);
    bool later = options->command == WEFTI_SCHED_CHECK ||
                 options->command == WEFTI_SCHED_SIMULATE;
    if (status == WEFT_OK && later && job.text) {
        status = wefti_sched_print(&job);
    }
    if (status == WEFT_OK && options->json_path) {
        status = wefti_sched_write_json(&job);
    }
    *valid_out = job.verdict.valid;
    if (status == WEFT_OK && !job.verdict.valid) {
        (void)wefti_error(WEFT_ERR_INVALID, "%.150s: not valid: %s",
                          options->schedule, job.verdict.findings[0].text);
        fprintf(stderr, "weft-sched: %s\n", weft_error_text());
    }
    wefti_sched_job_fini(&job);
    return status;
}

int main(int argc, char **argv)
{
    wefti_sched_options options;
    bool valid = true;
    weft_status status = wefti_descriptors_reserve();
    if (status == WEFT_OK) {
        status = wefti_sched_options_read(argc, argv, &options);
    }
    if (status == WEFT_OK && options.help) {
        wefti_sched_options_print_help();
    } else if (status == WEFT_OK && options.version) {
        printf("weft-sched %s\n", weft_version_text());
    } else if (status == WEFT_OK) {
        status = run(&options, &valid);
    }
    if (status == WEFT_OK) {
        status = wefti_output_close(stdout);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "weft-sched: %s\n", weft_error_text());
    }
    return status == WEFT_OK && valid ? EXIT_SUCCESS : EXIT_FAILURE;
}
