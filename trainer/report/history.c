/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/history.c - points that stand for more and more steps.
 */
#include "trainer/report/history.h"

#include "base/check.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

const char *wefti_history_text(wefti_history_series series)
{
    static const char *const texts[] = {
#define HISTORY_TEXT(name, text, field) text,
        WEFTI_HISTORY_LIST(HISTORY_TEXT)
#undef HISTORY_TEXT
    };
    return texts[series];
}

weft_status wefti_history_init(wefti_history *history)
{
    *history = (wefti_history){.stride = 1};
    history->points = calloc(WEFTI_HISTORY_POINTS, sizeof(*history->points));
    return history->points
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY, "the history of the steps");
}

void wefti_history_fini(wefti_history *history)
{
    free(history->points);
    *history = (wefti_history){0};
}

static void take(wefti_history_value *into, const wefti_history_value *more)
{
    if (more->count == 0) {
        return;
    }
    if (into->count == 0) {
        *into = *more;
        return;
    }
    into->least = fmin(into->least, more->least);
    into->most = fmax(into->most, more->most);
    into->sum += more->sum;
    into->count += more->count;
}

static void take_point(wefti_history_point *into,
                       const wefti_history_point *more)
{
    into->last = more->last;
    for (int s = 0; s < WEFTI_HISTORY_COUNT; s++) {
        take(&into->values[s], &more->values[s]);
    }
}

static wefti_history_point point_of(const wefti_metrics_step *step)
{
    const double values[WEFTI_HISTORY_COUNT] = {
#define HISTORY_VALUE(name, text, field) step->field,
        WEFTI_HISTORY_LIST(HISTORY_VALUE)
#undef HISTORY_VALUE
    };
    wefti_history_point point = {.first = step->step, .last = step->step};
    for (int s = 0; s < WEFTI_HISTORY_COUNT; s++) {
        if (!isnan(values[s])) {
            point.values[s] =
                (wefti_history_value){values[s], values[s], values[s], 1};
        }
    }
    return point;
}

/* Two neighbours become one. */
static void halve(wefti_history *history)
{
    size_t kept = 0;
    for (size_t k = 0; k < history->count; k += 2) {
        history->points[kept] = history->points[k];
        if (k + 1 < history->count) {
            take_point(&history->points[kept], &history->points[k + 1]);
        }
        kept++;
    }
    history->count = kept;
    history->stride *= 2;
}

void wefti_history_add(wefti_history *history, const wefti_metrics_step *step)
{
    wefti_history_point point = point_of(step);
    wefti_history_point *points = history->points;
    WEFTI_ASSERT(points != NULL);
    while (history->count > 0 &&
           points[history->count - 1].first >= step->step) {
        history->count--;
    }
    wefti_history_point *last =
        history->count > 0 ? &points[history->count - 1] : NULL;
    if (last && last->last >= step->step) {
        last->last = step->step - 1;
    }
    if (last && last->last - last->first + 1 < history->stride) {
        take_point(last, &point);
        return;
    }
    if (history->count == WEFTI_HISTORY_POINTS) {
        halve(history);
    }
    /* After halving an odd number the last point has room. */
    last = history->count > 0 ? &points[history->count - 1] : NULL;
    if (last && last->last - last->first + 1 < history->stride) {
        take_point(last, &point);
    } else {
        points[history->count++] = point;
    }
}
