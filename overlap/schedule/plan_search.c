/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/plan_search.c - planned marks made better, one move at a
 * time.
 *
 * What makes the step as long as it is, is a chain of marks from its beginning
 * to its end, each beginning when the one before has ended or its message has
 * come. It runs along a rank for a while (a block), then over a message to
 * another. Only moves within a block, or out of it, can make it shorter:
 *
 *     two neighbours of a block change places
 *     a mark goes behind the block's last, which others wait for
 *     a mark goes before the block's first
 *     a mark goes into time that its rank idles earlier
 *
 * Moves are drawn from a fixed seed; one that makes the step no longer is kept,
 * so that the search can cross a plateau.
 *
 * Source: moves on blocks of a critical path are Nowicki and Smutnicki's for
 * job shops, Management Science 42 (1996).
 */
#include "overlap/schedule/planner.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 30, IDLES_BACK = 8 };

typedef struct search {
    const wefti_plan_job *job;
    size_t per_rank;
    uint8_t *marks;         /* now */
    uint8_t *kept;          /* of the rank that is changed */
    wefti_plan_times times; /* of marks */
    wefti_plan_times trial; /* with a move that may be taken back */
    int32_t *chain;         /* from the end to the beginning */
    size_t chain_count;
    uint64_t seed;
} search;

/* A move of one mark, by its place on the rank. */
typedef struct move {
    int rank;
    size_t from, to;
} move;

static size_t draw(search *s, size_t below)
{
    WEFTI_ASSERT(below > 0);
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return (size_t)((s->seed >> 20) % below);
}

/* From one of the ranks that end last. */
static void find_chain(search *s)
{
    size_t seen = 0;
    int32_t at = -1;
    for (int rank = 0; rank < s->job->ranks; rank++) {
        size_t last = (size_t)(rank + 1) * s->per_rank - 1;
        if (s->times.end[last] >= s->times.makespan && draw(s, ++seen) == 0) {
            at = (int32_t)last;
        }
    }
    for (s->chain_count = 0; at >= 0; at = s->times.cause[at]) {
        s->chain[s->chain_count++] = at;
    }
}

/* The block around a mark of the chain, by places on its rank. */
static void find_block(const search *s, size_t k, size_t *first_out,
                       size_t *last_out)
{
    size_t first = k, last = k;
    const int32_t *chain = s->chain;
    while (first + 1 < s->chain_count && chain[first + 1] == chain[first] - 1 &&
           (size_t)chain[first] % s->per_rank != 0) {
        first++;
    }
    while (last > 0 && chain[last - 1] == chain[last] + 1 &&
           (size_t)chain[last - 1] % s->per_rank != 0) {
        last--;
    }
    *first_out = (size_t)chain[first] % s->per_rank;
    *last_out = (size_t)chain[last] % s->per_rank;
}

/* The place of a mark before which the rank idles, a few such places back. */
static size_t find_idle(search *s, int rank, size_t from)
{
    const double *begin = s->times.begin + (size_t)rank * s->per_rank;
    const double *end = s->times.end + (size_t)rank * s->per_rank;
    size_t at = from;
    for (size_t left = 1 + draw(s, IDLES_BACK); left > 0 && at > 0;) {
        at--;
        left -= begin[at] > (at > 0 ? end[at - 1] : 0);
    }
    return at;
}

/* False: this draw was no move. */
static bool draw_move(search *s, move *m)
{
    size_t k = draw(s, s->chain_count), first, last;
    m->rank = (int)((size_t)s->chain[k] / s->per_rank);
    m->from = (size_t)s->chain[k] % s->per_rank;
    find_block(s, k, &first, &last);
    switch (draw(s, 4)) {
    case 0:
        m->from = first + draw(s, last - first + 1);
        m->to = m->from + 1;
        return m->to <= last;
    case 1:
        m->to = last;
        return m->from < last;
    case 2:
        m->to = first;
        return m->from > first;
    default:
        m->to = find_idle(s, m->rank, first);
        return m->from > m->to;
    }
}

static void apply(uint8_t *marks, size_t from, size_t to)
{
    uint8_t moved = marks[from];
    if (from < to) {
        memmove(marks + from, marks + from + 1, to - from);
    } else {
        memmove(marks + to + 1, marks + to, from - to);
    }
    marks[to] = moved;
}

/* A move that keeps the rank's rules, made; false: none was found. */
static bool make_move(search *s, move *m)
{
    for (int k = 0; k < TRIES; k++) {
        if (!draw_move(s, m)) {
            continue;
        }
        uint8_t *own = s->marks + (size_t)m->rank * s->per_rank;
        if (own[m->from] == own[m->to] && m->from + 1 == m->to) {
            continue;
        }
        memcpy(s->kept, own, s->per_rank);
        apply(own, m->from, m->to);
        if (wefti_plan_fits(s->job, own)) {
            return true;
        }
        memcpy(own, s->kept, s->per_rank);
    }
    return false;
}

/* Keeps the move that was just timed. */
static void keep(search *s)
{
    wefti_plan_times before = s->times;
    s->times = s->trial;
    s->trial = before;
    find_chain(s);
}

static void climb(search *s, double effort, uint8_t *best)
{
    size_t actions = wefti_plan_actions(s->job);
    double least = wefti_plan_least(s->job) * (1 + 1e-12);
    wefti_plan_time(s->job, s->marks, &s->times);
    double shortest = s->times.makespan;
    find_chain(s);
    double left = effort;
    while (left > 0 && shortest > least) {
        move m;
        left -= (double)actions;
        if (!make_move(s, &m)) {
            find_chain(s); /* perhaps there is another */
            continue;
        }
        wefti_plan_time(s->job, s->marks, &s->trial);
        if (s->trial.makespan > s->times.makespan * (1 + 1e-12)) {
            memcpy(s->marks + (size_t)m.rank * s->per_rank, s->kept,
                   s->per_rank);
            continue;
        }
        keep(s);
        if (s->times.makespan < shortest) {
            shortest = s->times.makespan;
            memcpy(best, s->marks, actions);
        }
    }
}

weft_status wefti_plan_search(const wefti_plan_job *job, double effort,
                              uint8_t *marks)
{
    size_t actions = wefti_plan_actions(job);
    search s = {.job = job,
                .per_rank = wefti_plan_per_rank(job),
                .seed = 0x9e3779b97f4a7c15u};
    weft_status status = wefti_plan_times_init(&s.times, job);
    if (status == WEFT_OK) {
        status = wefti_plan_times_init(&s.trial, job);
    }
    uint8_t *now = malloc(actions), *kept = malloc(s.per_rank);
    int32_t *chain = malloc(actions * sizeof(*chain));
    if (status == WEFT_OK && now && kept && chain) {
        s.marks = now;
        s.kept = kept;
        s.chain = chain;
        memcpy(now, marks, actions);
        climb(&s, effort, marks);
    } else if (status == WEFT_OK) {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "a search of %zu actions", actions);
    }
    free(now);
    free(kept);
    free(chain);
    wefti_plan_times_fini(&s.times);
    wefti_plan_times_fini(&s.trial);
    return status;
}
