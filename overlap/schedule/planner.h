/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/planner.h - orders of F, I and W planned from what each
 * takes: of zb_h1 and zb_h2 (one stage a rank) and of zbv (two, placed as a V).
 *
 * A planned order is marks: of each rank one byte for each of its actions. The
 * micro-batch follows from the place: the k-th mark of a kind and chunk is of
 * micro-batch k. A W is that of the oldest I whose W has not run.
 *
 *     plan_time.c       how long given marks take
 *     plan_rounds.c     marks in rounds of one I and one F a rank
 *     plan_dispatch.c   marks by what is ready first
 *     plan_search.c     marks made better step by step
 *     plan_best.c       the best of them
 *     planner.c         as the lists of a schedule
 *
 * Everything is arithmetic on its arguments: the same costs give the same marks
 * on every rank.
 */
#ifndef OVERLAP_SCHEDULE_PLANNER_H
#define OVERLAP_SCHEDULE_PLANNER_H

#include "overlap/schedule/schedule.h"

#include <math.h>

/* F or I and its chunk, or W. */
enum {
    WEFTI_PLAN_F0,
    WEFTI_PLAN_F1,
    WEFTI_PLAN_I0,
    WEFTI_PLAN_I1,
    WEFTI_PLAN_W,
    WEFTI_PLAN_MARKS
};

enum { WEFTI_PLAN_F, WEFTI_PLAN_I, WEFTI_PLAN_KINDS };

/*
 * wefti_plan_job - what is to be ordered.
 *
 * slots      activations of one chunk that a rank may hold, from chunks on
 * f, i, w    [stages] what each takes
 * hop        [kind][stages] what the message takes that the stage's F or I
 *            waits for; 0 where it comes from the same rank
 */
typedef struct wefti_plan_job {
    int ranks, chunks, microbatches, slots;
    double *f, *i, *w;
    double *hop[WEFTI_PLAN_KINDS];
} wefti_plan_job;

static inline size_t wefti_plan_per_rank(const wefti_plan_job *job)
{
    return (size_t)3 * (size_t)job->chunks * (size_t)job->microbatches;
}

static inline size_t wefti_plan_actions(const wefti_plan_job *job)
{
    return (size_t)job->ranks * wefti_plan_per_rank(job);
}

static inline int wefti_plan_stages(const wefti_plan_job *job)
{
    return job->ranks * job->chunks;
}

static inline int wefti_plan_stage(const wefti_plan_job *job, int rank,
                                   int chunk)
{
    return chunk ? 2 * job->ranks - 1 - rank : rank;
}

static inline int wefti_plan_rank(const wefti_plan_job *job, int stage)
{
    return stage < job->ranks ? stage : 2 * job->ranks - 1 - stage;
}

/* The stage whose result the stage's F or I waits for; -1: none. */
static inline int wefti_plan_source(const wefti_plan_job *job, int kind,
                                    int stage)
{
    int source = kind == WEFTI_PLAN_F ? stage - 1 : stage + 1;
    return source < wefti_plan_stages(job) ? source : -1;
}

/*
 * When the input of an F or I is there, from the ends [kind][stages]
 * [microbatches] of what has begun (NAN: has not); INFINITY: not known yet.
 */
static inline double wefti_plan_arrival(const wefti_plan_job *job,
                                        double *const *end, int kind, int stage,
                                        int microbatch)
{
    size_t m = (size_t)job->microbatches, i = (size_t)microbatch;
    int source = wefti_plan_source(job, kind, stage);
    double own =
        kind == WEFTI_PLAN_I ? end[WEFTI_PLAN_F][(size_t)stage * m + i] : 0;
    double other = 0;
    if (source >= 0) {
        other = end[kind][(size_t)source * m + i] + job->hop[kind][stage];
    }
    if (isnan(own) || isnan(other)) {
        return (double)INFINITY;
    }
    return own > other ? own : other;
}

/* All that the rank computes. */
double wefti_plan_work(const wefti_plan_job *job, int rank);

/* No order is shorter: the first input must get to each rank. */
double wefti_plan_least(const wefti_plan_job *job);

/* ---- how long ------------------------------------------------------------ */

/*
 * wefti_plan_times - of marks that were timed.
 *
 * begin, end   [actions] of each mark, rank after rank
 * cause        [actions] the mark whose end made this one begin no sooner, the
 *              mark before it on the rank or another rank's; -1: none
 * makespan     the last end; INFINITY: these marks cannot run
 * window       longest time that a rank idles after its first start and before
 *              its last end
 */
typedef struct wefti_plan_times {
    double makespan, window;
    double *begin, *end;
    int32_t *cause;
    int32_t *made[WEFTI_PLAN_KINDS]; /* [stages][microbatches]; -1: not yet */
    uint8_t *owed;                   /* [ranks] chunks of I, in order */
    struct wefti_plan_clock *clocks;
    int32_t *turn; /* ranks that may go on */
} wefti_plan_times;

WEFT_NODISCARD weft_status wefti_plan_times_init(wefti_plan_times *times,
                                                 const wefti_plan_job *job);
void wefti_plan_times_fini(wefti_plan_times *times);

void wefti_plan_time(const wefti_plan_job *job, const uint8_t *marks,
                     wefti_plan_times *times);

/* One rank's marks keep to the slots, and have each input before its use. */
bool wefti_plan_fits(const wefti_plan_job *job, const uint8_t *marks);

/* ---- ways to make marks ---------------------------------------------------
 */

typedef struct wefti_plan_rounds {
    bool fill_f, fill_i;    /* a W that delays an F or I, rather than idling */
    const double *approved; /* [ranks] what each idled before; NULL: unknown */
} wefti_plan_rounds;

/*
 * wefti_plan_in_rounds - marks of two chunks a rank; idle_out[ranks] gets what
 * each rank idles between its first start and last end.
 *
 * Returns     OK, or ERR_INVALID where these rounds do not fit the job, and no
 *             text | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_plan_in_rounds(const wefti_plan_job *job,
                                                const wefti_plan_rounds *how,
                                                uint8_t *marks,
                                                double *idle_out);

/* What a rank does next, where more than one is ready. */
typedef enum wefti_plan_prefer {
    WEFTI_PLAN_OTHER, /* than what it did last */
    WEFTI_PLAN_FIRST, /* F; of chunks the first */
    WEFTI_PLAN_LAST,  /* I; of chunks the second */
    WEFTI_PLAN_PREFER_COUNT
} wefti_plan_prefer;

/*
 * wefti_plan_dispatch_how - order: marks whose F and I keep their order, with W
 * put anew; NULL: the preferences decide. deadline: a rank rather does a W late
 * than idle, once it has idled so much that it cannot end by then.
 */
typedef struct wefti_plan_dispatch_how {
    const uint8_t *order;
    wefti_plan_prefer kind, f_chunk, i_chunk;
    double deadline;
} wefti_plan_dispatch_how;

/* Returns as wefti_plan_in_rounds. */
WEFT_NODISCARD weft_status
wefti_plan_dispatch(const wefti_plan_job *job,
                    const wefti_plan_dispatch_how *how, uint8_t *marks);

/*
 * wefti_plan_search - moves single marks for as long as that makes the order
 * shorter, for at most effort actions timed.
 *
 * marks       of a valid order; replaced by a shorter one
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_plan_search(const wefti_plan_job *job,
                                             double effort, uint8_t *marks);

/*
 * wefti_plan_best - the shortest order that is found.
 *
 * given       valid marks to begin with; NULL: none
 * marks_out   [actions]
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_plan_best(const wefti_plan_job *job,
                                           const uint8_t *given,
                                           uint8_t *marks_out);

#endif
