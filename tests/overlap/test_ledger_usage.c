/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a ledger counts what hiding costs once and in the right step: bytes of
 * transfers, preemptions of compute, wake-ups and CPU time of weft's threads.
 * Method: transfers with made-up times; a rival on the core of a span; three
 * communicators of two engines that one thread drives, whose counters are read
 * beside.
 */
#include "overlap/ledger.h"

#include "base/clock.h"
#include "base/thread.h"
#include "comm/make/usage.h"
#include "weft/op.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

static int set_up(void **state)
{
    weft_ledger *ledger = NULL;
    assert_int_equal(weft_ledger_create(1024, &ledger), WEFT_OK);
    *state = ledger;
    return 0;
}

static int tear_down(void **state)
{
    weft_ledger_destroy(*state);
    return 0;
}

static weft_step_report step(weft_ledger *ledger)
{
    weft_step_report report = {.size_bytes = sizeof(report)};
    assert_int_equal(weft_ledger_step(ledger, &report), WEFT_OK);
    return report;
}

static void move(weft_ledger *ledger, weft_class class_id, int64_t ready_ns,
                 int64_t end_ns)
{
    wefti_ledger_moved(ledger, &(wefti_transfer){.class_id = class_id,
                                                 .bytes = 4096,
                                                 .posted_ns = ready_ns,
                                                 .ready_ns = ready_ns,
                                                 .end_ns = end_ns});
}

static void test_transfers_ended_are_counted_in_bytes(void **state)
{
    weft_ledger *ledger = *state;
    int64_t now_ns = wefti_clock_ns();
    move(ledger, WEFT_CLASS_DP, now_ns, now_ns + 1);
    move(ledger, WEFT_CLASS_TP, now_ns + 1, now_ns + 2);
    assert_int_equal(step(ledger).moved_bytes, 2 * 4096);
    assert_int_equal(step(ledger).moved_bytes, 0);
    /* Whose end lies ahead is the next step's. */
    now_ns = wefti_clock_ns();
    move(ledger, WEFT_CLASS_DP, now_ns, now_ns + 50000000);
    assert_int_equal(step(ledger).moved_bytes, 0);
    while (wefti_clock_ns() <= now_ns + 50000000) {
    }
    assert_int_equal(step(ledger).moved_bytes, 4096);
}

typedef struct rival {
    pthread_t thread;
    _Atomic bool over;
} rival;

static void *compete(void *argument)
{
    rival *self = argument;
    while (!atomic_load(&self->over)) {
    }
    return NULL;
}

/* Two busy threads on one core: the kernel takes it from the span's. */
static void test_span_beside_a_rival_is_preempted(void **state)
{
    weft_ledger *ledger = *state;
    cpu_set_t before, one;
    rival other = {.over = false};
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(pthread_create(&other.thread, NULL, compete, &other), 0);
    int64_t taken = wefti_thread_preemptions();
    weft_span outer = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "a", NULL);
    weft_span inner = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "b", NULL);
    const int64_t within =
        wefti_thread_preemptions(); /* from here, or before */
    while (wefti_thread_preemptions() < within + 3) {
    }
    weft_span_close(ledger, inner, NULL);
    weft_span_close(ledger, outer, NULL);
    taken = wefti_thread_preemptions() - taken;
    atomic_store(&other.over, true);
    weft_step_report report = step(ledger);
    assert_int_equal(pthread_join(other.thread, NULL), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    /* Once, though spans nest. */
    assert_in_range(report.preemptions, 3, taken);
    assert_int_equal(step(ledger).preemptions, 0);
}

static void test_threads_of_communicators_are_counted_once(void **state)
{
    weft_ledger *ledger = *state;
    weft_device *device = NULL;
    weft_stream *stream = NULL;
    weft_comm *first = NULL, *second = NULL, *third = NULL;
    weft_unique_id id;
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .id = &id,
                               .rank = 0,
                               .nranks = 1,
                               .name = "alone"};
    float values[256] = {1.0f};
    assert_int_equal(weft_device_open("host", 0, &device), WEFT_OK);
    assert_int_equal(weft_stream_create(device, 0, &stream), WEFT_OK);
    config.device = device;
    assert_int_equal(weft_comm_create(&config, &first), WEFT_OK);
    assert_int_equal(weft_comm_split(first, 0, 0, NULL, &second), WEFT_OK);
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    assert_int_equal(weft_comm_create(&config, &third), WEFT_OK);
    assert_int_equal(weft_ledger_attach(ledger, first), WEFT_OK);
    assert_int_equal(weft_ledger_attach(ledger, third), WEFT_OK);
    assert_int_equal(weft_ledger_attach(ledger, second), WEFT_OK);
    assert_int_equal(step(ledger).wakeups, 0); /* there is no thread yet */
    uint64_t wakeups = 0, most = 0;
    int64_t progress_ns = 0;
    const int64_t until_ns = wefti_clock_ns() + 20000000000;
    while (wakeups < 5) { /* it sleeps whenever nothing is pending */
        assert_true(wefti_clock_ns() < until_ns);
        const struct wefti_engine *engine = wefti_comm_get_engine(first);
        const uint64_t before = wefti_engine_get_usage(engine).driver.wakeups;
        assert_int_equal(weft_allreduce(values, values, 256, WEFT_DTYPE_F32,
                                        WEFT_REDOP_SUM, first, stream),
                         WEFT_OK);
        assert_int_equal(weft_allreduce(values, values, 256, WEFT_DTYPE_F32,
                                        WEFT_REDOP_SUM, third, stream),
                         WEFT_OK);
        assert_int_equal(weft_stream_wait(stream), WEFT_OK);
        weft_step_report report = step(ledger);
        most += wefti_engine_get_usage(engine).driver.wakeups - before;
        wakeups += report.wakeups;
        progress_ns += report.progress_ns;
    }
    assert_true(progress_ns > 0);
    assert_true(wakeups <= most + 1);
    weft_ledger_detach(ledger, first);
    weft_ledger_detach(ledger, second);
    weft_ledger_detach(ledger, third);
    assert_int_equal(weft_allreduce(values, values, 256, WEFT_DTYPE_F32,
                                    WEFT_REDOP_SUM, first, stream),
                     WEFT_OK);
    assert_int_equal(weft_stream_wait(stream), WEFT_OK);
    assert_int_equal(step(ledger).wakeups, 0); /* nothing is attached */
    weft_comm_destroy(third);
    weft_comm_destroy(second);
    weft_comm_destroy(first);
    weft_stream_destroy(stream);
    weft_device_close(device);
}

#define LEDGER_TEST(test)                                                      \
    cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LEDGER_TEST(test_transfers_ended_are_counted_in_bytes),
        LEDGER_TEST(test_span_beside_a_rival_is_preempted),
        LEDGER_TEST(test_threads_of_communicators_are_counted_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
