/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_json.c - what weft-sched tells programs: its facts, and a trace.
 */
#include "perf/sched_job.h"

#include "base/error.h"
#include "base/json.h"
#include "base/output.h"

#include <math.h>

static const char *const commands[] = {"show", "check", "simulate", "list"};
static const char *const semantics_names[] = {"grouped", "rendezvous", "eager"};
static const char *const lowering_names[] = {"sender", "gap", "naive",
                                             "dualpipe"};

/* A number, or null where nothing was priced. */
static void put_real(wefti_json *json, const char *name, bool known,
                     double value)
{
    wefti_json_real(json, name, known ? value : (double)NAN);
}

typedef enum column { BUBBLE, WINDOW, BUSY } column;

static void put_column(wefti_json *json, const char *name,
                       const wefti_sched_job *job, column which)
{
    wefti_json_array_open(json, name);
    for (int r = 0; job->priced && r < job->run.rank_count; r++) {
        const weft_schedule_rank *rank = &job->run.ranks[r];
        wefti_json_real(json, NULL,
                        which == BUBBLE   ? rank->bubble
                        : which == WINDOW ? rank->window_bubble
                                          : rank->busy);
    }
    wefti_json_array_close(json);
}

static void put_waits(wefti_json *json, const wefti_sched_job *job)
{
    wefti_json_array_open(json, "wait_per_rank");
    for (int r = 0; job->priced && r < job->run.rank_count; r++) {
        wefti_json_object_open(json, NULL);
        for (int w = 1; w < WEFT_WAIT_COUNT; w++) {
            wefti_json_real(json,
                            weft_schedule_wait_text((weft_schedule_wait)w),
                            job->run.ranks[r].wait[w]);
        }
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

static void put_price(wefti_json *json, const wefti_sched_job *job)
{
    const weft_schedule_run *run = &job->run;
    bool known = job->priced;
    put_real(json, "makespan", known, run->makespan);
    put_real(json, "ideal", known, run->ideal);
    put_real(json, "bubble", known, run->bubble);
    put_column(json, "bubble_per_rank", job, BUBBLE);
    put_real(json, "bubble_ratio", known && run->makespan > 0,
             run->bubble / run->makespan);
    put_real(json, "bubble_to_ideal", known && run->ideal > 0,
             run->bubble / run->ideal);
    put_real(json, "window_bubble", known, run->window_bubble);
    put_column(json, "window_bubble_per_rank", job, WINDOW);
    put_column(json, "busy_per_rank", job, BUSY);
    put_waits(json, job);
}

static void put_peaks(wefti_json *json, const wefti_sched_job *job)
{
    const weft_verdict *verdict = &job->verdict;
    bool known = verdict->activations != NULL;
    int ranks = known ? job->info.ranks : 0;
    double peak = 0;
    for (int r = 0; r < ranks; r++) {
        peak = fmax(peak, verdict->activations[r]);
    }
    put_real(json, "peak_activation", known, peak);
    wefti_json_array_open(json, "peak_per_rank");
    for (int r = 0; r < ranks; r++) {
        wefti_json_real(json, NULL, verdict->activations[r]);
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "early_per_rank");
    for (int r = 0; r < ranks; r++) {
        wefti_json_int(json, NULL, verdict->early[r]);
    }
    wefti_json_array_close(json);
}

/* Null where the action was not read from a file. */
static void put_cell(wefti_json *json, const weft_place *at)
{
    put_real(json, "row", at->row > 0, at->row);
    put_real(json, "column", at->row > 0, at->column);
}

static void put_findings(wefti_json *json, const weft_verdict *verdict)
{
    wefti_json_array_open(json, "findings");
    for (size_t k = 0; k < verdict->finding_count && k < WEFT_FINDINGS_MOST;
         k++) {
        const weft_finding *finding = &verdict->findings[k];
        bool placed = finding->at.rank >= 0;
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "rule", weft_rule_text(finding->rule));
        put_real(json, "rank", placed, finding->at.rank);
        put_real(json, "index", placed, (double)finding->at.index);
        put_cell(json, &finding->at);
        wefti_json_text(json, "text", finding->text);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    wefti_json_uint(json, "finding_count", verdict->finding_count);
}

static void put_deadlock(wefti_json *json, const wefti_sched_job *job)
{
    const weft_verdict *verdict = &job->verdict;
    wefti_json_object_open(json, "deadlock");
    if (verdict->deadlock_known) {
        wefti_json_bool(json, "free", verdict->deadlock_free);
    } else {
        wefti_json_null(json, "free");
    }
    wefti_json_array_open(json, "cycle");
    for (size_t k = 0; k < verdict->cycle_count; k++) {
        char action[WEFT_ACTION_TEXT_BYTES], text[WEFT_ACTION_TEXT_BYTES + 24];
        const weft_action *actions;
        weft_schedule_get_actions(job->schedule, verdict->cycle[k].rank,
                                  &actions);
        weft_action_pack(&actions[verdict->cycle[k].index], action);
        snprintf(text, sizeof(text), "rank %d: %s", verdict->cycle[k].rank,
                 action);
        wefti_json_text(json, NULL, text);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

/* Of deadlock.cycle, one by one. */
static void put_cycle_cells(wefti_json *json, const weft_verdict *verdict)
{
    wefti_json_array_open(json, "cycle_cells");
    for (size_t k = 0; k < verdict->cycle_count; k++) {
        wefti_json_object_open(json, NULL);
        put_cell(json, &verdict->cycle[k]);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

weft_status wefti_sched_write_json(const wefti_sched_job *job)
{
    const wefti_sched_options *options = job->options;
    const weft_schedule_info *info = &job->info;
    wefti_json json;
    wefti_output out;
    weft_status status = wefti_output_open(&out, "--json", options->json_path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, out.file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "command", commands[options->command]);
    wefti_json_text(&json, "schedule", options->schedule);
    wefti_json_int(&json, "ranks", info->ranks);
    wefti_json_int(&json, "microbatches", info->microbatches);
    wefti_json_int(&json, "chunks", info->chunks);
    wefti_json_int(&json, "encoder_stages", info->encoder_stages);
    wefti_json_int(&json, "stages", info->stages);
    wefti_json_bool(&json, "planned", options->plan);
    put_price(&json, job);
    put_peaks(&json, job);
    wefti_json_int(&json, "param_copies", info->directions);
    wefti_json_uint(&json, "p2p_messages", info->messages);
    wefti_json_text(&json, "lowering",
                    info->lowered ? NULL : lowering_names[options->lowering]);
    wefti_json_text(&json, "semantics", semantics_names[options->semantics]);
    wefti_json_bool(&json, "valid", job->verdict.valid);
    put_deadlock(&json, job);
    put_cycle_cells(&json, &job->verdict);
    put_findings(&json, &job->verdict);
    wefti_json_object_close(&json);
    return wefti_output_end(&out, wefti_json_fini(&json));
}

weft_status wefti_sched_print_names(const char *json_path)
{
    wefti_json json;
    wefti_output out;
    if (!json_path) {
        for (int i = 0; weft_schedule_name(i); i++) {
            printf("%-12s %s\n", weft_schedule_name(i),
                   weft_schedule_meaning(i));
        }
        return WEFT_OK;
    }
    weft_status status = wefti_output_open(&out, "--json", json_path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, out.file);
    wefti_json_object_open(&json, NULL);
    wefti_json_array_open(&json, "schedules");
    for (int i = 0; weft_schedule_name(i); i++) {
        wefti_json_object_open(&json, NULL);
        wefti_json_text(&json, "name", weft_schedule_name(i));
        wefti_json_text(&json, "meaning", weft_schedule_meaning(i));
        wefti_json_object_close(&json);
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    return wefti_output_end(&out, wefti_json_fini(&json));
}

/* ---- trace ----------------------------------------------------------------
 */

static void put_event(wefti_json *json, int rank, const weft_action *action,
                      const weft_schedule_span *span)
{
    const double us_per_unit = 1000;
    char text[WEFT_ACTION_TEXT_BYTES];
    weft_action_pack(action, text);
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "name", text);
    wefti_json_text(json, "cat", "planned");
    wefti_json_text(json, "ph", "X");
    wefti_json_int(json, "pid", 0);
    wefti_json_int(json, "tid", rank);
    wefti_json_real(json, "ts", us_per_unit * span->begin);
    wefti_json_real(json, "dur", us_per_unit * (span->end - span->begin));
    wefti_json_object_open(json, "args");
    wefti_json_text(json, "waited_for", weft_schedule_wait_text(span->wait));
    wefti_json_int(json, "of_rank", span->wait_rank);
    wefti_json_int(json, "step", action->step);
    wefti_json_object_close(json);
    wefti_json_object_close(json);
}

weft_status wefti_sched_write_trace(const wefti_sched_job *job)
{
    const char *path = job->options->trace_path;
    wefti_json json;
    wefti_output out;
    weft_status status = wefti_output_open(&out, "--trace", path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, out.file);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "displayTimeUnit", "ms");
    wefti_json_array_open(&json, "traceEvents");
    for (int r = 0; r < job->info.ranks; r++) {
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(job->schedule, r, &actions);
        for (size_t k = 0; k < count; k++) {
            const weft_schedule_span *span = &job->run.ranks[r].spans[k];
            if (span->end > span->begin) {
                put_event(&json, r, &actions[k], span);
            }
        }
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    return wefti_output_end(&out, wefti_json_fini(&json));
}
