/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/ledger.h - what was hidden: every compute span and every operation of a
 * rank on one clock, and each step broken down into terms that add up.
 *
 * Definitions: compute C, transfers X_k and waits W_k per class k; hidden_k =
 * |X_k in C|; overlap ratio O_k = hidden_k / |X_k|. A step of length T is
 * compute + exposed (by class, in the order tp cp ep pp dp mem) + bubble
 * (waiting for a pipeline message) + skew (waiting for a late peer) + idle
 * (the gaps that none of these cover).
 */
#ifndef WEFT_LEDGER_H
#define WEFT_LEDGER_H

#include "weft/comm.h"
#include "weft/types.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct weft_ledger weft_ledger;

/* One open span; a value, 0 = none. */
typedef struct weft_span {
    uint64_t id;
} weft_span;

/*
 * weft_step_report - one step of one rank, times in ns. The five terms compute,
 * exposed_ns (all classes), bubble, skew and idle are measured each from its
 * own intervals; their sum is step_ns.
 *
 * What crosses a step's end is split there: each step gets its own part. That
 * also holds for a span still open at the end. A transfer is known only when
 * it has ended; the part of it that lay in a step already reported comes too
 * late for that report and is counted as carried.
 *
 * cpu_share: over the outermost compute spans that closed in this step, which
 * are those whose CPU time is known; 0 if there is none. Below 0.9 the ranks
 * share cores, and hidden_ns proves nothing. The converse does not hold: spans
 * much shorter than the scheduler's slices run whole, however many ranks wait.
 *
 * What hiding costs the compute: wakeups, how often the threads of the attached
 * communicators' ranks that drive operations returned from a sleep, each
 * counted where it happens; progress_ns, the CPU time of these threads, and of
 * the program's where they drove operations as they signalled a gate;
 * preemptions, how often the kernel took the core from a thread within its
 * outermost compute spans that closed in this step. moved_bytes: payload of the
 * transfers that ended in this step, as this rank sent and received it;
 * class_bytes, by class.
 *
 * dropped counts what is missing from this report: spans and transfers for
 * which there was no room, and calls of weft_span_open and _close that were
 * not allowed.
 */
typedef struct weft_step_report {
    size_t size_bytes; /* set by the caller */
    int64_t step_ns;
    int64_t compute_ns;
    int64_t exposed_ns[WEFT_CLASS_COUNT]; /* index: weft_class */
    int64_t bubble_ns;
    int64_t skew_ns;
    int64_t idle_ns;
    int64_t xfer_ns[WEFT_CLASS_COUNT];   /* |X_k| */
    int64_t hidden_ns[WEFT_CLASS_COUNT]; /* |X_k in C| */
    int64_t wait_ns[WEFT_CLASS_COUNT];   /* |W_k| */
    int64_t xfer_all_ns;                 /* |X|, union over classes */
    int64_t hidden_all_ns;               /* |X in C| */
    double cpu_share;                    /* thread CPU / wall over compute */
    uint64_t spans;                      /* recorded in this step */
    uint64_t dropped;                    /* not recorded; 0 if all is well */
    uint64_t carried;                    /* begun in a step already reported */
    int64_t carried_ns;                  /* their time in those steps */
    uint64_t moved_bytes;                /* payload sent and received */
    uint64_t wakeups;                    /* of the library's threads */
    int64_t progress_ns;                 /* CPU time of these threads */
    uint64_t preemptions;                /* of threads while they compute */
    uint64_t class_bytes[WEFT_CLASS_COUNT]; /* of moved_bytes */
} weft_step_report;

/*
 * weft_ledger_create - an empty ledger.
 *
 * spans_per_step   room for that many spans and transfers in one step, 1 ..
 *                  1 048 576; what does not fit is counted as dropped, never
 *                  silently lost. About 2 KiB each.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status weft_ledger_create(size_t spans_per_step,
                                              weft_ledger **ledger_out);
void weft_ledger_destroy(weft_ledger *ledger); /* after detach; NULL legal */

/*
 * weft_ledger_attach, _detach - record the operations of comm from now on, and
 * no longer. A communicator feeds at most one ledger.
 *
 * Returns     OK | ERR_INVALID (something is NULL, or comm feeds a ledger).
 * Threads     not while operations are in flight on comm.
 */
WEFT_NODISCARD weft_status weft_ledger_attach(weft_ledger *ledger,
                                              weft_comm *comm);
void weft_ledger_detach(weft_ledger *ledger, weft_comm *comm);

/*
 * weft_span_open, _close - declare work of the calling thread (stream NULL) or
 * of a stream. Spans of one thread may nest.
 *
 * A compute span counts as C, one of another class (a checkpoint's copy: MEM)
 * as a transfer of that class. Each span is closed once, on the same stream.
 *
 * label    borrowed for the ledger's life (a literal); NULL: none.
 * stream   the work queued on it between the two; closed on the same. On a
 *          device without host calls its events say when (WEFT_CAP_TIMES):
 *          1024 such spans of a device, or spans_per_step if less, may be open
 *          or not reported yet; more are dropped. Their events keep the device
 *          open until the ledger is destroyed, which comes after the streams
 *          have drained.
 *
 * What is not allowed (a class_id out of range, closing what is not an open
 * span of this ledger) does nothing: it counts as dropped, and
 * weft_error_text() says what it was.
 *
 * Returns     the span; id 0, which close takes, if ledger is NULL or full, or
 *             an argument is not allowed.
 * Threads     any.  Blocks: no.  Allocates: only those events, with the first
 *             span of their device.
 */
weft_span weft_span_open(weft_ledger *ledger, weft_class class_id,
                         const char *label, weft_stream *stream);
void weft_span_close(weft_ledger *ledger, weft_span span, weft_stream *stream);

/*
 * weft_ledger_step - end the current step here and now, begin the next, and
 * report the one that ended.
 *
 * Returns     OK | ERR_INVALID.  Threads: one at a time.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_ledger_step(weft_ledger *ledger,
                                            weft_step_report *report_out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
