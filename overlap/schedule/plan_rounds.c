/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/plan_rounds.c - marks of a V by rounds: a warm-up that fills
 * the time until the first input is back from the last rank, then rounds in
 * which each rank does an I and an F. W go where a rank would wait for longer
 * than they take; where it would wait for less, a W comes first only if the
 * rank has idled as much as any other already.
 *
 *     warm-up, P = 3    F0 F0 F0 F0 F0 F1
 *                          F0 F0 F0 F1 F0 F1
 *                             F0 F1 F0 F1 F0 F1
 *
 * A second pass may know what each rank idled in the first: a rank may then
 * idle as much as it is ahead of the worst.
 *
 * Source: the heuristic of Qi et al., "Zero Bubble Pipeline Parallelism", arXiv
 * 2401.10241, in its authors' program,
 * sail-sg/zero-bubble-pipeline-parallelism,
 * megatron/core/pipeline_parallel/zerobubble/scheduler/zbv.py.
 */
#include "overlap/schedule/planner.h"

#include "base/check.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

typedef struct rank_state {
    double clock, idle;
    int count[WEFTI_PLAN_MARKS];
    int held;
    size_t used; /* marks written */
    int chosen;  /* its I of this round */
} rank_state;

typedef struct rounds {
    const wefti_plan_job *job;
    const wefti_plan_rounds *how;
    uint8_t *marks, *owed;
    rank_state *ranks;
    double *end[WEFTI_PLAN_KINDS]; /* [stages][microbatches]; NAN: not yet */
    double worst;                  /* of ranks[].idle */
    double approved_worst;
    bool stuck; /* these rounds do not suit the job */
} rounds;

/* When the rank's next of this mark has its input; INFINITY: not known. */
static double arrival(const rounds *it, int rank, int mark)
{
    int stage = wefti_plan_stage(it->job, rank, mark % 2);
    return wefti_plan_arrival(it->job, it->end, mark / 2, stage,
                              it->ranks[rank].count[mark]);
}

/* A message from another rank that the mark waits for. */
static bool waits_for_other(const rounds *it, int rank, int mark)
{
    int kind = mark / 2, stage = wefti_plan_stage(it->job, rank, mark % 2);
    int source = wefti_plan_source(it->job, kind, stage);
    return source >= 0 && wefti_plan_rank(it->job, source) != rank;
}

static int owed(const rounds *it, int rank)
{
    const int *count = it->ranks[rank].count;
    return count[WEFTI_PLAN_I0] + count[WEFTI_PLAN_I1] - count[WEFTI_PLAN_W];
}

static void write_mark(rounds *it, int rank, int mark)
{
    rank_state *r = &it->ranks[rank];
    size_t per_rank = wefti_plan_per_rank(it->job);
    WEFTI_ASSERT(r->used < per_rank);
    it->marks[(size_t)rank * per_rank + r->used++] = (uint8_t)mark;
    r->count[mark]++;
}

/* The chunk of the oldest I that is owed its W. */
static int owed_chunk(const rounds *it, int rank)
{
    size_t each = (size_t)it->job->chunks * (size_t)it->job->microbatches;
    size_t entry =
        (size_t)rank * each + (size_t)it->ranks[rank].count[WEFTI_PLAN_W];
    return it->owed[entry];
}

static double w_time(const rounds *it, int rank)
{
    return it->job->w[wefti_plan_stage(it->job, rank, owed_chunk(it, rank))];
}

static void do_w(rounds *it, int rank)
{
    it->ranks[rank].clock += w_time(it, rank);
    it->ranks[rank].held--;
    write_mark(it, rank, WEFTI_PLAN_W);
}

static void do_part(rounds *it, int rank, int mark)
{
    const wefti_plan_job *job = it->job;
    rank_state *r = &it->ranks[rank];
    int kind = mark / 2, stage = wefti_plan_stage(job, rank, mark % 2);
    bool more = r->count[mark] < job->microbatches;
    double ready = more ? arrival(it, rank, mark) : (double)INFINITY;
    if (isinf(ready) || (kind == WEFTI_PLAN_F && r->held == job->slots)) {
        it->stuck = true;
        return;
    }
    if (ready > r->clock && r->used > 0) {
        r->idle += ready - r->clock;
        it->worst = fmax(it->worst, r->idle);
    }
    r->clock = fmax(ready, r->clock) +
               (kind == WEFTI_PLAN_F ? job->f[stage] : job->i[stage]);
    it->end[kind][(size_t)stage * (size_t)job->microbatches +
                  (size_t)r->count[mark]] = r->clock;
    r->held += kind == WEFTI_PLAN_F;
    if (kind == WEFTI_PLAN_I) {
        size_t each = (size_t)job->chunks * (size_t)job->microbatches;
        int done = r->count[WEFTI_PLAN_I0] + r->count[WEFTI_PLAN_I1];
        it->owed[(size_t)rank * each + (size_t)done] = (uint8_t)(mark % 2);
    }
    write_mark(it, rank, mark);
}

/* ---- warm-up --------------------------------------------------------------
 */

/* First F of the second chunk on each rank, from the last to the first, with
 * as many of the first chunk before it as there is time and room for. */
static void fill_until_turned(rounds *it)
{
    const wefti_plan_job *job = it->job;
    for (int rank = job->ranks - 1; rank >= 0; rank--) {
        rank_state *r = &it->ranks[rank];
        double back = arrival(it, rank, WEFTI_PLAN_F1);
        while (!it->stuck && rank < job->ranks - 1 &&
               r->held + 2 + 2 * rank <= job->slots &&
               r->clock + job->f[rank] <= back &&
               r->count[WEFTI_PLAN_F0] < job->microbatches) {
            for (int j = 0; j <= rank && !it->stuck; j++) {
                do_part(it, j, WEFTI_PLAN_F0);
            }
        }
        do_part(it, rank, WEFTI_PLAN_F1);
    }
}

/* Each rank has then as many F as the one before it. */
static void level(rounds *it)
{
    int m = it->job->microbatches, chunk = 0;
    for (int rank = 1; rank < it->job->ranks; rank++) {
        const int *own = it->ranks[rank].count;
        const int *before = it->ranks[rank - 1].count;
        while (!it->stuck && (own[0] + own[1] < before[0] + before[1] ||
                              (own[1] <= before[1] && before[1] < m))) {
            for (int j = it->job->ranks - 1; j >= rank && !it->stuck; j--) {
                if (it->ranks[j].count[chunk] < m) {
                    do_part(it, j, chunk);
                }
            }
            chunk = 1 - chunk;
        }
    }
}

/* ---- rounds ---------------------------------------------------------------
 */

/* What the rank may idle from here without being the worst. */
static double slack(const rounds *it, int rank)
{
    double most = it->worst;
    if (it->how->approved) {
        most = fmax(most, it->approved_worst - it->how->approved[rank]);
    }
    return most - it->ranks[rank].idle;
}

/* W in the time until the input of the mark; then the mark. */
static void fill_and_do(rounds *it, int rank, int mark, bool fill)
{
    const rank_state *r = &it->ranks[rank];
    if (waits_for_other(it, rank, mark)) {
        double ready = arrival(it, rank, mark);
        while (owed(it, rank) > 0 && ready >= r->clock + w_time(it, rank)) {
            do_w(it, rank);
        }
        if (owed(it, rank) > 0 && fill && ready - r->clock > slack(it, rank)) {
            do_w(it, rank);
        }
    }
    do_part(it, rank, mark);
}

/* Of the first chunk, where the next rank has begun it or no other is left. */
static int choose_i(const rounds *it, int rank)
{
    const int *count = it->ranks[rank].count;
    if (count[WEFTI_PLAN_I0] >= count[WEFTI_PLAN_I1]) {
        return WEFTI_PLAN_I1;
    }
    bool here =
        rank == it->job->ranks - 1 || !isinf(arrival(it, rank, WEFTI_PLAN_I0));
    bool only = count[WEFTI_PLAN_I1] >= it->job->microbatches;
    return here || only ? WEFTI_PLAN_I0 : WEFTI_PLAN_I1;
}

/* Of the second chunk, where the next rank has begun it; -1: none is there. */
static int choose_f(const rounds *it, int rank)
{
    const int *count = it->ranks[rank].count;
    int m = it->job->microbatches;
    if (count[WEFTI_PLAN_F1] >= m) {
        return -1;
    }
    if (count[WEFTI_PLAN_F1] >= count[WEFTI_PLAN_F0]) {
        return WEFTI_PLAN_F0;
    }
    if (!isinf(arrival(it, rank, WEFTI_PLAN_F1))) {
        return WEFTI_PLAN_F1;
    }
    bool more = count[WEFTI_PLAN_F0] < m;
    return more && !isinf(arrival(it, rank, WEFTI_PLAN_F0)) ? WEFTI_PLAN_F0
                                                            : -1;
}

/* Gradients go down the ranks in the second chunk, and back in the first. */
static void do_all_i(rounds *it)
{
    int ranks = it->job->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        it->ranks[rank].chosen = choose_i(it, rank);
    }
    for (int rank = ranks - 1; rank >= 0 && !it->stuck; rank--) {
        if (it->ranks[rank].chosen == WEFTI_PLAN_I0) {
            fill_and_do(it, rank, WEFTI_PLAN_I0, true);
        }
    }
    for (int rank = 0; rank < ranks && !it->stuck; rank++) {
        if (it->ranks[rank].chosen == WEFTI_PLAN_I1) {
            fill_and_do(it, rank, WEFTI_PLAN_I1, it->how->fill_i);
        }
    }
}

static void do_all_f(rounds *it)
{
    for (int rank = 0; rank < it->job->ranks && !it->stuck; rank++) {
        int mark = choose_f(it, rank);
        if (mark < 0) {
            continue;
        }
        while (it->ranks[rank].held == it->job->slots && owed(it, rank) > 0) {
            do_w(it, rank);
        }
        fill_and_do(it, rank, mark, it->how->fill_f);
    }
}

static void run(rounds *it)
{
    for (int rank = 0; rank < it->job->ranks; rank++) {
        do_part(it, rank, WEFTI_PLAN_F0);
    }
    fill_until_turned(it);
    level(it);
    for (int k = 0; k < 2 * it->job->microbatches && !it->stuck; k++) {
        do_all_i(it);
        do_all_f(it);
    }
    for (int rank = 0; rank < it->job->ranks && !it->stuck; rank++) {
        while (owed(it, rank) > 0) {
            do_w(it, rank);
        }
        it->stuck = it->ranks[rank].used < wefti_plan_per_rank(it->job);
    }
}

weft_status wefti_plan_in_rounds(const wefti_plan_job *job,
                                 const wefti_plan_rounds *how, uint8_t *marks,
                                 double *idle_out)
{
    size_t entries = wefti_plan_actions(job) / 3, ranks = (size_t)job->ranks;
    rounds it = {.job = job, .how = how, .marks = marks};
    it.owed = malloc(entries);
    it.ranks = calloc(ranks, sizeof(*it.ranks));
    it.end[0] = malloc(entries * sizeof(double));
    it.end[1] = malloc(entries * sizeof(double));
    weft_status status = WEFT_OK;
    if (!it.owed || !it.ranks || !it.end[0] || !it.end[1]) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "a plan of %zu micro-batches",
                             entries);
    }
    if (status == WEFT_OK) {
        for (size_t k = 0; k < entries; k++) {
            it.end[0][k] = it.end[1][k] = (double)NAN;
        }
        for (size_t r = 0; how->approved && r < ranks; r++) {
            it.approved_worst = fmax(it.approved_worst, how->approved[r]);
        }
        run(&it);
        status = it.stuck ? WEFT_ERR_INVALID : WEFT_OK;
        for (size_t r = 0; r < ranks; r++) {
            idle_out[r] = it.ranks[r].idle;
        }
    }
    free(it.owed);
    free(it.ranks);
    free(it.end[0]);
    free(it.end[1]);
    return status;
}
