/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_job.c - makes a schedule, proves it, prices it, writes its files.
 *
 * Where messages are placed is a matter of the proof; time and drawing are of
 * the list as it was made, unless --lowering asked for messages.
 */
#include "perf/sched_job.h"

#include "base/error.h"
#include "base/input.h"
#include "base/memory_limit.h"
#include "base/output.h"
#include "overlap/schedule/encoder.h"
#include "overlap/schedule/generator.h"
#include "perf/sched_costs.h"
#include "perf/sched_links.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Lists of thousands of ranks are long; here nothing but a list is in memory.
 */
static const size_t file_bytes_most = (size_t)4 << 30;

/* ---- making ---------------------------------------------------------------
 */

static bool is_generator(const char *name)
{
    for (int i = 0; weft_schedule_name(i); i++) {
        if (strcmp(weft_schedule_name(i), name) == 0) {
            return true;
        }
    }
    return false;
}

static weft_status make_from_file(const wefti_sched_options *options,
                                  weft_schedule **schedule_out)
{
    char *text = NULL;
    size_t bytes = 0;
    weft_status status = wefti_file_read(options->schedule, WEFTI_INPUT_FILE,
                                         file_bytes_most, &text, &bytes);
    if (status != WEFT_OK) {
        status = wefti_error(status, "--schedule %s", weft_error_text());
    } else {
        status = weft_schedule_read(text, bytes, options->directions,
                                    options->old_torch ? WEFT_CSV_OLD_TORCH : 0,
                                    schedule_out);
        if (status != WEFT_OK) {
            status = wefti_error(status, "%s: %s", options->schedule,
                                 weft_error_text());
        }
    }
    free(text);
    return status;
}

/* Without one that is given, the groups that suit an encoder's costs. */
static weft_status choose_group(const wefti_sched_options *options,
                                weft_schedule_config *config)
{
    weft_schedule_cost cost;
    if (options->encoder_chunks == 0 || config->group > 0 ||
        strcmp(config->name, "interleaved") != 0) {
        return WEFT_OK;
    }
    weft_status status = wefti_sched_costs(
        options, config->ranks * config->chunks, 1, config->chunks, &cost);
    if (status == WEFT_OK) {
        status = wefti_encoder_group(config, &cost, &config->group);
        free((void *)cost.stages);
    }
    return status;
}

static weft_status make_by_name(const wefti_sched_options *options,
                                weft_schedule **schedule_out)
{
    weft_schedule_config config = {.size_bytes = sizeof(config),
                                   .name = options->schedule,
                                   .ranks = options->ranks,
                                   .microbatches = options->microbatches,
                                   .chunks = options->chunks,
                                   .group = options->group,
                                   .overlap = options->overlap};
    if (!is_generator(options->schedule)) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "--schedule %s: neither a file nor one of gpipe 1f1b "
            "interleaved zb_h1 zb_h2 zbv dualpipe dualpipev",
            options->schedule);
    }
    if (options->directions != 0 || options->old_torch) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--directions and --old-torch are for files; %s is "
                           "none",
                           options->schedule);
    }
    if (options->ranks == 0 || options->microbatches == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--ranks P and --microbatches M are needed for %s",
                           options->schedule);
    }
    if (options->encoder_chunks > 0 &&
        strcmp(config.name, "interleaved") == 0) {
        config.chunks =
            (config.chunks > 0 ? config.chunks : 1) + options->encoder_chunks;
    }
    const wefti_schedule_size size = wefti_schedule_predict(&config);
    weft_status status =
        size.actions <= WEFT_SCHEDULE_ACTIONS_MOST
            ? wefti_memory_check("with messages and proof",
                                 wefti_schedule_peak_bytes(size))
            : WEFT_OK; /* refused below */
    if (status == WEFT_OK) {
        status = choose_group(options, &config);
    }
    return status == WEFT_OK
               ? weft_schedule_create(&config, schedule_out)
               : wefti_error(status,
                             "%s of %d ranks and %d "
                             "micro-batches, %s",
                             config.name, config.ranks, config.microbatches,
                             weft_error_text());
}

/* What was said of a file must be so. */
static weft_status compare(const char *flag, int given, int actual)
{
    if (given != 0 && given != actual) {
        return wefti_error(WEFT_ERR_INVALID, "%s %d: the file has %d", flag,
                           given, actual);
    }
    return WEFT_OK;
}

static weft_status mark_encoder(wefti_sched_job *job)
{
    const int length = job->info.stages / job->info.directions;
    weft_status status = weft_schedule_mark_encoder(
        job->schedule,
        job->options->encoder_chunks * (length / job->info.chunks));
    return status == WEFT_OK ? weft_schedule_get_info(job->schedule, &job->info)
                             : status;
}

static weft_status make(wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    struct stat stat_;
    job->file = !is_generator(options->schedule) &&
                stat(options->schedule, &stat_) == 0;
    weft_status status = job->file ? make_from_file(options, &job->schedule)
                                   : make_by_name(options, &job->schedule);
    if (status == WEFT_OK) {
        status = weft_schedule_get_info(job->schedule, &job->info);
    }
    if (status == WEFT_OK) {
        status = compare("--ranks", options->ranks, job->info.ranks);
    }
    if (status == WEFT_OK) {
        status = compare("--microbatches", options->microbatches,
                         job->info.microbatches);
    }
    if (status == WEFT_OK && job->file) {
        status = compare("--chunks", options->chunks, job->info.chunks);
    }
    if (status == WEFT_OK) {
        status =
            wefti_sched_costs(options, job->info.stages, job->info.directions,
                              job->info.chunks, &job->cost);
    }
    return status == WEFT_OK ? mark_encoder(job) : status;
}

static bool has_passes(const wefti_sched_options *options)
{
    return options->plan || options->merge || options->recompute ||
           options->shard || options->reduce || options->optimize;
}

/* F, I and W in an order for these costs. */
static weft_status plan(wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    weft_schedule_cost cost = job->cost;
    wefti_sched_links links;
    weft_status status =
        wefti_sched_links_init(&links, options, job->info.ranks, &cost);
    if (status == WEFT_OK) {
        status = weft_schedule_plan(job->schedule, &cost, options->plan_memory);
        wefti_sched_links_fini(&links);
    }
    return status;
}

static weft_status apply_passes(wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    weft_schedule *schedule = job->schedule;
    weft_status status = options->plan ? plan(job) : WEFT_OK;
    if (status == WEFT_OK && options->merge) {
        status = weft_schedule_merge(schedule);
    }
    if (status == WEFT_OK && options->recompute) {
        status = weft_schedule_recompute(schedule);
    }
    if (status == WEFT_OK && options->shard) {
        status = weft_schedule_shard(schedule, 3);
    }
    if (status == WEFT_OK && options->reduce) {
        status = weft_schedule_reduce(schedule, true);
    }
    if (status == WEFT_OK && options->optimize) {
        status = weft_schedule_optimize(schedule);
    }
    return status;
}

/* ---- proving --------------------------------------------------------------
 */

/* limits: those of the flags too, not only that it can run. */
static weft_status prove(wefti_sched_job *job, bool limits)
{
    const wefti_sched_options *options = job->options;
    weft_check_config config = {.size_bytes = sizeof(config),
                                .semantics = options->semantics,
                                .eager_slots = options->eager_slots};
    if (limits) {
        config.activations_most = options->activations_most;
        config.early_most = options->early_most;
    }
    weft_verdict_fini(&job->verdict);
    weft_status status =
        weft_schedule_check(job->schedule, &config, &job->verdict);
    job->refuted = status == WEFT_OK && !job->verdict.valid;
    return status;
}

/*
 * The list before messages are placed. One of a generator that nothing has
 * changed is proved once, with its messages; a file also as it was read, while
 * its breaches have cells. Limits are for what the passes leave.
 */
static weft_status pass_and_prove(wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    bool limited = options->activations_most > 0 || options->early_most > 0;
    bool passes = has_passes(options);
    weft_status status =
        job->file || (limited && !passes) ? prove(job, !passes) : WEFT_OK;
    if (status == WEFT_OK && !job->refuted && passes) {
        status = apply_passes(job);
        if (status == WEFT_OK) {
            status = prove(job, true);
        }
    }
    return status;
}

/*
 * Places messages, if there are none, and proves what comes of it. Those of a
 * file stay as they are: it says which are posted together.
 */
static weft_status lower_and_prove(wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    weft_status status = WEFT_OK;
    if (!job->info.lowered || options->lowering_given) {
        status = weft_schedule_lower(job->schedule, options->lowering);
        if (status == WEFT_OK && options->lowering == WEFT_LOWERING_SENDER) {
            status = weft_schedule_group(job->schedule, 0);
        }
    } else if (!options->release) {
        return WEFT_OK; /* proved as it is */
    }
    if (status == WEFT_OK && options->release) {
        status = weft_schedule_release(job->schedule);
    }
    return status == WEFT_OK ? prove(job, true) : status;
}

/* ---- pricing and drawing --------------------------------------------------
 */

static weft_status price(wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    weft_schedule_cost cost = job->cost;
    wefti_sched_links links;
    bool keep = options->command == WEFTI_SCHED_SHOW || options->svg_path ||
                options->trace_path;
    weft_status status =
        wefti_sched_links_init(&links, options, job->info.ranks, &cost);
    if (status == WEFT_OK) {
        status = weft_schedule_simulate(job->schedule, &cost, keep, &job->run);
        job->priced = status == WEFT_OK;
        wefti_sched_links_fini(&links);
    }
    return status;
}

static weft_status write_csv(const wefti_sched_job *job)
{
    const unsigned flags = job->options->for_torch ? WEFT_CSV_TORCH : 0;
    wefti_output out;
    weft_status status =
        wefti_output_open(&out, "--csv", job->options->csv_path);
    if (status != WEFT_OK) {
        return status;
    }
    return wefti_output_end(
        &out, weft_schedule_write(job->schedule, flags, out.file));
}

static weft_status write_svg(const wefti_sched_job *job)
{
    wefti_output out;
    weft_status status =
        wefti_output_open(&out, "--svg", job->options->svg_path);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_schedule_draw_svg(job->schedule, &job->run, NULL, NULL, NULL,
                                    out.file);
    return wefti_output_end(&out, status);
}

/* What is of the list as it stands now. */
static weft_status tell(wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    weft_status status = options->csv_path ? write_csv(job) : WEFT_OK;
    if (status == WEFT_OK && !job->refuted) {
        status = price(job);
    }
    if (status == WEFT_OK && job->priced && options->svg_path) {
        status = write_svg(job);
    }
    if (status == WEFT_OK && job->priced && options->trace_path) {
        status = wefti_sched_write_trace(job);
    }
    bool here = options->command == WEFTI_SCHED_SHOW ||
                options->command == WEFTI_SCHED_LIST;
    return status == WEFT_OK && here && job->text ? wefti_sched_print(job)
                                                  : status;
}

static bool goes_to_stdout(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

weft_status wefti_sched_job_do(const wefti_sched_options *options,
                               wefti_sched_job *job)
{
    *job = (wefti_sched_job){.options = options,
                             .info.size_bytes = sizeof(job->info)};
    job->text = !goes_to_stdout(options->csv_path) &&
                !goes_to_stdout(options->svg_path) &&
                !goes_to_stdout(options->trace_path) &&
                !goes_to_stdout(options->json_path);
    bool before = !options->lowering_given; /* told without messages */
    weft_status status = make(job);
    if (status == WEFT_OK) {
        status = pass_and_prove(job);
    }
    if (status == WEFT_OK && before) {
        status = tell(job);
    }
    if (status == WEFT_OK && !job->refuted) {
        status = lower_and_prove(job);
    }
    return status == WEFT_OK && !before ? tell(job) : status;
}

void wefti_sched_job_fini(wefti_sched_job *job)
{
    weft_verdict_fini(&job->verdict);
    if (job->priced) {
        weft_schedule_run_fini(&job->run);
    }
    free((void *)job->cost.stages);
    weft_schedule_destroy(job->schedule);
}
