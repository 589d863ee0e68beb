/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/advice.h - which pipeline schedule suits a job: all of them priced with
 * the costs that were measured, the best one first, and why.
 *
 *     weft_advice_config config = {.size_bytes = sizeof(config), .ranks = 4,
 *                                  .microbatches = 32, .layers = 32,
 *                                  .cost = &measured};
 *     status = weft_schedule_advise(&config, &advice);
 *     advice.candidates[0] is what to run, advice.reason says why
 *     weft_advice_fini(&advice);
 *
 * Threads: any; nothing is kept between calls.
 */
#ifndef WEFT_ADVICE_H
#define WEFT_ADVICE_H

#include "weft/schedule_cost.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Most numbers of micro-batches that are compared at once. */
#define WEFT_ADVICE_CHOICES_MOST 64

/* Planned idle time above this share of the step is warned of. */
#define WEFT_ADVICE_BUBBLE_WARNED 0.15

/* Steps that differ by no more than this share of the shortest are a tie. */
#define WEFT_ADVICE_TIE 0.005

/*
 * weft_advice_config - what is known of a job. Memory is in device units: the
 * activations of one micro-batch through all layers of a rank are 1.
 *
 * size_bytes     sizeof(weft_advice_config) of the caller; must be set.
 * ranks          P, from 1.
 * microbatches   m of a step, for which the costs were measured.
 * choices        [choice_count] other m that the global batch allows; NULL:
 *                none. The batch stays, so with fewer micro-batches each is
 *                larger: its costs, messages and memory grow in proportion,
 *                latencies do not.
 * layers         of the model; one a stage at least. What is left over of an
 *                even share is spread over the stages, never to the last.
 * cost           of a micro-batch on a rank; its stages must be NULL. reduce,
 *                gather and optimizer are of a step, and their actions are in
 *                the list where one of them is above 0.
 * first, last    what the model's first and last stage take beyond their share
 *                of that, such as an embedding and a loss; of a b without i
 *                and w half is each; NULL: nothing.
 * chunks         V of interleaved schedules; 0: all that suit are tried.
 * group          their group size N; 0: P.
 * memory_most    a rank may use so many units; 0: any.
 * copy_memory    units of one copy of a rank's parameters, with all that
 *                belongs to them; 0: they are not counted.
 * plan           zb_h1, zb_h2 and zbv also in an order made for the costs
 *                (weft_schedule_plan), where that is shorter than as published.
 *                With memory_most it may hold as much as that leaves.
 */
typedef struct weft_advice_config {
    size_t size_bytes;
    int ranks;
    int microbatches;
    const int *choices;
    int choice_count;
    int layers;
    const weft_schedule_cost *cost;
    const weft_stage_cost *first, *last;
    int chunks, group;
    double memory_most;
    double copy_memory;
    bool plan;
} weft_advice_config;

/*
 * weft_schedule_candidate - one schedule that was looked at. Times and memory
 * are NAN where it could not be made.
 *
 * possible       false: why says what is in the way.
 * idle           makespan less what the least busy rank computes: bubble and
 *                imbalance together.
 * imbalance      of it what the busiest rank computes more, because stages are
 *                unequal: no number of micro-batches removes it.
 * bubble         the rest: filling and emptying the pipeline, and messages.
 * *_ratio        their shares of the makespan.
 * busiest_rank   that computes most, where there is imbalance.
 * activations    peak of the worst rank, in units of the micro-batch that the
 *                costs are of.
 * memory         the same, and all copies of the parameters.
 */
typedef struct weft_schedule_candidate {
    char name[32];
    int microbatches;
    int chunks;
    bool overlap;
    bool possible;
    double makespan, ideal;
    double idle, bubble, imbalance;
    double idle_ratio, bubble_ratio, imbalance_ratio;
    int busiest_rank;
    double activations, memory;
    size_t messages; /* between ranks in a step */
    int param_copies;
    bool planned; /* in an order made for the costs */
    char why[224];
} weft_schedule_candidate;

/*
 * weft_advice - all candidates: the recommended one first, then the other
 * possible ones by makespan, then those that are not.
 *
 * Recommended is the shortest step. Of steps that are a tie with it
 * (WEFT_ADVICE_TIE) it is the one with fewer copies of the parameters; then one
 * with microbatches as they are, else with fewer (small ones compute less
 * efficiently, which costs of one size do not show); then with less memory.
 *
 * reason    one sentence: which is the best and why, or why there is none.
 * warning   "" or one sentence on the idle time of the best: whether it is
 *           bubble or imbalance, and what makes it less.
 */
typedef struct weft_advice {
    size_t count;
    weft_schedule_candidate *candidates;
    char reason[768];
    char warning[512];
} weft_advice;

/*
 * weft_schedule_advise - simulates every schedule there is: interleaved for
 * config's V, or for each that divides the layers of a rank, else for 2; also
 * with overlap where fb is below f + b.
 *
 * Returns     OK (fini it; also where nothing is possible) | ERR_INVALID (a
 *             number or cost out of range) | ERR_NO_MEMORY.
 * Blocks      no; it computes for as long as the simulations take.
 */
WEFT_NODISCARD weft_status
weft_schedule_advise(const weft_advice_config *config, weft_advice *advice_out);
void weft_advice_fini(weft_advice *advice); /* frees its candidates */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
