/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_table.c - what is counted: ranks, transfers, what
 * --measure found, settings.
 */
#include "trainer/report/page_part.h"

#include "base/settings.h"
#include "trainer/config/config_key.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_SHOWN = 64 };

const char *wefti_page_bytes(double bytes, char text[WEFTI_PAGE_NUMBER_BYTES])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 999.95 && unit < 4) {
        bytes /= 1000;
        unit++;
    }
    snprintf(text, WEFTI_PAGE_NUMBER_BYTES, "%.*f %s",
             unit == 0 || bytes >= 99.995 ? 0 : 2, bytes, units[unit]);
    return text;
}

static void put_bytes(FILE *file, double bytes)
{
    char text[WEFTI_PAGE_NUMBER_BYTES];
    fputs(wefti_page_bytes(bytes, text), file);
}

/* ---- ranks ----------------------------------------------------------------
 */

static void put_rank(const wefti_page_view *view, int rank)
{
    const wefti_rank_facts *facts = &view->page->trace.ranks[rank];
    const wefti_rank_sums *sums = &facts->sums;
    const double of_steps[] = {sums->step_ms,    sums->compute_ms,
                               sums->exposed_ms, sums->bubble_ms,
                               sums->skew_ms,    sums->idle_ms};
    fprintf(view->file, "<tr><td>%d</td><td class=\"left\">", rank);
    wefti_page_text(view->file, facts->host);
    fputs("</td>", view->file);
    for (size_t k = 0; k < sizeof(of_steps) / sizeof(of_steps[0]); k++) {
        fprintf(view->file, "<td>%.3f</td>",
                of_steps[k] / (double)(sums->steps > 0 ? sums->steps : 1));
    }
    const uint64_t memory[] = {sums->planned_bytes, sums->grown_bytes,
                               facts->memory_bytes};
    for (size_t k = 0; k < sizeof(memory) / sizeof(memory[0]); k++) {
        fputs("<td>", view->file);
        put_bytes(view->file, (double)memory[k]);
        fputs("</td>", view->file);
    }
    fputs("</tr>\n", view->file);
}

void wefti_page_put_ranks(const wefti_page_view *view)
{
    const wefti_page *page = view->page;
    int shown = page->nranks < RANKS_SHOWN ? page->nranks : RANKS_SHOWN;
    fputs("<section><h2>Ranks</h2>\n<div class=\"wide\"><table id=\"ranks\">"
          "<tr><th>rank</th><th class=\"left\">host</th><th>step, ms</th>"
          "<th>compute</th><th>exposed</th><th>bubble</th><th>skew</th>"
          "<th>idle</th><th>memory planned</th><th>grown</th>"
          "<th>peak</th></tr>\n",
          view->file);
    for (int rank = 0; rank < shown; rank++) {
        put_rank(view, rank);
    }
    fprintf(view->file,
            "</table></div>\n<p class=\"soft\">Means over the %" PRIu64
            " steps of this run, each on its rank's clock. Memory planned is "
            "that of parameters, gradients, moments, activations and buffers; "
            "grown, by how much more was resident at most than before they "
            "were made, so with what communicators, the ledger and the matrix "
            "library took since; peak, all that was resident. Ranks that are "
            "threads of one process share it.%s</p></section>\n",
            page->trace.ranks[0].sums.steps,
            page->nranks > shown ? " Only the first 64 ranks are shown." : "");
}

/* ---- transfers ------------------------------------------------------------
 */

void wefti_page_put_traffic(const wefti_page_view *view)
{
    const wefti_page *page = view->page;
    double steps = (double)page->trace.ranks[0].traced_steps, all = 0;
    steps = steps > 0 ? steps : 1;
    fputs("<section><h2>Bytes by fabric</h2>\n<table id=\"traffic\"><tr><th>"
          "collective</th><th class=\"left\">fabric</th><th>pieces a step</th>"
          "<th>bytes a step</th></tr>\n",
          view->file);
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        double calls = 0, bytes = 0;
        for (int rank = 0; rank < page->nranks; rank++) {
            calls += (double)page->trace.ranks[rank].calls[c];
            bytes += (double)page->trace.ranks[rank].bytes[c];
        }
        if (calls > 0) {
            fprintf(view->file,
                    "<tr><td>%s</td><td class=\"left\">%s</td><td>%.4g</td>"
                    "<td>",
                    weft_collective_text((weft_collective)c), page->fabric,
                    calls / steps);
            put_bytes(view->file, bytes / steps);
            fputs("</td></tr>\n", view->file);
        }
        all += bytes;
    }
    fprintf(view->file,
            "<tr class=\"sum\"><td>together</td><td class=\"left\">%s</td>"
            "<td></td><td>",
            page->fabric);
    put_bytes(view->file, all / steps);
    fprintf(view->file,
            "</td></tr></table>\n<p class=\"soft\">Payload that ranks sent and "
            "received, all together, in the last %.0f steps. A piece is a run "
            "of chunks that moved without a pause. self: a rank alone; shm: "
            "shared memory; net: between hosts.</p></section>\n",
            (double)page->trace.ranks[0].traced_steps);
}

/* ---- what overlap is worth ------------------------------------------------
 */

static void put_ratio(FILE *file, const char *name, const char *meaning,
                      double value)
{
    fprintf(file, "<tr><td>%s</td>", name);
    if (isnan(value)) {
        fputs("<td>n/a</td>", file);
    } else {
        fprintf(file, "<td>%.4f</td>", value);
    }
    fprintf(file, "<td class=\"left\">%s</td></tr>\n", meaning);
}

void wefti_page_put_measured(const wefti_page_view *view)
{
    static const char *const names[WEFTI_MEASURE_KINDS] = {
        "overlapped", "compute alone", "one after the other",
        "transfers alone"};
    const wefti_measure_result *measured = view->summary->measured;
    if (!measured) {
        return;
    }
    FILE *file = view->file;
    fputs("<section><h2>What overlap is worth</h2>\n<table id=\"measured\"><tr>"
          "<th>the same steps</th><th>median, ms</th><th>least</th><th>most"
          "</th></tr>\n",
          file);
    for (int k = 0; k < WEFTI_MEASURE_KINDS; k++) {
        const wefti_measure_times *times = &measured->times[k];
        fprintf(file,
                "<tr><td>%s</td><td>%.3f</td><td>%.3f</td><td>%.3f</td></tr>\n",
                names[k], times->median_ms, times->min_ms, times->max_ms);
    }
    fputs("</table>\n<table><tr><th></th><th></th><th></th></tr>\n", file);
    put_ratio(file, "O", "share of the transfer time under compute",
              measured->overlap_ratio);
    put_ratio(file, "H",
              "share of the time that transfers cost in turn which overlap "
              "saves",
              measured->hiding_ratio);
    put_ratio(file, "s_C", "compute beside transfers / compute alone",
              measured->s_C);
    put_ratio(file, "s_M", "transfers beside compute / transfers alone",
              measured->s_M);
    fprintf(file,
            "</table>\n<p class=\"soft\">%zu steps of each kind, taking turns; "
            "the slowest rank of each.</p></section>\n",
            measured->steps);
}

/* ---- settings -------------------------------------------------------------
 */

static void put_paths(const wefti_page_view *view, const wefti_config_key *key)
{
    const char *field = (const char *)view->config + key->offset;
    char **paths;
    size_t count;
    memcpy(&paths, field, sizeof(paths));
    memcpy(&count, field + sizeof(paths), sizeof(count));
    for (size_t k = 0; k < count; k++) {
        fputs(k > 0 ? ", " : "", view->file);
        wefti_page_text(view->file, paths[k]);
    }
}

/* Exactly, but not with more digits than that takes: 0.003. */
static void put_value(const wefti_page_view *view, const wefti_config_key *key)
{
    char text[512], shorter[32];
    wefti_config_key_print(view->config, key, text, sizeof(text));
    if (key->kind == WEFTI_CONFIG_PATHS) {
        put_paths(view, key);
        return;
    }
    if (key->kind == WEFTI_CONFIG_REAL) {
        double value = strtod(text, NULL);
        snprintf(shorter, sizeof(shorter), "%.15g", value);
        if (!(strtod(shorter, NULL) < value) &&
            !(strtod(shorter, NULL) > value)) {
            memcpy(text, shorter, sizeof(shorter));
        }
    }
    wefti_page_text(view->file, text);
}

static void put_key(const wefti_page_view *view, const wefti_config_key *key)
{
    const wefti_config *config = view->config;
    wefti_config_place place = config->places[key - wefti_config_keys];
    fprintf(view->file, "<tr><td>%s.%s</td><td class=\"left\">", key->section,
            key->name);
    put_value(view, key);
    fputs("</td><td class=\"left\">", view->file);
    if (place.line > 0) {
        fprintf(view->file, "line %d", place.line);
    } else {
        fputs(place.line < 0 ? "--set" : "default", view->file);
    }
    fputs("</td></tr>\n", view->file);
}

static void put_keys(const wefti_page_view *view, bool given)
{
    fputs("<table><tr><th>key</th><th class=\"left\">value</th>"
          "<th class=\"left\">from</th></tr>\n",
          view->file);
    for (size_t k = 0; k < wefti_config_key_count; k++) {
        bool set = view->config->places[k].line != 0;
        if (set == given) {
            put_key(view, &wefti_config_keys[k]);
        }
    }
    fputs("</table>\n", view->file);
}

/* Not what lets others in. */
static bool is_secret(wefti_setting setting)
{
    return setting == WEFTI_SETTING_SECRET ||
           setting == WEFTI_SETTING_SECRET_FILE;
}

void wefti_page_put_settings(const wefti_page_view *view)
{
    fputs("<section><h2>Settings</h2>\n", view->file);
    put_keys(view, true);
    bool any = false;
    for (int s = 0; s < WEFTI_SETTING_COUNT; s++) {
        wefti_setting setting = (wefti_setting)s;
        if (!wefti_setting_given(setting) || is_secret(setting)) {
            continue;
        }
        wefti_setting_info info = wefti_setting_describe(setting);
        fputs(any ? ""
                  : "<table><tr><th>environment of rank 0</th><th "
                    "class=\"left\">value</th><th class=\"left\"></th>"
                    "</tr>\n",
              view->file);
        any = true;
        fprintf(view->file, "<tr><td>%s</td><td class=\"left\">", info.name);
        wefti_page_text(view->file, info.value);
        fputs("</td><td class=\"left\">", view->file);
        wefti_page_text(view->file, info.meaning);
        fputs("</td></tr>\n", view->file);
    }
    fputs(any ? "</table>\n" : "", view->file);
    fputs("<details><summary>Keys left at their defaults</summary>\n",
          view->file);
    put_keys(view, false);
    fputs("</details></section>\n", view->file);
}
