/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_report.h - what a communicator has carried, for
 * WEFT_NCCL_REPORT.
 */
#ifndef DOORS_NCCL_DOOR_REPORT_H
#define DOORS_NCCL_DOOR_REPORT_H

#include "weft/types.h"

#include <stdbool.h>
#include <stdint.h>

/* Of one kind of operation; ns: in calls, waiting for it included. */
typedef struct wefti_door_tally {
    uint64_t calls, bytes;
    int64_t ns;
} wefti_door_tally;

/* Counted by the one thread that uses the communicator. */
typedef struct wefti_door_report {
    bool wanted;
    wefti_door_tally tallies[WEFT_COLLECTIVE_COUNT];
} wefti_door_report;

/* Asks the environment whether anybody wants one. */
void wefti_door_report_init(wefti_door_report *report);

/* Now, where a report is wanted; else 0. */
int64_t wefti_door_report_now(const wefti_door_report *report);

/* One call of so many elements, and the time since then. */
void wefti_door_report_add(wefti_door_report *report, weft_collective what,
                           size_t count, weft_dtype dtype, int64_t since_ns);

/* More time of a call that has been added. */
void wefti_door_report_wait(wefti_door_report *report, weft_collective what,
                            int64_t since_ns);

/* Once, when its communicator ends: a line for each kind that there was. */
void wefti_door_report_print(const wefti_door_report *report, int rank,
                             int nranks, const char *name);

#endif
