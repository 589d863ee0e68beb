/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_report.h - what a communicator has carried, for
 * WEFT_NCCL_REPORT: lines in the log, and a line of JSON in a file, where the
 * table of all ranks comes behind the last one's.
 */
#ifndef DOORS_NCCL_DOOR_REPORT_H
#define DOORS_NCCL_DOOR_REPORT_H

#include "weft/types.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Of one kind of operation.
 *
 * ns          in calls, waiting for it included
 * gpu_ns      on the GPU, from when its kernels began to their end
 * queued_ns   from the calls to when they began
 * on_gpu      how many have been seen there; 0: the two say nothing
 */
typedef struct wefti_door_tally {
    uint64_t calls, bytes, on_gpu;
    int64_t ns, gpu_ns, queued_ns;
} wefti_door_tally;

/* Counted by one thread at a time. The last tally is for operations that have
 * no name here. */
typedef struct wefti_door_report {
    bool wanted;
    wefti_door_tally tallies[WEFT_COLLECTIVE_COUNT + 1];
} wefti_door_report;

/* Whose report it is. hash: the same on all ranks of a communicator, and of no
 * other; 0: none. nranks 0: not known. */
typedef struct wefti_door_reporter {
    const char *name; /* "": none */
    const char *carrier;
    uint64_t hash;
    int rank, nranks;
} wefti_door_reporter;

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
void wefti_door_report_print(const wefti_door_report *report,
                             const wefti_door_reporter *reporter);

#endif
