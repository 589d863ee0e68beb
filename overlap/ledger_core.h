/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/ledger_core.h - what the two halves of a ledger share: ledger.c
 * records, ledger_step.c collects.
 *
 * Records live in slots. A recorder claims a free slot, fills it, and hands it
 * to the collector (weft_ledger_step), which alone frees it:
 *
 *        recorder             stream or recorder        collector
 *   FREE ---------> CLAIMED -------------------> OPEN
 *                      |                           | close
 *                      |                        CLOSING
 *                      +------ transfers ------> DONE ---------> FREE
 *
 * A span on a stream that calls no host functions gets a pair of events, and
 * the collector asks them:
 *
 *   FREE ---> CLAIMED ---> QUEUED ---> CLOSING ---> ENDED ---> FREE
 *                  begin posted             end posted
 *
 * Each arrow's store releases what was written before it, and every action on a
 * state follows a load of it with acquire. The collector reads of an OPEN or
 * CLOSING slot only what was written before OPEN. An exchange leaves OPEN, so
 * that of two closes by mistake one finds nothing to do. Slots are tried
 * round-robin, so a claim costs one exchange unless the step is full. The
 * states lie apart from the slots, so that reading a large ledger that holds
 * little costs next to nothing.
 */
#ifndef OVERLAP_LEDGER_CORE_H
#define OVERLAP_LEDGER_CORE_H

#include "comm/make/usage.h"
#include "overlap/breakdown.h"
#include "overlap/ledger.h"
#include "overlap/stamps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef enum wefti_slot_state {
    FREE,
    CLAIMED,
    QUEUED,
    OPEN,
    CLOSING,
    ENDED,
    DONE
} wefti_slot_state;

typedef struct wefti_ledger_slot {
    _Atomic uint8_t *state; /* a wefti_slot_state */
    _Atomic bool lost;      /* its end can not come: free it once it began */
    _Atomic uint32_t use;   /* how often it was claimed: part of a span's id */
    weft_ledger *ledger;
    wefti_stamps *stamps; /* NULL: the thread that closes it writes the times */
    bool seen;            /* the collector's: counted in a step already */
    bool is_transfer;
    weft_class class_id;
    weft_collective collective;
    const char *label;
    const void *owner; /* thread that began it; with stamps its stream */
    int64_t begin_ns;  /* transfers: posted */
    int64_t ready_ns;  /* spans: begin */
    int64_t end_ns;
    int64_t preempted; /* as cpu_ns; how often */
    int64_t cpu_ns; /* at OPEN the thread's clock, at DONE the use; -1: none */
    uint64_t op_number;
    size_t bytes;
} wefti_ledger_slot;

/* Threads whose work is counted: those of one engine. */
typedef struct wefti_ledger_engine {
    const struct wefti_engine *engine;
    size_t comms;              /* of it that are attached */
    wefti_engine_usage before; /* at the last step's end */
} wefti_ledger_engine;

struct weft_ledger {
    wefti_ledger_slot *slots;
    _Atomic uint8_t *states; /* [slot_count], as slots */
    size_t slot_count;
    _Atomic size_t next; /* where the next claim begins its search */
    _Atomic uint64_t dropped;
    wefti_stamp_pool stamps;
    pthread_mutex_t lock;         /* of engines: attach, detach, step */
    wefti_ledger_engine *engines; /* [engine_count] */
    size_t engine_count;

    /* From here on the collector's alone. */
    wefti_timeline timeline;
    wefti_breakdown breakdown;
    int64_t step_begin_ns;
    uint64_t step;
    wefti_trace_event *events; /* ring of event_room, newest at event_count-1 */
    size_t event_room;
    uint64_t event_count;
};

static inline void wefti_ledger_drop(weft_ledger *ledger)
{
    atomic_fetch_add_explicit(&ledger->dropped, 1, memory_order_relaxed);
}

static inline void wefti_slot_set(wefti_ledger_slot *target,
                                  wefti_slot_state state)
{
    atomic_store_explicit(target->state, (uint8_t)state, memory_order_release);
}

#endif
