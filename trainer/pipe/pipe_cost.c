/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_cost.c - costs from spans, and of cuts that were not run.
 */
#include "trainer/pipe/pipe_cost.h"

#include "base/error.h"
#include "overlap/schedule/schedule.h"
#include "trainer/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Room for one kind's times, used again and again. */
typedef struct sampler {
    const weft_schedule *schedule;
    const weft_schedule_run *run; /* the one examined */
    const weft_schedule_run *runs;
    size_t run_count;
    double *values;
    size_t count;
} sampler;

static double length_of(const weft_schedule_span *span)
{
    return span->end - span->begin;
}

static const weft_schedule_span *spans_of(const sampler *s, int rank)
{
    return s->run->ranks[rank].spans;
}

static double median(sampler *s)
{
    return s->count > 0 ? wefti_numbers_median(s->values, s->count)
                        : (double)NAN;
}

/* Of all actions of a kind that a stage has; NAN: it has none. */
static double find_cost(sampler *s, weft_action_type type, int stage)
{
    int rank = s->schedule->rank_of[stage];
    const wefti_actions *list = &s->schedule->lists[rank];
    s->count = 0;
    for (size_t r = 0; r < s->run_count; r++) {
        s->run = &s->runs[r];
        for (size_t k = 0; k < list->count; k++) {
            if (list->items[k].type == type && list->items[k].stage == stage) {
                s->values[s->count++] = length_of(&spans_of(s, rank)[k]);
            }
        }
    }
    return median(s);
}

/* B or both its parts; what there is none of is NAN. */
static weft_stage_cost find_stage(sampler *s, int stage)
{
    weft_stage_cost c = {.f = find_cost(s, WEFT_ACTION_F, stage),
                         .i = find_cost(s, WEFT_ACTION_I, stage),
                         .w = find_cost(s, WEFT_ACTION_W, stage),
                         .b = find_cost(s, WEFT_ACTION_B, stage)};
    c.f = isnan(c.f) ? 0 : c.f;
    c.b = isnan(c.b) ? c.i + c.w : c.b;
    c.b = isnan(c.b) ? 0 : c.b;
    return c;
}

/* Stages that do not split their B would, as those that do. */
static void split_others(wefti_pipe_cost *cost, int stages)
{
    double i = 0, w = 0;
    for (int stage = 0; stage < stages; stage++) {
        const weft_stage_cost *c = &cost->stages[stage];
        if (!isnan(c->i) && !isnan(c->w)) {
            i += c->i;
            w += c->w;
        }
    }
    cost->split_known = i + w > 0;
    double share = cost->split_known ? i / (i + w) : 0.5;
    for (int stage = 0; stage < stages; stage++) {
        weft_stage_cost *c = &cost->stages[stage];
        if (isnan(c->i) || isnan(c->w)) {
            c->i = share * c->b;
            c->w = (1 - share) * c->b;
        }
    }
}

/* The share of the shorter half that one pair hides, if it has two. */
static void sample_pair(sampler *s, const weft_stage_cost *stages, int rank,
                        size_t k)
{
    const weft_action *action = &s->schedule->lists[rank].items[k];
    double f = stages[action->stage].f;
    double b = stages[action->pair_stage].b;
    double length = length_of(&spans_of(s, rank)[k]);
    if (fmin(f, b) > 0) {
        s->values[s->count++] = (f + b - length) / fmin(f, b);
    }
}

/* Of all pairs; 0 where there are none. */
static double find_hidden(sampler *s, const weft_stage_cost *stages)
{
    s->count = 0;
    for (size_t r = 0; r < s->run_count; r++) {
        s->run = &s->runs[r];
        for (int rank = 0; rank < s->schedule->ranks; rank++) {
            const wefti_actions *list = &s->schedule->lists[rank];
            for (size_t k = 0; k < list->count; k++) {
                if (list->items[k].type == WEFT_ACTION_FB) {
                    sample_pair(s, stages, rank, k);
                }
            }
        }
    }
    double hidden = median(s);
    return isnan(hidden) ? 0 : fmin(fmax(hidden, 0), 1);
}

/* When each stage had made its part of each micro-batch, forth and back. */
static double *find_ends(const sampler *s)
{
    const weft_schedule *schedule = s->schedule;
    size_t each = (size_t)schedule->stages * (size_t)schedule->per_stage;
    double *ends = calloc(2 * each, sizeof(*ends));
    for (int rank = 0; ends && rank < schedule->ranks; rank++) {
        const wefti_actions *list = &schedule->lists[rank];
        for (size_t k = 0; k < list->count; k++) {
            weft_action parts[2];
            int count = wefti_action_split(&list->items[k], parts);
            for (int p = 0; p < count; p++) {
                bool forth = parts[p].type == WEFT_ACTION_F;
                bool back = parts[p].type == WEFT_ACTION_I ||
                            parts[p].type == WEFT_ACTION_B;
                if (forth || back) {
                    ends[(forth ? 0 : each) +
                         (size_t)parts[p].stage * (size_t)schedule->per_stage +
                         (size_t)parts[p].microbatch] =
                        spans_of(s, rank)[k].end;
                }
            }
        }
    }
    return ends;
}

/* What one action shows of messages, if it waited for another rank. */
static void sample_message(sampler *s, const double *ends, int rank, size_t k)
{
    const weft_schedule *schedule = s->schedule;
    const weft_schedule_span *span = &spans_of(s, rank)[k];
    size_t each = (size_t)schedule->stages * (size_t)schedule->per_stage;
    weft_action parts[2];
    int count = wefti_action_split(&schedule->lists[rank].items[k], parts);
    bool waited = span->wait == WEFT_WAIT_FORWARD ||
                  span->wait == WEFT_WAIT_BACKWARD ||
                  span->wait == WEFT_WAIT_TRANSFER;
    for (int p = 0; p < count && waited; p++) {
        wefti_edge edge = wefti_edge_in(schedule, &parts[p]);
        if (edge.exists && edge.remote && edge.from_rank == span->wait_rank) {
            size_t at = (size_t)edge.from_stage * (size_t)schedule->per_stage +
                        (size_t)edge.microbatch;
            bool forth = parts[p].type == WEFT_ACTION_F;
            s->values[s->count++] = span->begin - ends[forth ? at : each + at];
        }
    }
}

static weft_status sample_messages(sampler *s)
{
    double *ends = find_ends(s);
    if (!ends) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "costs of messages");
    }
    for (int rank = 0; rank < s->schedule->ranks; rank++) {
        for (size_t k = 0; k < s->schedule->lists[rank].count; k++) {
            sample_message(s, ends, rank, k);
        }
    }
    free(ends);
    return WEFT_OK;
}

static weft_status find_message(sampler *s, double *p2p_out)
{
    weft_status status = WEFT_OK;
    s->count = 0;
    for (size_t r = 0; r < s->run_count && status == WEFT_OK; r++) {
        s->run = &s->runs[r];
        status = sample_messages(s);
    }
    double p2p = status == WEFT_OK ? median(s) : (double)NAN;
    *p2p_out = isnan(p2p) ? 0 : fmax(p2p, 0);
    return status;
}

weft_status wefti_pipe_cost_init(wefti_pipe_cost *cost,
                                 const weft_schedule *schedule,
                                 const weft_schedule_run *runs,
                                 size_t run_count)
{
    size_t actions = 1;
    *cost = (wefti_pipe_cost){0};
    for (int rank = 0; rank < schedule->ranks; rank++) {
        actions += schedule->lists[rank].count;
    }
    sampler s = {.schedule = schedule, .runs = runs, .run_count = run_count};
    s.values = malloc(2 * actions * run_count * sizeof(*s.values));
    cost->stages = calloc((size_t)schedule->stages, sizeof(*cost->stages));
    weft_status status = WEFT_OK;
    if (!s.values || !cost->stages) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "costs of %zu actions",
                             actions * run_count);
    }
    for (int stage = 0; stage < schedule->stages && status == WEFT_OK;
         stage++) {
        cost->stages[stage] = find_stage(&s, stage);
    }
    if (status == WEFT_OK) {
        split_others(cost, schedule->stages);
        cost->hidden = find_hidden(&s, cost->stages);
        status = find_message(&s, &cost->p2p);
    }
    free(s.values);
    if (status != WEFT_OK) {
        wefti_pipe_cost_fini(cost);
    }
    return status;
}

void wefti_pipe_cost_fini(wefti_pipe_cost *cost)
{
    free(cost->stages);
    *cost = (wefti_pipe_cost){0};
}

static void set_pair(weft_schedule_cost *cost, double hidden)
{
    cost->fb = cost->f + cost->b - hidden * fmin(cost->f, cost->b);
}

weft_schedule_cost wefti_pipe_cost_mean(const wefti_pipe_cost *cost,
                                        const weft_schedule *schedule)
{
    weft_schedule_cost mean = {.size_bytes = sizeof(mean), .p2p = cost->p2p};
    int stages = wefti_stages_of_direction(schedule);
    for (int stage = 0; stage < stages; stage++) {
        mean.f += cost->stages[stage].f / schedule->ranks;
        mean.i += cost->stages[stage].i / schedule->ranks;
        mean.w += cost->stages[stage].w / schedule->ranks;
        mean.b += cost->stages[stage].b / schedule->ranks;
    }
    set_pair(&mean, cost->hidden);
    return mean;
}

/* ---- of layers ------------------------------------------------------------
 */

/* to + times * from, where nothing becomes less than 0. */
static weft_stage_cost add(weft_stage_cost to, double times,
                           const weft_stage_cost *from)
{
    return (weft_stage_cost){.f = fmax(to.f + times * from->f, 0),
                             .i = fmax(to.i + times * from->i, 0),
                             .w = fmax(to.w + times * from->w, 0),
                             .b = fmax(to.b + times * from->b, 0)};
}

wefti_layer_cost wefti_layer_cost_fit(const wefti_pipe_cost *cost,
                                      const weft_schedule *schedule, int layers)
{
    int stages = wefti_stages_of_direction(schedule);
    int first = wefti_layers_of(layers, stages, 0);
    int last = wefti_layers_of(layers, stages, stages - 1);
    int between = stages > 1 ? layers - first - last : 0;
    wefti_layer_cost fit;
    memset(&fit, 0, sizeof(fit));
    for (int stage = 1; stage < stages - 1; stage++) {
        fit.layer = add(fit.layer, 1.0 / between, &cost->stages[stage]);
    }
    if (between <= 0) {
        fit.layer = add(fit.layer, 1.0 / first, &cost->stages[0]);
    }
    fit.first = add(cost->stages[0], -first, &fit.layer);
    if (stages > 1) {
        fit.last = add(cost->stages[stages - 1], -last, &fit.layer);
    }
    return fit;
}

wefti_pipe_basis wefti_pipe_basis_fit(const wefti_pipe_cost *cost,
                                      const weft_schedule *schedule, int layers)
{
    return (wefti_pipe_basis){.layer =
                                  wefti_layer_cost_fit(cost, schedule, layers),
                              .p2p = cost->p2p,
                              .hidden = cost->hidden};
}

weft_schedule_cost wefti_pipe_basis_rank(const wefti_pipe_basis *basis,
                                         int ranks, int layers)
{
    const weft_stage_cost *layer = &basis->layer.layer;
    double each = (double)layers / ranks;
    weft_schedule_cost rank = {.size_bytes = sizeof(rank),
                               .f = each * layer->f,
                               .i = each * layer->i,
                               .w = each * layer->w,
                               .b = each * layer->b,
                               .p2p = basis->p2p};
    set_pair(&rank, basis->hidden);
    return rank;
}

void wefti_layer_cost_apply(const wefti_layer_cost *cost,
                            const weft_schedule *schedule, int layers,
                            weft_stage_cost *stages_out)
{
    int stages = wefti_stages_of_direction(schedule);
    for (int stage = 0; stage < schedule->stages; stage++) {
        const weft_stage_cost none = {0};
        int part = stage % stages;
        weft_stage_cost own =
            add(none, wefti_layers_of(layers, stages, part), &cost->layer);
        own = part == 0 ? add(own, 1, &cost->first) : own;
        own = part == stages - 1 ? add(own, 1, &cost->last) : own;
        stages_out[stage] = own;
    }
}
