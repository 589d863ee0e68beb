/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/profiler_events.h - what a profiler has seen of NCCL: its
 * communicators, each with a report, and the events that go on.
 *
 * Handles are numbers, not addresses: one that is NULL, has ended, or never was
 * one of ours is passed over, whoever uses it and however late. NCCL ends an
 * operation's event when it has handed the operation to the GPU; the channels
 * of its kernel begin and end after that, and name it as their parent.
 *
 * Threads     any, for all functions.
 */
#ifndef DOORS_NCCL_PROFILER_EVENTS_H
#define DOORS_NCCL_PROFILER_EVENTS_H

#include "weft/types.h"

#include <stdbool.h>
#include <stdint.h>

/* Whose row an operation of a name we do not know goes to. */
#define WEFTI_PROFILER_OTHER WEFT_COLLECTIVE_COUNT

/* How many events are remembered; the oldest is forgotten first. */
enum { WEFTI_PROFILER_EVENTS_MOST = 4096 };

/* What a communicator is called. nranks 0, rank -1: not known yet. */
typedef struct wefti_profiler_name {
    const char *text; /* NULL: none */
    uint64_t hash;
    int rank, nranks;
} wefti_profiler_name;

/* NULL: no memory, or WEFT_NCCL_REPORT is 0. */
void *wefti_profiler_open(const wefti_profiler_name *name);

/* Logs its report and forgets it, and its events. */
void wefti_profiler_close(void *context);

/* For versions whose events bring it: what the communicator is called, where
 * that is not known yet. */
void wefti_profiler_rename(void *context, const wefti_profiler_name *name);

/*
 * wefti_profiler_operation - NCCL begins to hand over an operation; timed: what
 * lies between this and its end counts as time in calls.
 *
 * what   a collective, or WEFTI_PROFILER_OTHER.
 *
 * Returns     its handle; NULL: the context is not open.
 */
void *wefti_profiler_operation(void *context, int what, uint64_t bytes,
                               bool timed);

/* A call of the program's begins; its end adds to the time in calls. */
void *wefti_profiler_call(void *context, int what);

/*
 * wefti_profiler_channel - a channel of an operation's kernel has begun.
 *
 * gpu_ns   by the GPU's clock; 0: not known, and that of the host is taken.
 *
 * Returns     its handle; NULL: there is no such operation.
 */
void *wefti_profiler_channel(void *operation, uint64_t gpu_ns);

/* When a channel ended by the GPU's clock. */
void wefti_profiler_channel_ended(void *channel, uint64_t gpu_ns);

/* The end of any event. */
void wefti_profiler_stop(void *event);

#endif
