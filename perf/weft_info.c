/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/weft_info.c - weft-info: what a machine is made of, and what is odd
 * about it.
 */
#include "base/error.h"
#include "perf/info_binding.h"
#include "perf/info_fabrics.h"
#include "perf/info_options.h"
#include "perf/info_probe.h"
#include "perf/info_settings.h"
#include "topo/placement.h"
#include "topo/report.h"
#include "weft/version.h"

#include <string.h>
#include <unistd.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2 };

/* ---- files ----------------------------------------------------------------
 */

static weft_status open_out(const char *flag, const char *path, FILE **file_out)
{
    *file_out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    return *file_out ? WEFT_OK : wefti_error_system("%s %s", flag, path);
}

static weft_status close_out(const char *flag, const char *path, FILE *file)
{
    bool bad = fflush(file) != 0 || ferror(file);
    bad |= file != stdout && fclose(file) != 0;
    return bad ? wefti_error_system("%s %s", flag, path) : WEFT_OK;
}

static weft_status place_job(const char *sizes, const wefti_report *report,
                             wefti_json *json, FILE *file);

static weft_status write_json(const wefti_info_options *options,
                              const wefti_report *report,
                              const wefti_probe *probe)
{
    FILE *file;
    wefti_json json;
    weft_status status = open_out("--json", options->json_path, &file);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "program", "weft-info");
    wefti_json_text(&json, "weft", weft_version_text());
    if (report) {
        wefti_report_write_json(report, &json);
        wefti_info_fabrics_write(!options->input, &json);
        wefti_info_probe_write(probe, &json);
    }
    if (options->settings) {
        wefti_info_settings_write(&json);
    }
    if (report && options->place) {
        status = place_job(options->place, report, &json, NULL);
    }
    if (report && options->bind && status == WEFT_OK) {
        status =
            wefti_info_binding_show(report->topo, options->bind, &json, NULL);
    }
    wefti_json_object_close(&json);
    weft_status ended = wefti_json_fini(&json);
    status = status != WEFT_OK ? status : ended;
    weft_status closed = close_out("--json", options->json_path, file);
    return status != WEFT_OK ? status : closed;
}

static weft_status write_files(const wefti_info_options *options,
                               const wefti_topo *topo,
                               const wefti_report *report,
                               const wefti_probe *probe)
{
    weft_status status = WEFT_OK;
    FILE *file;
    if (options->nccl_path) {
        status = open_out("--export-nccl", options->nccl_path, &file);
        if (status == WEFT_OK) {
            status = wefti_topo_write_nccl(topo, file);
            weft_status closed =
                close_out("--export-nccl", options->nccl_path, file);
            status = status != WEFT_OK ? status : closed;
        }
    }
    if (status == WEFT_OK && options->svg_path) {
        status = open_out("--svg", options->svg_path, &file);
        if (status == WEFT_OK) {
            wefti_report_write_svg(report, file);
            status = close_out("--svg", options->svg_path, file);
        }
    }
    if (status == WEFT_OK && options->json_path) {
        status = write_json(options, report, probe);
    }
    return status;
}

/* Whether standard output is somebody else's. */
static bool is_taken(const wefti_info_options *options)
{
    const char *const paths[] = {options->svg_path, options->nccl_path,
                                 options->json_path};
    for (int i = 0; i < 3; i++) {
        if (paths[i] && strcmp(paths[i], "-") == 0) {
            return true;
        }
    }
    return false;
}

/* ---- the machine ----------------------------------------------------------
 */

static void write_placement(const wefti_levels *levels,
                            const wefti_placement *p, wefti_json *json)
{
    wefti_json_object_open(json, "placement");
    wefti_json_array_open(json, "order");
    for (int i = 0; i < WEFTI_AXIS_COUNT; i++) {
        wefti_json_text(json, NULL, wefti_axis_text((wefti_axis)p->order[i]));
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "gpus"); /* by rank */
    for (int rank = 0; rank < p->rank_count; rank++) {
        wefti_json_int(json, NULL, levels->gpus[p->places[rank]]);
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "levels");
    for (int level = 0; level < levels->level_count; level++) {
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", levels->names[level]);
        wefti_json_real(json, "GBps", levels->GBps[level]);
        wefti_json_real(json, "bytes_before", p->before[level]);
        wefti_json_real(json, "bytes_after", p->after[level]);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

/* Where the ranks of a job go, as a member of json or as text; neither: only
 * whether that can be said. */
static weft_status place_job(const char *sizes, const wefti_report *report,
                             wefti_json *json, FILE *file)
{
    wefti_place_job job;
    wefti_placement placement;
    wefti_levels *levels;
    weft_status status = wefti_place_job_read(sizes, &job);
    if (status == WEFT_OK) {
        status = wefti_levels_create(report->paths, 1, &levels);
    }
    if (status != WEFT_OK) {
        return wefti_error(status, "--place %s: %s", sizes, weft_error_text());
    }
    status = wefti_place_plan(levels, &job, &placement);
    if (status != WEFT_OK) {
        status =
            wefti_error(status, "--place %s: %s", sizes, weft_error_text());
    } else {
        if (json) {
            write_placement(levels, &placement, json);
        } else if (file) {
            wefti_placement_print(levels, &job, &placement, file);
        }
        wefti_placement_fini(&placement);
    }
    wefti_levels_destroy(levels);
    return status;
}

static weft_status print_machine(const wefti_info_options *options,
                                 const wefti_report *report,
                                 const wefti_probe *probe)
{
    weft_status status = WEFT_OK;
    wefti_report_print(report, isatty(STDOUT_FILENO) != 0, stdout);
    if (!options->input) {
        wefti_info_fabrics_print(stdout);
    }
    if (probe) {
        wefti_info_probe_print(probe, stdout);
    }
    if (options->place) {
        status = place_job(options->place, report, NULL, stdout);
    }
    if (status == WEFT_OK && options->bind) {
        status =
            wefti_info_binding_show(report->topo, options->bind, NULL, stdout);
    }
    return status;
}

static weft_status show_report(const wefti_info_options *options,
                               const wefti_topo *topo, const wefti_probe *probe)
{
    wefti_report report;
    weft_status status = wefti_report_init(&report, topo);
    if (status != WEFT_OK) {
        return status;
    }
    if (options->place) {
        status = place_job(options->place, &report, NULL, NULL);
    }
    if (status == WEFT_OK && !is_taken(options)) {
        status = print_machine(options, &report, probe);
    }
    if (status == WEFT_OK) {
        status = write_files(options, topo, &report, probe);
    }
    wefti_report_fini(&report);
    return status;
}

static weft_status show_machine(const wefti_info_options *options)
{
    wefti_topo *topo;
    wefti_probe probe;
    bool off = true;
    weft_status status = options->input
                             ? wefti_topo_open(options->input, options->format,
                                               options->model, &topo)
                             : wefti_topo_open_live(NULL, &topo);
    if (status != WEFT_OK) {
        return status;
    }
    if (!options->input) {
        status = wefti_info_probe_run(topo, &probe, &off);
    }
    if (status == WEFT_OK) {
        status = show_report(options, topo, off ? NULL : &probe);
    }
    wefti_topo_destroy(topo);
    return status;
}

/* Settings alone are asked for without a machine. */
static weft_status run(const wefti_info_options *options, int *wrong_out)
{
    weft_status status = WEFT_OK;
    if (!options->settings || options->input) {
        status = show_machine(options);
    } else if (options->json_path) {
        status = write_json(options, NULL, NULL);
    }
    if (status == WEFT_OK && options->settings) {
        *wrong_out = is_taken(options) ? wefti_info_settings_count_wrong()
                                       : wefti_info_settings_print(stdout);
    }
    return status;
}

int main(int arg_count, char **args)
{
    wefti_info_options options;
    int wrong = 0;
    weft_status status = wefti_info_options_read(arg_count, args, &options);
    if (status != WEFT_OK) {
        fprintf(stderr, "weft-info: %s\n", weft_error_text());
        return EXIT_USAGE;
    }
    if (options.help) {
        wefti_info_options_help(stdout);
    } else if (options.version) {
        printf("weft-info %s\n", weft_version_text());
    } else {
        status = run(&options, &wrong);
    }
    if (status == WEFT_OK && fflush(stdout) != 0) {
        status = wefti_error_system("standard output");
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "weft-info: %s\n", weft_error_text());
        return EXIT_WRONG;
    }
    return wrong ? EXIT_WRONG : 0;
}
