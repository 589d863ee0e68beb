/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trials.c - which schedules are tried, and what follows.
 */
#include "trainer/pipe/trials.h"

#include "base/error.h"
#include "comm/make/explain.h"
#include "trainer/pipe/pipe_schedule.h"

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

bool wefti_trials_compare(const wefti_config *config)
{
    const wefti_config_words *compare = &config->parallel.compare;
    return compare->count > 0 && strcmp(compare->items[0], "none") != 0;
}

double wefti_trial_error(const wefti_trial *trial)
{
    return trial->runs[trial->median].makespan / trial->planned.makespan - 1;
}

/* ---- one trial ------------------------------------------------------------
 */

static void print_trial(const search *s, const wefti_trial *trial)
{
    const weft_schedule_run *ran = &trial->runs[trial->median];
    if (s->err) {
        fprintf(s->err,
                "weft-train: tried %s%s: planned %.4g ms, measured %.4g "
                "(%+.1f%%); bubble %.1f%%, %.1f%%; whole step %.4g ms (%.4g to "
                "%.4g)\n",
                trial->name, trial->emulated ? " (emulated)" : "",
                trial->planned.makespan, ran->makespan,
                100 * wefti_trial_error(trial),
                100 * trial->planned.bubble / trial->planned.makespan,
                100 * ran->bubble / ran->makespan, trial->step_ms,
                trial->least_ms, trial->most_ms);
    }
}

static const wefti_pipe_basis *basis_of(const wefti_trials *trials,
                                        const wefti_trial *trial)
{
    return trial->emulated ? &trials->emulated : &trials->real;
}

/* The same on paper, with what 1f1b's costs come to for it. */
static weft_status plan(const search *s, wefti_trial *trial)
{
    const wefti_pipe_basis *basis = basis_of(s->trials, trial);
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
    weft_schedule_cost cost = wefti_pipe_basis_rank(basis, info.ranks, layers);
    wefti_layer_cost_apply(&basis->layer, trial->schedule, layers, stages);
    cost.stages = stages;
    status =
        weft_schedule_simulate(trial->schedule, &cost, true, &trial->planned);
    free(stages);
    return status;
}

/* From 1f1b; all ranks plan with what rank 0 has found. */
static weft_status find_basis(const search *s, const wefti_trial *trial,
                              wefti_pipe_basis *basis_out)
{
    wefti_pipe_cost cost;
    weft_status status = wefti_pipe_cost_init(&cost, trial->schedule,
                                              trial->runs, trial->run_count);
    if (status != WEFT_OK) {
        return status;
    }
    *basis_out = wefti_pipe_basis_fit(&cost, trial->schedule,
                                      (int)s->job->config->model.layers);
    wefti_pipe_cost_fini(&cost);
    return weft_broadcast(basis_out, basis_out,
                          sizeof(*basis_out) / sizeof(double), WEFT_DTYPE_F64,
                          0, s->job->comm, NULL);
}

/* 1f1b by itself: what all is planned with. */
static weft_status measure_usual(search *s)
{
    enum { WARM_STEPS = 1, STEPS = 3 };
    wefti_trial usual;
    weft_status status = wefti_trial_init(&usual, s->job, "1f1b", 1, NULL);
    if (status != WEFT_OK) {
        return status;
    }
    status = wefti_trial_visit(&usual, s->job, WARM_STEPS, STEPS);
    if (status == WEFT_OK) {
        status = find_basis(s, &usual, &s->trials->real);
    }
    wefti_trial_fini(&usual);
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
    if (wefti_pipe_schedule_open(config, weft_comm_get_rank(s->job->comm),
                                 nranks, &schedule) == WEFT_OK &&
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

static weft_status add_one(search *s, const char *name, int chunks,
                           bool emulated)
{
    wefti_trials *trials = s->trials;
    weft_stage_cost *waits = NULL;
    if (emulated) {
        wefti_config with =
            wefti_pipe_schedule_config(s->job->config, name, chunks);
        waits = make_waits(s, &with);
        if (!waits) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to try %s", name);
        }
    }
    weft_status status = wefti_trial_init(&trials->items[trials->count], s->job,
                                          name, chunks, waits);
    trials->count += status == WEFT_OK;
    return status;
}

/* ---- all of them, in turn -------------------------------------------------
 */

static weft_status take_turns(search *s)
{
    wefti_trials *trials = s->trials;
    weft_status status = WEFT_OK;
    for (int round = 0; round < WEFTI_TRIAL_ROUNDS; round++) {
        for (size_t k = 0; k < trials->count && status == WEFT_OK; k++) {
            status = wefti_trial_visit(&trials->items[k], s->job, 1, 1);
        }
    }
    for (size_t k = 0; k < trials->count && status == WEFT_OK; k++) {
        status = wefti_trial_settle(&trials->items[k], s->job);
    }
    return status;
}

/* Beside what they were on paper. */
static weft_status plan_all(search *s)
{
    wefti_trials *trials = s->trials;
    const wefti_trial *usual = find_trial(trials, "1f1b", 1, true);
    weft_status status =
        usual ? find_basis(s, usual, &trials->emulated) : WEFT_OK;
    for (size_t k = 0; k < trials->count && status == WEFT_OK; k++) {
        status = plan(s, &trials->items[k]);
        if (status == WEFT_OK) {
            print_trial(s, &trials->items[k]);
        }
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
    return add_one(s, name, chunks, s->trials->oversubscribed);
}

static weft_status compare_all(search *s)
{
    const wefti_config_words *compare = &s->job->config->parallel.compare;
    if (!wefti_trials_compare(s->job->config)) {
        return WEFT_OK;
    }
    weft_status status =
        s->trials->oversubscribed ? add_one(s, "1f1b", 1, true) : WEFT_OK;
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
static weft_status find_oversubscribed(search *s)
{
    int32_t any = wefti_comm_is_oversubscribed(s->job->comm);
    weft_status status = weft_allreduce(&any, &any, 1, WEFT_DTYPE_I32,
                                        WEFT_REDOP_MAX, s->job->comm, NULL);
    s->trials->oversubscribed = any != 0;
    return status;
}

/* ---- auto -----------------------------------------------------------------
 */

/* What the user has fixed stays so. */
static weft_status ask(const search *s)
{
    const wefti_config *config = s->job->config;
    int chunks = (int)config->parallel.virtual_pipeline_model_parallel_size;
    wefti_pipe_job job =
        wefti_pipe_schedule_job(config, weft_comm_get_nranks(s->job->comm));
    job.chunks = chunks > 1 ? chunks : 0;
    job.group = (int)config->parallel.virtual_group_size;
    weft_status status =
        wefti_pipe_advice_init(&s->trials->advice, &job, &s->trials->real);
    if (status == WEFT_OK && s->err) {
        fprintf(s->err, "weft-train: on paper, %s\n",
                s->trials->advice.found.reason);
    }
    return status;
}

/* 1f1b's step in the advice. */
static double find_usual(const wefti_pipe_advice *advice)
{
    double usual = 0;
    for (size_t k = 0; k < advice->found.count; k++) {
        const weft_schedule_candidate *c = &advice->found.candidates[k];
        if (strcmp(c->name, "1f1b") == 0 &&
            c->microbatches == advice->microbatches) {
            usual = c->makespan;
        }
    }
    return usual;
}

/* The best on paper for the batch as it is cut, unless they are there already.
 */
static weft_status add_best(search *s)
{
    const wefti_pipe_advice *advice = &s->trials->advice;
    double most = worth_trying * find_usual(advice);
    weft_status status = WEFT_OK;
    int tried = 0;
    for (size_t k = 0; k < advice->found.count && status == WEFT_OK; k++) {
        const weft_schedule_candidate *c = &advice->found.candidates[k];
        if (!c->possible || c->overlap || tried == AUTO_TRIALS ||
            c->microbatches != advice->microbatches || c->makespan > most) {
            continue;
        }
        if (find_trial(s->trials, c->name, c->chunks, false)) {
            tried++;
        } else if (suits(s, c->name, c->chunks)) {
            status = add_one(s, c->name, c->chunks, false);
            tried++;
        }
    }
    return status;
}

static size_t count_real(const wefti_trials *trials)
{
    size_t real = 0;
    for (size_t k = 0; k < trials->count; k++) {
        real += !trials->items[k].emulated;
    }
    return real;
}

/* "interleaved with V = 2: 12 ms a step (11 to 14)" */
static void print_steps(FILE *file, const wefti_trial *trial)
{
    fprintf(file, "%s", trial->name);
    if (strcmp(trial->name, "interleaved") == 0) {
        fprintf(file, " with V = %d", trial->chunks);
    }
    fprintf(file, ": %.4g ms a step (%.4g to %.4g)", trial->step_ms,
            trial->least_ms, trial->most_ms);
}

static void print_reason(FILE *file, const wefti_trials *trials)
{
    const wefti_trial *best = trials->chosen, *usual = &trials->items[0];
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    if (count_real(trials) == 1) {
        fprintf(file,
                "1f1b: on paper, no other schedule makes a step of %.4g ms "
                "shorter by %.0f%%",
                find_usual(&trials->advice), 100 * (1 - worth_trying));
        return;
    }
    print_steps(file, best);
    if (best == usual) {
        fputs("; no other one's slowest step was quicker than its quickest, so "
              "what they differ by may be chance:",
              file);
        const char *before = " ";
        for (size_t k = 1; k < trials->count; k++) {
            if (!trials->items[k].emulated) {
                fputs(before, file);
                print_steps(file, &trials->items[k]);
                before = ", ";
            }
        }
        return;
    }
    fputs("; its slowest step was quicker than the quickest of ", file);
    print_steps(file, usual);
    fprintf(file,
            " (pipeline alone: planned %.4g and %.4g, measured %.4g and %.4g)",
            best->planned.makespan, usual->planned.makespan,
            best->runs[best->median].makespan,
            usual->runs[usual->median].makespan);
    if (weft_schedule_get_info(best->schedule, &info) == WEFT_OK &&
        info.directions > 1) {
        fputs("; each rank holds a second copy of its parameters, gradients "
              "and moments for it",
              file);
    }
}

static weft_status choose(search *s)
{
    wefti_trials *trials = s->trials;
    trials->chosen = wefti_trial_pick(trials->items, trials->count);
    FILE *file = fmemopen(trials->reason, sizeof(trials->reason), "w");
    if (!file) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a reason");
    }
    print_reason(file, trials);
    (void)fclose(file);
    trials->reason[sizeof(trials->reason) - 1] = '\0';
    if (s->err) {
        fprintf(s->err, "weft-train: schedule auto chooses %s\n",
                trials->reason);
    }
    return WEFT_OK;
}

/* What will take its turns: 1f1b, what is compared, what auto may choose. */
static weft_status add_all(search *s)
{
    weft_status status = add_one(s, "1f1b", 1, false);
    if (status == WEFT_OK) {
        status = compare_all(s);
    }
    if (status == WEFT_OK && s->job->choose) {
        status = ask(s);
    }
    return status == WEFT_OK && s->job->choose ? add_best(s) : status;
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
    weft_status status = measure_usual(&s);
    if (status == WEFT_OK) {
        status = find_oversubscribed(&s);
    }
    if (status == WEFT_OK) {
        status = add_all(&s);
    }
    if (status == WEFT_OK) {
        status = take_turns(&s);
    }
    if (status == WEFT_OK) {
        status = plan_all(&s);
    }
    return status == WEFT_OK && job->choose ? choose(&s) : status;
}

void wefti_trials_fini(wefti_trials *trials)
{
    for (size_t k = 0; k < trials->count; k++) {
        wefti_trial_fini(&trials->items[k]);
    }
    free(trials->items);
    wefti_pipe_advice_fini(&trials->advice);
    *trials = (wefti_trials){0};
}
