/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/placement.c - counts the bytes of a placement, and tries all nestings.
 */
#include "topo/placement.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Worlds in which exchanges of two ranks are tried as well. */
#define EXCHANGE_MOST 32

typedef struct cost {
    double keys[2 + WEFTI_LEVELS_MOST]; /* less is better, first first */
} cost;

typedef struct planner {
    const wefti_levels *levels;
    const wefti_place_job *job;
    int rank_count;
    int strides[WEFTI_AXIS_COUNT]; /* of ranks */
    int *members;                  /* scratch: places of one group */
    double by_axis[WEFTI_AXIS_COUNT][WEFTI_LEVELS_MOST];
} planner;

/* ---- traffic --------------------------------------------------------------
 */

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Data parallelism sums over the expert groups too. */
static int group_size(const planner *p, wefti_axis axis)
{
    const int *sizes = p->job->sizes;
    return axis == WEFTI_AXIS_DP ? sizes[WEFTI_AXIS_DP] * sizes[WEFTI_AXIS_EP]
                                 : sizes[axis];
}

static int coordinate(const planner *p, int rank, wefti_axis axis)
{
    return rank / p->strides[axis] % p->job->sizes[axis];
}

/* Whether the rank is the first of its group along the axis. */
static bool leads(const planner *p, int rank, wefti_axis axis)
{
    return coordinate(p, rank, axis) == 0 &&
           (axis != WEFTI_AXIS_DP || coordinate(p, rank, WEFTI_AXIS_EP) == 0);
}

static void add(planner *p, wefti_axis axis, int a, int b, double bytes)
{
    p->by_axis[axis][wefti_levels_common(p->levels, a, b)] += bytes;
}

static void count_group(planner *p, wefti_axis axis, int size)
{
    double bytes = p->job->bytes[axis];
    int *at = p->members;
    if (axis == WEFTI_AXIS_EP) {
        for (int i = 0; i < size; i++) {
            for (int j = 0; j < size; j++) {
                if (i != j) {
                    add(p, axis, at[i], at[j], bytes / (size - 1));
                }
            }
        }
        return;
    }
    if (axis != WEFTI_AXIS_PP) { /* a ring may take any order, a chain not */
        qsort(at, (size_t)size, sizeof(int), compare_ints);
        add(p, axis, at[size - 1], at[0], bytes);
    }
    for (int i = 0; i + 1 < size; i++) {
        add(p, axis, at[i], at[i + 1], bytes);
    }
}

static void count_traffic(planner *p, const int *places)
{
    memset(p->by_axis, 0, sizeof(p->by_axis));
    for (int axis = 0; axis < WEFTI_AXIS_COUNT; axis++) {
        int size = group_size(p, (wefti_axis)axis);
        int stride = axis == WEFTI_AXIS_DP ? p->strides[WEFTI_AXIS_EP]
                                           : p->strides[axis];
        for (int rank = 0; rank < p->rank_count && size > 1; rank++) {
            if (!leads(p, rank, (wefti_axis)axis)) {
                continue;
            }
            for (int i = 0; i < size; i++) {
                p->members[i] = places[rank + i * stride];
            }
            count_group(p, (wefti_axis)axis, size);
        }
    }
}

static double sum_level(const planner *p, int level)
{
    double sum = 0;
    for (int axis = 0; axis < WEFTI_AXIS_COUNT; axis++) {
        sum += p->by_axis[axis][level];
    }
    return sum;
}

static cost cost_of(planner *p, const int *places)
{
    cost c = {{0}};
    int top = p->levels->level_count - 1;
    count_traffic(p, places);
    bool several = top >= 0 && strcmp(p->levels->names[top], "network") == 0;
    if (several) {
        /* Also with no traffic stated, TP and CP belong together. */
        c.keys[0] = p->by_axis[WEFTI_AXIS_TP][top];
        c.keys[1] = p->by_axis[WEFTI_AXIS_CP][top];
    }
    for (int level = top; level >= 0; level--) {
        c.keys[2 + top - level] = sum_level(p, level);
    }
    return c;
}

static bool is_less(const cost *a, const cost *b)
{
    for (size_t i = 0; i < WEFTI_COUNT_OF(a->keys); i++) {
        double slack = 1e-9 * (a->keys[i] + b->keys[i]);
        if (a->keys[i] < b->keys[i] - slack) {
            return true;
        }
        if (a->keys[i] > b->keys[i] + slack) {
            return false;
        }
    }
    return false;
}

/* ---- nestings -------------------------------------------------------------
 */

/* Ranks to places, the first axis of the order lying closest. */
static void nest(const planner *p, const int *order, int *places)
{
    for (int rank = 0; rank < p->rank_count; rank++) {
        int place = 0, stride = 1;
        for (int i = 0; i < WEFTI_AXIS_COUNT; i++) {
            place += coordinate(p, rank, (wefti_axis)order[i]) * stride;
            stride *= p->job->sizes[order[i]];
        }
        places[rank] = place;
    }
}

/* The next order in the order of dictionaries; false after the last. */
static bool next_order(int *order, int count)
{
    int i = count - 2, j = count - 1;
    while (i >= 0 && order[i] > order[i + 1]) {
        i--;
    }
    if (i < 0) {
        return false;
    }
    while (order[j] < order[i]) {
        j--;
    }
    int swap = order[i];
    order[i] = order[j];
    order[j] = swap;
    for (int a = i + 1, b = count - 1; a < b; a++, b--) {
        swap = order[a];
        order[a] = order[b];
        order[b] = swap;
    }
    return true;
}

/* Axes of size 1 stand last, in one order only. */
static bool is_proper(const planner *p, const int *order)
{
    for (int i = 0; i + 1 < WEFTI_AXIS_COUNT; i++) {
        if (p->job->sizes[order[i]] == 1 &&
            (p->job->sizes[order[i + 1]] > 1 || order[i] > order[i + 1])) {
            return false;
        }
    }
    return true;
}

static cost try_orders(planner *p, int *trial, wefti_placement *best)
{
    int order[WEFTI_AXIS_COUNT] = {0, 1, 2, 3, 4};
    cost least = {{0}};
    bool any = false;
    do {
        if (!is_proper(p, order)) {
            continue;
        }
        nest(p, order, trial);
        cost c = cost_of(p, trial);
        if (!any || is_less(&c, &least)) {
            least = c;
            any = true;
            memcpy(best->order, order, sizeof(order));
            memcpy(best->places, trial, (size_t)p->rank_count * sizeof(*trial));
        }
    } while (next_order(order, WEFTI_AXIS_COUNT));
    return least;
}

/* Exchanges of two ranks, as long as one helps. */
static void exchange(planner *p, cost least, wefti_placement *best)
{
    bool better = p->rank_count <= EXCHANGE_MOST;
    for (int round = 0; better && round < 16; round++) {
        better = false;
        for (int a = 0; a < p->rank_count; a++) {
            for (int b = a + 1; b < p->rank_count; b++) {
                int swap = best->places[a];
                best->places[a] = best->places[b];
                best->places[b] = swap;
                cost c = cost_of(p, best->places);
                if (is_less(&c, &least)) {
                    least = c;
                    better = true;
                } else {
                    best->places[b] = best->places[a];
                    best->places[a] = swap;
                }
            }
        }
    }
}

/* ---- the plan -------------------------------------------------------------
 */

const char *wefti_axis_text(wefti_axis axis)
{
    static const char *const texts[] = {"tp", "cp", "ep", "dp", "pp"};
    return texts[axis];
}

static weft_status check_job(const wefti_levels *levels,
                             const wefti_place_job *job)
{
    double product = 1; /* 2^100 at most */
    for (int axis = 0; axis < WEFTI_AXIS_COUNT; axis++) {
        const char *name = wefti_axis_text((wefti_axis)axis);
        if (job->sizes[axis] < 1 || job->sizes[axis] > 1 << 20) {
            return wefti_error(WEFT_ERR_INVALID, "%s=%d: allowed is 1 to %d",
                               name, job->sizes[axis], 1 << 20);
        }
        if (!(job->bytes[axis] >= 0 && job->bytes[axis] < 1e18)) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s_bytes=%g: allowed is 0 to 1e18", name,
                               job->bytes[axis]);
        }
        product *= job->sizes[axis];
    }
    if (product != levels->place_count) {
        return wefti_error(WEFT_ERR_INVALID,
                           "tp x cp x ep x dp x pp = %d x %d x %d x %d x %d = "
                           "%.15g ranks, the machine has %d places",
                           job->sizes[0], job->sizes[1], job->sizes[2],
                           job->sizes[3], job->sizes[4], product,
                           levels->place_count);
    }
    return WEFT_OK;
}

static void sum_levels(const planner *p, double out[WEFTI_LEVELS_MOST])
{
    for (int level = 0; level < WEFTI_LEVELS_MOST; level++) {
        out[level] = sum_level(p, level);
    }
}

/* Ranks that run do not move for nothing. */
static void keep_if_as_good(planner *p, const cost *before,
                            wefti_placement *best)
{
    cost after = cost_of(p, best->places);
    if (p->job->now && !is_less(&after, before)) {
        memcpy(best->places, p->job->now,
               (size_t)p->rank_count * sizeof(*best->places));
    }
}

weft_status wefti_place_plan(const wefti_levels *levels,
                             const wefti_place_job *job, wefti_placement *out)
{
    *out = (wefti_placement){0};
    weft_status status = check_job(levels, job);
    if (status != WEFT_OK) {
        return status;
    }
    size_t room = (size_t)levels->place_count + 1;
    planner p = {
        .levels = levels, .job = job, .rank_count = levels->place_count};
    int *trial = calloc(room, sizeof(int));
    p.members = calloc(room, sizeof(int));
    out->places = calloc(room, sizeof(int));
    out->rank_count = levels->place_count;
    for (int axis = 0, stride = 1; axis < WEFTI_AXIS_COUNT; axis++) {
        p.strides[axis] = stride;
        stride *= job->sizes[axis];
    }
    if (!trial || !p.members || !out->places) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "placing %zu ranks", room);
        wefti_placement_fini(out);
    } else {
        for (int rank = 0; rank < p.rank_count; rank++) {
            trial[rank] = job->now ? job->now[rank] : rank;
        }
        cost before = cost_of(&p, trial);
        sum_levels(&p, out->before);
        exchange(&p, try_orders(&p, trial, out), out);
        keep_if_as_good(&p, &before, out);
        count_traffic(&p, out->places);
        sum_levels(&p, out->after);
        memcpy(out->by_axis, p.by_axis, sizeof(out->by_axis));
    }
    free(trial);
    free(p.members);
    return status;
}

void wefti_placement_fini(wefti_placement *placement)
{
    free(placement->places);
    *placement = (wefti_placement){0};
}
