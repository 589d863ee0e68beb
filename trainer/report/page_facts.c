/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_facts.c - the facts of a run: how it was asked for, what
 * its steps and ranks did, what moved.
 */
#include "trainer/report/page_facts.h"

#include "base/settings.h"
#include "trainer/config/config_key.h"
#include "trainer/report/run_facts.h"
#include "weft/version.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- steps ----------------------------------------------------------------
 */

static void put_steps(wefti_json *json, const char *name,
                      const wefti_history *history, size_t offset)
{
    wefti_json_array_open(json, name);
    for (size_t k = 0; k < history->count; k++) {
        const char *point = (const char *)&history->points[k];
        wefti_json_uint(json, NULL, *(const uint64_t *)(point + offset));
    }
    wefti_json_array_close(json);
}

/* Of a series one figure of each point; NAN where it has none. */
static void put_column(wefti_json *json, const wefti_history *history,
                       wefti_history_series series,
                       double (*figure)(const wefti_history_value *))
{
    wefti_json_array_open(json, wefti_history_text(series));
    for (size_t k = 0; k < history->count; k++) {
        const wefti_history_value *value = &history->points[k].values[series];
        wefti_json_real(json, NULL,
                        value->count > 0 ? figure(value) : (double)NAN);
    }
    wefti_json_array_close(json);
}

static double mean_of(const wefti_history_value *value)
{
    return value->sum / (double)value->count;
}

static double least_of(const wefti_history_value *value)
{
    return value->least;
}

static double most_of(const wefti_history_value *value)
{
    return value->most;
}

/* What bands are drawn of; terms are shown as means alone. */
static void put_extremes(wefti_json *json, const char *name,
                         const wefti_history *history,
                         double (*figure)(const wefti_history_value *))
{
    wefti_json_object_open(json, name);
    for (int s = 0; s <= WEFTI_HISTORY_STEP; s++) {
        put_column(json, history, (wefti_history_series)s, figure);
    }
    wefti_json_object_close(json);
}

/* Column by column: [point] of the means. */
static void put_history(wefti_json *json, const wefti_history *history)
{
    wefti_json_object_open(json, "history");
    wefti_json_uint(json, "stride", history->stride);
    put_steps(json, "first_step", history,
              offsetof(wefti_history_point, first));
    put_steps(json, "last_step", history, offsetof(wefti_history_point, last));
    for (int s = 0; s < WEFTI_HISTORY_COUNT; s++) {
        put_column(json, history, (wefti_history_series)s, mean_of);
    }
    wefti_json_object_close(json);
    put_extremes(json, "history_least", history, least_of);
    put_extremes(json, "history_most", history, most_of);
}

/* ---- ranks and transfers --------------------------------------------------
 */

#define RANK(kind, field)       WEFTI_FACT(kind, wefti_rank_facts, field)
#define RANK_AS(kind, field, n) WEFTI_FACT_AS(kind, wefti_rank_facts, field, n)

static const wefti_fact of_rank[] = {
    RANK(CHARS, host),
    RANK_AS(UINT, sums.steps, "steps"),
    RANK_AS(REAL, sums.step_ms, "step_ms"),
    RANK_AS(REAL, sums.compute_ms, "compute_ms"),
    RANK_AS(REAL, sums.exposed_ms, "exposed_ms"),
    RANK_AS(REAL, sums.bubble_ms, "bubble_ms"),
    RANK_AS(REAL, sums.skew_ms, "skew_ms"),
    RANK_AS(REAL, sums.idle_ms, "idle_ms"),
    RANK(UINT, memory_bytes),
    RANK_AS(UINT, sums.planned_bytes, "planned_bytes"),
    RANK_AS(UINT, sums.grown_bytes, "grown_bytes"),
    RANK_AS(UINT, events, "trace_events"),
    {0}};

/* Its sums become means over its steps. */
static void put_rank(wefti_json *json, const wefti_rank_facts *facts)
{
    wefti_rank_facts mean = *facts;
    double steps = facts->sums.steps > 0 ? (double)facts->sums.steps : 1;
    mean.sums.step_ms /= steps;
    mean.sums.compute_ms /= steps;
    mean.sums.exposed_ms /= steps;
    mean.sums.bubble_ms /= steps;
    mean.sums.skew_ms /= steps;
    mean.sums.idle_ms /= steps;
    wefti_facts_object(json, NULL, of_rank, &mean);
}

/* Of all ranks together, in the traced steps. */
static void put_traffic(wefti_json *json, const wefti_page *page)
{
    wefti_json_array_open(json, "traffic");
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        uint64_t pieces = 0, bytes = 0;
        for (int rank = 0; rank < page->nranks; rank++) {
            pieces += page->trace.ranks[rank].calls[c];
            bytes += page->trace.ranks[rank].bytes[c];
        }
        if (pieces > 0) {
            wefti_json_object_open(json, NULL);
            wefti_json_text(json, "collective",
                            weft_collective_text((weft_collective)c));
            wefti_json_text(json, "fabric", page->fabric);
            wefti_json_uint(json, "pieces", pieces);
            wefti_json_uint(json, "bytes", bytes);
            wefti_json_object_close(json);
        }
    }
    wefti_json_array_close(json);
}

static void put_trace(wefti_json *json, const wefti_page *page)
{
    const double us_per_ns = 1e-3;
    wefti_json_object_open(json, "trace");
    wefti_json_text(json, "file", name_of(page->trace_path));
    wefti_json_text(json, "error", page->trace_error);
    wefti_json_uint(json, "steps", page->trace.ranks[0].traced_steps);
    wefti_json_uint(json, "events_left_out", page->trace.omitted);
    wefti_json_real(json, "clock_error_us",
                    us_per_ns * (double)page->trace.clock_error_ns);
    wefti_json_object_close(json);
}

/* ---- settings -------------------------------------------------------------
 */

static void put_value(wefti_json *json, const wefti_config *config,
                      const wefti_config_key *key)
{
    char text[4096];
    wefti_config_key_print(config, key, text, sizeof(text));
    if (key->kind == WEFTI_CONFIG_REAL) {
        wefti_json_real(json, "value", strtod(text, NULL));
    } else if (key->kind == WEFTI_CONFIG_PATHS) {
        wefti_json_array_open(json, "value");
        for (size_t k = 0; k < config->data.path_count; k++) {
            wefti_json_text(json, NULL, config->data.paths[k]);
        }
        wefti_json_array_close(json);
    } else {
        wefti_json_text(json, "value", text);
    }
}

/* line: where in the file; 0 the default; below 0 --set. */
static void put_keys(wefti_json *json, const wefti_config *config)
{
    wefti_json_array_open(json, "settings");
    for (size_t k = 0; k < wefti_config_key_count; k++) {
        const wefti_config_key *key = &wefti_config_keys[k];
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "section", key->section);
        wefti_json_text(json, "key", key->name);
        put_value(json, config, key);
        wefti_json_int(json, "line", config->places[k].line);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

/* Of rank 0, without what lets others in. */
static void put_environment(wefti_json *json)
{
    wefti_json_array_open(json, "environment");
    for (int s = 0; s < WEFTI_SETTING_COUNT; s++) {
        wefti_setting setting = (wefti_setting)s;
        if (!wefti_setting_given(setting) || setting == WEFTI_SETTING_SECRET ||
            setting == WEFTI_SETTING_SECRET_FILE) {
            continue;
        }
        wefti_setting_info info = wefti_setting_describe(setting);
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", info.name);
        wefti_json_text(json, "value", info.value);
        wefti_json_text(json, "meaning", info.meaning);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

/* ---- all ------------------------------------------------------------------
 */

static void put_date(wefti_json *json)
{
    char date[40] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts)) {
        (void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", &parts);
    }
    wefti_json_text(json, "date", date);
}

void wefti_page_put_facts(wefti_json *json, const wefti_page *page,
                          const wefti_config *config,
                          const wefti_summary *summary)
{
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "weft", weft_version_text());
    put_date(json);
    wefti_json_text(json, "config", config->path);
    wefti_json_text(json, "name", name_of(config->path));
    wefti_json_int(json, "nranks", page->nranks);
    wefti_json_uint(json, "parameters", summary->parameters);
    wefti_json_uint(json, "step", summary->step);
    wefti_json_real(json, "first_val_loss", summary->first_val_loss);
    wefti_json_real(json, "val_loss", summary->val_loss);
    wefti_json_real(json, "bubble_warned", WEFT_ADVICE_BUBBLE_WARNED);
    wefti_json_real(json, "transfers_warned", WEFTI_SUMMARY_TRANSFERS_WARNED);
    wefti_facts_summary(json, "summary", summary);
    wefti_facts_object(json, "median_step", wefti_facts_of_step,
                       wefti_summary_median(summary));
    put_history(json, &page->history);
    wefti_json_array_open(json, "ranks");
    for (int rank = 0; rank < page->nranks; rank++) {
        put_rank(json, &page->trace.ranks[rank]);
    }
    wefti_json_array_close(json);
    put_traffic(json, page);
    put_trace(json, page);
    wefti_page_put_schedules(json, page);
    wefti_json_text(json, "machine", page->machine);
    put_keys(json, config);
    put_environment(json);
    wefti_json_object_close(json);
}
