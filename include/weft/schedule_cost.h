/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/schedule_cost.h - what a pipeline schedule takes on ranks with given
 * costs: simulated, planned for, drawn.
 *
 *     weft_schedule (weft/schedule.h) and weft_schedule_cost
 *        -> weft_schedule_plan       F, I and W in an order for these costs
 *        -> weft_schedule_simulate   how long, and who waits for what?
 *        -> weft_schedule_draw_...   planned, or planned above measured
 *
 * Functions here touch nothing but their arguments. Threads: one at a time per
 * schedule; any number at once where a schedule is only read (const).
 */
#ifndef WEFT_SCHEDULE_COST_H
#define WEFT_SCHEDULE_COST_H

#include "weft/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Largest and least cost; 0 is allowed too. */
#define WEFT_SCHEDULE_COST_MOST  1e30
#define WEFT_SCHEDULE_COST_LEAST 1e-30

/* ---- the simulator --------------------------------------------------------
 */

/* Most links that a message passes through. */
#define WEFT_ROUTE_LINKS_MOST 128

/*
 * weft_link - something that messages share: a port, a cable, a bus. It carries
 * one message at a time, in the order in which they are sent.
 */
typedef struct weft_link {
    double busy;    /* time it is taken for each message */
    double latency; /* until the message is at its end, without taking it */
} weft_link;

/* Costs of one stage; b: its full backward. */
typedef struct weft_stage_cost {
    double f, i, w, b;
} weft_stage_cost;

/*
 * weft_schedule_cost - what things take, in any unit of time: 0, or from
 * WEFT_SCHEDULE_COST_LEAST to WEFT_SCHEDULE_COST_MOST.
 *
 * size_bytes   sizeof(weft_schedule_cost) of the caller; must be set.
 * f i w b fb   for all stages that a rank has of one direction; a stage takes
 *              1/chunks of it. b 0: i + w. fb 0: f + b.
 * stages       [stages] instead, each its own; NULL: equal. fb then hides the
 *              same share of the shorter half of a pair as with f and b above.
 * p2p          each message between two ranks; any number fly at once.
 * links        what messages must pass on top of that; NULL: none.
 * route        the indices of the links from a rank to another, in links_out
 *              [WEFT_ROUTE_LINKS_MOST]; returns how many.
 * reduce       REDUCE_GRAD of a rank's stages; a rank does one at a time,
 *              beside its compute.
 * gather       UNSHARD or GATHER_PARAM of a rank's stages, likewise.
 * optimizer    OPT of a rank's stages; counts as compute.
 */
typedef struct weft_schedule_cost {
    size_t size_bytes;
    double f, i, w, b, fb;
    const weft_stage_cost *stages;
    double p2p;
    const weft_link *links;
    int link_count;
    int (*route)(void *context, int from_rank, int to_rank, int *links_out);
    void *context;
    double reduce, gather, optimizer;
} weft_schedule_cost;

/* What an action waited for. */
typedef enum weft_schedule_wait {
    WEFT_WAIT_NONE,
    WEFT_WAIT_FORWARD,  /* another rank's F */
    WEFT_WAIT_BACKWARD, /* another rank's I or B */
    WEFT_WAIT_TRANSFER, /* a message under way */
    WEFT_WAIT_PARAM,    /* UNSHARD or GATHER_PARAM */
    WEFT_WAIT_REDUCE,   /* REDUCE_GRAD, before OPT */
    WEFT_WAIT_BARRIER,
    WEFT_WAIT_END, /* the last rank, at the end of the step */
    WEFT_WAIT_COUNT
} weft_schedule_wait;

/* The word for a wait: "forward", "backward", ... */
const char *weft_schedule_wait_text(weft_schedule_wait wait);

/* When an action runs; wait: what it started as late for. */
typedef struct weft_schedule_span {
    double begin, end;
    weft_schedule_wait wait;
    int32_t wait_rank; /* whose result; -1: none */
} weft_schedule_span;

/*
 * weft_schedule_rank - one rank. bubble = makespan - busy is the sum of wait;
 * window_bubble counts from its own first start to its own last end only.
 */
typedef struct weft_schedule_rank {
    double begin, end, busy, bubble, window_bubble;
    double activations; /* peak, device units */
    double wait[WEFT_WAIT_COUNT];
    weft_schedule_span *spans; /* [actions of the rank]; NULL: not kept */
} weft_schedule_rank;

/* weft_schedule_run - the whole step; bubbles and activations: worst rank. */
typedef struct weft_schedule_run {
    double makespan; /* first start on any rank to the last end of anything */
    double ideal;    /* busy of the busiest rank */
    double bubble, window_bubble, activations;
    int rank_count;
    weft_schedule_rank *ranks;
} weft_schedule_run;

/*
 * weft_schedule_simulate - runs the schedule on paper, exactly: a rank runs its
 * list in order, each action as soon as the one before has ended and its inputs
 * are there. Receives count as posted in time, and sends do not block. Lowered
 * or not; not lowered, results are sent at once.
 *
 * keep_spans   fill each rank's spans.
 *
 * Returns     OK (fini it) | ERR_INVALID (a cost, or a rank that can never go
 *             on: check first) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status weft_schedule_simulate(
    const weft_schedule *schedule, const weft_schedule_cost *cost,
    bool keep_spans, weft_schedule_run *run_out);
void weft_schedule_run_fini(weft_schedule_run *plan); /* frees its spans */

/* ---- the planner ---------------------------------------------------------
 */

/*
 * weft_schedule_plan - F, I and W in an order that is made for their costs. A
 * published order is best where F, I and W take the same; with other costs it
 * leaves time that this uses. For zb_h1, zb_h2 and zbv, and lists with their
 * stages in the same places.
 *
 * The schedule that comes of it is never longer than it was; where nothing
 * shorter is found, it stays as it is. The same schedule, costs and memory give
 * the same lists, on every rank.
 *
 * cost          of what will run; b, fb, reduce, gather and optimizer do not
 *               matter to it
 * memory_most   activations that a rank may hold, in device units, from 1; 0:
 *               as many as the list does, or as there are ranks, whichever is
 *               more. A list that holds more gets an order that does not.
 *
 * Returns     OK | with the schedule as it was ERR_INVALID (it has messages or
 *             other actions, is not valid, or a cost or memory_most is out of
 *             range) | ERR_NO_MEMORY.
 * Source      overlap/schedule/planner.h; Qi et al., arXiv 2401.10241.
 */
WEFT_NODISCARD weft_status weft_schedule_plan(weft_schedule *schedule,
                                              const weft_schedule_cost *cost,
                                              double memory_most);

/* ---- the painter ----------------------------------------------------------
 */

/* Most actions that one picture shows. */
#define WEFT_DRAW_ACTIONS_MOST 200000

/*
 * weft_schedule_draw_svg - a timeline as SVG: one row per rank, a box per
 * compute action with its micro-batch, F above B where a pair overlaps, tints
 * for a rank's second and further stages, and under each row the steps of the
 * generator's recipe. Stages of an encoder (weft_schedule_mark_encoder) have
 * colours of their own. What is grey is bubble.
 *
 * planned    with spans; of this schedule.
 * measured   drawn below on the same scale; NULL: none. Its spans are in the
 *            unit of planned.
 * title      of the picture; NULL: the schedule's name and numbers.
 * unit       of time, for the axis; NULL: none.
 *
 * Returns     OK | ERR_INVALID (no spans, too many actions) | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status weft_schedule_draw_svg(
    const weft_schedule *schedule, const weft_schedule_run *planned,
    const weft_schedule_run *measured, const char *title, const char *unit,
    FILE *file);

/*
 * weft_schedule_draw_text - the same for a terminal, up to columns wide:
 * letters of what runs, with the micro-batch where there is room; small letters
 * for a rank's second and further stages, e before those of an encoder; dots
 * are bubble.
 *
 * columns   40 .. 1000.
 * colour    with ANSI colours.
 *
 * Returns     OK | ERR_INVALID | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status weft_schedule_draw_text(
    const weft_schedule *schedule, const weft_schedule_run *run, int columns,
    bool colour, FILE *file);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
