/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/plan_dispatch.c - marks by what is ready first: time goes
 * on, and each rank that is free begins what it prefers of what is there. With
 * a given order of F and I it begins those in that order, and only W are put.
 *
 * A W is begun where it ends before the next input comes, or where the rank has
 * idled so much that it could not end by the deadline otherwise. Of the second
 * of two chunks a rank can always take one more: the first leaves a slot. So
 * the oldest micro-batch can always go on, and none waits for ever.
 */
#include "overlap/schedule/agenda.h"
#include "overlap/schedule/planner.h"

#include "base/error.h"

#include <limits.h>
#include <stdlib.h>

typedef struct rank_state {
    double clock;    /* end of what it did last */
    double computed; /* time it was not idle */
    double budget;   /* that it may idle */
    int count[WEFTI_PLAN_MARKS];
    int held, last[WEFTI_PLAN_KINDS], last_kind;
    size_t read;  /* marks of the given order */
    size_t wrote; /* marks of the new one */
} rank_state;

typedef struct dispatch {
    const wefti_plan_job *job;
    const wefti_plan_dispatch_how *how;
    uint8_t *marks, *owed;
    rank_state *ranks;
    double *end[WEFTI_PLAN_KINDS]; /* [stages][microbatches]; NAN: not begun */
    wefti_agenda agenda; /* a rank has done something, or gets an input */
} dispatch;

/* ---- what to do -----------------------------------------------------------
 */

static bool has_room(const dispatch *d, int rank, int mark)
{
    bool keeps_one = d->job->chunks == 2 && mark == WEFTI_PLAN_F0;
    return mark / 2 != WEFTI_PLAN_F ||
           d->ranks[rank].held + keeps_one < d->job->slots;
}

/* Lower is preferred. */
static int order_by(wefti_plan_prefer prefer, int choice, int last)
{
    switch (prefer) {
    case WEFTI_PLAN_FIRST:
        return choice;
    case WEFTI_PLAN_LAST:
        return 1 - choice;
    default:
        return choice == last;
    }
}

static int rank_mark(const dispatch *d, const rank_state *r, int mark)
{
    int kind = mark / 2, chunk = mark % 2;
    wefti_plan_prefer of_chunk =
        kind == WEFTI_PLAN_F ? d->how->f_chunk : d->how->i_chunk;
    return 2 * order_by(d->how->kind, kind, r->last_kind) +
           order_by(of_chunk, chunk, r->last[kind]);
}

/* The next F or I of the given order; -1: there is none, or it has no room. */
static int next_in_order(const dispatch *d, int rank)
{
    rank_state *r = &d->ranks[rank];
    size_t per_rank = wefti_plan_per_rank(d->job);
    const uint8_t *own = d->how->order + (size_t)rank * per_rank;
    while (r->read < per_rank && own[r->read] == WEFTI_PLAN_W) {
        r->read++;
    }
    bool any = r->read < per_rank && has_room(d, rank, own[r->read]);
    return any ? own[r->read] : -1;
}

/* What the rank begins now, -1: nothing is there; *next_out: when the next
 * input comes, as far as is known. */
static int choose(const dispatch *d, int rank, double now, double *next_out)
{
    const rank_state *r = &d->ranks[rank];
    int given = d->how->order ? next_in_order(d, rank) : -1;
    int best = -1, merit = INT_MAX;
    *next_out = (double)INFINITY;
    for (int mark = 0; mark < WEFTI_PLAN_W; mark++) {
        int stage = wefti_plan_stage(d->job, rank, mark % 2);
        bool possible =
            mark % 2 < d->job->chunks &&
            r->count[mark] < d->job->microbatches &&
            (d->how->order ? mark == given : has_room(d, rank, mark));
        if (!possible) {
            continue;
        }
        double ready =
            wefti_plan_arrival(d->job, d->end, mark / 2, stage, r->count[mark]);
        *next_out = fmin(*next_out, ready);
        if (ready <= now && rank_mark(d, r, mark) < merit) {
            merit = rank_mark(d, r, mark);
            best = mark;
        }
    }
    return best;
}

/* The chunk of the oldest I without its W; -1: all have theirs. */
static int owed_chunk(const dispatch *d, int rank)
{
    const int *count = d->ranks[rank].count;
    size_t each = (size_t)d->job->chunks * (size_t)d->job->microbatches;
    int done = count[WEFTI_PLAN_I0] + count[WEFTI_PLAN_I1];
    size_t entry = (size_t)rank * each + (size_t)count[WEFTI_PLAN_W];
    return count[WEFTI_PLAN_W] < done ? d->owed[entry] : -1;
}

/* ---- doing it -------------------------------------------------------------
 */

static void finish(dispatch *d, int rank, int mark, double now, double takes)
{
    rank_state *r = &d->ranks[rank];
    size_t per_rank = wefti_plan_per_rank(d->job);
    d->marks[(size_t)rank * per_rank + r->wrote++] = (uint8_t)mark;
    r->count[mark]++;
    r->computed += takes;
    r->clock = now + takes;
    wefti_agenda_put(&d->agenda, (wefti_agenda_event){r->clock, rank});
}

static void begin_part(dispatch *d, int rank, int mark, double now)
{
    const wefti_plan_job *job = d->job;
    rank_state *r = &d->ranks[rank];
    int kind = mark / 2, chunk = mark % 2, microbatch = r->count[mark];
    int stage = wefti_plan_stage(job, rank, chunk);
    double takes = kind == WEFTI_PLAN_F ? job->f[stage] : job->i[stage];
    if (kind == WEFTI_PLAN_F) {
        r->held++;
    } else {
        size_t each = (size_t)job->chunks * (size_t)job->microbatches;
        int done = r->count[WEFTI_PLAN_I0] + r->count[WEFTI_PLAN_I1];
        d->owed[(size_t)rank * each + (size_t)done] = (uint8_t)chunk;
    }
    r->last_kind = kind;
    r->last[kind] = chunk;
    r->read++;
    d->end[kind][(size_t)stage * (size_t)job->microbatches +
                 (size_t)microbatch] = now + takes;
    finish(d, rank, mark, now, takes);
    int user = kind == WEFTI_PLAN_F ? stage + 1 : stage - 1;
    if (user >= 0 && user < wefti_plan_stages(job)) {
        double there = now + takes + job->hop[kind][user];
        wefti_agenda_put(&d->agenda, (wefti_agenda_event){
                                         there, wefti_plan_rank(job, user)});
    }
}

static void decide(dispatch *d, int rank, double now)
{
    rank_state *r = &d->ranks[rank];
    double next;
    int mark = choose(d, rank, now, &next);
    int chunk = owed_chunk(d, rank);
    if (mark >= 0) {
        begin_part(d, rank, mark, now);
    } else if (chunk >= 0) {
        double takes = d->job->w[wefti_plan_stage(d->job, rank, chunk)];
        double idle = next - r->computed;
        if (now + takes <= next || idle > r->budget) {
            r->held--;
            finish(d, rank, WEFTI_PLAN_W, now, takes);
        }
    }
}

static bool run(dispatch *d)
{
    size_t done = 0;
    for (int r = 0; r < d->job->ranks; r++) {
        d->ranks[r].budget = d->how->deadline - wefti_plan_work(d->job, r);
        d->ranks[r].last_kind = WEFTI_PLAN_I;
        d->ranks[r].last[WEFTI_PLAN_F] = 1;
        wefti_agenda_put(&d->agenda, (wefti_agenda_event){0, r});
    }
    while (d->agenda.count > 0) {
        wefti_agenda_event event = wefti_agenda_take(&d->agenda);
        if (event.time >= d->ranks[event.rank].clock) {
            decide(d, event.rank, event.time);
        }
    }
    for (int r = 0; r < d->job->ranks; r++) {
        done += d->ranks[r].wrote;
    }
    return done == wefti_plan_actions(d->job);
}

weft_status wefti_plan_dispatch(const wefti_plan_job *job,
                                const wefti_plan_dispatch_how *how,
                                uint8_t *marks)
{
    size_t entries = wefti_plan_actions(job) / 3, ranks = (size_t)job->ranks;
    dispatch d = {.job = job, .how = how, .marks = marks};
    /* each input once, and each rank's own end */
    d.agenda.heap = malloc((2 * entries + 2 * ranks) * sizeof(*d.agenda.heap));
    d.owed = malloc(entries);
    d.ranks = calloc(ranks, sizeof(*d.ranks));
    d.end[0] = malloc(entries * sizeof(double));
    d.end[1] = malloc(entries * sizeof(double));
    weft_status status = WEFT_OK;
    if (!d.agenda.heap || !d.owed || !d.ranks || !d.end[0] || !d.end[1]) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "a plan of %zu micro-batches",
                             entries);
    }
    if (status == WEFT_OK) {
        for (size_t k = 0; k < entries; k++) {
            d.end[0][k] = d.end[1][k] = (double)NAN;
        }
        status = run(&d) ? WEFT_OK : WEFT_ERR_INVALID;
    }
    free(d.agenda.heap);
    free(d.owed);
    free(d.ranks);
    free(d.end[0]);
    free(d.end[1]);
    return status;
}
