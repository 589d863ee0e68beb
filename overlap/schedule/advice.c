/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/advice.c - all schedules priced alike, and the best of them.
 *
 * The global batch stays: with m' micro-batches in place of m each is m/m' as
 * large, and so are its compute, its messages and its activations. That a
 * small micro-batch computes less efficiently is not in the costs of one size;
 * a caller that measures several sizes asks once for each.
 */
#include "weft/advice.h"

#include "base/check.h"
#include "base/error.h"
#include "base/sized.h"
#include "overlap/schedule/advice_text.h"
#include "overlap/schedule/imbalance.h"
#include "overlap/schedule/merit.h"
#include "overlap/schedule/price.h"
#include "overlap/schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    const weft_advice_config *config;
    weft_schedule_candidate *items;
    size_t count, room;
    weft_link *links; /* [link_count], scaled; NULL: none */
    bool planned;     /* what is tried gets an order made for the costs */
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
    if (status == WEFT_OK && config->chunks != 0) {
        status =
            check_number("chunks", config->chunks, WEFT_SCHEDULE_STAGES_MOST);
    }
    if (status == WEFT_OK && config->group != 0) {
        status = check_number("group", config->group,
                              WEFT_SCHEDULE_MICROBATCHES_MOST);
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

/* cost's share of one stage, and times an end of the model; of a B alone half
 * is I and half W, or schedules that split it would get it for nothing. */
static void add_cost(weft_stage_cost *stage, double times,
                     const weft_stage_cost *end)
{
    double half = end->i + end->w > 0 ? 0 : end->b / 2;
    stage->f += times * end->f;
    stage->i += times * (end->i + half);
    stage->w += times * (end->w + half);
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

static double share_of(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void judge_time(weft_schedule_candidate *c, const weft_schedule_run *run,
                       const wefti_imbalance *imbalance)
{
    c->makespan = run->makespan;
    c->ideal = run->ideal;
    c->idle = run->bubble;
    c->imbalance = imbalance->time;
    c->bubble = run->bubble - imbalance->time;
    c->idle_ratio = share_of(c->idle, c->makespan);
    c->bubble_ratio = share_of(c->bubble, c->makespan);
    c->imbalance_ratio = share_of(c->imbalance, c->makespan);
    c->busiest_rank = imbalance->busiest;
}

/* Of the longest stage, to an even share of the layers. */
static double longest_share(const weft_advice_config *config,
                            const weft_schedule_info *info)
{
    int stages = info->stages / info->directions;
    double most = wefti_layers_of(config->layers, stages, 0);
    return most * stages / config->layers;
}

/* Refused where it takes more memory than there is. */
static void judge_memory(const search *s, weft_schedule_candidate *c,
                         const weft_schedule_info *info,
                         const weft_schedule_run *run, double scale)
{
    const weft_advice_config *config = s->config;
    c->activations = run->activations * scale * longest_share(config, info);
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

/* In an order for these costs, in the memory that there is. */
static weft_status plan(const search *s, weft_schedule *schedule,
                        const weft_schedule_cost *cost,
                        const weft_schedule_info *info, double scale)
{
    const weft_advice_config *config = s->config;
    double left = config->memory_most - config->copy_memory;
    double most = left / (scale * longest_share(config, info));
    if (config->memory_most > 0 && most < 1) {
        return WEFT_OK; /* nothing fits; as published it is refused */
    }
    return weft_schedule_plan(schedule, cost,
                              config->memory_most > 0 ? most : 0);
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
    weft_stage_cost *own = NULL;
    bool unequal = s->config->first || s->config->last || layers % stages != 0;
    if (status == WEFT_OK && unequal) {
        cost.stages = own = make_stages(s->config, &info, &cost, scale);
        status = own ? WEFT_OK
                     : wefti_error(WEFT_ERR_NO_MEMORY, "advice: %d stages",
                                   info.stages);
    }
    if (status == WEFT_OK && s->planned) {
        status = plan(s, schedule, &cost, &info, scale);
    }
    if (status == WEFT_OK) {
        status = complete(schedule, &cost);
    }
    if (status == WEFT_OK) {
        status = weft_schedule_simulate(schedule, &cost, false, &run);
    }
    if (status == WEFT_OK) {
        wefti_imbalance imbalance = wefti_imbalance_find(schedule, &cost, &run);
        judge_time(c, &run, &imbalance);
        judge_memory(s, c, &info, &run, scale);
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
                                  .group = chunks ? s->config->group : 0,
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
                                   .idle = none,
                                   .bubble = none,
                                   .imbalance = none,
                                   .idle_ratio = none,
                                   .bubble_ratio = none,
                                   .imbalance_ratio = none,
                                   .activations = none,
                                   .memory = none};
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->planned = s->planned;
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

static weft_status try_chunks(search *s, const char *name, int microbatches,
                              int chunks)
{
    weft_status status = try_one(s, name, microbatches, chunks, false);
    return status == WEFT_OK && hides_halves(s->config->cost)
               ? try_one(s, name, microbatches, chunks, true)
               : status;
}

/* The number of chunks that is asked for; else each that the layers allow
 * evenly; else the least. */
static weft_status try_interleaved(search *s, const char *name,
                                   int microbatches)
{
    const weft_advice_config *config = s->config;
    int each = config->layers / config->ranks; /* layers of a rank */
    bool any = false;
    weft_status status = WEFT_OK;
    if (config->chunks != 0) {
        return try_chunks(s, name, microbatches, config->chunks);
    }
    for (int v = 2; v <= each && status == WEFT_OK; v++) {
        if (each % v == 0 && config->layers % config->ranks == 0) {
            any = true;
            status = try_chunks(s, name, microbatches, v);
        }
    }
    return any || status != WEFT_OK ? status
                                    : try_one(s, name, microbatches, 2, false);
}

/* Once more, in an order made for the costs; kept if it is worth it. */
static weft_status try_planned(search *s, const char *name, int microbatches)
{
    bool can = strcmp(name, "zb_h1") == 0 || strcmp(name, "zb_h2") == 0 ||
               strcmp(name, "zbv") == 0;
    if (!s->config->plan || !can || isnan(s->items[s->count - 1].makespan)) {
        return WEFT_OK;
    }
    s->planned = true;
    weft_status status = try_one(s, name, microbatches, 0, false);
    s->planned = false;
    const weft_schedule_candidate *c = &s->items[s->count - 1];
    const weft_schedule_candidate *published = c - 1;
    bool better =
        c->possible && (!published->possible ||
                        (float)c->makespan < (float)published->makespan);
    s->count -= status == WEFT_OK && !better;
    return status;
}

static weft_status try_all(search *s, int microbatches)
{
    weft_status status = WEFT_OK;
    for (int k = 0; weft_schedule_name(k) && status == WEFT_OK; k++) {
        const char *name = weft_schedule_name(k);
        status = strcmp(name, "interleaved") == 0
                     ? try_interleaved(s, name, microbatches)
                     : try_one(s, name, microbatches, 0, false);
        if (status == WEFT_OK) {
            status = try_planned(s, name, microbatches);
        }
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

/*
 * Whether twice as many micro-batches make the best one's bubble less. They do
 * where it is all filling and emptying; what messages or unequal stages stop in
 * between stays.
 */
static weft_status find_helped(search *s, bool *helped_out)
{
    const weft_schedule_cost *cost = s->config->cost;
    const weft_schedule_candidate best = s->items[0];
    const double less = 0.75;
    *helped_out = true;
    bool simple = cost->p2p <= 0 && cost->link_count == 0 &&
                  cost->reduce <= 0 && cost->gather <= 0 && best.imbalance <= 0;
    if (simple || !wefti_advice_is_warned(&best) ||
        best.microbatches > WEFT_SCHEDULE_MICROBATCHES_MOST / 2) {
        return WEFT_OK;
    }
    s->planned = best.planned;
    weft_status status = try_one(
        s, best.name, 2 * best.microbatches,
        strcmp(best.name, "interleaved") == 0 ? best.chunks : 0, best.overlap);
    s->planned = false;
    s->count -= status == WEFT_OK;
    const weft_schedule_candidate *more = &s->items[s->count];
    if (status == WEFT_OK && !isnan(more->makespan)) {
        *helped_out = more->bubble_ratio < less * best.bubble_ratio;
    }
    return status;
}

/* config_out->cost becomes cost_out. */
static weft_status read_config(const weft_advice_config *given,
                               weft_advice_config *config_out,
                               weft_schedule_cost *cost_out)
{
    if (!given) {
        return wefti_error(WEFT_ERR_INVALID, "advice: config must not be NULL");
    }
    weft_status status =
        wefti_sized_read("config", given, offsetof(weft_advice_config, first),
                         config_out, sizeof(*config_out));
    if (status == WEFT_OK) {
        status = wefti_price_read(config_out->cost, cost_out);
        config_out->cost = cost_out;
    }
    return status == WEFT_OK ? check_config(config_out) : status;
}

weft_status weft_schedule_advise(const weft_advice_config *config,
                                 weft_advice *advice_out)
{
    weft_schedule_cost cost;
    weft_advice_config own;
    if (!advice_out) {
        return wefti_error(WEFT_ERR_INVALID, "advice_out must not be NULL");
    }
    *advice_out = (weft_advice){0};
    weft_status status = read_config(config, &own, &cost);
    config = &own;
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
    bool helped = true;
    if (status == WEFT_OK) {
        WEFTI_ASSERT(s.items != NULL); /* there are generators */
        wefti_merit_sort(s.items, s.count, config->microbatches);
        status = find_helped(&s, &helped);
    }
    free(s.links);
    if (status != WEFT_OK) {
        free(s.items);
        return status;
    }
    advice_out->count = s.count;
    advice_out->candidates = s.items;
    wefti_advice_explain(config, advice_out, helped);
    return WEFT_OK;
}

void weft_advice_fini(weft_advice *advice)
{
    free(advice->candidates);
    *advice = (weft_advice){0};
}
