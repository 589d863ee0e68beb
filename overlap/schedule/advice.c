/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/advice.c - all schedules priced alike, and the best of them.
 *
 * The global batch stays: with m' micro-batches in place of m each is m/m' as
 * large, and so are its compute, its messages and its activations. That a
 * small micro-batch computes less efficiently is not in the costs of one size;
 * whoever measures several sizes asks once for each.
 */
#include "weft/advice.h"

#include "base/check.h"
#include "base/error.h"
#include "overlap/schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    const weft_advice_config *config;
    weft_schedule_candidate *items;
    size_t count, room;
    weft_link *links; /* [link_count], scaled; NULL: none */
} search;

/* ---- what is asked --------------------------------------------------------
 */

static weft_status check_number(const char *name, int value, int most)
{
    return value >= 1 && value <= most
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "advice: %s %d: allowed is 1 .. %d", name, value,
                             most);
}

static weft_status check_real(const char *name, double value)
{
    return isfinite(value) && value >= 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "advice: %s %g: allowed is 0 or more", name,
                             value);
}

static weft_status check_end(const char *name, const weft_stage_cost *end)
{
    weft_status status = WEFT_OK;
    const double parts[] = {end ? end->f : 0, end ? end->i : 0,
                            end ? end->w : 0, end ? end->b : 0};
    for (size_t k = 0; k < WEFTI_COUNT_OF(parts) && status == WEFT_OK; k++) {
        status = check_real(name, parts[k]);
    }
    return status;
}

static weft_status check_choices(const weft_advice_config *config)
{
    bool given = config->choice_count == 0 || config->choices;
    if (!given || config->choice_count < 0 ||
        config->choice_count > WEFT_ADVICE_CHOICES_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "advice: choice_count %d: allowed is 0 .. %d, and "
                           "choices not NULL",
                           config->choice_count, WEFT_ADVICE_CHOICES_MOST);
    }
    weft_status status = WEFT_OK;
    for (int k = 0; k < config->choice_count && status == WEFT_OK; k++) {
        status = check_number("choices", config->choices[k],
                              WEFT_SCHEDULE_MICROBATCHES_MOST);
    }
    return status;
}

static weft_status check_config(const weft_advice_config *config)
{
    if (!config || config->size_bytes != sizeof(*config) || !config->cost ||
        config->cost->size_bytes != sizeof(*config->cost)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "advice: config and its cost must not be NULL and "
                           "have their size_bytes, %zu and %zu",
                           sizeof(*config), sizeof(*config->cost));
    }
    if (config->cost->stages) {
        return wefti_error(WEFT_ERR_INVALID,
                           "advice: cost.stages must be NULL: each schedule "
                           "has other stages");
    }
    weft_status status =
        check_number("ranks", config->ranks, WEFT_SCHEDULE_RANKS_MOST);
    if (status == WEFT_OK) {
        status = check_number("microbatches", config->microbatches,
                              WEFT_SCHEDULE_MICROBATCHES_MOST);
    }
    if (status == WEFT_OK) {
        status =
            check_number("layers", config->layers, WEFT_SCHEDULE_STAGES_MOST);
    }
    if (status == WEFT_OK) {
        status = check_real("memory_most", config->memory_most);
    }
    if (status == WEFT_OK) {
        status = check_real("copy_memory", config->copy_memory);
    }
    if (status == WEFT_OK) {
        status = check_end("first", config->first);
    }
    if (status == WEFT_OK) {
        status = check_end("last", config->last);
    }
    return status == WEFT_OK ? check_choices(config) : status;
}

/* ---- one candidate --------------------------------------------------------
 */

/* A micro-batch is scale times the one that the costs are of. */
static weft_schedule_cost scale_cost(const search *s, double scale)
{
    weft_schedule_cost cost = *s->config->cost;
    cost.f *= scale;
    cost.i *= scale;
    cost.w *= scale;
    cost.b *= scale;
    cost.fb *= scale;
    cost.p2p *= scale;
    for (int l = 0; s->links && l < cost.link_count; l++) {
        s->links[l] = cost.links[l];
        s->links[l].busy *= scale;
    }
    cost.links = s->links ? s->links : cost.links;
    return cost;
}

/* cost's share of one stage, and times an end of the model. */
static void add_cost(weft_stage_cost *stage, double times,
                     const weft_stage_cost *end)
{
    stage->f += times * end->f;
    stage->i += times * end->i;
    stage->w += times * end->w;
    stage->b += times * (end->b > 0 ? end->b : end->i + end->w);
}

/* All stages, by their layers and with the model's ends; to be freed; NULL: no
 * memory. */
static weft_stage_cost *make_stages(const weft_advice_config *config,
                                    const weft_schedule_info *info,
                                    const weft_schedule_cost *cost,
                                    double scale)
{
    weft_stage_cost *stages = calloc((size_t)info->stages, sizeof(*stages));
    const weft_stage_cost whole = {cost->f, cost->i, cost->w, cost->b};
    int each = info->stages / info->directions;
    for (int stage = 0; stages && stage < info->stages; stage++) {
        int own = wefti_layers_of(config->layers, each, stage % each);
        add_cost(&stages[stage], (double)own * info->ranks / config->layers,
                 &whole);
        if (config->first && stage % each == 0) {
            add_cost(&stages[stage], scale, config->first);
        }
        if (config->last && stage % each == each - 1) {
            add_cost(&stages[stage], scale, config->last);
        }
    }
    return stages;
}

/* Reductions and updates, where they cost anything. */
static weft_status complete(weft_schedule *schedule,
                            const weft_schedule_cost *cost)
{
    bool any = cost->reduce > 0 || cost->gather > 0 || cost->optimizer > 0;
    weft_status status = any ? weft_schedule_reduce(schedule, true) : WEFT_OK;
    return any && status == WEFT_OK ? weft_schedule_optimize(schedule) : status;
}

/* Priced; refused where it takes more memory than there is. */
static void judge(const search *s, weft_schedule_candidate *c,
                  const weft_schedule_info *info, const weft_schedule_run *run,
                  double scale)
{
    const weft_advice_config *config = s->config;
    c->makespan = run->makespan;
    c->ideal = run->ideal;
    c->bubble = run->bubble;
    c->bubble_ratio = run->makespan > 0 ? run->bubble / run->makespan : 0;
    int stages = info->stages / info->directions;
    double most = wefti_layers_of(config->layers, stages, 0);
    double share = most * stages / config->layers; /* of the longest stage */
    c->activations = run->activations * scale * share;
    c->param_copies = info->directions;
    c->memory = c->activations + info->directions * config->copy_memory;
    c->messages = info->messages;
    c->chunks = info->chunks;
    c->possible = config->memory_most <= 0 || c->memory <= config->memory_most;
    if (!c->possible) {
        snprintf(c->why, sizeof(c->why),
                 "needs %.4g units of memory; allowed is %.4g", c->memory,
                 config->memory_most);
    }
}

static weft_status price(const search *s, weft_schedule *schedule,
                         weft_schedule_candidate *c)
{
    double scale = (double)s->config->microbatches / c->microbatches;
    weft_schedule_cost cost = scale_cost(s, scale);
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_schedule_run run;
    weft_status status = weft_schedule_get_info(schedule, &info);
    int stages = info.directions > 0 ? info.stages / info.directions : 1;
    int layers = s->config->layers;
    if (status == WEFT_OK && layers < stages) {
        snprintf(c->why, sizeof(c->why), "%d layers are too few for %d stages",
                 layers, stages);
        return WEFT_OK;
    }
    if (status == WEFT_OK) {
        status = complete(schedule, &cost);
    }
    weft_stage_cost *own = NULL;
    bool unequal = s->config->first || s->config->last || layers % stages != 0;
    if (status == WEFT_OK && unequal) {
        cost.stages = own = make_stages(s->config, &info, &cost, scale);
        status = own ? WEFT_OK
                     : wefti_error(WEFT_ERR_NO_MEMORY, "advice: %d stages",
                                   info.stages);
    }
    if (status == WEFT_OK) {
        status = weft_schedule_simulate(schedule, &cost, false, &run);
    }
    if (status == WEFT_OK) {
        judge(s, c, &info, &run, scale);
        weft_schedule_run_fini(&run);
    }
    free(own);
    return status;
}

static weft_status try_one(search *s, const char *name, int microbatches,
                           int chunks, bool overlap)
{
    weft_schedule *schedule = NULL;
    weft_schedule_config shape = {.size_bytes = sizeof(shape),
                                  .name = name,
                                  .ranks = s->config->ranks,
                                  .microbatches = microbatches,
                                  .chunks = chunks,
                                  .overlap = overlap};
    const double none = (double)NAN;
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 32;
        void *items = realloc(s->items, room * sizeof(*s->items));
        if (!items) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "advice: %zu candidates",
                               room);
        }
        s->items = items;
        s->room = room;
    }
    weft_schedule_candidate *c = &s->items[s->count++];
    *c = (weft_schedule_candidate){.microbatches = microbatches,
                                   .chunks = chunks,
                                   .overlap = overlap,
                                   .makespan = none,
                                   .ideal = none,
                                   .bubble = none,
                                   .bubble_ratio = none,
                                   .activations = none,
                                   .memory = none};
    snprintf(c->name, sizeof(c->name), "%s", name);
    weft_status status = weft_schedule_create(&shape, &schedule);
    if (status == WEFT_ERR_INVALID) { /* this shape is not for it */
        snprintf(c->why, sizeof(c->why), "%.220s", weft_error_text());
        return WEFT_OK;
    }
    if (status == WEFT_OK) {
        status = price(s, schedule, c);
    }
    weft_schedule_destroy(schedule);
    return status;
}

/* ---- all of them ----------------------------------------------------------
 */

static bool hides_halves(const weft_schedule_cost *cost)
{
    double b = cost->b > 0 ? cost->b : cost->i + cost->w;
    return cost->fb > 0 && cost->fb < cost->f + b;
}

/* Each number of chunks that the layers allow evenly; else the least. */
static weft_status try_interleaved(search *s, const char *name,
                                   int microbatches)
{
    const weft_advice_config *config = s->config;
    int each = config->layers / config->ranks; /* layers of a rank */
    bool any = false;
    weft_status status = WEFT_OK;
    for (int v = 2; v <= each && status == WEFT_OK; v++) {
        if (each % v == 0 && config->layers % config->ranks == 0) {
            any = true;
            status = try_one(s, name, microbatches, v, false);
            if (status == WEFT_OK && hides_halves(config->cost)) {
                status = try_one(s, name, microbatches, v, true);
            }
        }
    }
    return any || status != WEFT_OK ? status
                                    : try_one(s, name, microbatches, 2, false);
}

static weft_status try_all(search *s, int microbatches)
{
    weft_status status = WEFT_OK;
    for (int k = 0; weft_schedule_name(k) && status == WEFT_OK; k++) {
        const char *name = weft_schedule_name(k);
        status = strcmp(name, "interleaved") == 0
                     ? try_interleaved(s, name, microbatches)
                     : try_one(s, name, microbatches, 0, false);
    }
    return status;
}

static bool is_new(const weft_advice_config *config, int choice)
{
    bool seen = config->choices[choice] == config->microbatches;
    for (int k = 0; k < choice; k++) {
        seen = seen || config->choices[k] == config->choices[choice];
    }
    return !seen;
}

static int compare(double a, double b)
{
    return (a > b) - (a < b);
}

/* As float, sums of the same costs in another order are equal. */
static double rounded(double value)
{
    return (double)(float)value;
}

static int by_merit(const void *left, const void *right)
{
    const weft_schedule_candidate *a = left, *b = right;
    if (a->possible != b->possible) {
        return b->possible - a->possible;
    }
    int order = isnan(a->makespan) - isnan(b->makespan);
    if (order == 0 && !isnan(a->makespan)) {
        order = compare(rounded(a->makespan), rounded(b->makespan));
        order = order ? order : compare(a->param_copies, b->param_copies);
        order = order ? order : compare(rounded(a->memory), rounded(b->memory));
        order =
            order ? order : compare((double)a->messages, (double)b->messages);
    }
    order = order ? order : compare(a->microbatches, b->microbatches);
    order = order ? order : strcmp(a->name, b->name);
    order = order ? order : compare(a->chunks, b->chunks);
    return order ? order : a->overlap - b->overlap;
}

/* ---- the sentence ---------------------------------------------------------
 */

enum { WHO_BYTES = 96 };

static const char *tell_who(const weft_advice_config *config,
                            const weft_schedule_candidate *c,
                            char text[WHO_BYTES])
{
    int used = snprintf(text, WHO_BYTES, "%s", c->name);
    if (strcmp(c->name, "interleaved") == 0) {
        used +=
            snprintf(text + used, WHO_BYTES - (size_t)used, " with V = %d%s",
                     c->chunks, c->overlap ? " and overlap" : "");
    }
    if (config->choice_count > 0) {
        snprintf(text + used, WHO_BYTES - (size_t)used, ", m = %d",
                 c->microbatches);
    }
    return text;
}

/* 1f1b as things are, which everybody knows. */
static const weft_schedule_candidate *find_usual(const search *s)
{
    for (size_t k = 0; k < s->count; k++) {
        if (strcmp(s->items[k].name, "1f1b") == 0 &&
            s->items[k].microbatches == s->config->microbatches) {
            return &s->items[k];
        }
    }
    return NULL;
}

/* The fastest of those that have no room. */
static const weft_schedule_candidate *find_barred(const search *s)
{
    const weft_schedule_candidate *barred = NULL;
    for (size_t k = 0; k < s->count; k++) {
        const weft_schedule_candidate *c = &s->items[k];
        if (!c->possible && !isnan(c->makespan) &&
            (float)c->makespan < (float)s->items[0].makespan &&
            (!barred || c->makespan < barred->makespan)) {
            barred = c;
        }
    }
    return barred;
}

static void explain(const search *s, weft_advice *advice)
{
    const weft_schedule_candidate *best = &s->items[0];
    char who[WHO_BYTES];
    if (!best->possible) {
        snprintf(advice->reason, sizeof(advice->reason),
                 "no schedule is possible: %s, for one, %s",
                 tell_who(s->config, best, who), best->why);
        return;
    }
    const weft_schedule_candidate *usual = find_usual(s);
    const weft_schedule_candidate *barred = find_barred(s);
    int used = snprintf(advice->reason, sizeof(advice->reason),
                        "%s is the fastest%s: %.4g a step, bubble %.1f%% of "
                        "it, %.4g units of memory",
                        tell_who(s->config, best, who),
                        s->config->memory_most > 0 ? " that fits" : "",
                        best->makespan, 100 * best->bubble_ratio, best->memory);
    if (usual && usual != best && !isnan(usual->makespan)) {
        used += snprintf(
            advice->reason + used, sizeof(advice->reason) - (size_t)used,
            "; 1f1b takes %.4g with %.1f%% and %.4g", usual->makespan,
            100 * usual->bubble_ratio, usual->memory);
    }
    if (barred) {
        snprintf(advice->reason + used, sizeof(advice->reason) - (size_t)used,
                 "; %s would take %.4g, but %s",
                 tell_who(s->config, barred, who), barred->makespan,
                 barred->why);
    }
    if (best->bubble_ratio > WEFT_ADVICE_BUBBLE_WARNED) {
        snprintf(advice->warning, sizeof(advice->warning),
                 "even so %.1f%% of the step is bubble, more than %.0f%%: more "
                 "micro-batches a step or fewer pipeline ranks make it less",
                 100 * best->bubble_ratio, 100 * WEFT_ADVICE_BUBBLE_WARNED);
    }
}

weft_status weft_schedule_advise(const weft_advice_config *config,
                                 weft_advice *advice_out)
{
    if (!advice_out) {
        return wefti_error(WEFT_ERR_INVALID, "advice_out must not be NULL");
    }
    *advice_out = (weft_advice){0};
    weft_status status = check_config(config);
    if (status != WEFT_OK) {
        return status;
    }
    search s = {.config = config};
    if (config->cost->link_count > 0 && config->cost->links) {
        s.links = calloc((size_t)config->cost->link_count, sizeof(*s.links));
        if (!s.links) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "advice: %d links",
                               config->cost->link_count);
        }
    }
    status = try_all(&s, config->microbatches);
    for (int k = 0; k < config->choice_count && status == WEFT_OK; k++) {
        if (is_new(config, k)) {
            status = try_all(&s, config->choices[k]);
        }
    }
    free(s.links);
    if (status != WEFT_OK) {
        free(s.items);
        return status;
    }
    WEFTI_ASSERT(s.items != NULL); /* there are generators */
    qsort(s.items, s.count, sizeof(*s.items), by_merit);
    explain(&s, advice_out);
    advice_out->count = s.count;
    advice_out->candidates = s.items;
    return WEFT_OK;
}

void weft_advice_fini(weft_advice *advice)
{
    free(advice->candidates);
    *advice = (weft_advice){0};
}
