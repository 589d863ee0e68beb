/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/plan_time.c - how long planned marks take, and why.
 *
 * The same rules as the simulator's, for nothing but F, I and W, and many times
 * as fast: a planner asks thousands of times. Each rank goes on until it needs
 * what is not made yet; the rank that makes it has that rank go on.
 */
#include "overlap/schedule/planner.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct wefti_plan_clock {
    double clock;
    int32_t next; /* mark */
    int32_t count[WEFTI_PLAN_MARKS];
    bool queued;
} wefti_plan_clock;

double wefti_plan_work(const wefti_plan_job *job, int rank)
{
    double sum = 0;
    for (int c = 0; c < job->chunks; c++) {
        int stage = wefti_plan_stage(job, rank, c);
        sum += job->f[stage] + job->i[stage] + job->w[stage];
    }
    return sum * job->microbatches;
}

double wefti_plan_least(const wefti_plan_job *job)
{
    double arrival = 0, least = 0;
    for (int r = 0; r < job->ranks; r++) {
        arrival += job->hop[WEFTI_PLAN_F][r];
        least = fmax(least, arrival + wefti_plan_work(job, r));
        arrival += job->f[r];
    }
    return least;
}

weft_status wefti_plan_times_init(wefti_plan_times *times,
                                  const wefti_plan_job *job)
{
    size_t actions = wefti_plan_actions(job), ranks = (size_t)job->ranks;
    *times = (wefti_plan_times){
        .begin = malloc(actions * sizeof(double)),
        .end = malloc(actions * sizeof(double)),
        .cause = malloc(actions * sizeof(int32_t)),
        .made = {malloc(actions / 3 * sizeof(int32_t)),
                 malloc(actions / 3 * sizeof(int32_t))},
        .owed = malloc(actions / 3),
        .clocks = malloc(ranks * sizeof(wefti_plan_clock)),
        .turn = malloc(ranks * sizeof(int32_t)),
    };
    if (!times->begin || !times->end || !times->cause || !times->made[0] ||
        !times->made[1] || !times->owed || !times->clocks || !times->turn) {
        wefti_plan_times_fini(times);
        return wefti_error(WEFT_ERR_NO_MEMORY, "a plan of %zu actions",
                           actions);
    }
    return WEFT_OK;
}

void wefti_plan_times_fini(wefti_plan_times *times)
{
    free(times->begin);
    free(times->end);
    free(times->cause);
    free(times->made[0]);
    free(times->made[1]);
    free(times->owed);
    free(times->clocks);
    free(times->turn);
    *times = (wefti_plan_times){0};
}

/* The mark whose result an F or I needs from another action, and when that is
 * there; false: it is not made yet. */
static bool find_input(const wefti_plan_job *job, const wefti_plan_times *times,
                       int kind, int stage, int microbatch, int32_t *mark_out,
                       double *ready_out)
{
    size_t m = (size_t)job->microbatches;
    int source = wefti_plan_source(job, kind, stage);
    bool turned =
        kind == WEFTI_PLAN_I &&
        times->made[WEFTI_PLAN_F][(size_t)stage * m + (size_t)microbatch] < 0;
    *mark_out = -1;
    *ready_out = 0;
    if (source >= 0) {
        *mark_out = times->made[kind][(size_t)source * m + (size_t)microbatch];
        *ready_out =
            *mark_out < 0 ? 0 : times->end[*mark_out] + job->hop[kind][stage];
    }
    return !turned && (source < 0 || *mark_out >= 0);
}

static void queue_rank(wefti_plan_times *times, int rank, int *turns)
{
    if (!times->clocks[rank].queued) {
        times->clocks[rank].queued = true;
        times->turn[(*turns)++] = rank;
    }
}

/* Runs an F or I; false: its input is missing. */
static bool run_part(const wefti_plan_job *job, wefti_plan_times *times,
                     int rank, int mark, int32_t at, int *turns)
{
    wefti_plan_clock *r = &times->clocks[rank];
    int kind = mark / 2, chunk = mark % 2;
    int stage = wefti_plan_stage(job, rank, chunk);
    int microbatch = r->count[mark];
    int32_t source;
    double ready;
    if (!find_input(job, times, kind, stage, microbatch, &source, &ready)) {
        return false;
    }
    if (ready > r->clock) {
        times->begin[at] = ready;
        times->cause[at] = source;
    }
    times->end[at] = times->begin[at] +
                     (kind == WEFTI_PLAN_F ? job->f[stage] : job->i[stage]);
    times->made[kind][(size_t)stage * (size_t)job->microbatches +
                      (size_t)microbatch] = at;
    if (kind == WEFTI_PLAN_I) {
        size_t each = (size_t)job->chunks * (size_t)job->microbatches;
        int done = r->count[WEFTI_PLAN_I0] + r->count[WEFTI_PLAN_I1];
        times->owed[(size_t)rank * each + (size_t)done] = (uint8_t)chunk;
    }
    int user = kind == WEFTI_PLAN_F ? stage + 1 : stage - 1;
    if (user >= 0 && user < wefti_plan_stages(job)) {
        queue_rank(times, wefti_plan_rank(job, user), turns);
    }
    return true;
}

/* As far as the rank gets; returns the number of marks it ran. */
static size_t run_rank(const wefti_plan_job *job, const uint8_t *marks,
                       wefti_plan_times *times, int rank, int *turns)
{
    wefti_plan_clock *r = &times->clocks[rank];
    int32_t per_rank = (int32_t)wefti_plan_per_rank(job);
    int32_t base = rank * per_rank, before = r->next;
    size_t each = (size_t)job->chunks * (size_t)job->microbatches;
    for (; r->next < per_rank; r->next++) {
        int32_t at = base + r->next;
        int mark = marks[at];
        times->begin[at] = r->clock;
        times->cause[at] = r->next > 0 ? at - 1 : -1;
        if (mark == WEFTI_PLAN_W) {
            size_t entry = (size_t)rank * each + (size_t)r->count[mark];
            int stage = wefti_plan_stage(job, rank, times->owed[entry]);
            times->end[at] = r->clock + job->w[stage];
        } else if (!run_part(job, times, rank, mark, at, turns)) {
            break;
        }
        r->count[mark]++;
        r->clock = times->end[at];
    }
    return (size_t)(r->next - before);
}

void wefti_plan_time(const wefti_plan_job *job, const uint8_t *marks,
                     wefti_plan_times *times)
{
    size_t actions = wefti_plan_actions(job), done = 0;
    size_t per_rank = wefti_plan_per_rank(job);
    int turns = 0;
    memset(times->made[0], 0xff, actions / 3 * sizeof(int32_t));
    memset(times->made[1], 0xff, actions / 3 * sizeof(int32_t));
    memset(times->clocks, 0, (size_t)job->ranks * sizeof(*times->clocks));
    for (int rank = job->ranks - 1; rank >= 0; rank--) {
        queue_rank(times, rank, &turns);
    }
    while (turns > 0) {
        int rank = times->turn[--turns];
        times->clocks[rank].queued = false;
        done += run_rank(job, marks, times, rank, &turns);
    }
    times->makespan = done == actions ? 0 : (double)INFINITY;
    times->window = 0;
    for (int rank = 0; rank < job->ranks && done == actions; rank++) {
        double first = times->begin[(size_t)rank * per_rank];
        double end = times->clocks[rank].clock;
        times->makespan = fmax(times->makespan, end);
        times->window =
            fmax(times->window, end - first - wefti_plan_work(job, rank));
    }
}

bool wefti_plan_fits(const wefti_plan_job *job, const uint8_t *marks)
{
    int count[WEFTI_PLAN_MARKS] = {0};
    size_t per_rank = wefti_plan_per_rank(job);
    for (size_t k = 0; k < per_rank; k++) {
        count[marks[k]]++;
        int forwards = count[WEFTI_PLAN_F0] + count[WEFTI_PLAN_F1];
        int backwards = count[WEFTI_PLAN_I0] + count[WEFTI_PLAN_I1];
        if (count[WEFTI_PLAN_I0] > count[WEFTI_PLAN_F0] ||
            count[WEFTI_PLAN_I1] > count[WEFTI_PLAN_F1] ||
            count[WEFTI_PLAN_W] > backwards ||
            forwards - count[WEFTI_PLAN_W] > job->slots) {
            return false;
        }
    }
    return true;
}
