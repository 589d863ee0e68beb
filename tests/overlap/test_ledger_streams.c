/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     spans on streams that call no host functions are timed by the
 *          device, whenever it gets there; none is lost without being counted,
 *          and what is not allowed is counted.
 * Method   the shadow device; kernels that write down when they ran; gates that
 *          keep a span from beginning or ending before a step is reported.
 */
#include "base/clock.h"
#include "device/object.h"
#include "device/shadow.h"
#include "overlap/ledger.h"
#include "overlap/stamps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_S = 100, SPIN_NS = 2000000 };

#define ok(call) assert_int_equal(call, WEFT_OK)

typedef struct fixture {
    weft_device *device;
    weft_stream *stream;
    weft_gate *gate;
} fixture;

static int set_up(void **state)
{
    fixture *it = calloc(1, sizeof(*it));
    alarm(DEADLINE_S);
    *state = it;
    return !it || weft_device_open("shadow", 0, &it->device) != WEFT_OK ||
           weft_stream_create(it->device, 0, &it->stream) != WEFT_OK ||
           weft_gate_create(it->device, 1, &it->gate) != WEFT_OK;
}

/* Fails where a ledger has left events behind. */
static int tear_down(void **state)
{
    fixture *it = *state;
    weft_stream_destroy(it->stream);
    weft_gate_destroy(it->gate);
    const size_t objects = atomic_load(&it->device->objects);
    weft_device_close(it->device);
    free(it);
    alarm(0);
    return objects != 0;
}

static weft_ledger *make_ledger(size_t spans)
{
    weft_ledger *ledger = NULL;
    ok(weft_ledger_create(spans, &ledger));
    return ledger;
}

static weft_step_report step(weft_ledger *ledger)
{
    weft_step_report report = {.size_bytes = sizeof(report)};
    ok(weft_ledger_step(ledger, &report));
    return report;
}

/* When a kernel ran. */
typedef struct run {
    int64_t begin_ns, end_ns;
} run;

static void spin(void *arg)
{
    run *mine = arg;
    mine->begin_ns = mine->end_ns = wefti_clock_ns();
    while (mine->end_ns < mine->begin_ns + SPIN_NS) {
        mine->end_ns = wefti_clock_ns();
    }
}

/* The only span among the events. */
typedef struct found {
    int spans;
    run times;
} found;

static void check(void *context, const wefti_trace_event *event)
{
    found *mine = context;
    if (event->kind == WEFTI_TRACE_SPAN) {
        mine->spans++;
        mine->times = (run){event->begin_ns, event->end_ns};
    }
}

static void test_span_of_a_device_covers_its_work_and_no_more(void **state)
{
    fixture *it = *state;
    weft_ledger *ledger = make_ledger(16);
    run before, during, after;
    ok(wefti_shadow_launch(it->stream, spin, &before));
    weft_span span =
        weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", it->stream);
    ok(wefti_shadow_launch(it->stream, spin, &during));
    weft_span_close(ledger, span, it->stream);
    ok(wefti_shadow_launch(it->stream, spin, &after));
    ok(weft_stream_wait(it->stream));
    weft_step_report report = step(ledger);
    found one = {0};
    wefti_ledger_visit(ledger, check, &one);
    assert_int_equal(one.spans, 1);
    assert_true(one.times.begin_ns >= before.end_ns);
    assert_true(one.times.begin_ns <= during.begin_ns);
    assert_true(one.times.end_ns >= during.end_ns);
    assert_true(one.times.end_ns <= after.begin_ns);
    assert_int_equal(report.spans, 1);
    assert_int_equal(report.dropped, 0);
    assert_true(report.compute_ns >= SPIN_NS);
    weft_ledger_destroy(ledger);
}

static void test_span_of_a_device_is_split_between_steps(void **state)
{
    fixture *it = *state;
    weft_ledger *ledger = make_ledger(16);
    run first, second;
    ok(weft_gate_wait(it->gate, 0, 1, it->stream));
    weft_span span =
        weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", it->stream);
    ok(wefti_shadow_launch(it->stream, spin, &first));
    weft_event *there;
    ok(weft_event_create(it->device, &there));
    ok(weft_event_post(there, it->stream));
    ok(weft_gate_wait(it->gate, 0, 2, it->stream));
    ok(wefti_shadow_launch(it->stream, spin, &second));
    weft_span_close(ledger, span, it->stream);
    weft_step_report idle = step(ledger); /* it has not begun */
    assert_int_equal(idle.spans, 0);
    assert_int_equal(idle.compute_ns, 0);
    ok(weft_gate_signal(it->gate, 0, 1, NULL));
    ok(weft_event_wait(there, NULL));
    weft_step_report begun = step(ledger);
    assert_int_equal(begun.spans, 1);
    assert_true(begun.compute_ns >= SPIN_NS);
    ok(weft_gate_signal(it->gate, 0, 2, NULL));
    ok(weft_stream_wait(it->stream));
    weft_step_report ended = step(ledger);
    assert_int_equal(ended.spans, 0); /* counted in the step before */
    assert_true(ended.compute_ns >= SPIN_NS);
    assert_int_equal(step(ledger).compute_ns, 0);
    weft_event_destroy(there);
    weft_ledger_destroy(ledger);
}

static void test_span_of_a_device_makes_its_events_once(void **state)
{
    enum { STEPS = 50, SPANS = 20 };
    fixture *it = *state;
    weft_ledger *ledger = make_ledger(SPANS);
    size_t objects = 0;
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < SPANS; i++) {
            weft_span span = weft_span_open(
                ledger, i % 2 ? WEFT_CLASS_COMPUTE : WEFT_CLASS_MEM, "s",
                it->stream);
            assert_int_not_equal(span.id, 0);
            weft_span_close(ledger, span, it->stream);
        }
        ok(weft_stream_wait(it->stream));
        objects = s == 0 ? atomic_load(&it->device->objects) : objects;
        weft_step_report report = step(ledger);
        assert_int_equal(report.spans, SPANS);
        assert_int_equal(report.dropped, 0);
    }
    assert_int_equal(atomic_load(&it->device->objects), objects);
    weft_ledger_destroy(ledger);
}

static void test_span_of_a_device_beyond_the_room_is_counted(void **state)
{
    enum { MORE = 6 };
    fixture *it = *state;
    weft_ledger *ledger = make_ledger(2 * WEFTI_STAMPS_MOST);
    for (int i = 0; i < WEFTI_STAMPS_MOST + MORE; i++) {
        weft_span span =
            weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", it->stream);
        assert_int_equal(span.id == 0, i >= WEFTI_STAMPS_MOST);
        weft_span_close(ledger, span, it->stream);
    }
    assert_non_null(strstr(weft_error_text(), "all there may be"));
    ok(weft_stream_wait(it->stream));
    weft_step_report report = step(ledger);
    assert_int_equal(report.spans, WEFTI_STAMPS_MOST);
    assert_int_equal(report.dropped, MORE);
    weft_ledger_destroy(ledger);
}

static void
test_span_of_a_device_closed_on_another_stream_is_refused(void **state)
{
    fixture *it = *state;
    weft_ledger *ledger = make_ledger(16);
    weft_stream *other;
    ok(weft_stream_create(it->device, 0, &other));
    weft_span span =
        weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", it->stream);
    weft_span_close(ledger, span, NULL);
    assert_non_null(strstr(weft_error_text(), "opened on"));
    weft_span_close(ledger, span, other);
    weft_span_close(ledger, span, it->stream);
    weft_span_close(ledger, span, it->stream); /* once more */
    weft_span mine = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", NULL);
    weft_span_close(ledger, mine, it->stream);
    weft_span_close(ledger, mine, NULL);
    ok(weft_stream_wait(it->stream));
    weft_step_report report = step(ledger);
    assert_int_equal(report.spans, 2);
    assert_int_equal(report.dropped, 4);
    weft_stream_destroy(other);
    weft_ledger_destroy(ledger);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(test_span_of_a_device_covers_its_work_and_no_more),
        ROW(test_span_of_a_device_is_split_between_steps),
        ROW(test_span_of_a_device_makes_its_events_once),
        ROW(test_span_of_a_device_beyond_the_room_is_counted),
        ROW(test_span_of_a_device_closed_on_another_stream_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
