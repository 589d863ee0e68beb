/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/breakdown.c - the five terms of a step from its intervals.
 *
 * All sets of a timeline, and all sets of a breakdown, are cut from one block
 * of memory, which the first set (compute) points to.
 */
#include "overlap/breakdown.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>

enum {
    TIMELINE_SETS = 1 + 2 * WEFT_CLASS_COUNT,
    TERM_SETS = 4 + WEFT_CLASS_COUNT,
    BREAKDOWN_SETS = TERM_SETS + 4
};

static void list_timeline(wefti_timeline *timeline,
                          wefti_interval_set *sets[TIMELINE_SETS])
{
    sets[0] = &timeline->compute;
    for (int k = 0; k < WEFT_CLASS_COUNT; k++) {
        sets[1 + 2 * k] = &timeline->xfer[k];
        sets[2 + 2 * k] = &timeline->wait[k];
    }
}

/* The terms come first. */
static void list_breakdown(wefti_breakdown *breakdown,
                           wefti_interval_set *sets[BREAKDOWN_SETS])
{
    size_t count = 0;
    sets[count++] = &breakdown->compute;
    sets[count++] = &breakdown->bubble;
    sets[count++] = &breakdown->skew;
    sets[count++] = &breakdown->idle;
    for (int k = 0; k < WEFT_CLASS_COUNT; k++) {
        sets[count++] = &breakdown->exposed[k];
    }
    sets[count++] = &breakdown->xfer_all;
    sets[count++] = &breakdown->hidden_all;
    sets[count++] = &breakdown->scratch[0];
    sets[count++] = &breakdown->scratch[1];
    WEFTI_ASSERT(count == BREAKDOWN_SETS);
}

static weft_status carve(wefti_interval_set **sets, size_t set_count,
                         size_t room)
{
    wefti_interval *block = calloc(set_count * room, sizeof(*block));
    if (!block) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "ledger: %zu intervals",
                           set_count * room);
    }
    for (size_t i = 0; i < set_count; i++) {
        *sets[i] = (wefti_interval_set){block + i * room, room, 0};
    }
    return WEFT_OK;
}

weft_status wefti_timeline_init(wefti_timeline *timeline, size_t room)
{
    wefti_interval_set *sets[TIMELINE_SETS];
    list_timeline(timeline, sets);
    timeline->window = (wefti_interval){0, 0};
    return carve(sets, TIMELINE_SETS, room);
}

void wefti_timeline_fini(wefti_timeline *timeline)
{
    free(timeline->compute.items);
}

weft_status wefti_breakdown_init(wefti_breakdown *breakdown, size_t room)
{
    wefti_interval_set *sets[BREAKDOWN_SETS];
    list_breakdown(breakdown, sets);
    breakdown->window = (wefti_interval){0, 0};
    return carve(sets, BREAKDOWN_SETS, room + 1); /* gaps: one more */
}

void wefti_breakdown_fini(wefti_breakdown *breakdown)
{
    free(breakdown->compute.items);
}

void wefti_timeline_reset(wefti_timeline *timeline, wefti_interval window)
{
    wefti_interval_set *sets[TIMELINE_SETS];
    list_timeline(timeline, sets);
    for (size_t i = 0; i < TIMELINE_SETS; i++) {
        sets[i]->count = 0;
    }
    timeline->window = window;
}

int64_t wefti_timeline_add(const wefti_timeline *timeline,
                           wefti_interval_set *set, int64_t begin_ns,
                           int64_t end_ns)
{
    wefti_interval window = timeline->window;
    begin_ns = begin_ns > window.begin_ns ? begin_ns : window.begin_ns;
    end_ns = end_ns < window.end_ns ? end_ns : window.end_ns;
    wefti_interval_add(set, begin_ns, end_ns);
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

/* Puts all of source behind what target has; target is no longer normal. */
static void gather(wefti_interval_set *target, const wefti_interval_set *source)
{
    for (size_t i = 0; i < source->count; i++) {
        wefti_interval_add(target, source->items[i].begin_ns,
                           source->items[i].end_ns);
    }
}

/*
 * term = set without covered; covered grows by set. spare and covered change
 * places, so the caller's pointers stay those of the two scratch sets.
 */
static void take(const wefti_interval_set *set, wefti_interval_set **covered,
                 wefti_interval_set **spare, wefti_interval_set *term)
{
    wefti_interval_subtract(set, *covered, term);
    wefti_interval_unite(set, *covered, *spare);
    wefti_interval_set *grown = *spare;
    *spare = *covered;
    *covered = grown;
}

static void find_waits(const wefti_timeline *timeline,
                       wefti_interval_set **covered, wefti_interval_set **spare,
                       wefti_breakdown *out)
{
    take(&timeline->wait[WEFT_CLASS_PP], covered, spare, &out->bubble);
    /* idle is free until find_idle: it holds all the other waits meanwhile. */
    out->idle.count = 0;
    for (int k = 0; k < WEFT_CLASS_COUNT; k++) {
        if (k != WEFT_CLASS_PP) {
            gather(&out->idle, &timeline->wait[k]);
        }
    }
    wefti_interval_normalise(&out->idle);
    take(&out->idle, covered, spare, &out->skew);
}

/* From the recordings alone, so that an error in any other term shows. */
static void find_idle(wefti_timeline *timeline, wefti_breakdown *out)
{
    wefti_interval_set *sets[TIMELINE_SETS];
    list_timeline(timeline, sets);
    wefti_interval_set *busy = &out->scratch[0];
    busy->count = 0;
    for (size_t i = 0; i < TIMELINE_SETS; i++) {
        gather(busy, sets[i]);
    }
    wefti_interval_normalise(busy);
    wefti_interval_gaps(busy, timeline->window, &out->idle);
}

void wefti_breakdown_make(wefti_timeline *timeline, wefti_breakdown *out)
{
    wefti_interval_set *sets[TIMELINE_SETS];
    list_timeline(timeline, sets);
    for (size_t i = 0; i < TIMELINE_SETS; i++) {
        wefti_interval_normalise(sets[i]);
    }
    out->window = timeline->window;
    out->compute.count = out->xfer_all.count = 0;
    gather(&out->compute, &timeline->compute);

    wefti_interval_set *covered = &out->scratch[0], *spare = &out->scratch[1];
    covered->count = 0;
    gather(covered, &timeline->compute);
    for (int k = 0; k < WEFT_CLASS_COUNT; k++) {
        take(&timeline->xfer[k], &covered, &spare, &out->exposed[k]);
        gather(&out->xfer_all, &timeline->xfer[k]);
    }
    wefti_interval_normalise(&out->xfer_all);
    wefti_interval_intersect(&out->xfer_all, &out->compute, &out->hidden_all);
    find_waits(timeline, &covered, &spare, out);
    find_idle(timeline, out);
}

static int64_t distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

int64_t wefti_breakdown_check(wefti_breakdown *breakdown)
{
    wefti_interval_set *sets[BREAKDOWN_SETS];
    list_breakdown(breakdown, sets);
    wefti_interval window = breakdown->window;
    wefti_interval_set *covered = &breakdown->scratch[0];
    wefti_interval_set *spare = &breakdown->scratch[1];
    int64_t sum_ns = 0;
    covered->count = 0;
    for (size_t i = 0; i < TERM_SETS; i++) {
        sum_ns += wefti_interval_length(sets[i]);
        wefti_interval_unite(covered, sets[i], spare);
        wefti_interval_set *grown = spare;
        spare = covered;
        covered = grown;
    }
    wefti_interval_gaps(covered, window, spare);
    int64_t sum_error_ns = distance(sum_ns, window.end_ns - window.begin_ns);
    int64_t holes_ns = wefti_interval_length(spare);
    return sum_error_ns > holes_ns ? sum_error_ns : holes_ns;
}

void wefti_breakdown_report(const wefti_timeline *timeline,
                            wefti_breakdown *breakdown,
                            weft_step_report *report_out)
{
    weft_step_report *report = report_out;
    report->step_ns = breakdown->window.end_ns - breakdown->window.begin_ns;
    report->compute_ns = wefti_interval_length(&breakdown->compute);
    report->bubble_ns = wefti_interval_length(&breakdown->bubble);
    report->skew_ns = wefti_interval_length(&breakdown->skew);
    report->idle_ns = wefti_interval_length(&breakdown->idle);
    report->xfer_all_ns = wefti_interval_length(&breakdown->xfer_all);
    report->hidden_all_ns = wefti_interval_length(&breakdown->hidden_all);
    wefti_interval_set *hidden = &breakdown->scratch[0];
    for (int k = 0; k < WEFT_CLASS_COUNT; k++) {
        const wefti_interval_set *xfer = &timeline->xfer[k];
        wefti_interval_intersect(xfer, &timeline->compute, hidden);
        report->exposed_ns[k] = wefti_interval_length(&breakdown->exposed[k]);
        report->xfer_ns[k] = wefti_interval_length(xfer);
        report->hidden_ns[k] = wefti_interval_length(hidden);
        report->wait_ns[k] = wefti_interval_length(&timeline->wait[k]);
    }
}
