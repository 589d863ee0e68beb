/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/trace.h - what all ranks did in the last steps, on one clock,
 * as a file that chrome://tracing and Perfetto open; and what rank 0 wants to
 * know of each rank besides.
 *
 *     every rank   newest events of its ledger --> packed
 *     rank 0       clocks compared, facts gathered, then rank by rank:
 *                  events received, put on rows, written
 *
 * A process of the trace is a rank; its tracks are steps, compute, and for each
 * class transfers and waits. Events of a kind that overlap without nesting are
 * spread over rows, a track each. Rank 0 holds the events of one rank at a
 * time.
 */
#ifndef TRAINER_REPORT_TRACE_H
#define TRAINER_REPORT_TRACE_H

#include "overlap/ledger.h"
#include "weft/comm.h"

#include <stdint.h>

enum {
    WEFTI_TRACE_STEPS_MOST = 8,       /* the last so many */
    WEFTI_TRACE_EVENTS_MOST = 400000, /* of all ranks together */
    WEFTI_TRACE_HOST_BYTES = 64
};

/* Own times of a rank, in ms, summed over its steps. */
typedef struct wefti_rank_sums {
    uint64_t steps;
    double step_ms, compute_ms, exposed_ms, bubble_ms, skew_ms, idle_ms;
    uint64_t planned_bytes; /* memory: of the replica (trainer/footprint.h) */
    uint64_t grown_bytes;   /* and what it has come to, likewise */
} wefti_rank_sums;

/* One rank, as it travels. Times of its own clock. */
typedef struct wefti_rank_facts {
    char host[WEFTI_TRACE_HOST_BYTES];
    wefti_rank_sums sums;
    uint64_t memory_bytes; /* peak resident */
    uint64_t events, omitted;
    uint64_t first_step, traced_steps;
    int64_t begin_ns; /* of its first event */
    uint64_t calls[WEFT_COLLECTIVE_COUNT];
    uint64_t bytes[WEFT_COLLECTIVE_COUNT]; /* in the traced steps */
} wefti_rank_facts;

/* What rank 0 knows afterwards. */
typedef struct wefti_trace {
    wefti_rank_facts *ranks; /* [nranks] */
    int64_t *ahead_ns;       /* [nranks] its clock before rank 0's */
    int64_t clock_error_ns;  /* 0: all on one host, one clock */
    uint64_t omitted;        /* events there was no room for, of all ranks */
} wefti_trace;

/*
 * wefti_trace_gather - all ranks together, with nothing in flight that others
 * wait for.
 *
 * sums    of this rank.
 * path    rank 0: where the trace goes; a file beside it takes its place when
 *         it is complete.
 * trace   of rank 0: fini it, also after an error.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM (rank 0: the file) | the
 *             communicator's fault. What is wrong with one rank's memory or
 *             file does not stop the others.
 */
WEFT_NODISCARD weft_status wefti_trace_gather(weft_comm *comm,
                                              const weft_ledger *ledger,
                                              const wefti_rank_sums *sums,
                                              const char *path,
                                              wefti_trace *trace);
void wefti_trace_fini(wefti_trace *trace);

#endif
