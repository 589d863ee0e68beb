/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a device can do works, what it cannot is refused by name, and its
 * capabilities say which is which.
 * Method: each call that needs a capability, on each kind of device; the
 * capabilities of a kind are a list here.
 */
#include "device_test.h"

/* Kernels for GPUs are not in every build. */
static void test_caps_are_those_of_its_kind(void **state)
{
    const wefti_device_table *table = wefti_device_get_table(*state);
    const uint32_t expected =
        table == &wefti_device_host ? WEFT_CAP_HOST_READS | WEFT_CAP_NOTIFIES |
                                          WEFT_CAP_HOST_CALLS | WEFT_CAP_TIMES
        : table == &wefti_device_cuda
            ? WEFT_CAP_TIMES | WEFT_CAP_IPC | WEFT_CAP_SM_BUDGET
            : WEFT_CAP_TIMES;
    assert_int_equal(
        weft_device_get_caps(*state) & ~(uint32_t)WEFT_CAP_LAUNCHES, expected);
}

/* What a call returns that needs a capability. */
static void check(const weft_device *device, bool can, weft_status status,
                  const char *text)
{
    if (can) {
        ok(status);
        return;
    }
    assert_int_equal(status, WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_text(), text));
    assert_non_null(strstr(weft_error_text(), device->table->kind));
}

static void count_up(void *arg)
{
    ++*(int *)arg;
}

static void test_caps_of_host_calls(void **state)
{
    const bool can = wefti_device_can(*state, WEFT_CAP_HOST_CALLS);
    weft_stream *stream = make_stream(*state);
    int calls = 0;
    check(*state, can, weft_stream_call(stream, count_up, &calls),
          "call no host functions");
    ok(weft_stream_wait(stream));
    assert_int_equal(calls, can);
    weft_stream_destroy(stream);
}

static void test_caps_of_times(void **state)
{
    weft_stream *stream = make_stream(*state);
    weft_event *event;
    int64_t ns = 0;
    ok(weft_event_create(*state, &event));
    ok(weft_event_post(event, stream));
    ok(weft_event_wait(event, NULL));
    check(*state, wefti_device_can(*state, WEFT_CAP_TIMES),
          weft_event_get_time(event, &ns), "does not say when");
    weft_event_destroy(event);
    weft_stream_destroy(stream);
}

static void test_caps_of_host_reads(void **state)
{
    const bool can = wefti_device_can(*state, WEFT_CAP_HOST_READS);
    void *memory;
    char byte = 0;
    ok(weft_device_alloc(*state, 64, &memory));
    assert_int_equal(wefti_device_owns(*state, memory), !can);
    if (can) {
        memset(memory, 'x', 64);
        ok(weft_device_copy(*state, &byte, memory, 1, NULL));
        assert_int_equal(byte, 'x');
    }
    weft_device_free(*state, memory);
}

static void test_caps_of_notices(void **state)
{
    weft_stream *stream = make_stream(*state);
    weft_gate *gate = make_gate(*state, 1);
    int calls = 0;
    wefti_gate_watcher watcher = {.woken = count_up, .context = &calls};
    wefti_gate_watch(gate, &watcher);
    ok(weft_gate_signal(gate, 0, 1, stream));
    ok(weft_stream_wait(stream));
    ok(weft_gate_test(gate, 0, 1));
    wefti_gate_unwatch(gate, &watcher);
    assert_int_equal(calls, wefti_device_can(*state, WEFT_CAP_NOTIFIES));
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
}

static void test_caps_of_sharing_between_processes(void **state)
{
    const bool can = wefti_device_can(*state, WEFT_CAP_IPC);
    weft_export given = {.size_bytes = sizeof(given), .descriptor = -1};
    void *memory, *exportable, *imported;
    ok(weft_device_alloc(*state, 64, &memory));
    check(*state, can, weft_device_export(*state, memory, &given),
          "shares no memory");
    if (can) {
        assert_int_equal(given.process, getpid());
        refused(weft_device_import(*state, &given, &imported), "process");
    } else {
        check(*state, false, weft_device_import(*state, &given, &imported),
              "shares no memory");
    }
    check(
        *state, can,
        weft_device_alloc_kind(*state, WEFT_MEMORY_EXPORTABLE, 64, &exportable),
        "no exportable memory");
    if (can) {
        weft_device_free(*state, exportable);
    }
    weft_device_free(*state, memory);
}

static void test_caps_of_budgets(void **state)
{
    const bool can = wefti_device_can(*state, WEFT_CAP_SM_BUDGET);
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .sm_budget = 16};
    weft_stream *stream;
    check(*state, can, weft_stream_create_as(*state, &config, &stream),
          "no budgets");
    if (can) {
        assert_in_range(weft_stream_get_sms(stream), 1, 16);
        weft_stream_destroy(stream);
    }
}

static void test_caps_of_native_queues(void **state)
{
    const bool can = wefti_device_get_table(*state)->natives;
    weft_stream *stream = make_stream(*state), *wrapped;
    void *native = weft_stream_get_native(stream);
    assert_int_equal(native != NULL, can);
    check(*state, can,
          weft_stream_wrap(*state, can ? native : stream, &wrapped),
          "no native queues");
    if (can) {
        assert_ptr_equal(weft_stream_get_native(wrapped), native);
        weft_stream_destroy(wrapped);
    }
    weft_stream_destroy(stream);
}

static void test_caps_of_launches(void **state)
{
    const wefti_launch launch = {
        .kernel = "banana", .blocks = 1, .threads = 32, .args = &launch};
    weft_stream *stream = make_stream(*state);
    if (wefti_device_can(*state, WEFT_CAP_LAUNCHES)) {
        refused(wefti_stream_launch(stream, &launch), "no kernel banana");
    } else {
        assert_int_equal(wefti_stream_launch(stream, &launch),
                         WEFT_ERR_UNSUPPORTED);
        assert_non_null(strstr(weft_error_text(), "banana: the "));
    }
    weft_stream_destroy(stream);
}

int main(int argc, char **argv)
{
    choose_kind(argc, argv);
    const struct CMUnitTest tests[] = {
        EACH(test_caps_are_those_of_its_kind),
        EACH(test_caps_of_host_calls),
        EACH(test_caps_of_times),
        EACH(test_caps_of_host_reads),
        EACH(test_caps_of_notices),
        EACH(test_caps_of_sharing_between_processes),
        EACH(test_caps_of_budgets),
        EACH(test_caps_of_native_queues),
        EACH(test_caps_of_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
