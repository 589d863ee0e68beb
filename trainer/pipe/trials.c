/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trials.c - which schedules are tried, and what follows.
 */
#include "trainer/pipe/trials.h"

#include "base/error.h"
#include "comm/select.h"
#include "trainer/pipe/pipe_schedule.h"
#include "weft/advice.h"

#include <stdlib.h>
#include <string.h>

/* auto runs so many of those that are best on paper; and they must be better
 * than 1f1b there by so much, or nothing is worth trying. */
enum { AUTO_TRIALS = 3 };
static const double worth_trying = 0.99;

typedef struct search {
    const wefti_trial_job *job;
    wefti_trials *trials;
    FILE *err;
} search;

bool wefti_trials_wanted(const wefti_config *config)
{
    const wefti_config_words *compare = &config->parallel.compare;
    return strcmp(config->parallel.schedule, "auto") == 0 ||
           (compare->count > 0 && strcmp(compare->items[0], "none") != 0);
}

double wefti_trial_error(const wefti_trial *trial)
{
    return trial->runs[trial->median].makespan / trial->planned.makespan - 1;
}

/* ---- one trial ------------------------------------------------------------
 */

static void tell_trial(const search *s, const wefti_trial *trial)
{
    const weft_schedule_run *ran = &trial->runs[trial->median];
    if (s->err) {
        fprintf(s->err,
                "weft-train: tried %s%s: planned %.4g ms, measured %.4g "
                "(%+.1f%%); bubble %.1f%%, %.1f%%; whole step %.4g ms\n",
                trial->name, trial->emulated ? " (emulated)" : "",
                trial->planned.makespan, ran->makespan,
                100 * wefti_trial_error(trial),
                100 * trial->planned.bubble / trial->planned.makespan,
                100 * ran->bubble / ran->makespan, trial->step_ms);
    }
}

static const wefti_trial_basis *basis_of(const wefti_trials *trials,
                                         const wefti_trial *trial)
{
    return trial->emulated ? &trials->emulated : &trials->real;
}

/* The same on paper, with what 1f1b's costs come to for it. */
static weft_status plan(const search *s, wefti_trial *trial)
{
    const wefti_trial_basis *basis = basis_of(s->trials, trial);
    int layers = (int)s->job->config->model.layers;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = weft_schedule_get_info(trial->schedule, &info);
    if (status != WEFT_OK) {
        return status;
    }
    weft_stage_cost *stages = calloc((size_t)info.stages, sizeof(*stages));
    if (!stages) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d stages",
                           info.stages);
    }
    weft_schedule_cost cost =
        wefti_layer_cost_rank(&basis->layer, info.ranks, layers, basis->hidden);
    cost.p2p = basis->p2p;
    wefti_layer_cost_apply(&basis->layer, trial->schedule, layers, stages);
    cost.stages = stages;
    status =
        weft_schedule_simulate(trial->schedule, &cost, true, &trial->planned);
    free(stages);
    return status;
}

/* From 1f1b; all ranks plan with what rank 0 has found. */
static weft_status find_basis(search *s, const wefti_trial *trial)
{
    wefti_trial_basis own;
    memset(&own, 0, sizeof(own));
    wefti_pipe_cost cost;
    weft_status status = wefti_pipe_cost_init(&cost, trial->schedule,
                                              trial->runs, trial->run_count);
    if (status == WEFT_OK) {
        own.layer = wefti_layer_cost_fit(&cost, trial->schedule,
                                         (int)s->job->config->model.layers);
        own.p2p = cost.p2p;
        own.hidden = cost.hidden;
        wefti_pipe_cost_fini(&cost);
        status = weft_broadcast(&own, &own, sizeof(own) / sizeof(double),
                                WEFT_DTYPE_F64, 0, s->job->comm, NULL);
    }
    *(trial->emulated ? &s->trials->emulated : &s->trials->real) = own;
    return status;
}

/* The lengths that waits have in place of this schedule's compute; NULL: no
 * memory. */
static weft_stage_cost *make_waits(const search *s, const wefti_config *config)
{
    weft_schedule *schedule = NULL;
    weft_stage_cost *waits = NULL;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    int nranks = weft_comm_get_nranks(s->job->comm);
    if (wefti_pipe_schedule_open(config, nranks, &schedule) == WEFT_OK &&
        weft_schedule_get_info(schedule, &info) == WEFT_OK) {
        waits = calloc((size_t)info.stages, sizeof(*waits));
    }
    if (waits) {
        wefti_layer_cost_apply(&s->trials->real.layer, schedule,
                               (int)config->model.layers, waits);
    }
    weft_schedule_destroy(schedule);
    return waits;
}

static const wefti_trial *find_trial(const wefti_trials *trials,
                                     const char *name, int chunks,
                                     bool emulated)
{
    for (size_t k = 0; k < trials->count; k++) {
        const wefti_trial *trial = &trials->items[k];
        if (trial->emulated == emulated && strcmp(trial->name, name) == 0 &&
            (trial->chunks == chunks || strcmp(name, "interleaved") != 0)) {
            return trial;
        }
    }
    return NULL;
}

/* The first of its kind is 1f1b, whose costs are the others'. */
static weft_status try_one(search *s, const char *name, int chunks,
                           bool emulated)
{
    wefti_trials *trials = s->trials;
    wefti_trial *trial = &trials->items[trials->count];
    weft_stage_cost *waits = NULL;
    if (emulated) {
        wefti_config with =
            wefti_pipe_schedule_config(s->job->config, name, chunks);
        waits = make_waits(s, &with);
        if (!waits) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to try %s", name);
        }
    }
    weft_status status = wefti_trial_run(s->job, name, chunks, waits, trial);
    free(waits);
    if (status != WEFT_OK) {
        return status;
    }
    bool first = !find_trial(trials, "1f1b", chunks, emulated);
    trials->count++;
    if (first) {
        status = find_basis(s, trial);
    }
    if (status == WEFT_OK) {
        status = plan(s, trial);
    }
    if (status == WEFT_OK) {
        tell_trial(s, trial);
    }
    return status;
}

/* ---- what is compared -----------------------------------------------------
 */

static bool suits(const search *s, const char *name, int chunks)
{
    wefti_config with =
        wefti_pipe_schedule_config(s->job->config, name, chunks);
    return wefti_config_check(&with, weft_comm_get_nranks(s->job->comm)) ==
           WEFT_OK;
}

static weft_status compare_one(search *s, const char *name, bool must)
{
    int chunks = wefti_pipe_schedule_chunks(s->job->config, name);
    if (strcmp(name, "1f1b") == 0) { /* is there already */
        return WEFT_OK;
    }
    if (!must && !suits(s, name, chunks)) {
        if (s->err) {
            fprintf(s->err, "weft-train: not compared: %s: %s\n", name,
                    weft_error_text());
        }
        return WEFT_OK;
    }
    return try_one(s, name, chunks, s->trials->crowded);
}

static weft_status compare_all(search *s)
{
    const wefti_config_words *compare = &s->job->config->parallel.compare;
    if (compare->count == 0 || strcmp(compare->items[0], "none") == 0) {
        return WEFT_OK;
    }
    weft_status status =
        s->trials->crowded ? try_one(s, "1f1b", 1, true) : WEFT_OK;
    for (size_t k = 0; k < compare->count && status == WEFT_OK; k++) {
        if (strcmp(compare->items[k], "all") != 0) {
            status = compare_one(s, compare->items[k], true);
            continue;
        }
        for (int n = 0; weft_schedule_name(n) && status == WEFT_OK; n++) {
            status = compare_one(s, weft_schedule_name(n), false);
        }
    }
    return status;
}

/* One answer on all ranks. */
static weft_status find_crowded(search *s)
{
    int32_t any = wefti_comm_is_crowded(s->job->comm);
    weft_status status = weft_allreduce(&any, &any, 1, WEFT_DTYPE_I32,
                                        WEFT_REDOP_MAX, s->job->comm, NULL);
    s->trials->crowded = any != 0;
    return status;
}

/* ---- auto -----------------------------------------------------------------
 */

static weft_status ask(const search *s, weft_advice *advice_out)
{
    const wefti_trials *trials = s->trials;
    int layers = (int)s->job->config->model.layers;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status =
        weft_schedule_get_info(trials->items[0].schedule, &info);
    const wefti_trial_basis *real = &trials->real;
    weft_schedule_cost cost =
        wefti_layer_cost_rank(&real->layer, info.ranks, layers, real->hidden);
    cost.p2p = real->p2p;
    weft_advice_config question = {.size_bytes = sizeof(question),
                                   .ranks = info.ranks,
                                   .microbatches = info.microbatches,
                                   .layers = layers,
                                   .cost = &cost,
                                   .first = &real->layer.first,
                                   .last = &real->layer.last};
    return status == WEFT_OK ? weft_schedule_advise(&question, advice_out)
                             : status;
}

/* The best on paper, unless they have been run already. */
static weft_status try_best(search *s, const weft_advice *advice)
{
    double usual = s->trials->items[0].planned.makespan;
    weft_status status = WEFT_OK;
    int tried = 0;
    for (size_t k = 0; k < advice->count && status == WEFT_OK; k++) {
        const weft_schedule_candidate *c = &advice->candidates[k];
        if (!c->possible || c->overlap || tried == AUTO_TRIALS ||
            c->makespan > worth_trying * usual) {
            continue;
        }
        if (find_trial(s->trials, c->name, c->chunks, false)) {
            tried++;
        } else if (suits(s, c->name, c->chunks)) {
            status = try_one(s, c->name, c->chunks, false);
            tried++;
        }
    }
    return status;
}

static void explain(wefti_trials *trials)
{
    const wefti_trial *best = trials->chosen, *usual = &trials->items[0];
    size_t real = 0;
    for (size_t k = 0; k < trials->count; k++) {
        real += !trials->items[k].emulated;
    }
    if (real == 1) {
        snprintf(trials->reason, sizeof(trials->reason),
                 "1f1b: on paper, no other schedule makes a step of %.4g ms "
                 "shorter by %.0f%%",
                 usual->planned.makespan, 100 * (1 - worth_trying));
    } else if (best == usual) {
        snprintf(trials->reason, sizeof(trials->reason),
                 "1f1b: %.4g ms a step; the %zu best on paper took longer when "
                 "they were run",
                 usual->step_ms, real - 1);
    } else {
        char chunks[32] = "";
        if (strcmp(best->name, "interleaved") == 0) {
            snprintf(chunks, sizeof(chunks), " with V = %d", best->chunks);
        }
        snprintf(trials->reason, sizeof(trials->reason),
                 "%s%s: %.4g ms a step where 1f1b takes %.4g (pipeline alone: "
                 "planned %.4g and %.4g, measured %.4g and %.4g)",
                 best->name, chunks, best->step_ms, usual->step_ms,
                 best->planned.makespan, usual->planned.makespan,
                 best->runs[best->median].makespan,
                 usual->runs[usual->median].makespan);
    }
}

static weft_status choose(search *s)
{
    wefti_trials *trials = s->trials;
    weft_advice advice;
    weft_status status = ask(s, &advice);
    if (status != WEFT_OK) {
        return status;
    }
    status = try_best(s, &advice);
    weft_advice_fini(&advice);
    if (status != WEFT_OK) {
        return status;
    }
    trials->chosen = &trials->items[0];
    for (size_t k = 1; k < trials->count; k++) {
        if (!trials->items[k].emulated &&
            trials->items[k].step_ms < trials->chosen->step_ms) {
            trials->chosen = &trials->items[k];
        }
    }
    explain(trials);
    if (s->err) {
        fprintf(s->err, "weft-train: schedule auto chooses %s\n",
                trials->reason);
    }
    return WEFT_OK;
}

weft_status wefti_trials_run(wefti_trials *trials, const wefti_trial_job *job,
                             FILE *err)
{
    search s = {.job = job, .trials = trials, .err = err};
    *trials = (wefti_trials){0};
    trials->items = calloc(2 + WEFTI_CONFIG_WORDS_MOST + AUTO_TRIALS,
                           sizeof(*trials->items));
    if (!trials->items) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for trials");
    }
    weft_status status = try_one(&s, "1f1b", 1, false);
    if (status == WEFT_OK) {
        status = find_crowded(&s);
    }
    if (status == WEFT_OK) {
        status = compare_all(&s);
    }
    return status == WEFT_OK &&
                   strcmp(job->config->parallel.schedule, "auto") == 0
               ? choose(&s)
               : status;
}

void wefti_trials_fini(wefti_trials *trials)
{
    for (size_t k = 0; k < trials->count; k++) {
        wefti_trial_fini(&trials->items[k]);
    }
    free(trials->items);
    *trials = (wefti_trials){0};
}
