/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/plan_best.c - the shortest of many orders.
 *
 * The order that was given, orders in rounds, orders by what is ready first,
 * and the best of them with its W put anew; then that one is made shorter move
 * by move. How much is tried is counted in actions and not in time, so that
 * every rank, on whatever machine, finds the same order.
 */
#include "overlap/schedule/planner.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Actions timed or put, over all candidates: a fraction of a second. A short
 * order needs less. */
static const double effort_most = 1e7, effort_per_action = 3000;

/* Times that differ by less are of one length, summed in another order. */
static const double same = 1e-9;

typedef struct planner {
    const wefti_plan_job *job;
    wefti_plan_times times;
    uint8_t *trial, *best;
    double makespan, window; /* of best; INFINITY: there is none */
    double least;            /* nothing can be shorter */
    double effort;           /* left */
} planner;

/* Each pass idles less than the one before; a few are all there are. */
enum { PASSES_MOST = 32 };

/* Keeps the trial if it is the shortest so far, or as short and of less idle
 * time inside. */
static void consider(planner *p)
{
    wefti_plan_time(p->job, p->trial, &p->times);
    double tolerance = same * p->times.makespan;
    bool shorter = p->times.makespan < p->makespan - tolerance;
    bool alike = p->times.makespan <= p->makespan + tolerance;
    p->effort -= (double)wefti_plan_actions(p->job);
    if (shorter || (alike && p->times.window < p->window - tolerance)) {
        p->makespan = p->times.makespan;
        p->window = p->times.window;
        memcpy(p->best, p->trial, wefti_plan_actions(p->job));
    }
    if (p->makespan <= p->least * (1 + same)) {
        p->effort = 0; /* nothing is left to find */
    }
}

/* Passes for as long as each idles less than the one before. */
static weft_status try_rounds(planner *p, bool fill_f, bool fill_i)
{
    size_t ranks = (size_t)p->job->ranks;
    double *idle = malloc(2 * ranks * sizeof(*idle)), worst = (double)INFINITY;
    wefti_plan_rounds how = {fill_f, fill_i, NULL};
    weft_status status =
        idle ? WEFT_OK : wefti_error(WEFT_ERR_NO_MEMORY, "%zu ranks", ranks);
    for (int pass = 0; pass < PASSES_MOST && status == WEFT_OK; pass++) {
        double now = 0;
        status = wefti_plan_in_rounds(p->job, &how, p->trial, idle + ranks);
        if (status != WEFT_OK) {
            break;
        }
        for (size_t r = 0; r < ranks; r++) {
            now = fmax(now, idle[ranks + r]);
        }
        consider(p);
        if (now >= worst) {
            break;
        }
        worst = now;
        memcpy(idle, idle + ranks, ranks * sizeof(*idle));
        how.approved = idle;
    }
    free(idle);
    return status == WEFT_ERR_INVALID ? WEFT_OK : status;
}

static weft_status try_dispatch(planner *p, const uint8_t *order,
                                wefti_plan_prefer kind,
                                wefti_plan_prefer f_chunk,
                                wefti_plan_prefer i_chunk)
{
    weft_status status = WEFT_OK;
    for (int k = 0; k < 4 && status == WEFT_OK; k++) {
        bool any = p->makespan < (double)INFINITY;
        if (any && p->effort <= 0) {
            break;
        }
        /* never idle where a W could run; or as long as the best, or a better,
         * could afford */
        double deadline = k == 0 || !any ? 0 : p->makespan;
        deadline = k == 1 ? p->least : deadline;
        deadline = k == 2 && any ? (p->least + p->makespan) / 2 : deadline;
        wefti_plan_dispatch_how how = {order, kind, f_chunk, i_chunk, deadline};
        status = wefti_plan_dispatch(p->job, &how, p->trial);
        p->effort -= 4 * (double)wefti_plan_actions(p->job);
        if (status == WEFT_OK) {
            consider(p);
        } else if (status == WEFT_ERR_INVALID) {
            status = WEFT_OK; /* the order has no room */
        }
    }
    return status;
}

static weft_status try_preferences(planner *p)
{
    weft_status status = WEFT_OK;
    for (int k = 0; k < 18 && status == WEFT_OK; k++) {
        wefti_plan_prefer kind = k % 2 ? WEFTI_PLAN_FIRST : WEFTI_PLAN_OTHER;
        wefti_plan_prefer f = (wefti_plan_prefer)(k / 2 % 3);
        wefti_plan_prefer i = (wefti_plan_prefer)(k / 6);
        bool alike = p->job->chunks == 1 && k >= 2; /* no chunk to prefer */
        status = alike ? WEFT_OK : try_dispatch(p, NULL, kind, f, i);
    }
    return status;
}

/* A rank's warm-up of so many F, then I and F in turn. */
static void write_depth(const wefti_plan_job *job, int depth, uint8_t *marks)
{
    int m = job->microbatches;
    for (int f = 0, i = 0; i < m;) {
        bool forward = f < m && f < depth + i;
        *marks++ = forward ? WEFTI_PLAN_F0 : WEFTI_PLAN_I0;
        f += forward;
        i += !forward;
    }
    memset(marks, WEFTI_PLAN_W, (size_t)m);
}

/*
 * One stage a rank: each rank with so many F ahead of what the next one has
 * ahead, from 1F1B's one more to as many as fill the time until the first
 * gradient is back; and each with one more.
 */
static weft_status try_depths(planner *p, uint8_t *order)
{
    const wefti_plan_job *job = p->job;
    static const double steps[] = {1,    1.125, 1.25, 1.375, 1.5, 1.625,
                                   1.75, 2,     2.5,  3,     0};
    weft_status status = WEFT_OK;
    for (size_t k = 0; k < 2 * WEFTI_COUNT_OF(steps) && status == WEFT_OK;
         k++) {
        double step = steps[k / 2];
        double depth = 1 + k % 2;
        for (int r = job->ranks - 1; r >= 0; r--) {
            int whole = (int)fmin(floor(depth), job->slots);
            write_depth(job, whole,
                        order + (size_t)r * wefti_plan_per_rank(job));
            if (r > 0) {
                double round = job->f[r] + job->i[r] +
                               job->hop[WEFTI_PLAN_F][r] +
                               job->hop[WEFTI_PLAN_I][r - 1];
                depth += step > 0 ? step : fmin(round / job->f[r], 1e6);
            }
        }
        status = try_dispatch(p, order, WEFTI_PLAN_OTHER, WEFTI_PLAN_OTHER,
                              WEFTI_PLAN_OTHER);
    }
    return status;
}

/* The best so far with its W put anew. */
static weft_status try_again(planner *p, uint8_t *order)
{
    memcpy(order, p->best, wefti_plan_actions(p->job));
    return try_dispatch(p, order, WEFTI_PLAN_OTHER, WEFTI_PLAN_OTHER,
                        WEFTI_PLAN_OTHER);
}

static weft_status improve(planner *p, double effort)
{
    memcpy(p->trial, p->best, wefti_plan_actions(p->job));
    weft_status status = wefti_plan_search(p->job, effort, p->trial);
    p->effort -= effort;
    if (status == WEFT_OK) {
        consider(p);
    }
    return status;
}

static weft_status try_all(planner *p, const uint8_t *given, uint8_t *order)
{
    weft_status status = WEFT_OK;
    if (given) {
        memcpy(p->trial, given, wefti_plan_actions(p->job));
        consider(p);
    }
    for (int k = 0; k < 4 && p->job->chunks == 2 && status == WEFT_OK; k++) {
        status = try_rounds(p, k < 2, k % 2 == 0);
    }
    if (p->job->chunks == 1 && status == WEFT_OK) {
        status = try_depths(p, order);
    }
    if (p->makespan < (double)INFINITY && status == WEFT_OK) {
        status = try_again(p, order);
    }
    if (status == WEFT_OK) {
        status = try_preferences(p);
    }
    for (int k = 0; k < 2 && status == WEFT_OK && p->effort > 0; k++) {
        status = improve(p, p->effort / (2 - k));
        if (status == WEFT_OK) {
            status = try_again(p, order);
        }
    }
    return status;
}

weft_status wefti_plan_best(const wefti_plan_job *job, const uint8_t *given,
                            uint8_t *marks_out)
{
    size_t actions = wefti_plan_actions(job);
    planner p = {.job = job,
                 .best = marks_out,
                 .makespan = (double)INFINITY,
                 .window = (double)INFINITY,
                 .least = wefti_plan_least(job),
                 .effort =
                     fmin(effort_most, effort_per_action * (double)actions)};
    weft_status status = wefti_plan_times_init(&p.times, job);
    if (status != WEFT_OK) {
        return status;
    }
    uint8_t *order = malloc(actions), *trial = malloc(actions);
    p.trial = trial;
    status = order && trial ? try_all(&p, given, order)
                            : wefti_error(WEFT_ERR_NO_MEMORY,
                                          "a plan of %zu actions", actions);
    if (status == WEFT_OK && isinf(p.makespan)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "plan: with these costs no step has an end");
    }
    free(order);
    free(trial);
    wefti_plan_times_fini(&p.times);
    return status;
}
