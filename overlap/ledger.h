/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/ledger.h - what weft's own programs ask of a ledger besides
 * weft/ledger.h: the newest recordings one by one, for a trace file.
 */
#ifndef OVERLAP_LEDGER_H
#define OVERLAP_LEDGER_H

#include "comm/core/observer.h"
#include "weft/ledger.h"

typedef enum wefti_trace_kind {
    WEFTI_TRACE_SPAN,     /* declared work */
    WEFTI_TRACE_TRANSFER, /* moving; [begin, end) is [ready, end) */
    WEFTI_TRACE_WAIT,     /* the same operation's [posted, ready) */
    WEFTI_TRACE_STEP      /* a whole step */
} wefti_trace_kind;

/* owner distinguishes the recording threads; it is not an address to follow. */
typedef struct wefti_trace_event {
    wefti_trace_kind kind;
    weft_class class_id;
    weft_collective collective; /* TRANSFER and WAIT */
    const char *label;          /* may be NULL */
    uint64_t owner;
    uint64_t step; /* in which it was recorded; the first is 0 */
    uint64_t op_number;
    size_t bytes;
    int64_t begin_ns;
    int64_t end_ns;
} wefti_trace_event;

/*
 * wefti_ledger_visit - hand the events of the last steps to visit, oldest
 * first: as many as four full steps hold.
 *
 * Threads     as weft_ledger_step.
 */
void wefti_ledger_visit(const weft_ledger *ledger,
                        void (*visit)(void *context,
                                      const wefti_trace_event *event),
                        void *context);

/*
 * wefti_ledger_count_bytes - what its records and events take, all of it from
 * the beginning; what a step's breakdown needs on the way is not in it.
 */
size_t wefti_ledger_count_bytes(const weft_ledger *ledger);

/* What an attached communicator calls; context is the ledger. */
void wefti_ledger_moved(void *context, const wefti_transfer *transfer);

#endif
