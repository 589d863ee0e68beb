/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/agenda.h - what happens next: at most one event per rank, in
 * the order of time, and of ranks where times are equal.
 */
#ifndef OVERLAP_SCHEDULE_AGENDA_H
#define OVERLAP_SCHEDULE_AGENDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wefti_agenda_event {
    double time;
    int32_t rank;
} wefti_agenda_event;

typedef struct wefti_agenda {
    wefti_agenda_event *heap; /* [ranks], borrowed */
    size_t count;
} wefti_agenda;

static inline bool wefti_agenda_before(wefti_agenda_event a,
                                       wefti_agenda_event b)
{
    return a.time < b.time || (a.time == b.time && a.rank < b.rank);
}

static inline void wefti_agenda_put(wefti_agenda *agenda,
                                    wefti_agenda_event event)
{
    size_t at = agenda->count++;
    while (at > 0 && wefti_agenda_before(event, agenda->heap[(at - 1) / 2])) {
        agenda->heap[at] = agenda->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    agenda->heap[at] = event;
}

/* The first event; there is one. */
static inline wefti_agenda_event wefti_agenda_take(wefti_agenda *agenda)
{
    wefti_agenda_event first = agenda->heap[0];
    wefti_agenda_event moved = agenda->heap[--agenda->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= agenda->count) {
            break;
        }
        if (child + 1 < agenda->count &&
            wefti_agenda_before(agenda->heap[child + 1], agenda->heap[child])) {
            child++;
        }
        if (!wefti_agenda_before(agenda->heap[child], moved)) {
            break;
        }
        agenda->heap[at] = agenda->heap[child];
        at = child;
    }
    agenda->heap[at] = moved;
    return first;
}

#endif
