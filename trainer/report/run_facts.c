/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/run_facts.c - tables of fields, and what writes them.
 */
#include "trainer/report/run_facts.h"

/* ---- a field --------------------------------------------------------------
 */

static void put_classes(wefti_json *json, const char *name, const double *ms)
{
    wefti_json_object_open(json, name);
    for (int c = WEFT_CLASS_COMPUTE + 1; c < WEFT_CLASS_COUNT; c++) {
        wefti_json_real(json, weft_class_text((weft_class)c), ms[c]);
    }
    wefti_json_object_close(json);
}

static void put_fact(wefti_json *json, const wefti_fact *fact, const void *from)
{
    const void *field = (const char *)from + fact->offset;
    switch (fact->kind) {
    case WEFTI_FACT_REAL:
        wefti_json_real(json, fact->name, *(const double *)field);
        break;
    case WEFTI_FACT_UINT:
        wefti_json_uint(json, fact->name, *(const uint64_t *)field);
        break;
    case WEFTI_FACT_INT:
        wefti_json_int(json, fact->name, *(const int *)field);
        break;
    case WEFTI_FACT_BOOL:
        wefti_json_bool(json, fact->name, *(const bool *)field);
        break;
    case WEFTI_FACT_CHARS:
        wefti_json_text(json, fact->name, field);
        break;
    case WEFTI_FACT_CLASSES:
        put_classes(json, fact->name, field);
        break;
    }
}

void wefti_facts_fields(wefti_json *json, const wefti_fact *table,
                        const void *from)
{
    for (; table->name; table++) {
        put_fact(json, table, from);
    }
}

void wefti_facts_object(wefti_json *json, const char *name,
                        const wefti_fact *table, const void *from)
{
    if (!from) {
        wefti_json_null(json, name);
        return;
    }
    wefti_json_object_open(json, name);
    wefti_facts_fields(json, table, from);
    wefti_json_object_close(json);
}

/* ---- a step ---------------------------------------------------------------
 */

#define STEP(kind, field) WEFTI_FACT(kind, wefti_metrics_step, field)

const wefti_fact wefti_facts_of_step[] = {STEP(UINT, step),
                                          STEP(REAL, loss),
                                          STEP(REAL, val_loss),
                                          STEP(REAL, val_loss_ema),
                                          STEP(REAL, grad_norm),
                                          STEP(REAL, lr),
                                          STEP(REAL, expert_load_ratio),
                                          STEP(REAL, expert_rank_ratio),
                                          STEP(REAL, expert_moved_bytes),
                                          STEP(REAL, tokens_per_s),
                                          STEP(REAL, step_ms),
                                          STEP(REAL, step_ms_max),
                                          STEP(REAL, compute_ms),
                                          STEP(REAL, compute_ms_max),
                                          STEP(CLASSES, exposed_ms),
                                          STEP(CLASSES, transfer_ms),
                                          STEP(CLASSES, moved_bytes),
                                          STEP(REAL, bubble_ms),
                                          STEP(REAL, bubble_ms_max),
                                          STEP(REAL, skew_ms),
                                          STEP(REAL, idle_ms),
                                          STEP(REAL, checkpoint_ms),
                                          STEP(REAL, checkpoint_wait_ms),
                                          STEP(REAL, recompute_ms),
                                          STEP(REAL, overlap_ratio),
                                          STEP(REAL, bubble_ratio),
                                          STEP(REAL, cpu_share),
                                          STEP(UINT, wakeups),
                                          STEP(UINT, preemptions),
                                          STEP(REAL, progress_ms),
                                          STEP(REAL, mfu),
                                          STEP(UINT, memory_bytes),
                                          STEP(UINT, dropped),
                                          STEP(REAL, hiding_ratio),
                                          STEP(REAL, hiding_ceiling),
                                          STEP(REAL, rest_ms),
                                          STEP(REAL, bare_cpu_ms),
                                          STEP(REAL, bare_hiding_ratio),
                                          STEP(REAL, s_C),
                                          STEP(REAL, s_M),
                                          STEP(REAL, bubble_planned_ms),
                                          {0}};

/* ---- a run ----------------------------------------------------------------
 */

#define SUMMARY(kind, field)  WEFTI_FACT(kind, wefti_summary, field)
#define TERM(field)           WEFTI_FACT(REAL, wefti_summary_terms, field)
#define TIMES(field, n)       WEFTI_FACT_AS(REAL, wefti_measure_times, field, n)
#define MEASURED(kind, field) WEFTI_FACT(kind, wefti_measure_result, field)

static const wefti_fact of_summary[] = {
    WEFTI_FACT_AS(INT, wefti_summary, nranks, "ranks"),
    SUMMARY(UINT, parameters),
    SUMMARY(UINT, step),
    SUMMARY(REAL, first_val_loss),
    SUMMARY(REAL, val_loss),
    SUMMARY(REAL, val_loss_ema),
    SUMMARY(CHARS, loss_unit),
    SUMMARY(REAL, bigram_loss),
    SUMMARY(REAL, fourgram_loss),
    SUMMARY(CHARS, generated),
    {0}};

static const wefti_fact of_terms[] = {
    TERM(tokens_per_s),
    TERM(step_ms),
    TERM(compute_ms),
    TERM(exposed_ms),
    WEFTI_FACT(CLASSES, wefti_summary_terms, transfer_ms),
    WEFTI_FACT(CLASSES, wefti_summary_terms, moved_bytes),
    TERM(bubble_ms),
    TERM(skew_ms),
    TERM(idle_ms),
    TERM(fastest_step_ms),
    TERM(slowest_step_ms),
    TERM(overlap_ratio),
    TERM(cpu_share),
    TERM(mfu),
    TERM(mfu_non_causal),
    {0}};

static const wefti_fact of_times[] = {TIMES(median_ms, "median"),
                                      TIMES(min_ms, "min"),
                                      TIMES(max_ms, "max"),
                                      TIMES(spread_ms, "spread"),
                                      {0}};

static const wefti_fact of_measured[] = {
    MEASURED(UINT, steps),
    MEASURED(REAL, overlap_ratio),
    MEASURED(REAL, hiding_ratio),
    MEASURED(REAL, s_C),
    MEASURED(REAL, s_M),
    MEASURED(REAL, cpu_share),
    MEASURED(REAL, wakeups),
    WEFTI_FACT_AS(REAL, wefti_measure_result, wakeups_per_mib,
                  "wakeups_per_MiB"),
    MEASURED(REAL, preemptions),
    MEASURED(REAL, progress_ms),
    {0}};

#define OF_CEILING(field, n)                                                   \
    WEFTI_FACT_AS(REAL, wefti_measure_ceiling, field, n)
#define OF_REST(field, n)   WEFTI_FACT_AS(REAL, wefti_measure_rest, field, n)
#define OF_CLASS(field)     WEFTI_FACT(REAL, wefti_measure_class, field)
#define MEASURE_TERM(field) WEFTI_FACT(REAL, wefti_measure_terms, field)

static const wefti_fact of_measured_class[] = {
    OF_CLASS(transfer_ms),   OF_CLASS(hidden_ms),    OF_CLASS(exposed_ms),
    OF_CLASS(overlap_ratio), OF_CLASS(hiding_ratio), {0}};

static const wefti_fact of_measured_terms[] = {MEASURE_TERM(step_ms),
                                               MEASURE_TERM(compute_ms),
                                               MEASURE_TERM(exposed_ms),
                                               MEASURE_TERM(bubble_ms),
                                               MEASURE_TERM(skew_ms),
                                               MEASURE_TERM(idle_ms),
                                               {0}};

static const wefti_fact of_ceiling[] = {
    OF_CEILING(gain_ms, "serial_more_ms"),
    OF_CEILING(over_ms, "not_hidden_ms"),
    OF_CEILING(rest_ms, "rest_ms"),
    OF_CEILING(bare_ms, "bare_cpu_ms"),
    OF_CEILING(ceiling, "hiding_ceiling"),
    OF_CEILING(over_ratio, "not_hidden_ratio"),
    OF_CEILING(hiding_bare, "bare_hiding_ratio"),
    OF_CEILING(bare_alone_ms, "bare_alone_ms"),
    {0}};

static const wefti_fact of_rest[] = {OF_REST(rest_ms, "rest_ms"),
                                     OF_REST(least_ms, "any_order_ms"),
                                     OF_REST(alone_ms, "alone_ms"),
                                     {0}};

#define OF_OVERLAP(kind, field) WEFTI_FACT(kind, wefti_overlap_class, field)

static const wefti_fact of_overlap[] = {OF_OVERLAP(BOOL, lost),
                                        OF_OVERLAP(REAL, overlapped_ms),
                                        OF_OVERLAP(REAL, blocking_ms),
                                        OF_OVERLAP(REAL, spread_ms),
                                        {0}};

static void put_ceiling(wefti_json *json, const wefti_measure_ceiling *own)
{
    wefti_facts_fields(json, of_ceiling, own);
    wefti_json_text(json, "bare_why", own->bare_why);
    wefti_json_text(json, "bare_hiding_why", own->hiding_why);
    wefti_json_bool(json, "exceeds", wefti_measure_exceeds(own));
}

/* Which nodes make the rest, most first. */
static void put_rest(wefti_json *json, const wefti_measure_rest *rest)
{
    wefti_json_object_open(json, "rest");
    wefti_facts_fields(json, of_rest, rest);
    wefti_json_text(json, "why", rest->why);
    wefti_json_array_open(json, "nodes");
    for (size_t i = 0; i < WEFTI_REST_NODES && rest->nodes[i].label; i++) {
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "class",
                        weft_class_text(rest->nodes[i].class_id));
        wefti_json_text(json, "label", rest->nodes[i].label);
        wefti_json_real(json, "ms", rest->nodes[i].ms);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

/* Those that there are, by name. */
static void put_measured_classes(wefti_json *json,
                                 const wefti_measure_result *result)
{
    wefti_json_object_open(json, "classes");
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        const wefti_measure_class *own = &result->classes[c];
        if (own->there) {
            wefti_json_object_open(json, weft_class_text((weft_class)c));
            wefti_facts_fields(json, of_measured_class, own);
            put_ceiling(json, &own->ceiling);
            wefti_facts_object(json, "without_ms", of_times, &own->without);
            wefti_facts_object(json, "serial_ms", of_times, &own->serial);
            wefti_json_text(json, "verdict",
                            wefti_measure_verdict(result, (weft_class)c));
            wefti_json_object_close(json);
        }
    }
    wefti_json_object_close(json);
}

static void put_measured(wefti_json *json, const wefti_measure_result *result)
{
    static const char *const names[WEFTI_MEASURE_KINDS] = {
        "overlapped_ms", "compute_ms", "serial_ms", "transfers_ms"};
    wefti_json_object_open(json, "measured");
    for (int kind = 0; kind < WEFTI_MEASURE_KINDS; kind++) {
        wefti_facts_object(json, names[kind], of_times, &result->times[kind]);
    }
    wefti_facts_fields(json, of_measured, result);
    wefti_facts_object(json, "terms", of_measured_terms, &result->terms);
    put_ceiling(json, &result->ceiling);
    wefti_json_text(json, "verdict",
                    wefti_measure_verdict(result, WEFT_CLASS_COUNT));
    put_rest(json, &result->rest);
    put_measured_classes(json, result);
    wefti_json_object_close(json);
}

/* null where nothing was tried. */
static void put_overlap(wefti_json *json, const wefti_overlap_verdict *verdict)
{
    char text[WEFTI_OVERLAP_TEXT_BYTES];
    if (!verdict->there) {
        wefti_json_null(json, "overlap_trial");
        return;
    }
    wefti_json_object_open(json, "overlap_trial");
    wefti_json_bool(json, "resumed", verdict->resumed);
    wefti_json_object_open(json, "classes");
    for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
        const wefti_overlap_class *own = &verdict->classes[c];
        if (own->tried) {
            wefti_overlap_verdict_text(verdict, (weft_class)c, text);
            wefti_json_object_open(json, weft_class_text((weft_class)c));
            wefti_facts_fields(json, of_overlap, own);
            wefti_json_text(json, "verdict", text);
            wefti_json_object_close(json);
        }
    }
    wefti_json_object_close(json);
    wefti_json_object_close(json);
}

void wefti_facts_summary(wefti_json *json, const char *name,
                         const wefti_summary *summary)
{
    wefti_summary_terms parts = wefti_summary_sum_up(summary);
    wefti_json_object_open(json, name);
    wefti_facts_fields(json, of_summary, summary);
    wefti_facts_fields(json, of_terms, &parts);
    wefti_json_uint(json, "dropped", summary->dropped);
    wefti_json_real(json, "peak_gflops", summary->peak_gflops);
    wefti_json_text(json, "blas_kernel",
                    summary->multiplied ? summary->blas_kernel : NULL);
    wefti_json_real(json, "emulated_gbps", wefti_summary_emulated_gbps());
    if (summary->expert_loads) {
        wefti_expert_loads_put(summary->expert_loads, json, "expert_placement");
    }
    wefti_expert_placed_put(summary->placed, json, "expert_moves");
    put_overlap(json, &summary->overlap);
    if (summary->measured) {
        put_measured(json, summary->measured);
    }
    wefti_json_object_close(json);
}
