/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/ledger_step.c - closing a step: what was recorded is collected, by
 * one thread at a time.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "overlap/ledger_core.h"

enum { OWNERS = 32 };

/* CPU use of the outermost closed compute spans, per recording thread. */
typedef struct cpu_sum {
    int64_t wall_ns, cpu_ns, preempted;
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
static void add_cpu(cpu_sum *sum, const wefti_ledger_slot *span,
                    int64_t part_ns)
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
    sum->preempted += span->preempted;
    sum->wall_ns += part_ns;
    sum->cpu_ns +=
        (int64_t)((double)span->cpu_ns * (double)part_ns / (double)whole_ns);
}

static void keep_event(weft_ledger *ledger, const wefti_trace_event *event)
{
    ledger->events[ledger->event_count++ % ledger->event_room] = *event;
}

static void keep_events_of(weft_ledger *ledger, const wefti_ledger_slot *record)
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
static int64_t count_part(weft_ledger *ledger, wefti_ledger_slot *record,
                          int64_t end_ns, weft_step_report *report)
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

/* Frees a slot from a state in which only the collector still holds it. */
static void free_slot(wefti_ledger_slot *record)
{
    if (record->stamps) {
        wefti_stamps_release(&record->ledger->stamps, record->stamps);
    }
    wefti_slot_set(record, FREE);
}

/* Not a mere store: the caller may close the span once more, by mistake. */
static void free_lost(wefti_ledger_slot *record, uint8_t expected)
{
    if (atomic_compare_exchange_strong_explicit(record->state, &expected,
                                                CLAIMED, memory_order_acquire,
                                                memory_order_relaxed)) {
        free_slot(record);
    }
}

/*
 * What a span with stamps would be without: CLAIMED, OPEN or DONE, its times
 * filled in as far as they are known. FREE: it has been closed, and its device
 * has failed, so its end is never known.
 */
static uint8_t ask_stamps(wefti_ledger_slot *record, uint8_t state)
{
    const wefti_stamps *stamps = record->stamps;
    weft_status begun = weft_event_get_time(stamps->begin, &record->begin_ns);
    record->ready_ns = record->begin_ns;
    weft_status ended = state == ENDED
                            ? weft_event_get_time(stamps->end, &record->end_ns)
                            : WEFT_INPROGRESS;
    if (state == ENDED && (begun < 0 || ended < 0)) {
        return FREE;
    }
    return begun != WEFT_OK ? CLAIMED : ended == WEFT_OK ? DONE : OPEN;
}

/* Collects one slot; frees it when nothing of it belongs to a later step. */
static void collect(weft_ledger *ledger, wefti_ledger_slot *record,
                    cpu_sum *cpu, weft_step_report *report)
{
    int64_t now_ns = ledger->timeline.window.end_ns;
    const uint8_t stored =
        atomic_load_explicit(record->state, memory_order_acquire);
    uint8_t state = stored;
    if (state == FREE || state == CLAIMED) {
        return;
    }
    if (record->stamps && (state = ask_stamps(record, stored)) == FREE) {
        wefti_ledger_drop(ledger);
        free_slot(record);
        return;
    }
    if (state == CLAIMED || record->begin_ns >= now_ns) {
        return;
    }
    if (state != DONE) {
        if (state == OPEN &&
            atomic_load_explicit(&record->lost, memory_order_acquire)) {
            free_lost(record, stored);
            return;
        }
        count_part(ledger, record, now_ns, report);
        return;
    }
    int64_t part_ns = count_part(ledger, record, record->end_ns, report);
    if (record->class_id == WEFT_CLASS_COMPUTE && !record->stamps) {
        add_cpu(cpu, record, part_ns);
    }
    if (record->end_ns <= now_ns) {
        report->moved_bytes += record->bytes;
        report->class_bytes[record->class_id] += record->bytes;
        keep_events_of(ledger, record);
        free_slot(record);
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

static void add_usage(weft_step_report *report, wefti_usage now,
                      wefti_usage before)
{
    report->wakeups += now.wakeups - before.wakeups;
    report->progress_ns += now.cpu_ns - before.cpu_ns;
}

/* Which thread of an engine's: it watches the network, or drives it. */
static const void *thread_of(const wefti_ledger_engine *one, bool net)
{
    return net ? one->before.net_of : one->before.of;
}

/* Whether an engine before that one has the same thread. */
static bool is_counted(const weft_ledger *ledger, size_t index, bool net)
{
    const void *of = thread_of(&ledger->engines[index], net);
    for (size_t i = 0; i < index && of; i++) {
        if (ledger->engines[i].engine &&
            thread_of(&ledger->engines[i], net) == of) {
            return true;
        }
    }
    return false;
}

/* What the attached communicators' threads have done since the last step. */
static void collect_usage(weft_ledger *ledger, weft_step_report *report)
{
    pthread_mutex_lock(&ledger->lock);
    for (size_t i = 0; i < ledger->engine_count; i++) {
        wefti_ledger_engine *one = &ledger->engines[i];
        if (one->engine) {
            const wefti_engine_usage before = one->before;
            one->before = wefti_engine_get_usage(one->engine);
            add_usage(report, one->before.signals, before.signals);
            if (!is_counted(ledger, i, true)) {
                add_usage(report, one->before.net, before.net);
            }
            if (!is_counted(ledger, i, false)) {
                add_usage(report, one->before.driver, before.driver);
            }
        }
    }
    pthread_mutex_unlock(&ledger->lock);
}

weft_status weft_ledger_step(weft_ledger *ledger, weft_step_report *report_out)
{
    if (!ledger || !report_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "weft_ledger_step: %s is NULL: allowed is an "
                           "object, or a place for one",
                           ledger ? "report_out" : "ledger");
    }
    weft_step_report report = {.size_bytes = sizeof(report)};
    weft_status status = wefti_sized_check(
        "report_out", report_out->size_bytes,
        offsetof(weft_step_report, exposed_ns), sizeof(report));
    if (status != WEFT_OK) {
        return status;
    }
    wefti_interval window = {ledger->step_begin_ns, wefti_clock_ns()};
    report.dropped =
        atomic_exchange_explicit(&ledger->dropped, 0, memory_order_relaxed);
    wefti_timeline_reset(&ledger->timeline, window);
    cpu_sum cpu = {0};
    size_t oldest = atomic_load_explicit(&ledger->next, memory_order_relaxed);
    oldest %= ledger->slot_count;
    collect_range(ledger, oldest, ledger->slot_count, &cpu, &report);
    collect_range(ledger, 0, oldest, &cpu, &report);
    wefti_breakdown_make(&ledger->timeline, &ledger->breakdown);
    wefti_breakdown_report(&ledger->timeline, &ledger->breakdown, &report);
    WEFTI_ASSERT(wefti_breakdown_check(&ledger->breakdown) == 0);
    report.cpu_share =
        cpu.wall_ns > 0 ? (double)cpu.cpu_ns / (double)cpu.wall_ns : 0.0;
    report.preemptions = (uint64_t)cpu.preempted;
    collect_usage(ledger, &report);
    keep_event(ledger, &(wefti_trace_event){.kind = WEFTI_TRACE_STEP,
                                            .step = ledger->step,
                                            .begin_ns = window.begin_ns,
                                            .end_ns = window.end_ns});
    ledger->step_begin_ns = window.end_ns;
    ledger->step++;
    wefti_sized_write(report_out, &report, sizeof(report));
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
