/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/page_plan.c - costs from spans, and what follows from them.
 */
#include "trainer/page_plan.h"

#include "base/error.h"
#include "overlap/schedule/schedule.h"
#include "trainer/numbers.h"

#include <math.h>
#include <stdlib.h>

/* Room for one kind's times, used again and again. */
typedef struct sampler {
    const weft_schedule *schedule;
    const weft_schedule_run *run;
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
    for (size_t k = 0; k < list->count; k++) {
        if (list->items[k].type == type && list->items[k].stage == stage) {
            s->values[s->count++] = length_of(&spans_of(s, rank)[k]);
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
static void split_others(wefti_page_plan *plan)
{
    int stages = plan->schedule->stages;
    double i = 0, w = 0;
    for (int stage = 0; stage < stages; stage++) {
        const weft_stage_cost *c = &plan->stages[stage];
        if (!isnan(c->i) && !isnan(c->w)) {
            i += c->i;
            w += c->w;
        }
    }
    plan->split_known = i + w > 0;
    double share = plan->split_known ? i / (i + w) : 0.5;
    for (int stage = 0; stage < stages; stage++) {
        weft_stage_cost *c = &plan->stages[stage];
        if (isnan(c->i) || isnan(c->w)) {
            c->i = share * c->b;
            c->w = (1 - share) * c->b;
        }
    }
}

/* The share of the shorter half that pairs hide; 0 where there are none. */
static double find_hidden(sampler *s, const weft_stage_cost *stages)
{
    s->count = 0;
    for (int rank = 0; rank < s->schedule->ranks; rank++) {
        const wefti_actions *list = &s->schedule->lists[rank];
        for (size_t k = 0; k < list->count; k++) {
            const weft_action *action = &list->items[k];
            if (action->type != WEFT_ACTION_FB) {
                continue;
            }
            double f = stages[action->stage].f;
            double b = stages[action->pair_stage].b;
            double length = length_of(&spans_of(s, rank)[k]);
            if (fmin(f, b) > 0) {
                s->values[s->count++] = (f + b - length) / fmin(f, b);
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

static weft_status find_message(sampler *s, double *p2p_out)
{
    double *ends = find_ends(s);
    if (!ends) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--report: costs");
    }
    s->count = 0;
    for (int rank = 0; rank < s->schedule->ranks; rank++) {
        for (size_t k = 0; k < s->schedule->lists[rank].count; k++) {
            sample_message(s, ends, rank, k);
        }
    }
    free(ends);
    double p2p = median(s);
    *p2p_out = isnan(p2p) ? 0 : fmax(p2p, 0);
    return WEFT_OK;
}

static weft_status find_costs(wefti_page_plan *plan, sampler *s)
{
    const weft_schedule *schedule = plan->schedule;
    int stages = wefti_stages_of_direction(schedule);
    weft_schedule_cost *cost = &plan->cost;
    *cost = (weft_schedule_cost){.size_bytes = sizeof(*cost)};
    for (int stage = 0; stage < schedule->stages; stage++) {
        plan->stages[stage] = find_stage(s, stage);
    }
    split_others(plan);
    for (int stage = 0; stage < stages; stage++) {
        cost->f += plan->stages[stage].f / schedule->ranks;
        cost->i += plan->stages[stage].i / schedule->ranks;
        cost->w += plan->stages[stage].w / schedule->ranks;
        cost->b += plan->stages[stage].b / schedule->ranks;
    }
    cost->fb = cost->f + cost->b -
               find_hidden(s, plan->stages) * fmin(cost->f, cost->b);
    return find_message(s, &cost->p2p);
}

/* The same schedule on paper, stage by stage; then all others. */
static weft_status plan_all(wefti_page_plan *plan, int layers)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_schedule_cost exact = plan->cost;
    exact.stages = plan->stages;
    weft_status status =
        weft_schedule_simulate(plan->schedule, &exact, true, &plan->planned);
    if (status == WEFT_OK) {
        status = weft_schedule_get_info(plan->schedule, &info);
    }
    weft_advice_config question = {.size_bytes = sizeof(question),
                                   .ranks = info.ranks,
                                   .microbatches = info.microbatches,
                                   .layers = layers,
                                   .cost = &plan->cost};
    return status == WEFT_OK ? weft_schedule_advise(&question, &plan->advice)
                             : status;
}

weft_status wefti_page_plan_init(wefti_page_plan *plan,
                                 const weft_schedule *schedule,
                                 weft_schedule_run *measured, int layers)
{
    size_t actions = 1;
    *plan = (wefti_page_plan){.schedule = schedule, .measured = *measured};
    *measured = (weft_schedule_run){0};
    for (int rank = 0; rank < schedule->ranks; rank++) {
        actions += schedule->lists[rank].count;
    }
    sampler s = {.schedule = schedule, .run = &plan->measured};
    s.values = malloc(2 * actions * sizeof(*s.values));
    plan->stages = calloc((size_t)schedule->stages, sizeof(*plan->stages));
    weft_status status =
        s.values && plan->stages
            ? find_costs(plan, &s)
            : wefti_error(WEFT_ERR_NO_MEMORY, "--report: costs of %zu actions",
                          actions);
    if (status == WEFT_OK) {
        status = plan_all(plan, layers);
    }
    free(s.values);
    if (status != WEFT_OK) {
        wefti_page_plan_fini(plan);
    }
    return status;
}

void wefti_page_plan_fini(wefti_page_plan *plan)
{
    weft_schedule_run_fini(&plan->measured);
    weft_schedule_run_fini(&plan->planned);
    weft_advice_fini(&plan->advice);
    free(plan->stages);
    *plan = (wefti_page_plan){0};
}

void wefti_page_plan_deferred(const weft_schedule *schedule, int rank,
                              size_t *deferred_out, size_t *waiting_out)
{
    const wefti_actions *list = &schedule->lists[rank];
    const weft_action *before = NULL; /* the last compute */
    size_t waiting = 0;
    *deferred_out = *waiting_out = 0;
    for (size_t k = 0; k < list->count; k++) {
        const weft_action *action = &list->items[k];
        if (!wefti_action_is_compute(action)) {
            continue;
        }
        if (action->type == WEFT_ACTION_W) {
            *deferred_out += !before || before->type != WEFT_ACTION_I ||
                             before->stage != action->stage ||
                             before->microbatch != action->microbatch;
            waiting--;
        }
        waiting += action->type == WEFT_ACTION_I;
        *waiting_out = waiting > *waiting_out ? waiting : *waiting_out;
        before = action;
    }
}
