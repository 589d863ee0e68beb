/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/merit.c - the order of an advice's candidates.
 */
#include "overlap/schedule/merit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(double a, double b)
{
    return (a > b) - (a < b);
}

/* As float, sums of the same costs in another order are equal. */
static double rounded(double value)
{
    return (double)(float)value;
}

/* What counts between equally long steps. */
static int by_cost(const weft_schedule_candidate *a,
                   const weft_schedule_candidate *b)
{
    int order = compare(a->param_copies, b->param_copies);
    order = order ? order : compare(a->microbatches, b->microbatches);
    order = order ? order : compare(rounded(a->memory), rounded(b->memory));
    return order ? order : compare((double)a->messages, (double)b->messages);
}

static int by_merit(const void *left, const void *right)
{
    const weft_schedule_candidate *a = left, *b = right;
    if (a->possible != b->possible) {
        return b->possible - a->possible;
    }
    int order = isnan(a->makespan) - isnan(b->makespan);
    if (order == 0 && !isnan(a->makespan)) {
        order = compare(rounded(a->makespan), rounded(b->makespan));
        order = order ? order : by_cost(a, b);
    }
    order = order ? order : compare(a->microbatches, b->microbatches);
    order = order ? order : strcmp(a->name, b->name);
    order = order ? order : compare(a->chunks, b->chunks);
    order = order ? order : a->overlap - b->overlap;
    return order ? order : a->planned - b->planned;
}

/* Between steps that are a tie, of a job that has own micro-batches. */
static bool is_cheaper(const weft_schedule_candidate *a,
                       const weft_schedule_candidate *b, int own)
{
    int copies = compare(a->param_copies, b->param_copies);
    int kept = (b->microbatches == own) - (a->microbatches == own);
    int order = copies ? copies : kept;
    return (order ? order : by_cost(a, b)) < 0;
}

const weft_schedule_candidate *
wefti_merit_find(const weft_schedule_candidate *items, size_t count, int own,
                 bool only_own)
{
    const weft_schedule_candidate *best = NULL;
    double shortest = (double)INFINITY;
    for (size_t k = 0; k < count; k++) {
        const weft_schedule_candidate *c = &items[k];
        if (c->possible && (!only_own || c->microbatches == own)) {
            shortest = fmin(shortest, c->makespan);
        }
    }
    for (size_t k = 0; k < count; k++) {
        const weft_schedule_candidate *c = &items[k];
        if (c->possible && (!only_own || c->microbatches == own) &&
            c->makespan <= shortest * (1 + WEFT_ADVICE_TIE)) {
            best = !best || is_cheaper(c, best, own) ? c : best;
        }
    }
    return best;
}

void wefti_merit_sort(weft_schedule_candidate *items, size_t count, int own)
{
    qsort(items, count, sizeof(*items), by_merit);
    const weft_schedule_candidate *found =
        wefti_merit_find(items, count, own, false);
    if (found) {
        weft_schedule_candidate best = *found;
        memmove(&items[1], &items[0], (size_t)(found - items) * sizeof(*items));
        items[0] = best;
    }
}
