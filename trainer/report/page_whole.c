/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_whole.c - the page from its first line to its last, and
 * how it takes its place.
 */
#include "trainer/report/page_part.h"

#include "base/error.h"
#include "base/settings.h"
#include "weft/version.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the page -------------------------------------------------------------
 */

void wefti_page_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '&' || c == '<' || c == '>' || c == '"') {
            fprintf(file, "&#%d;", c);
        } else if (c < ' ' && c != '\n' && c != '\t') {
            fputc('?', file);
        } else {
            fputc(c, file);
        }
    }
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int count_hosts(const wefti_page *page)
{
    int count = 0;
    for (int rank = 0; rank < page->nranks; rank++) {
        bool seen = false;
        for (int other = 0; other < rank && !seen; other++) {
            seen = strcmp(page->trace.ranks[other].host,
                          page->trace.ranks[rank].host) == 0;
        }
        count += !seen;
    }
    return count;
}

static void put_head(const wefti_page_view *view)
{
    const wefti_page *page = view->page;
    const char *name = name_of(view->config->path);
    FILE *file = view->file;
    char date[40] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts)) {
        (void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", &parts);
    }
    int hosts = count_hosts(page);
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta "
          "charset=\"utf-8\"/>\n<meta name=\"viewport\" "
          "content=\"width=device-width,initial-scale=1\"/>\n<title>",
          file);
    wefti_page_text(file, name);
    fprintf(file, " - weft-train</title>\n<style>\n%s</style>\n</head>\n",
            wefti_page_style);
    fputs("<body>\n<main>\n<h1>", file);
    wefti_page_text(file, name);
    fprintf(file,
            "</h1>\n<p class=\"soft\">weft-train %s, %s: %d rank%s on %d "
            "host%s, %zu parameters, %" PRIu64 " steps</p>\n",
            weft_version_text(), date, page->nranks,
            page->nranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
            view->summary->parameters, view->summary->step);
}

static void put_tile(FILE *file, const char *name, const char *value,
                     const char *more)
{
    fprintf(file,
            "<div class=\"tile\"><span>%s</span><b>%s</b><span>%s</span>"
            "</div>\n",
            name, value, more);
}

bool wefti_page_is_oversubscribed(const wefti_metrics_step *step)
{
    return step->cpu_share < 0.9 && step->compute_ms > 0;
}

static void put_hidden(const wefti_page_view *view)
{
    double hidden = wefti_summary_hidden(view->summary);
    char value[32] = "n/a";
    if (!isnan(hidden)) {
        snprintf(value, sizeof(value), "%.1f%%", 100 * hidden);
    }
    put_tile(view->file, "O, transfers under compute", value,
             isnan(hidden) ? "there are none"
             : wefti_page_is_oversubscribed(view->median)
                 ? "oversubscribed: proves nothing"
                 : "of their time, median");
}

static void put_memory(const wefti_page_view *view)
{
    uint64_t most = 0;
    char value[32];
    for (int rank = 0; rank < view->page->nranks; rank++) {
        uint64_t bytes = view->page->trace.ranks[rank].memory_bytes;
        most = bytes > most ? bytes : most;
    }
    wefti_page_bytes((double)most, value);
    put_tile(view->file, "memory", value, "peak of the largest rank");
}

static void put_tiles(const wefti_page_view *view)
{
    const wefti_metrics_step *median = view->median;
    const wefti_summary *summary = view->summary;
    FILE *file = view->file;
    char value[64], more[96];
    fputs("<div class=\"tiles\">\n", file);
    if (!isnan(summary->val_loss)) {
        snprintf(value, sizeof(value), "%.4f", summary->val_loss);
        snprintf(more, sizeof(more), "from %.4f, nats a byte",
                 summary->first_val_loss);
        put_tile(file, "validation loss", value, more);
    }
    if (median) {
        snprintf(value, sizeof(value), "%.0f", median->tokens_per_s);
        put_tile(file, "tokens/s", value, "all ranks, median step");
        snprintf(value, sizeof(value), "%.2f ms", median->step_ms);
        snprintf(more, sizeof(more), "%.1f%% of it compute",
                 100 * median->compute_ms / median->step_ms);
        put_tile(file, "step", value, more);
        put_hidden(view);
    }
    put_memory(view);
    fputs("</div>\n", file);
}

/* ---- what must be known ---------------------------------------------------
 */

typedef struct warnings {
    FILE *file;
    bool any;
} warnings;

/* Opens the list before the first one. */
static FILE *warn(warnings *w)
{
    fputs(w->any ? "</li>\n<li>" : "<ul class=\"warn\" id=\"warnings\">\n<li>",
          w->file);
    w->any = true;
    return w->file;
}

static void warn_of_times(const wefti_page_view *view, warnings *w)
{
    const wefti_metrics_step *median = view->median;
    const wefti_summary *summary = view->summary;
    double gbps = 0;
    if (median && wefti_page_is_oversubscribed(median)) {
        fprintf(warn(w),
                "Oversubscribed: compute had a core for %.0f%% of its time, so "
                "that what is called hidden proves nothing.",
                100 * median->cpu_share);
    }
    if (summary->dropped > 0) {
        fprintf(warn(w),
                "The ledger had no room for %" PRIu64
                " records: the terms of those steps are incomplete.",
                summary->dropped);
    }
    const weft_schedule_run *ran = &view->page->plan.measured;
    const char *where = view->page->plan.schedule
                            ? " What would be better is under Pipeline."
                            : "";
    double waited = median ? fmax(median->bubble_ms, median->bubble_ms_max) : 0;
    if (median && waited > WEFT_ADVICE_BUBBLE_WARNED * median->step_ms) {
        fprintf(warn(w),
                "Bubble: of the median step the rank that waited most spent "
                "%.1f%% waiting for pipeline messages.%s",
                100 * waited / median->step_ms, where);
    } else if (ran->bubble > WEFT_ADVICE_BUBBLE_WARNED * ran->makespan) {
        fprintf(
            warn(w),
            "Bubble: in %.1f%% of the median step's pipeline the worst rank "
            "did not compute.%s",
            100 * ran->bubble / ran->makespan, where);
    }
    if (wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS, &gbps) == WEFT_OK &&
        gbps > 0) {
        fprintf(warn(w),
                "Emulated: links are limited to %g GB/s by WEFT_EMULATE_GBPS.",
                gbps);
    }
}

static void put_warnings(const wefti_page_view *view)
{
    const wefti_page *page = view->page;
    warnings w = {.file = view->file};
    warn_of_times(view, &w);
    if (page->trace.omitted > 0) {
        fprintf(warn(&w),
                "The trace has the newest events only: %" PRIu64
                " older ones of its steps are left out.",
                page->trace.omitted);
    }
    if (page->trace.clock_error_ns > 0) {
        fprintf(warn(&w),
                "The hosts' clocks were compared to within %.1f us: in the "
                "trace and in a pipeline's step, events of two hosts may be "
                "that far from the truth.",
                (double)page->trace.clock_error_ns * 1e-3);
    }
    if (page->trace_error) {
        fputs("The trace could not be written: ", warn(&w));
        wefti_page_text(view->file, page->trace_error);
    }
    if (!page->machine) {
        fputs("A machine of this job could not be read.", warn(&w));
    }
    fputs(w.any ? "</li>\n</ul>\n" : "", view->file);
}

/* ---- the rest -------------------------------------------------------------
 */

static void put_machine(const wefti_page_view *view)
{
    if (view->page->machine) {
        fputs("<section><h2>Machine and routes</h2>\n<pre>", view->file);
        wefti_page_text(view->file, view->page->machine);
        fputs("</pre></section>\n", view->file);
    }
}

static void put_foot(const wefti_page_view *view)
{
    const wefti_page *page = view->page;
    FILE *file = view->file;
    fputs("<section><h2>How to read this</h2>\n<dl>\n"
          "<dt>compute</dt><dd>time in which this rank computes</dd>\n"
          "<dt>exposed</dt><dd>data move for it and nothing computes; by what "
          "they move for: tp, cp, ep, pp, dp, mem, each without those before "
          "it</dd>\n"
          "<dt>bubble</dt><dd>it waits for a pipeline message and nothing "
          "moves</dd>\n"
          "<dt>skew</dt><dd>it waits for a rank that is late to a collective"
          "</dd>\n"
          "<dt>idle</dt><dd>nothing of this: loading, saving, the time "
          "between</dd>\n"
          "<dt>hidden</dt><dd>share of the transfer time under compute; how "
          "much that saves, --measure shows</dd>\n</dl>\n",
          file);
    if (!page->trace_error) {
        fputs("<p>The last steps, operation by operation, are in <code>", file);
        wefti_page_text(file, name_of(page->trace_path));
        fputs("</code> beside this page, for Perfetto or "
              "chrome://tracing.</p>\n",
              file);
    }
    fputs("</section>\n", file);
}

static weft_status put_page(const wefti_page_view *view)
{
    put_head(view);
    put_tiles(view);
    put_warnings(view);
    wefti_page_put_loss(view);
    wefti_page_put_breakdown(view);
    weft_status status = wefti_page_put_schedule(view);
    if (status == WEFT_OK) {
        status = wefti_page_put_trials(view);
    }
    wefti_page_put_measured(view);
    wefti_page_put_throughput(view);
    wefti_page_put_ranks(view);
    wefti_page_put_traffic(view);
    put_machine(view);
    wefti_page_put_settings(view);
    put_foot(view);
    if (status == WEFT_OK) {
        status = wefti_page_put_data(view);
    }
    fputs("</main>\n</body>\n</html>\n", view->file);
    return status;
}

weft_status wefti_page_write(const wefti_page *page, const wefti_config *config,
                             const wefti_summary *summary)
{
    wefti_page_view view = {.page = page,
                            .config = config,
                            .summary = summary,
                            .median = wefti_summary_median(summary)};
    size_t bytes = strlen(page->path) + 8;
    char *fresh = malloc(bytes);
    if (!fresh) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--report %s", page->path);
    }
    snprintf(fresh, bytes, "%s.new", page->path);
    view.file = fopen(fresh, "we");
    weft_status status = view.file
                             ? put_page(&view)
                             : wefti_error_system("--report %s", page->path);
    bool bad = view.file && (fflush(view.file) != 0 || ferror(view.file));
    bad |= view.file && fclose(view.file) != 0;
    if (status == WEFT_OK && (bad || rename(fresh, page->path) != 0)) {
        status = wefti_error_system("--report %s", page->path);
    }
    if (status != WEFT_OK) {
        (void)unlink(fresh);
    }
    free(fresh);
    return status == WEFT_OK && page->trace_error
               ? wefti_error(WEFT_ERR_SYSTEM, "%s", page->trace_error)
               : status;
}
