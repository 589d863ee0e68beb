/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/interval.c - the algebra of interval sets, by one merge each.
 */
#include "overlap/interval.h"

#include "base/check.h"

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void wefti_interval_add(wefti_interval_set *set, int64_t begin_ns,
                        int64_t end_ns)
{
    if (begin_ns >= end_ns) {
        return;
    }
    WEFTI_ASSERT(set->count < set->room);
    set->items[set->count++] = (wefti_interval){begin_ns, end_ns};
}

/* Lets items[root] sink in the heap items[0..count), latest begin on top. */
static void sink(wefti_interval *items, size_t root, size_t count)
{
    wefti_interval moved = items[root];
    for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count &&
            items[child + 1].begin_ns > items[child].begin_ns) {
            child++;
        }
        if (items[child].begin_ns <= moved.begin_ns) {
            break;
        }
        items[root] = items[child];
        root = child;
    }
    items[root] = moved;
}

/* Heap sort: in place and bounded, where the C library's qsort may allocate. */
static void sort_by_begin(wefti_interval *items, size_t count)
{
    for (size_t root = count / 2; root-- > 0;) {
        sink(items, root, count);
    }
    for (size_t last = count; last-- > 1;) {
        wefti_interval top = items[0];
        items[0] = items[last];
        items[last] = top;
        sink(items, 0, last);
    }
}

/* Appends an interval that begins no earlier than the last one, merging. */
static void append(wefti_interval_set *set, wefti_interval next)
{
    if (set->count > 0) {
        wefti_interval *last = &set->items[set->count - 1];
        WEFTI_ASSERT(next.begin_ns >= last->begin_ns);
        if (next.begin_ns <= last->end_ns) {
            last->end_ns = later(last->end_ns, next.end_ns);
            return;
        }
    }
    wefti_interval_add(set, next.begin_ns, next.end_ns);
}

void wefti_interval_normalise(wefti_interval_set *set)
{
    size_t count = set->count;
    sort_by_begin(set->items, count);
    set->count = 0;
    for (size_t i = 0; i < count; i++) {
        append(set, set->items[i]);
    }
}

int64_t wefti_interval_length(const wefti_interval_set *set)
{
    int64_t length_ns = 0;
    for (size_t i = 0; i < set->count; i++) {
        length_ns += set->items[i].end_ns - set->items[i].begin_ns;
    }
    return length_ns;
}

void wefti_interval_unite(const wefti_interval_set *a,
                          const wefti_interval_set *b, wefti_interval_set *out)
{
    size_t i = 0, j = 0;
    out->count = 0;
    while (i < a->count || j < b->count) {
        if (j == b->count ||
            (i < a->count && a->items[i].begin_ns <= b->items[j].begin_ns)) {
            append(out, a->items[i++]);
        } else {
            append(out, b->items[j++]);
        }
    }
}

void wefti_interval_intersect(const wefti_interval_set *a,
                              const wefti_interval_set *b,
                              wefti_interval_set *out)
{
    size_t i = 0, j = 0;
    out->count = 0;
    while (i < a->count && j < b->count) {
        wefti_interval x = a->items[i], y = b->items[j];
        wefti_interval_add(out, later(x.begin_ns, y.begin_ns),
                           earlier(x.end_ns, y.end_ns));
        if (x.end_ns < y.end_ns) {
            i++;
        } else {
            j++;
        }
    }
}

void wefti_interval_subtract(const wefti_interval_set *a,
                             const wefti_interval_set *b,
                             wefti_interval_set *out)
{
    size_t j = 0;
    out->count = 0;
    for (size_t i = 0; i < a->count; i++) {
        wefti_interval rest = a->items[i];
        while (j < b->count && b->items[j].end_ns <= rest.begin_ns) {
            j++;
        }
        for (; j < b->count && b->items[j].begin_ns < rest.end_ns; j++) {
            wefti_interval_add(out, rest.begin_ns, b->items[j].begin_ns);
            rest.begin_ns = b->items[j].end_ns;
            if (rest.begin_ns >= rest.end_ns) {
                break; /* b's interval may reach into a's next */
            }
        }
        wefti_interval_add(out, rest.begin_ns, rest.end_ns);
    }
}

void wefti_interval_gaps(const wefti_interval_set *set, wefti_interval window,
                         wefti_interval_set *out)
{
    int64_t free_from_ns = window.begin_ns;
    out->count = 0;
    for (size_t i = 0; i < set->count; i++) {
        wefti_interval_add(out, free_from_ns,
                           earlier(set->items[i].begin_ns, window.end_ns));
        free_from_ns = later(free_from_ns, set->items[i].end_ns);
    }
    wefti_interval_add(out, free_from_ns, window.end_ns);
}
