/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_schedule.c - the facts of a pipeline: planned beside
 * measured, rank by rank and action by action, which schedule would be best,
 * and those that were tried.
 */
#include "trainer/report/page_facts.h"

#include "overlap/schedule/draw.h"
#include "trainer/report/run_facts.h"

enum { ACTIONS_DRAWN = 20000 };

#define RUN(field, name)    WEFTI_FACT_AS(REAL, weft_schedule_run, field, name)
#define RANK(field, name)   WEFTI_FACT_AS(REAL, weft_schedule_rank, field, name)
#define STAGE(field, name)  WEFTI_FACT_AS(REAL, weft_stage_cost, field, name)
#define COST(field, name)   WEFTI_FACT_AS(REAL, weft_schedule_cost, field, name)
#define TRIAL(kind, field)  WEFTI_FACT(kind, wefti_trial, field)
#define OPTION(kind, field) WEFTI_FACT(kind, weft_schedule_candidate, field)
#define OPTION_AS(k, field, name)                                              \
    WEFTI_FACT_AS(k, weft_schedule_candidate, field, name)

static const wefti_fact of_run[] = {RUN(makespan, "makespan_ms"),
                                    RUN(ideal, "ideal_ms"),
                                    RUN(bubble, "bubble_ms"),
                                    RUN(activations, "peak_activation"),
                                    {0}};

static const wefti_fact of_rank[] = {RANK(busy, "busy_ms"),
                                     RANK(bubble, "bubble_ms"),
                                     RANK(activations, "peak_activation"),
                                     {0}};

static const wefti_fact of_cost[] = {COST(f, "F_ms"),
                                     COST(i, "I_ms"),
                                     COST(w, "W_ms"),
                                     COST(b, "B_ms"),
                                     COST(fb, "FB_ms"),
                                     COST(p2p, "p2p_ms"),
                                     {0}};

static const wefti_fact of_stage[] = {STAGE(f, "F_ms"), STAGE(b, "B_ms"), {0}};

static const wefti_fact of_candidate[] = {
    OPTION_AS(CHARS, name, "schedule"),
    OPTION(INT, chunks),
    OPTION(INT, microbatches),
    OPTION(BOOL, overlap),
    OPTION(BOOL, possible),
    OPTION_AS(REAL, makespan, "makespan_ms"),
    OPTION(REAL, idle_ratio),
    OPTION(REAL, bubble_ratio),
    OPTION(REAL, imbalance_ratio),
    OPTION(REAL, activations),
    OPTION(INT, param_copies),
    OPTION(UINT, messages),
    OPTION(CHARS, why),
    {0}};

static const wefti_fact of_trial[] = {
    WEFTI_FACT_AS(CHARS, wefti_trial, name, "schedule"),
    TRIAL(INT, chunks),
    TRIAL(BOOL, emulated),
    TRIAL(REAL, step_ms),
    WEFTI_FACT_AS(REAL, wefti_trial, least_ms, "step_ms_min"),
    WEFTI_FACT_AS(REAL, wefti_trial, most_ms, "step_ms_max"),
    {0}};

/* ---- a timeline -----------------------------------------------------------
 */

/* [begin, end, what it began as late for: "" or "forward of rank 1"]. */
static void put_span(wefti_json *json, const char *name,
                     const weft_schedule_span *span)
{
    char wait[64] = "";
    if (span->wait != WEFT_WAIT_NONE) {
        const char *text = weft_schedule_wait_text(span->wait);
        if (span->wait_rank >= 0) {
            snprintf(wait, sizeof(wait), "%s of rank %d", text,
                     span->wait_rank);
        } else {
            snprintf(wait, sizeof(wait), "%s", text);
        }
    }
    wefti_json_array_open(json, name);
    wefti_json_real(json, NULL, span->begin);
    wefti_json_real(json, NULL, span->end);
    wefti_json_text(json, NULL, wait);
    wefti_json_array_close(json);
}

/* Those that take a rank's time. */
static void put_actions(wefti_json *json, const wefti_actions *list,
                        const weft_schedule_span *planned,
                        const weft_schedule_span *ran)
{
    char text[WEFT_ACTION_TEXT_BYTES];
    wefti_json_array_open(json, NULL);
    for (size_t k = 0; k < list->count; k++) {
        if (wefti_draw_has_box(&list->items[k])) {
            weft_action_pack(&list->items[k], text);
            wefti_json_object_open(json, NULL);
            wefti_json_text(json, "action", text);
            wefti_json_int(json, "recipe", list->items[k].step); /* 0: none */
            put_span(json, "planned_ms", &planned[k]);
            put_span(json, "measured_ms", &ran[k]);
            wefti_json_object_close(json);
        }
    }
    wefti_json_array_close(json);
}

/* [rank][action]; null where there are too many actions to be looked at. */
static void put_timeline(wefti_json *json, const weft_schedule *schedule,
                         const weft_schedule_run *planned,
                         const weft_schedule_run *ran)
{
    size_t actions = 0;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        actions += schedule->lists[rank].count;
    }
    if (actions > ACTIONS_DRAWN) {
        wefti_json_null(json, "timeline");
        return;
    }
    wefti_json_array_open(json, "timeline");
    for (int rank = 0; rank < schedule->ranks; rank++) {
        put_actions(json, &schedule->lists[rank], planned->ranks[rank].spans,
                    ran->ranks[rank].spans);
    }
    wefti_json_array_close(json);
}

/* ---- planned and measured -------------------------------------------------
 */

/* What a list puts off, rank by rank. */
static void put_deferred(wefti_json *json, const weft_schedule *schedule,
                         const char *name, bool is_waiting)
{
    wefti_json_array_open(json, name);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        size_t deferred, waiting;
        wefti_page_plan_deferred(schedule, rank, &deferred, &waiting);
        wefti_json_uint(json, NULL, is_waiting ? waiting : deferred);
    }
    wefti_json_array_close(json);
}

static void put_runs(wefti_json *json, const weft_schedule *schedule,
                     const weft_schedule_run *planned,
                     const weft_schedule_run *ran)
{
    wefti_facts_object(json, "planned", of_run, planned);
    wefti_facts_object(json, "measured", of_run, ran);
    wefti_json_int(json, "stages", wefti_stages_of_direction(schedule));
    wefti_json_int(json, "encoder_stages", schedule->encoder_stages);
    put_deferred(json, schedule, "deferred", false);
    put_deferred(json, schedule, "waiting", true);
    wefti_json_array_open(json, "ranks");
    for (int rank = 0; rank < planned->rank_count; rank++) {
        wefti_json_object_open(json, NULL);
        wefti_facts_object(json, "planned", of_rank, &planned->ranks[rank]);
        wefti_facts_object(json, "measured", of_rank, &ran->ranks[rank]);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    put_timeline(json, schedule, planned, ran);
}

static void put_no_advice(wefti_json *json)
{
    static const char *const names[] = {
        "best",         "candidates", "advice_of_this_step",
        "microbatches", "advice",     "warning",
        "command"};
    for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
        wefti_json_null(json, names[k]);
    }
}

static void put_advice(wefti_json *json, const wefti_page_plan *plan)
{
    if (!plan->advice) {
        put_no_advice(json);
        return;
    }
    const weft_advice *advice = &plan->advice->found;
    bool any = advice->count > 0 && advice->candidates[0].possible;
    wefti_facts_object(json, "best", of_candidate,
                       any ? &advice->candidates[0] : NULL);
    wefti_json_array_open(json, "candidates");
    for (size_t k = 0; k < advice->count; k++) {
        wefti_facts_object(json, NULL, of_candidate, &advice->candidates[k]);
    }
    wefti_json_array_close(json);
    wefti_json_bool(json, "advice_of_this_step", plan->advice == &plan->own);
    wefti_json_int(json, "microbatches", plan->advice->microbatches);
    wefti_json_text(json, "advice", advice->reason);
    wefti_json_text(json, "warning",
                    advice->warning[0] ? advice->warning : NULL);
    wefti_json_text(json, "command", plan->advice->command);
}

static void put_plan(wefti_json *json, const wefti_page_plan *plan)
{
    if (!plan->schedule) {
        wefti_json_null(json, "schedule");
        return;
    }
    wefti_json_object_open(json, "schedule");
    wefti_json_uint(json, "step", plan->step);
    wefti_facts_fields(json, of_cost, &plan->cost);
    wefti_json_bool(json, "split_known", plan->found.split_known);
    wefti_json_real(json, "imbalance_ms", plan->imbalance);
    put_runs(json, plan->schedule, &plan->planned, &plan->measured);
    put_advice(json, plan);
    wefti_json_object_close(json);
}

/* ---- trials ---------------------------------------------------------------
 */

/* What the costs of 1f1b predicted the others with. */
static void put_basis(wefti_json *json, const wefti_trials *trials)
{
    bool emulated = trials->count > 1 && trials->items[1].emulated;
    const wefti_pipe_basis *basis =
        emulated ? &trials->emulated : &trials->real;
    wefti_json_object_open(json, "trial_costs");
    wefti_json_bool(json, "emulated", emulated);
    wefti_json_int(json, "rounds", WEFTI_TRIAL_ROUNDS);
    wefti_facts_object(json, "layer", of_stage, &basis->layer.layer);
    wefti_facts_object(json, "first", of_stage, &basis->layer.first);
    wefti_facts_object(json, "last", of_stage, &basis->layer.last);
    wefti_json_real(json, "p2p_ms", basis->p2p);
    wefti_json_object_close(json);
}

static void put_trials(wefti_json *json, const wefti_trials *trials)
{
    wefti_json_array_open(json, "trials");
    for (size_t k = 0; trials && k < trials->count; k++) {
        const wefti_trial *trial = &trials->items[k];
        wefti_json_object_open(json, NULL);
        wefti_facts_fields(json, of_trial, trial);
        wefti_json_bool(json, "chosen", trial == trials->chosen);
        wefti_json_real(json, "difference", wefti_trial_error(trial));
        put_runs(json, trial->schedule, &trial->planned,
                 &trial->runs[trial->median]);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    if (trials && trials->count > 0) {
        put_basis(json, trials);
    } else {
        wefti_json_null(json, "trial_costs");
    }
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

void wefti_page_put_schedules(wefti_json *json, const wefti_page *page)
{
    put_plan(json, &page->plan);
    put_trials(json, page->trials);
    put_auto(json, page->trials);
}
