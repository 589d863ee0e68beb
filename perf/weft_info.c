/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/weft_info.c - weft-info: what a machine is made of, and what is odd
 * about it.
 */
#include "base/descriptors.h"
#include "base/error.h"
#include "base/output.h"
#include "base/settings.h"
#include "comm/cluster/routes.h"
#include "comm/net/port_library.h"
#include "perf/info_binding.h"
#include "perf/info_devices.h"
#include "perf/info_fabrics.h"
#include "perf/info_job.h"
#include "perf/info_options.h"
#include "perf/info_placement.h"
#include "perf/info_probe.h"
#include "perf/info_settings.h"
#include "topo/interfaces.h"
#include "topo/report.h"
#include "weft/version.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2 };

/*
 * What is shown. job NULL: no launcher has started several of us; probe NULL:
 * nothing was measured; transports NULL: there is no network module, or the
 * machine is a recorded one.
 */
typedef struct subject {
    const wefti_info_options *options;
    const wefti_info_job *job;
    const wefti_probe *probe;
    const wefti_transports *transports;
    wefti_report report;
} subject;

/* ---- files ----------------------------------------------------------------
 */

static weft_status show_routes(const subject *s, wefti_json *json, FILE *file)
{
    wefti_routes_job job;
    if (s->job) {
        job = (wefti_routes_job){s->job->comm, s->job->cluster.hosts};
    }
    return wefti_routes_show(&s->report, s->options->ranks,
                             s->job ? &job : NULL, !s->options->input, json,
                             file);
}

static weft_status write_machine(const subject *s, wefti_json *json)
{
    const wefti_info_options *options = s->options;
    weft_status status = WEFT_OK;
    wefti_report_write_json(&s->report, json);
    wefti_info_fabrics_write(!options->input, s->transports, json);
    wefti_info_devices_write(!options->input, json);
    wefti_info_probe_write(s->probe, json);
    if (options->place) {
        status = wefti_info_placement_show(&s->report, options->place, s->job,
                                           json, NULL);
    }
    if (options->routes && status == WEFT_OK) {
        status = show_routes(s, json, NULL);
    }
    if (options->bind && status == WEFT_OK) {
        status =
            wefti_info_binding_show(s->report.topo, options->bind, json, NULL);
    }
    return status;
}

/* s NULL: settings alone. */
static weft_status write_json(const wefti_info_options *options,
                              const subject *s)
{
    wefti_output out;
    wefti_json json;
    weft_status status = wefti_output_open(&out, "--json", options->json_path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, out.file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "program", "weft-info");
    wefti_json_text(&json, "weft", weft_version_text());
    if (s) {
        status = write_machine(s, &json);
    }
    if (options->settings) {
        wefti_info_settings_write(&json);
    }
    wefti_json_object_close(&json);
    weft_status written = wefti_json_fini(&json);
    return wefti_output_end(&out, status == WEFT_OK ? written : status);
}

/* The text of the export; free() it. */
static weft_status make_nccl(const wefti_topo *topo, char **text_out,
                             size_t *text_bytes_out)
{
    *text_out = NULL;
    FILE *memory = open_memstream(text_out, text_bytes_out);
    if (!memory) {
        return wefti_error_system("--export-nccl");
    }
    weft_status status = wefti_topo_write_nccl(topo, memory);
    if (fclose(memory) != 0 && status == WEFT_OK) {
        status = wefti_error_system("--export-nccl");
    }
    return status;
}

static weft_status export_nccl(const wefti_topo *topo, const char *path)
{
    char *text;
    size_t text_bytes;
    wefti_output out;
    weft_status status = make_nccl(topo, &text, &text_bytes);
    if (status == WEFT_OK) {
        status = wefti_output_open(&out, "--export-nccl", path);
    }
    if (status == WEFT_OK) {
        (void)fwrite(text, 1, text_bytes, out.file);
        status = wefti_output_end(&out, WEFT_OK);
    }
    free(text);
    return status;
}

static weft_status write_files(const subject *s)
{
    const wefti_info_options *options = s->options;
    weft_status status = WEFT_OK;
    wefti_output out;
    if (options->nccl_path) {
        status = export_nccl(s->report.topo, options->nccl_path);
    }
    if (status == WEFT_OK && options->svg_path) {
        status = wefti_output_open(&out, "--svg", options->svg_path);
        if (status == WEFT_OK) {
            wefti_report_write_svg(&s->report, out.file);
            status = wefti_output_end(&out, WEFT_OK);
        }
    }
    if (status == WEFT_OK && options->json_path) {
        status = write_json(options, s);
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

static weft_status print_machine(const subject *s)
{
    const wefti_info_options *options = s->options;
    weft_status status = WEFT_OK;
    wefti_report_print(&s->report, isatty(STDOUT_FILENO) != 0, stdout);
    if (!options->input) {
        wefti_info_fabrics_print(s->transports, stdout);
        wefti_info_devices_print(stdout);
    }
    if (s->probe) {
        wefti_info_probe_print(s->probe, stdout);
    }
    if (options->place) {
        status = wefti_info_placement_show(&s->report, options->place, s->job,
                                           NULL, stdout);
    }
    if (status == WEFT_OK && options->routes) {
        status = show_routes(s, NULL, stdout);
    }
    if (status == WEFT_OK && options->bind) {
        status = wefti_info_binding_show(s->report.topo, options->bind, NULL,
                                         stdout);
    }
    return status;
}

/* What cannot be said is refused before anything is. */
static weft_status check_wishes(const subject *s)
{
    const wefti_info_options *options = s->options;
    weft_status status = WEFT_OK;
    if (options->place) {
        status = wefti_info_placement_show(&s->report, options->place, s->job,
                                           NULL, NULL);
    }
    if (status == WEFT_OK && options->routes) {
        status = show_routes(s, NULL, NULL);
    }
    if (status == WEFT_OK && options->nccl_path) {
        char *text;
        size_t text_bytes;
        status = make_nccl(s->report.topo, &text, &text_bytes);
        free(text);
    }
    return status;
}

static weft_status show_report(subject *s, wefti_topo *topo)
{
    weft_status status = wefti_report_init(&s->report, topo);
    if (status != WEFT_OK) {
        return status;
    }
    status = check_wishes(s);
    if (status == WEFT_OK && !is_taken(s->options)) {
        status = print_machine(s);
    }
    if (status == WEFT_OK) {
        status = write_files(s);
    }
    wefti_report_fini(&s->report);
    return status;
}

/* Alone as in a job, where the communicator brings it. */
static weft_status limit_sending(wefti_topo *own)
{
    const int one_rank = 1;
    double GBps;
    weft_status status = wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS, &GBps);
    if (status == WEFT_OK && GBps > 0) {
        wefti_nics_limit_ranks(own, GBps, &one_rank);
    }
    return status;
}

/* This machine, or all those of a job, of which rank 0 tells. */
static weft_status show_live(const wefti_info_options *options)
{
    subject s = {.options = options};
    wefti_info_job job = {0};
    wefti_topo *own = NULL, *topo;
    wefti_probe probe;
    wefti_transports transports;
    const wefti_port_table *network;
    bool off = true;
    weft_status status = WEFT_OK;
    if (wefti_info_job_is_there()) {
        status = wefti_info_job_open(&job);
        topo = job.cluster.topo;
        s.job = &job;
    } else {
        status = wefti_topo_open_live(NULL, &own);
        topo = own;
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (wefti_port_library_open(&network) == WEFT_OK) {
        wefti_transports_list(network, &transports);
        s.transports = &transports;
        if (own) {
            wefti_transports_note(&transports, own);
        }
    }
    if (own) {
        status = wefti_info_probe_run(own, &probe, &off);
        s.probe = off ? NULL : &probe;
        if (status == WEFT_OK) {
            status = limit_sending(own);
        }
    }
    if (status == WEFT_OK && (!s.job || weft_comm_get_rank(s.job->comm) == 0)) {
        status = show_report(&s, topo);
    }
    wefti_topo_destroy(own);
    wefti_info_job_close(&job);
    return status;
}

static weft_status show_machine(const wefti_info_options *options)
{
    subject s = {.options = options};
    wefti_topo *topo;
    if (!options->input) {
        return show_live(options);
    }
    weft_status status =
        wefti_topo_open(options->input, options->format, options->model, &topo);
    if (status == WEFT_OK) {
        status = show_report(&s, topo);
        wefti_topo_destroy(topo);
    }
    return status;
}

/* Settings alone are asked for without a machine. */
static bool wants_machine(const wefti_info_options *options)
{
    return !options->settings || options->input || options->routes ||
           options->place || options->bind || options->svg_path ||
           options->nccl_path;
}

static weft_status run(const wefti_info_options *options, int *wrong_out)
{
    weft_status status = WEFT_OK;
    if (wants_machine(options)) {
        status = show_machine(options);
    } else if (options->json_path) {
        status = write_json(options, NULL);
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
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit just fails */
    weft_status status = wefti_descriptors_reserve();
    if (status == WEFT_OK) {
        status = wefti_info_options_read(arg_count, args, &options);
    }
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
