/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/imbalance.c - how much more the busiest rank computes.
 */
#include "overlap/schedule/imbalance.h"

#include <math.h>

/* The share of a pair's shorter half that takes no time of its own. */
static double find_hidden(const weft_schedule_cost *cost)
{
    double b = cost->b > 0 ? cost->b : cost->i + cost->w;
    double shorter = fmin(cost->f, b);
    return cost->fb > 0 && shorter > 0 ? (cost->f + b - cost->fb) / shorter : 0;
}

static bool has_pairs(const weft_schedule *schedule)
{
    bool any = false;
    for (int r = 0; r < schedule->ranks && !any; r++) {
        const wefti_actions *list = &schedule->lists[r];
        for (size_t k = 0; k < list->count && !any; k++) {
            any = list->items[k].type == WEFT_ACTION_FB;
        }
    }
    return any;
}

/* What a rank computes in a step whose forwards are all in pairs. */
static double find_paired(const weft_schedule *schedule,
                          const weft_schedule_cost *cost, int rank)
{
    double f = 0, b = 0;
    for (int stage = 0; stage < schedule->stages; stage++) {
        const weft_stage_cost *own = &cost->stages[stage];
        if (schedule->rank_of[stage] == rank) {
            f += own->f;
            b += own->b > 0 ? own->b : own->i + own->w;
        }
    }
    return schedule->per_stage * (f + b - find_hidden(cost) * fmin(f, b));
}

wefti_imbalance wefti_imbalance_find(const weft_schedule *schedule,
                                     const weft_schedule_cost *cost,
                                     const weft_schedule_run *run)
{
    wefti_imbalance found = {0};
    double most = -1, least = (double)INFINITY;
    if (!cost->stages) {
        return found;
    }
    bool pairs = has_pairs(schedule);
    for (int r = 0; r < schedule->ranks; r++) {
        double load =
            pairs ? find_paired(schedule, cost, r) : run->ranks[r].busy;
        found.busiest = load > most ? r : found.busiest;
        most = fmax(most, load);
        least = fmin(least, load);
    }
    found.time = fmin(most - least, run->bubble);
    return found;
}
