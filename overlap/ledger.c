/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/ledger.c - a ledger's life, and recording without locks but for spans
 * on streams of devices that call no host functions.
 */
#include "overlap/ledger_core.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "device/device.h"

#include <stdlib.h>

enum { SLOTS_MOST = 1 << 20, CLAIM_TRIES = 64, TRACE_STEPS = 4 };

/* Its address names the thread. */
static _Thread_local char this_thread;

void weft_ledger_destroy(weft_ledger *ledger)
{
    if (!ledger) {
        return;
    }
    wefti_breakdown_fini(&ledger->breakdown);
    wefti_timeline_fini(&ledger->timeline);
    wefti_stamp_pool_fini(&ledger->stamps);
    pthread_mutex_destroy(&ledger->lock);
    free(ledger->engines);
    free(ledger->events);
    free(ledger->states);
    free(ledger->slots);
    free(ledger);
}

static weft_status allocate(weft_ledger *ledger, size_t slots)
{
    ledger->slots = calloc(slots, sizeof(*ledger->slots));
    ledger->states = calloc(slots, sizeof(*ledger->states));
    ledger->event_room = 2 * slots * TRACE_STEPS;
    ledger->events = calloc(ledger->event_room, sizeof(*ledger->events));
    if (!ledger->slots || !ledger->states || !ledger->events) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "ledger of %zu spans", slots);
    }
    for (size_t i = 0; i < slots; i++) {
        ledger->slots[i].state = &ledger->states[i];
        ledger->slots[i].ledger = ledger;
    }
    /* Taken now, or the first steps would be slower, and a run's memory grow
     * until all events are there once. */
    for (size_t i = 0; i < ledger->event_room; i++) {
        ledger->events[i].kind = WEFTI_TRACE_STEP;
    }
    ledger->slot_count = slots;
    /* A transfer is two intervals: its wait and its move. */
    weft_status status = wefti_timeline_init(&ledger->timeline, 2 * slots);
    if (status != WEFT_OK) {
        return status;
    }
    return wefti_breakdown_init(&ledger->breakdown, 2 * slots);
}

weft_status weft_ledger_create(size_t spans_per_step, weft_ledger **ledger_out)
{
    if (!ledger_out || spans_per_step == 0 || spans_per_step > SLOTS_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "weft_ledger_create: spans_per_step %zu, ledger_out "
                           "%p: allowed is 1 to %d and not NULL",
                           spans_per_step, (void *)ledger_out, SLOTS_MOST);
    }
    weft_ledger *ledger = calloc(1, sizeof(*ledger));
    if (!ledger) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "weft_ledger_create");
    }
    wefti_stamp_pool_init(&ledger->stamps, spans_per_step);
    pthread_mutex_init(&ledger->lock, NULL);
    weft_status status = allocate(ledger, spans_per_step);
    if (status != WEFT_OK) {
        weft_ledger_destroy(ledger);
        return status;
    }
    ledger->step_begin_ns = wefti_clock_ns();
    *ledger_out = ledger;
    return WEFT_OK;
}

size_t wefti_ledger_count_bytes(const weft_ledger *ledger)
{
    return sizeof(*ledger) +
           ledger->slot_count *
               (sizeof(*ledger->slots) + sizeof(*ledger->states)) +
           ledger->event_room * sizeof(*ledger->events);
}

/* The entry of an engine, or of NULL: a free one; NULL: there is none. */
static wefti_ledger_engine *find_engine(weft_ledger *ledger,
                                        const struct wefti_engine *engine)
{
    for (size_t i = 0; i < ledger->engine_count; i++) {
        if (ledger->engines[i].engine == engine) {
            return &ledger->engines[i];
        }
    }
    return NULL;
}

/* One more of an engine's communicators feeds the ledger. Lock held. */
static weft_status add_engine(weft_ledger *ledger,
                              const struct wefti_engine *engine)
{
    wefti_ledger_engine *found = find_engine(ledger, engine);
    if (!found && !(found = find_engine(ledger, NULL))) {
        wefti_ledger_engine *more =
            realloc(ledger->engines,
                    (ledger->engine_count + 1) * sizeof(*ledger->engines));
        if (!more) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu engines",
                               ledger->engine_count + 1);
        }
        ledger->engines = more;
        found = &more[ledger->engine_count++];
        *found = (wefti_ledger_engine){0};
    }
    if (!found->engine) {
        *found = (wefti_ledger_engine){
            .engine = engine, .before = wefti_engine_get_usage(engine)};
    }
    found->comms++;
    return WEFT_OK;
}

static void drop_engine(weft_ledger *ledger, const struct wefti_engine *engine)
{
    wefti_ledger_engine *found = find_engine(ledger, engine);
    if (found && --found->comms == 0) {
        *found = (wefti_ledger_engine){0};
    }
}

weft_status weft_ledger_attach(weft_ledger *ledger, weft_comm *comm)
{
    if (!ledger || !comm) {
        return wefti_error(WEFT_ERR_INVALID,
                           "weft_ledger_attach: %s is NULL: allowed is a "
                           "ledger and a communicator",
                           ledger ? "comm" : "ledger");
    }
    weft_status status =
        wefti_comm_observe(comm, &(wefti_observer){wefti_ledger_moved, ledger});
    if (status != WEFT_OK) {
        return status;
    }
    pthread_mutex_lock(&ledger->lock);
    status = add_engine(ledger, wefti_comm_get_engine(comm));
    pthread_mutex_unlock(&ledger->lock);
    if (status != WEFT_OK) {
        weft_status ended = wefti_comm_observe(comm, NULL);
        WEFTI_ASSERT(ended == WEFT_OK);
        (void)ended;
    }
    return status;
}

void weft_ledger_detach(weft_ledger *ledger, weft_comm *comm)
{
    if (ledger && comm) {
        weft_status status = wefti_comm_observe(comm, NULL);
        WEFTI_ASSERT(status == WEFT_OK);
        (void)status;
        pthread_mutex_lock(&ledger->lock);
        drop_engine(ledger, wefti_comm_get_engine(comm));
        pthread_mutex_unlock(&ledger->lock);
    }
}

/* ---- recording: any thread -------------------------------------------- */

static wefti_ledger_slot *claim(weft_ledger *ledger)
{
    size_t tries =
        ledger->slot_count < CLAIM_TRIES ? ledger->slot_count : CLAIM_TRIES;
    while (tries-- > 0) {
        size_t ticket =
            atomic_fetch_add_explicit(&ledger->next, 1, memory_order_relaxed);
        wefti_ledger_slot *found = &ledger->slots[ticket % ledger->slot_count];
        uint8_t expected = FREE;
        if (atomic_compare_exchange_strong_explicit(
                found->state, &expected, CLAIMED, memory_order_acquire,
                memory_order_relaxed)) {
            return found;
        }
    }
    wefti_ledger_drop(ledger);
    return NULL;
}

/*
 * Begins the span here and now. Also run by streams. The thread's clock is a
 * system call, so it is read inside the interval that the other one measures:
 * outside, a short span would use more CPU time than it lasts.
 */
static void stamp_begin(void *arg)
{
    wefti_ledger_slot *span = arg;
    span->owner = &this_thread;
    span->preempted =
        span->class_id == WEFT_CLASS_COMPUTE ? wefti_thread_preemptions() : 0;
    span->begin_ns = span->ready_ns = wefti_clock_ns();
    span->cpu_ns =
        span->class_id == WEFT_CLASS_COMPUTE ? wefti_clock_thread_ns() : -1;
    wefti_slot_set(span, OPEN);
}

static void stamp_end(void *arg)
{
    wefti_ledger_slot *span = arg;
    uint8_t expected = OPEN;
    if (!atomic_compare_exchange_strong_explicit(span->state, &expected,
                                                 CLOSING, memory_order_acquire,
                                                 memory_order_relaxed)) {
        wefti_ledger_drop(span->ledger); /* closed twice */
        return;
    }
    if (span->cpu_ns >= 0) {
        span->cpu_ns = span->owner == &this_thread
                           ? wefti_clock_thread_ns() - span->cpu_ns
                           : -1;
    }
    span->end_ns = wefti_clock_ns();
    if (span->cpu_ns >= 0) { /* of the same thread */
        span->preempted = wefti_thread_preemptions() - span->preempted;
    }
    wefti_slot_set(span, DONE);
}

/* A mistake of the caller: counted, and named in the thread's error text. */
#define MISUSED(ledger, ...)                                                   \
    (wefti_ledger_drop(ledger), wefti_error_keep(__VA_ARGS__))

static weft_span id_of(const weft_ledger *ledger, wefti_ledger_slot *span)
{
    uint64_t use = atomic_load_explicit(&span->use, memory_order_relaxed);
    return (weft_span){use << 32 | ((uint64_t)(span - ledger->slots) + 1)};
}

/* Begins the span in stream order, by an event: false, and it is free again. */
static bool queue_begin(wefti_ledger_slot *span, weft_stream *stream)
{
    weft_ledger *ledger = span->ledger;
    weft_device *device = wefti_stream_get_device(stream);
    span->owner = stream;
    span->preempted = 0;
    span->cpu_ns = -1;
    span->stamps = wefti_stamps_take(&ledger->stamps, device);
    if (!span->stamps) {
        return false;
    }
    if (weft_event_post(span->stamps->begin, stream) != WEFT_OK) {
        wefti_stamps_release(&ledger->stamps, span->stamps);
        return false;
    }
    wefti_slot_set(span, QUEUED);
    return true;
}

static bool calls_hosts(const weft_stream *stream)
{
    return wefti_device_can(wefti_stream_get_device(stream),
                            WEFT_CAP_HOST_CALLS);
}

/* Begins a span on a stream; false: it could not be queued. */
static bool begin_on(wefti_ledger_slot *span, weft_stream *stream)
{
    return calls_hosts(stream)
               ? weft_stream_call(stream, stamp_begin, span) == WEFT_OK
               : queue_begin(span, stream);
}

weft_span weft_span_open(weft_ledger *ledger, weft_class class_id,
                         const char *label, weft_stream *stream)
{
    if (ledger && (unsigned)class_id >= WEFT_CLASS_COUNT) {
        MISUSED(ledger, "weft_span_open: class_id %d: allowed is 0..%d",
                (int)class_id, WEFT_CLASS_COUNT - 1);
        return (weft_span){0};
    }
    wefti_ledger_slot *span = ledger ? claim(ledger) : NULL;
    if (!span) {
        return (weft_span){0};
    }
    atomic_fetch_add_explicit(&span->use, 1, memory_order_relaxed);
    span->seen = span->is_transfer = false;
    span->stamps = NULL;
    span->class_id = class_id;
    span->label = label;
    span->op_number = 0;
    span->bytes = 0;
    atomic_store_explicit(&span->lost, false, memory_order_relaxed);
    weft_span id = id_of(ledger, span);
    if (!stream) {
        stamp_begin(span);
    } else if (!begin_on(span, stream)) {
        wefti_ledger_drop(ledger);
        wefti_slot_set(span, FREE);
        return (weft_span){0};
    }
    return id;
}

/* The slot of a span that is open, or on a stream about to be; else NULL. */
static wefti_ledger_slot *find_span(weft_ledger *ledger, weft_span span)
{
    uint64_t number = span.id & UINT32_MAX;
    if (number == 0 || number > ledger->slot_count) {
        return NULL;
    }
    wefti_ledger_slot *found = &ledger->slots[number - 1];
    uint8_t state = atomic_load_explicit(found->state, memory_order_acquire);
    bool open = state == OPEN || state == CLAIMED || state == QUEUED;
    return open && id_of(ledger, found).id == span.id ? found : NULL;
}

/* Ends a span that has stamps; false: the stream could not take it. */
static bool queue_end(wefti_ledger_slot *span, weft_stream *stream)
{
    uint8_t expected = QUEUED;
    if (!atomic_compare_exchange_strong_explicit(span->state, &expected,
                                                 CLOSING, memory_order_acquire,
                                                 memory_order_relaxed)) {
        wefti_ledger_drop(span->ledger); /* closed twice */
        return true;
    }
    const bool posted = weft_event_post(span->stamps->end, stream) == WEFT_OK;
    wefti_slot_set(span, posted ? ENDED : QUEUED);
    return posted;
}

/* Whether a device times only one of the two, or they are not on one stream. */
static bool is_on_other_stream(const wefti_ledger_slot *span,
                               const weft_stream *stream)
{
    return span->stamps ? span->owner != stream
                        : stream && !calls_hosts(stream);
}

/* Ends a span on its stream; false: the stream could not take it. */
static bool end_on(wefti_ledger_slot *span, weft_stream *stream)
{
    return calls_hosts(stream)
               ? weft_stream_call(stream, stamp_end, span) == WEFT_OK
               : queue_end(span, stream);
}

void weft_span_close(weft_ledger *ledger, weft_span span, weft_stream *stream)
{
    if (!ledger || span.id == 0) {
        return;
    }
    wefti_ledger_slot *closed = find_span(ledger, span);
    if (!closed) {
        MISUSED(ledger,
                "weft_span_close: span %llu: allowed is an open span of this "
                "ledger, once",
                (unsigned long long)span.id);
    } else if (is_on_other_stream(closed, stream)) {
        MISUSED(ledger,
                "weft_span_close: span %llu: allowed is the stream it was "
                "opened on",
                (unsigned long long)span.id);
    } else if (!stream) {
        stamp_end(closed);
    } else if (!end_on(closed, stream)) {
        wefti_ledger_drop(ledger);
        atomic_store_explicit(&closed->lost, true, memory_order_release);
    }
}

void wefti_ledger_moved(void *context, const wefti_transfer *transfer)
{
    weft_ledger *ledger = context;
    WEFTI_ASSERT(transfer->posted_ns <= transfer->ready_ns &&
                 transfer->ready_ns <= transfer->end_ns);
    WEFTI_ASSERT((unsigned)transfer->class_id < WEFT_CLASS_COUNT &&
                 transfer->class_id != WEFT_CLASS_COMPUTE);
    wefti_ledger_slot *moved = claim(ledger);
    if (!moved) {
        return;
    }
    moved->seen = false;
    moved->stamps = NULL;
    moved->is_transfer = true;
    moved->class_id = transfer->class_id;
    moved->collective = transfer->collective;
    moved->label = transfer->label;
    moved->owner = &this_thread;
    moved->begin_ns = transfer->posted_ns;
    moved->ready_ns = transfer->ready_ns;
    moved->end_ns = transfer->end_ns;
    moved->preempted = 0;
    moved->cpu_ns = -1;
    moved->op_number = transfer->op_number;
    moved->bytes = transfer->bytes;
    wefti_slot_set(moved, DONE);
}
