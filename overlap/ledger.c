/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/ledger.c - recording without locks, and closing a step.
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
 * Each arrow's store releases what was written before it, and whoever acts on
 * a state has read it with acquire. The collector reads of an OPEN or CLOSING
 * slot only what was written before OPEN. An exchange leaves OPEN, so that of
 * two closes by mistake one finds nothing to do. Slots are tried round-robin,
 * so a claim costs one exchange unless the step is full. The states lie apart
 * from the slots, so that looking over a large ledger that holds little costs
 * next to nothing.
 */
#include "overlap/ledger.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "overlap/breakdown.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SLOTS_MOST = 1 << 20, CLAIM_TRIES = 64, TRACE_STEPS = 4, OWNERS = 32 };

enum slot_state { FREE, CLAIMED, OPEN, CLOSING, DONE };

typedef struct slot {
    _Atomic uint8_t *state; /* one of slot_state */
    _Atomic bool lost;      /* its end can not come: free it once it is OPEN */
    _Atomic uint32_t use;   /* how often it was claimed: part of a span's id */
    weft_ledger *ledger;
    bool seen; /* the collector's: counted in a step already */
    bool is_transfer;
    weft_class class_id;
    weft_collective collective;
    const char *label;
    const void *owner; /* thread that began it */
    int64_t begin_ns;  /* transfers: posted */
    int64_t ready_ns;  /* spans: begin */
    int64_t end_ns;
    int64_t cpu_ns; /* at OPEN the thread's clock, at DONE the use; -1: none */
    uint64_t op_number;
    size_t bytes;
} slot;

struct weft_ledger {
    slot *slots;
    _Atomic uint8_t *states; /* [slot_count], as slots */
    size_t slot_count;
    _Atomic size_t next; /* where the next claim begins to look */
    _Atomic uint64_t dropped;

    /* From here on the collector's alone. */
    wefti_timeline timeline;
    wefti_breakdown breakdown;
    int64_t step_begin_ns;
    uint64_t step;
    wefti_trace_event *events; /* ring of event_room, newest at event_count-1 */
    size_t event_room;
    uint64_t event_count;
};

/* Its address names the thread. */
static _Thread_local char this_thread;

void weft_ledger_destroy(weft_ledger *ledger)
{
    if (!ledger) {
        return;
    }
    wefti_breakdown_fini(&ledger->breakdown);
    wefti_timeline_fini(&ledger->timeline);
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
    weft_status status = allocate(ledger, spans_per_step);
    if (status != WEFT_OK) {
        weft_ledger_destroy(ledger);
        return status;
    }
    ledger->step_begin_ns = wefti_clock_ns();
    *ledger_out = ledger;
    return WEFT_OK;
}

weft_status weft_ledger_attach(weft_ledger *ledger, weft_comm *comm)
{
    if (!ledger || !comm) {
        return wefti_error(WEFT_ERR_INVALID,
                           "weft_ledger_attach: %s is NULL: allowed is a "
                           "ledger and a communicator",
                           ledger ? "comm" : "ledger");
    }
    return wefti_comm_observe(comm,
                              &(wefti_observer){wefti_ledger_moved, ledger});
}

void weft_ledger_detach(weft_ledger *ledger, weft_comm *comm)
{
    if (ledger && comm) {
        weft_status status = wefti_comm_observe(comm, NULL);
        WEFTI_ASSERT(status == WEFT_OK);
        (void)status;
    }
}

/* ---- recording: any thread -------------------------------------------- */

static void count_dropped(weft_ledger *ledger)
{
    atomic_fetch_add_explicit(&ledger->dropped, 1, memory_order_relaxed);
}

static slot *claim(weft_ledger *ledger)
{
    size_t tries =
        ledger->slot_count < CLAIM_TRIES ? ledger->slot_count : CLAIM_TRIES;
    while (tries-- > 0) {
        size_t ticket =
            atomic_fetch_add_explicit(&ledger->next, 1, memory_order_relaxed);
        slot *found = &ledger->slots[ticket % ledger->slot_count];
        uint8_t expected = FREE;
        if (atomic_compare_exchange_strong_explicit(
                found->state, &expected, CLAIMED, memory_order_acquire,
                memory_order_relaxed)) {
            return found;
        }
    }
    count_dropped(ledger);
    return NULL;
}

static void set_state(slot *target, enum slot_state state)
{
    atomic_store_explicit(target->state, (uint8_t)state, memory_order_release);
}

/*
 * Begins the span here and now. Also run by streams. The thread's clock is a
 * system call, so it is read inside the interval that the other one measures:
 * outside, a short span would use more CPU time than it lasts.
 */
static void stamp_begin(void *arg)
{
    slot *span = arg;
    span->owner = &this_thread;
    span->begin_ns = span->ready_ns = wefti_clock_ns();
    span->cpu_ns =
        span->class_id == WEFT_CLASS_COMPUTE ? wefti_clock_thread_ns() : -1;
    set_state(span, OPEN);
}

static void stamp_end(void *arg)
{
    slot *span = arg;
    uint8_t expected = OPEN;
    if (!atomic_compare_exchange_strong_explicit(span->state, &expected,
                                                 CLOSING, memory_order_acquire,
                                                 memory_order_relaxed)) {
        count_dropped(span->ledger); /* closed twice */
        return;
    }
    if (span->cpu_ns >= 0) {
        span->cpu_ns = span->owner == &this_thread
                           ? wefti_clock_thread_ns() - span->cpu_ns
                           : -1;
    }
    span->end_ns = wefti_clock_ns();
    set_state(span, DONE);
}

/* What the caller did wrong: counted, and the thread's text says what. */
#define MISUSED(ledger, ...)                                                   \
    (count_dropped(ledger), wefti_error_keep(__VA_ARGS__))

static weft_span id_of(const weft_ledger *ledger, slot *span)
{
    uint64_t use = atomic_load_explicit(&span->use, memory_order_relaxed);
    return (weft_span){use << 32 | ((uint64_t)(span - ledger->slots) + 1)};
}

weft_span weft_span_open(weft_ledger *ledger, weft_class class_id,
                         const char *label, weft_stream *stream)
{
    if (ledger && (unsigned)class_id >= WEFT_CLASS_COUNT) {
        MISUSED(ledger, "weft_span_open: class_id %d: allowed is 0..%d",
                (int)class_id, WEFT_CLASS_COUNT - 1);
        return (weft_span){0};
    }
    slot *span = ledger ? claim(ledger) : NULL;
    if (!span) {
        return (weft_span){0};
    }
    atomic_fetch_add_explicit(&span->use, 1, memory_order_relaxed);
    span->seen = span->is_transfer = false;
    span->class_id = class_id;
    span->label = label;
    span->op_number = 0;
    span->bytes = 0;
    atomic_store_explicit(&span->lost, false, memory_order_relaxed);
    weft_span id = id_of(ledger, span);
    if (!stream) {
        stamp_begin(span);
    } else if (weft_stream_call(stream, stamp_begin, span) != WEFT_OK) {
        count_dropped(ledger);
        set_state(span, FREE);
        return (weft_span){0};
    }
    return id;
}

/* The slot of a span that is open, or on a stream about to be; else NULL. */
static slot *find_span(weft_ledger *ledger, weft_span span)
{
    uint64_t number = span.id & UINT32_MAX;
    if (number == 0 || number > ledger->slot_count) {
        return NULL;
    }
    slot *found = &ledger->slots[number - 1];
    uint8_t state = atomic_load_explicit(found->state, memory_order_acquire);
    bool open = state == OPEN || state == CLAIMED;
    return open && id_of(ledger, found).id == span.id ? found : NULL;
}

void weft_span_close(weft_ledger *ledger, weft_span span, weft_stream *stream)
{
    if (!ledger || span.id == 0) {
        return;
    }
    slot *closed = find_span(ledger, span);
    if (!closed) {
        MISUSED(ledger,
                "weft_span_close: span %llu: allowed is an open span of this "
                "ledger, once",
                (unsigned long long)span.id);
    } else if (!stream) {
        stamp_end(closed);
    } else if (weft_stream_call(stream, stamp_end, closed) != WEFT_OK) {
        count_dropped(ledger);
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
    slot *moved = claim(ledger);
    if (!moved) {
        return;
    }
    moved->seen = false;
    moved->is_transfer = true;
    moved->class_id = transfer->class_id;
    moved->collective = transfer->collective;
    moved->label = transfer->label;
    moved->owner = &this_thread;
    moved->begin_ns = transfer->posted_ns;
    moved->ready_ns = transfer->ready_ns;
    moved->end_ns = transfer->end_ns;
    moved->cpu_ns = -1;
    moved->op_number = transfer->op_number;
    moved->bytes = transfer->bytes;
    set_state(moved, DONE);
}

/* ---- closing a step: one thread at a time ------------------------------ */

/* CPU use of the outermost closed compute spans, per recording thread. */
typedef struct cpu_sum {
    int64_t wall_ns, cpu_ns;
    size_t owners;
    struct {
        const void *owner;
        int64_t end_ns; /* of its latest outermost span */
    } last[OWNERS];
} cpu_sum;

/*
 * Adds part_ns of a closed span. Spans of one thread nest and come in the
 * order they were opened, so one that begins before the last outermost span's
 * end lies inside it. CPU time is spread evenly over a span's length.
 */
static void add_cpu(cpu_sum *sum, const slot *span, int64_t part_ns)
{
    size_t i = 0;
    while (i < sum->owners && sum->last[i].owner != span->owner) {
        i++;
    }
    if (i == OWNERS ||
        (i < sum->owners && span->begin_ns < sum->last[i].end_ns)) {
        return;
    }
    sum->owners = i == sum->owners ? i + 1 : sum->owners;
    sum->last[i].owner = span->owner;
    sum->last[i].end_ns = span->end_ns;
    int64_t whole_ns = span->end_ns - span->begin_ns;
    if (span->cpu_ns < 0 || part_ns == 0) {
        return;
    }
    sum->wall_ns += part_ns;
    sum->cpu_ns +=
        (int64_t)((double)span->cpu_ns * (double)part_ns / (double)whole_ns);
}

static void keep_event(weft_ledger *ledger, const wefti_trace_event *event)
{
    ledger->events[ledger->event_count++ % ledger->event_room] = *event;
}

static void keep_events_of(weft_ledger *ledger, const slot *record)
{
    wefti_trace_event event = {
        .kind = record->is_transfer ? WEFTI_TRACE_TRANSFER : WEFTI_TRACE_SPAN,
        .class_id = record->class_id,
        .collective = record->collective,
        .label = record->label,
        .owner = (uint64_t)(uintptr_t)record->owner,
        .step = ledger->step,
        .op_number = record->op_number,
        .bytes = record->bytes,
        .begin_ns = record->ready_ns,
        .end_ns = record->end_ns};
    keep_event(ledger, &event);
    if (record->is_transfer && record->begin_ns < record->ready_ns) {
        event.kind = WEFTI_TRACE_WAIT;
        event.begin_ns = record->begin_ns;
        event.end_ns = record->ready_ns;
        keep_event(ledger, &event);
    }
}

/* Counts what lies in the window; end_ns is now for a span still open. */
static int64_t count_part(weft_ledger *ledger, slot *record, int64_t end_ns,
                          weft_step_report *report)
{
    wefti_timeline *timeline = &ledger->timeline;
    wefti_interval window = timeline->window;
    if (!record->seen) {
        record->seen = true;
        report->spans++;
        if (record->begin_ns < window.begin_ns) {
            report->carried++;
            report->carried_ns +=
                (end_ns < window.begin_ns ? end_ns : window.begin_ns) -
                record->begin_ns;
        }
    }
    wefti_interval_set *set = record->class_id == WEFT_CLASS_COMPUTE
                                  ? &timeline->compute
                                  : &timeline->xfer[record->class_id];
    wefti_timeline_add(timeline, &timeline->wait[record->class_id],
                       record->begin_ns, record->ready_ns);
    return wefti_timeline_add(timeline, set, record->ready_ns, end_ns);
}

/* Not a mere store: the caller may close the span once more, by mistake. */
static void free_lost(slot *record)
{
    uint8_t expected = OPEN;
    (void)atomic_compare_exchange_strong_explicit(record->state, &expected,
                                                  FREE, memory_order_release,
                                                  memory_order_relaxed);
}

/* Looks at one slot; frees it when nothing of it belongs to a later step. */
static void collect(weft_ledger *ledger, slot *record, cpu_sum *cpu,
                    weft_step_report *report)
{
    int64_t now_ns = ledger->timeline.window.end_ns;
    uint8_t state = atomic_load_explicit(record->state, memory_order_acquire);
    if (state == FREE || state == CLAIMED || record->begin_ns >= now_ns) {
        return;
    }
    if (state != DONE) {
        if (state == OPEN &&
            atomic_load_explicit(&record->lost, memory_order_acquire)) {
            free_lost(record);
            return;
        }
        count_part(ledger, record, now_ns, report);
        return;
    }
    int64_t part_ns = count_part(ledger, record, record->end_ns, report);
    if (record->class_id == WEFT_CLASS_COMPUTE) {
        add_cpu(cpu, record, part_ns);
    }
    if (record->end_ns <= now_ns) {
        keep_events_of(ledger, record);
        set_state(record, FREE);
    }
}

static void collect_range(weft_ledger *ledger, size_t begin, size_t end,
                          cpu_sum *cpu, weft_step_report *report)
{
    for (size_t i = begin; i < end; i++) {
        if (atomic_load_explicit(&ledger->states[i], memory_order_relaxed) !=
            FREE) {
            collect(ledger, &ledger->slots[i], cpu, report);
        }
    }
}

weft_status weft_ledger_step(weft_ledger *ledger, weft_step_report *report_out)
{
    if (!ledger || !report_out ||
        report_out->size_bytes != sizeof(*report_out)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "weft_ledger_step: ledger %p, report_out %p with "
                           "size_bytes %zu: allowed is not NULL and %zu",
                           (void *)ledger, (void *)report_out,
                           report_out ? report_out->size_bytes : (size_t)0,
                           sizeof(*report_out));
    }
    wefti_interval window = {ledger->step_begin_ns, wefti_clock_ns()};
    *report_out = (weft_step_report){.size_bytes = sizeof(*report_out)};
    report_out->dropped =
        atomic_exchange_explicit(&ledger->dropped, 0, memory_order_relaxed);
    wefti_timeline_reset(&ledger->timeline, window);
    cpu_sum cpu = {0};
    size_t oldest = atomic_load_explicit(&ledger->next, memory_order_relaxed);
    oldest %= ledger->slot_count;
    collect_range(ledger, oldest, ledger->slot_count, &cpu, report_out);
    collect_range(ledger, 0, oldest, &cpu, report_out);
    wefti_breakdown_make(&ledger->timeline, &ledger->breakdown);
    wefti_breakdown_report(&ledger->timeline, &ledger->breakdown, report_out);
    WEFTI_ASSERT(wefti_breakdown_check(&ledger->breakdown) == 0);
    report_out->cpu_share =
        cpu.wall_ns > 0 ? (double)cpu.cpu_ns / (double)cpu.wall_ns : 0.0;
    keep_event(ledger, &(wefti_trace_event){.kind = WEFTI_TRACE_STEP,
                                            .step = ledger->step,
                                            .begin_ns = window.begin_ns,
                                            .end_ns = window.end_ns});
    ledger->step_begin_ns = window.end_ns;
    ledger->step++;
    return WEFT_OK;
}

void wefti_ledger_visit(const weft_ledger *ledger,
                        void (*visit)(void *context,
                                      const wefti_trace_event *event),
                        void *context)
{
    uint64_t first = ledger->event_count > ledger->event_room
                         ? ledger->event_count - ledger->event_room
                         : 0;
    for (uint64_t i = first; i < ledger->event_count; i++) {
        visit(context, &ledger->events[i % ledger->event_room]);
    }
}
