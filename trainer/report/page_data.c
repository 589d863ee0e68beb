/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_data.c - the page's figures as JSON, in a script element
 * of a type that no browser runs.
 *
 * Signs that mean something in HTML are written as JSON's \u escapes, so that
 * no text in the data can end the element.
 */
#include "trainer/report/page_part.h"

#include "base/error.h"
#include "base/json.h"
#include "weft/version.h"

#include <stdlib.h>

static void put_step(wefti_json *json, const char *name,
                     const wefti_metrics_step *step)
{
    wefti_json_object_open(json, name);
    wefti_json_uint(json, "step", step->step);
    wefti_json_real(json, "loss", step->loss);
    wefti_json_real(json, "tokens_per_s", step->tokens_per_s);
    wefti_json_real(json, "step_ms", step->step_ms);
    wefti_json_real(json, "step_ms_max", step->step_ms_max);
    wefti_json_real(json, "compute_ms", step->compute_ms);
    wefti_json_object_open(json, "exposed_ms");
    for (int c = WEFT_CLASS_COMPUTE + 1; c < WEFT_CLASS_COUNT; c++) {
        wefti_json_real(json, weft_class_text((weft_class)c),
                        step->exposed_ms[c]);
    }
    wefti_json_object_close(json);
    wefti_json_real(json, "bubble_ms", step->bubble_ms);
    wefti_json_real(json, "skew_ms", step->skew_ms);
    wefti_json_real(json, "idle_ms", step->idle_ms);
    wefti_json_real(json, "overlap_ratio", step->overlap_ratio);
    wefti_json_object_close(json);
}

/* Column by column: [point] of the means. */
static void put_history(wefti_json *json, const wefti_history *history)
{
    wefti_json_object_open(json, "history");
    wefti_json_uint(json, "stride", history->stride);
    wefti_json_array_open(json, "first_step");
    for (size_t k = 0; k < history->count; k++) {
        wefti_json_uint(json, NULL, history->points[k].first);
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "last_step");
    for (size_t k = 0; k < history->count; k++) {
        wefti_json_uint(json, NULL, history->points[k].last);
    }
    wefti_json_array_close(json);
    for (int s = 0; s < WEFTI_HISTORY_COUNT; s++) {
        wefti_history_series series = (wefti_history_series)s;
        wefti_json_array_open(json, wefti_history_text(series));
        for (size_t k = 0; k < history->count; k++) {
            wefti_json_real(json, NULL,
                            wefti_history_mean(&history->points[k], series));
        }
        wefti_json_array_close(json);
    }
    wefti_json_object_close(json);
}

/* Means over the steps, as on the page. */
static void put_ranks(wefti_json *json, const wefti_page *page)
{
    wefti_json_array_open(json, "ranks");
    for (int rank = 0; rank < page->nranks; rank++) {
        const wefti_rank_facts *facts = &page->trace.ranks[rank];
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "host", facts->host);
        wefti_json_uint(json, "steps", facts->sums.steps);
        double steps = facts->sums.steps > 0 ? (double)facts->sums.steps : 1;
        wefti_json_real(json, "step_ms", facts->sums.step_ms / steps);
        wefti_json_real(json, "compute_ms", facts->sums.compute_ms / steps);
        wefti_json_real(json, "exposed_ms", facts->sums.exposed_ms / steps);
        wefti_json_real(json, "bubble_ms", facts->sums.bubble_ms / steps);
        wefti_json_real(json, "skew_ms", facts->sums.skew_ms / steps);
        wefti_json_real(json, "idle_ms", facts->sums.idle_ms / steps);
        wefti_json_uint(json, "memory_bytes", facts->memory_bytes);
        wefti_json_uint(json, "planned_bytes", facts->sums.planned_bytes);
        wefti_json_uint(json, "grown_bytes", facts->sums.grown_bytes);
        wefti_json_uint(json, "trace_events", facts->events);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

static void put_run(wefti_json *json, const char *name,
                    const weft_schedule_run *run)
{
    wefti_json_object_open(json, name);
    wefti_json_real(json, "makespan_ms", run->makespan);
    wefti_json_real(json, "bubble_ms", run->bubble);
    wefti_json_real(json, "peak_activation", run->activations);
    wefti_json_object_close(json);
}

/* What a list puts off, rank by rank. */
static void put_deferred(wefti_json *json, const weft_schedule *schedule,
                         int ranks)
{
    wefti_json_array_open(json, "deferred");
    for (int rank = 0; rank < ranks; rank++) {
        size_t deferred, waiting;
        wefti_page_plan_deferred(schedule, rank, &deferred, &waiting);
        wefti_json_uint(json, NULL, deferred);
    }
    wefti_json_array_close(json);
}

static void put_run_rank(wefti_json *json, const char *name,
                         const weft_schedule_rank *rank)
{
    wefti_json_object_open(json, name);
    wefti_json_real(json, "busy_ms", rank->busy);
    wefti_json_real(json, "bubble_ms", rank->bubble);
    wefti_json_real(json, "peak_activation", rank->activations);
    wefti_json_object_close(json);
}

static void put_run_ranks(wefti_json *json, const wefti_page_plan *plan)
{
    wefti_json_array_open(json, "ranks");
    for (int rank = 0; rank < plan->planned.rank_count; rank++) {
        wefti_json_object_open(json, NULL);
        put_run_rank(json, "planned", &plan->planned.ranks[rank]);
        put_run_rank(json, "measured", &plan->measured.ranks[rank]);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

static void put_best(wefti_json *json, const weft_advice *advice)
{
    const weft_schedule_candidate *best = &advice->candidates[0];
    if (advice->count == 0 || !best->possible) {
        wefti_json_null(json, "best");
        return;
    }
    wefti_json_object_open(json, "best");
    wefti_json_text(json, "schedule", best->name);
    wefti_json_int(json, "chunks", best->chunks);
    wefti_json_int(json, "microbatches", best->microbatches);
    wefti_json_real(json, "makespan_ms", best->makespan);
    wefti_json_real(json, "idle_ratio", best->idle_ratio);
    wefti_json_real(json, "bubble_ratio", best->bubble_ratio);
    wefti_json_real(json, "imbalance_ratio", best->imbalance_ratio);
    wefti_json_int(json, "param_copies", best->param_copies);
    wefti_json_object_close(json);
}

static void put_plan(wefti_json *json, const wefti_page_plan *plan)
{
    if (!plan->schedule) {
        wefti_json_null(json, "schedule");
        return;
    }
    wefti_json_object_open(json, "schedule");
    wefti_json_uint(json, "step", plan->step);
    put_run(json, "planned", &plan->planned);
    put_run(json, "measured", &plan->measured);
    wefti_json_real(json, "F_ms", plan->cost.f);
    wefti_json_real(json, "I_ms", plan->cost.i);
    wefti_json_real(json, "W_ms", plan->cost.w);
    wefti_json_real(json, "FB_ms", plan->cost.fb);
    wefti_json_real(json, "p2p_ms", plan->cost.p2p);
    put_run_ranks(json, plan);
    put_deferred(json, plan->schedule, plan->planned.rank_count);
    wefti_json_real(json, "imbalance_ms", plan->imbalance);
    const weft_advice *advice = &plan->advice->found;
    put_best(json, advice);
    wefti_json_text(json, "advice", advice->reason);
    wefti_json_text(json, "warning",
                    advice->warning[0] ? advice->warning : NULL);
    wefti_json_text(json, "command", plan->advice->command);
    wefti_json_object_close(json);
}

static void put_trials(wefti_json *json, const wefti_trials *trials)
{
    wefti_json_array_open(json, "trials");
    for (size_t k = 0; trials && k < trials->count; k++) {
        const wefti_trial *trial = &trials->items[k];
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "schedule", trial->name);
        wefti_json_int(json, "chunks", trial->chunks);
        wefti_json_bool(json, "emulated", trial->emulated);
        wefti_json_bool(json, "chosen", trial == trials->chosen);
        wefti_json_real(json, "step_ms", trial->step_ms);
        wefti_json_real(json, "step_ms_min", trial->least_ms);
        wefti_json_real(json, "step_ms_max", trial->most_ms);
        put_run(json, "planned", &trial->planned);
        put_run(json, "measured", &trial->runs[trial->median]);
        put_deferred(json, trial->schedule, trial->planned.rank_count);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

/* What auto chose; its advice is under schedule. */
static void put_auto(wefti_json *json, const wefti_trials *trials)
{
    if (!trials || !trials->chosen) {
        wefti_json_null(json, "auto");
        return;
    }
    wefti_json_object_open(json, "auto");
    wefti_json_text(json, "schedule", trials->chosen->name);
    wefti_json_int(json, "chunks", trials->chosen->chunks);
    wefti_json_text(json, "reason", trials->reason);
    wefti_json_text(json, "advice", trials->advice.found.reason);
    wefti_json_object_close(json);
}

static void put_all(const wefti_page_view *view, wefti_json *json)
{
    const wefti_summary *summary = view->summary;
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "weft", weft_version_text());
    wefti_json_text(json, "config", view->config->path);
    wefti_json_int(json, "nranks", view->page->nranks);
    wefti_json_uint(json, "parameters", summary->parameters);
    wefti_json_uint(json, "step", summary->step);
    wefti_json_real(json, "first_val_loss", summary->first_val_loss);
    wefti_json_real(json, "val_loss", summary->val_loss);
    if (view->median) {
        put_step(json, "median_step", view->median);
    } else {
        wefti_json_null(json, "median_step");
    }
    put_history(json, &view->page->history);
    put_ranks(json, view->page);
    put_plan(json, &view->page->plan);
    put_trials(json, view->page->trials);
    put_auto(json, view->page->trials);
    wefti_json_object_close(json);
}

weft_status wefti_page_put_data(const wefti_page_view *view)
{
    char *text = NULL;
    size_t bytes = 0;
    wefti_json json;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--report: its data");
    }
    wefti_json_init(&json, memory);
    put_all(view, &json);
    weft_status status = wefti_json_fini(&json);
    if (fclose(memory) != 0 && status == WEFT_OK) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "--report: its data");
    }
    fputs("<script type=\"application/json\" id=\"weft-report\">", view->file);
    for (size_t k = 0; k < bytes && status == WEFT_OK; k++) {
        char c = text[k];
        if (c == '<' || c == '>' || c == '&') {
            fprintf(view->file, "\\u%04x", (unsigned)c);
        } else {
            fputc(c, view->file);
        }
    }
    fputs("</script>\n", view->file);
    free(text);
    return status;
}
