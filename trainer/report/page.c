/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page.c - where a report goes, what it collects on the way, and
 * how it is written.
 */
#include "trainer/report/page.h"

#include "base/error.h"
#include "base/output.h"
#include "comm/cluster/routes.h"
#include "topo/report.h"
#include "trainer/report/page_facts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_MORE = 16 };

/* ---- paths ----------------------------------------------------------------
 */

/* NAME.html becomes NAME.trace.json. */
static char *find_trace_path(const char *path)
{
    size_t bytes = strlen(path);
    size_t stem = bytes;
    if (bytes > 5 && strcmp(path + bytes - 5, ".html") == 0) {
        stem -= 5;
    }
    char *trace_path = malloc(stem + PATH_MORE);
    if (trace_path) {
        snprintf(trace_path, stem + PATH_MORE, "%.*s.trace.json", (int)stem,
                 path);
    }
    return trace_path;
}

weft_status wefti_page_init(wefti_page *page, const char *path)
{
    *page = (wefti_page){0};
    if (path[0] == '\0' || strcmp(path, "-") == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--report %s: allowed is a file, such as "
                           "report.html; the trace goes beside it",
                           path);
    }
    page->path = strdup(path);
    page->trace_path = find_trace_path(path);
    weft_status status =
        page->path && page->trace_path
            ? wefti_history_init(&page->history)
            : wefti_error(WEFT_ERR_NO_MEMORY, "--report %s", path);
    if (status != WEFT_OK) {
        wefti_page_fini(page);
    }
    return status;
}

void wefti_page_fini(wefti_page *page)
{
    wefti_history_fini(&page->history);
    wefti_trace_fini(&page->trace);
    wefti_page_plan_fini(&page->plan);
    wefti_step_log_fini(&page->steps);
    free(page->machine);
    free(page->trace_error);
    free(page->path);
    free(page->trace_path);
    *page = (wefti_page){0};
}

static weft_status try_path(const char *path)
{
    struct stat what;
    if (stat(path, &what) == 0 && !S_ISREG(what.st_mode)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--report %s: is there, and no regular file", path);
    }
    return wefti_output_try("--report", path);
}

weft_status wefti_page_try(const wefti_page *page)
{
    weft_status status = try_path(page->path);
    return status == WEFT_OK ? try_path(page->trace_path) : status;
}

/* ---- collecting -----------------------------------------------------------
 */

void wefti_page_note(wefti_page *page, const wefti_metrics_step *step)
{
    wefti_rank_sums *sums = &page->sums;
    sums->steps++;
    sums->step_ms += step->step_ms;
    sums->compute_ms += step->compute_ms;
    sums->exposed_ms += wefti_summary_exposed(step);
    sums->bubble_ms += step->bubble_ms;
    sums->skew_ms += step->skew_ms;
    sums->idle_ms += step->idle_ms;
}

weft_status wefti_page_open_steps(wefti_page *page, size_t actions)
{
    wefti_step_log_fini(&page->steps);
    return wefti_step_log_init(&page->steps, actions, WEFTI_SUMMARY_STEPS);
}

void wefti_page_add(wefti_page *page, const wefti_metrics_step *step)
{
    wefti_history_add(&page->history, step);
}

/* The machine's text, as weft-info prints it. */
static char *describe_machine(const wefti_cluster *cluster, weft_comm *comm)
{
    const wefti_routes_job job = {comm, cluster->hosts};
    wefti_report report;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (!file) {
        return NULL;
    }
    bool whole = wefti_report_init(&report, cluster->topo) == WEFT_OK;
    if (whole) {
        wefti_report_print(&report, false, file);
        whole =
            wefti_routes_show(&report, NULL, &job, true, NULL, file) == WEFT_OK;
        wefti_report_fini(&report);
    }
    if (fclose(file) != 0 || !whole) {
        free(text);
        return NULL;
    }
    return text;
}

/* A machine that cannot be read is no reason to have no report. */
static weft_status gather_machine(wefti_page *page, weft_comm *comm)
{
    wefti_cluster cluster;
    weft_status status = wefti_cluster_open(comm, NULL, &cluster);
    if (status == WEFT_ERR_SYSTEM) {
        return WEFT_OK;
    }
    if (status == WEFT_OK && weft_comm_get_rank(comm) == 0) {
        free(page->machine);
        page->machine = describe_machine(&cluster, comm);
    }
    if (status == WEFT_OK) {
        wefti_cluster_close(&cluster);
    }
    return status;
}

weft_status wefti_page_gather(wefti_page *page, weft_comm *comm,
                              const weft_ledger *ledger)
{
    page->nranks = weft_comm_get_nranks(comm);
    page->fabric = wefti_routes_fabric(comm);
    wefti_trace_fini(&page->trace);
    weft_status status = wefti_trace_gather(comm, ledger, &page->sums,
                                            page->trace_path, &page->trace);
    if (status == WEFT_ERR_SYSTEM) { /* rank 0's file: the page comes first */
        page->trace_error = strdup(weft_error_text());
        status = WEFT_OK;
    }
    return status == WEFT_OK ? gather_machine(page, comm) : status;
}

/* What auto has asked; NULL: the schedule was named. */
static const wefti_pipe_advice *find_advice(const wefti_page *page)
{
    return page->trials && page->trials->chosen ? &page->trials->advice : NULL;
}

weft_status wefti_page_gather_plan(wefti_page *page, weft_comm *comm,
                                   weft_pipeline *pipeline,
                                   const weft_schedule *schedule,
                                   const wefti_pipe_job *job)
{
    const double unit_ns = 1e6; /* the page's times are ms */
    const weft_pipeline_span *spans = NULL;
    weft_schedule_run measured;
    int64_t error_ns = 0;
    uint64_t step = 0;
    wefti_page_plan_fini(&page->plan);
    if (page->steps.count == 0) {
        return WEFT_OK;
    }
    weft_status status = wefti_step_log_find(&page->steps, comm, &step, &spans);
    if (status == WEFT_OK) {
        status = weft_pipeline_measure(pipeline, spans, unit_ns, &measured,
                                       &error_ns);
    }
    page->trace.clock_error_ns = error_ns > page->trace.clock_error_ns
                                     ? error_ns
                                     : page->trace.clock_error_ns;
    if (status == WEFT_OK) {
        status = wefti_page_plan_init(&page->plan, schedule, &measured, job,
                                      find_advice(page));
    }
    if (status == WEFT_OK) {
        page->plan.step = step;
    }
    return status;
}

/* ---- writing --------------------------------------------------------------
 */

/* Signs that mean something in HTML are JSON's \u escapes there: no text of a
 * run can end the element that holds it. */
static void put_escaped(const char *text, size_t bytes, FILE *file)
{
    for (size_t k = 0; k < bytes; k++) {
        char c = text[k];
        if (c == '<' || c == '>' || c == '&') {
            fprintf(file, "\\u%04x", (unsigned)c);
        } else {
            fputc(c, file);
        }
    }
}

static weft_status put_page(const wefti_page *page, const wefti_config *config,
                            const wefti_summary *summary, FILE *file)
{
    char *text = NULL;
    size_t bytes = 0;
    wefti_json json;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "the report's facts");
    }
    wefti_json_init(&json, memory);
    wefti_page_put_facts(&json, page, config, summary);
    weft_status status = wefti_json_fini(&json);
    if (fclose(memory) != 0 && status == WEFT_OK) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "the report's facts");
    }
    if (status == WEFT_OK) {
        fputs(wefti_page_head, file);
        put_escaped(text, bytes, file);
        fputs(wefti_page_tail, file);
    }
    free(text);
    return status;
}

weft_status wefti_page_write(const wefti_page *page, const wefti_config *config,
                             const wefti_summary *summary)
{
    wefti_output out;
    weft_status status = wefti_output_open(&out, "--report", page->path);
    if (status == WEFT_OK) {
        status =
            wefti_output_end(&out, put_page(page, config, summary, out.file));
    }
    return status == WEFT_OK && page->trace_error
               ? wefti_error(WEFT_ERR_SYSTEM, "%s", page->trace_error)
               : status;
}
