/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_rules.c - which flags of weft-sched go together.
 */
#include "perf/sched_options.h"

#include "base/error.h"

/* compare makes all schedules itself, and writes no files of any. */
static weft_status check_compare(const wefti_sched_options *options)
{
    if (options->schedule || options->overlap || options->directions ||
        options->csv_path || options->svg_path || options->trace_path) {
        return wefti_error(WEFT_ERR_INVALID,
                           "compare takes no --schedule, --overlap, "
                           "--directions, --csv, --svg or --trace");
    }
    if (options->encoder_chunks > 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--encoder is for one schedule; compare deals out "
                           "equal layers");
    }
    if (options->ranks == 0 || options->microbatches == 0 ||
        options->layers == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "compare needs --ranks P, --microbatches M and "
                           "--layers L");
    }
    return WEFT_OK;
}

static weft_status check_topology(const wefti_sched_options *options)
{
    if (options->topology && options->node_ranks > 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--topology and --nodes: allowed is one of them");
    }
    if (options->topology && options->message_bytes <= 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--topology needs --bytes N, what a message "
                           "carries; costs are then in us");
    }
    if (!options->topology &&
        (options->message_bytes > 0 || options->place_count > 0)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--bytes and --places are for --topology");
    }
    return WEFT_OK;
}

static weft_status check_plan(const wefti_sched_options *options)
{
    if (options->plan_memory > 0 && options->command == WEFTI_SCHED_COMPARE) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--memory-limit is for one schedule; compare has "
                           "--max-memory");
    }
    if (options->plan_memory > 0 && !options->plan) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--memory-limit is for --plan cost; to prove what a "
                           "list takes, --max-activations");
    }
    return WEFT_OK;
}

weft_status wefti_sched_options_check(const wefti_sched_options *options,
                                      int words)
{
    if (words == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "one command is needed: show, check, simulate, list "
                           "or compare; see weft-sched --help");
    }
    weft_status status = check_topology(options);
    if (status == WEFT_OK) {
        status = check_plan(options);
    }
    if (status != WEFT_OK || options->command == WEFTI_SCHED_COMPARE) {
        return status == WEFT_OK ? check_compare(options) : status;
    }
    if (options->choice_count > 0 || options->layers > 0 ||
        options->memory_most > 0 || options->copy_memory > 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--layers, --max-memory, --copy-memory and several "
                           "--microbatches are for compare");
    }
    if (!options->schedule && options->command != WEFTI_SCHED_LIST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--schedule NAME or FILE.csv is needed; "
                           "weft-sched list names all");
    }
    return WEFT_OK;
}
