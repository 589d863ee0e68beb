/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an event says when the work posted before it has finished; a wait
 * means the latest post at the time of the wait, whatever is posted later.
 * Method: streams held up at gates, so that posts happen in a chosen order.
 */
#include "device_test.h"

static weft_event *make_event(weft_device *device)
{
    weft_event *event;
    ok(weft_event_create(device, &event));
    return event;
}

static void test_event_never_posted_has_happened(void **state)
{
    weft_event *event = make_event(*state);
    weft_stream *stream = make_stream(*state);
    ok(weft_event_test(event));
    ok(weft_event_wait(event, NULL));
    ok(weft_event_wait(event, stream));
    ok(weft_stream_wait(stream));
    weft_stream_destroy(stream);
    weft_event_destroy(event);
}

static void test_event_posted_happens_after_the_work_before(void **state)
{
    weft_event *event = make_event(*state);
    weft_stream *stream = make_stream(*state);
    weft_gate *hold = make_gate(*state, 1);
    for (uint64_t round = 1; round <= 100; round++) {
        ok(weft_gate_wait(hold, 0, round, stream));
        ok(weft_event_post(event, stream));
        assert_int_equal(weft_event_test(event), WEFT_INPROGRESS);
        ok(weft_gate_signal(hold, 0, round, NULL));
        ok(weft_event_wait(event, NULL));
        ok(weft_event_test(event));
    }
    weft_stream_destroy(stream);
    weft_gate_destroy(hold);
    weft_event_destroy(event);
}

static void test_event_posted_now_replaces_the_post_before(void **state)
{
    weft_event *event = make_event(*state);
    weft_stream *stream = make_stream(*state);
    weft_gate *hold = make_gate(*state, 1);
    ok(weft_gate_wait(hold, 0, 1, stream));
    ok(weft_event_post(event, stream));
    assert_int_equal(weft_event_test(event), WEFT_INPROGRESS);
    ok(weft_event_post(event, NULL));
    ok(weft_event_test(event));
    ok(weft_gate_signal(hold, 0, 1, NULL));
    weft_stream_destroy(stream);
    weft_gate_destroy(hold);
    weft_event_destroy(event);
}

static void test_event_wait_orders_two_streams(void **state)
{
    weft_event *event = make_event(*state);
    weft_stream *first = make_stream(*state), *second = make_stream(*state);
    weft_gate *gate = make_gate(*state, 2);
    ok(weft_gate_wait(gate, 0, 1, first));
    ok(weft_event_post(event, first));
    ok(weft_event_wait(event, second));
    ok(weft_gate_signal(gate, 1, 1, second));
    assert_int_equal(weft_gate_test(gate, 1, 1), WEFT_INPROGRESS);
    ok(weft_gate_signal(gate, 0, 1, NULL));
    ok(weft_gate_wait(gate, 1, 1, NULL));
    weft_stream_destroy(first);
    weft_stream_destroy(second);
    weft_gate_destroy(gate);
    weft_event_destroy(event);
}

/* The second post happens first; it must not release the first one's waiter. */
static void test_event_posted_anew_leaves_older_waits_alone(void **state)
{
    weft_event *event = make_event(*state);
    weft_stream *slow = make_stream(*state), *fast = make_stream(*state);
    weft_stream *waits = make_stream(*state);
    weft_gate *gate = make_gate(*state, 2);
    ok(weft_gate_wait(gate, 0, 1, slow));
    ok(weft_event_post(event, slow));
    ok(weft_event_wait(event, waits));
    ok(weft_gate_signal(gate, 1, 1, waits));
    ok(weft_event_post(event, fast));
    ok(weft_event_wait(event, NULL));
    ok(weft_event_test(event));
    assert_int_equal(weft_gate_test(gate, 1, 1), WEFT_INPROGRESS);
    ok(weft_gate_signal(gate, 0, 1, NULL));
    ok(weft_gate_wait(gate, 1, 1, NULL));
    weft_stream_destroy(slow);
    weft_stream_destroy(fast);
    weft_stream_destroy(waits);
    weft_gate_destroy(gate);
    weft_event_destroy(event);
}

/* More posts under way than the event has room for. The streams are there
 * before: a CUDA driver makes no more than a few dozen beside one that stands.
 */
static void test_event_with_many_posts_under_way_keeps_each(void **state)
{
    enum { POSTS = 30 };
    weft_event *event = make_event(*state);
    weft_stream *streams[POSTS], *waits[POSTS];
    weft_gate *hold = make_gate(*state, POSTS), *out = make_gate(*state, POSTS);
    for (size_t p = 0; p < POSTS; p++) {
        streams[p] = make_stream(*state);
        waits[p] = make_stream(*state);
    }
    for (size_t p = 0; p < POSTS; p++) {
        ok(weft_gate_wait(hold, p, 1, streams[p]));
        ok(weft_event_post(event, streams[p]));
        ok(weft_event_wait(event, waits[p]));
        ok(weft_gate_signal(out, p, 1, waits[p]));
    }
    for (size_t p = POSTS; p-- > 0;) {
        assert_int_equal(weft_gate_test(out, p, 1), WEFT_INPROGRESS);
        ok(weft_gate_signal(hold, p, 1, NULL));
    }
    for (size_t p = 0; p < POSTS; p++) {
        ok(weft_gate_wait(out, p, 1, NULL));
        weft_stream_destroy(streams[p]);
        weft_stream_destroy(waits[p]);
    }
    ok(weft_event_wait(event, NULL));
    weft_gate_destroy(hold);
    weft_gate_destroy(out);
    weft_event_destroy(event);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void test_event_destroyed_right_after_wait_is_safe(void **state)
{
    weft_stream *stream = make_stream(*state);
    for (int round = rounds_of(*state, 2000); round > 0; round--) {
        weft_event *event = make_event(*state);
        ok(run_on(stream, nothing, NULL));
        ok(weft_event_post(event, stream));
        ok(weft_event_wait(event, NULL));
        weft_event_destroy(event);
    }
    weft_stream_destroy(stream);
}

/* How much the times may be wrong: nothing, where the host itself takes them;
 * of a GPU's clock what that knows of itself, and what a float rounds off. */
static int64_t get_error_ns(weft_device *device)
{
    enum { ROUNDING_NS = 1000 };
    int64_t ns = 0, error_ns = 0;
    struct CUevent_st *native;
    if (device->table != &wefti_device_cuda) {
        return 0;
    }
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    ok(wefti_cuda_enter(gpu));
    assert_int_equal(gpu->api->cuEventCreate(&native, WEFTI_CU_EVENT_DEFAULT),
                     WEFTI_CUDA_SUCCESS);
    assert_int_equal(gpu->api->cuEventRecord(native, gpu->stream),
                     WEFTI_CUDA_SUCCESS);
    weft_status status;
    do {
        status = wefti_cuda_clock_read(gpu, native, &ns, &error_ns);
    } while (status == WEFT_INPROGRESS);
    ok(status);
    assert_int_equal(gpu->api->cuEventDestroy(native), WEFTI_CUDA_SUCCESS);
    wefti_cuda_leave(gpu);
    return error_ns + ROUNDING_NS;
}

static void test_event_times_are_the_hosts_clock_and_rise(void **state)
{
    weft_stream *stream = make_stream(*state);
    weft_gate *hold = make_gate(*state, 1);
    int64_t error_ns = get_error_ns(*state);
    weft_event *events[2] = {make_event(*state), make_event(*state)};
    int64_t before_ns = wefti_clock_ns(), time_ns = 0;
    refused(weft_event_get_time(events[0], &time_ns), "never posted");
    for (uint64_t round = 1; round <= 20; round++) {
        ok(weft_event_post(events[0], stream));
        ok(run_on(stream, nothing, NULL));
        ok(weft_gate_wait(hold, 0, round, stream));
        ok(weft_event_post(events[1], stream));
        assert_int_equal(weft_event_get_time(events[1], &time_ns),
                         WEFT_INPROGRESS);
        const int64_t signal_ns = wefti_clock_ns();
        ok(weft_gate_signal(hold, 0, round, NULL));
        ok(weft_event_wait(events[1], NULL));
        const int64_t after_ns = wefti_clock_ns();
        int64_t first_ns, second_ns;
        ok(weft_event_get_time(events[0], &first_ns));
        ok(weft_event_get_time(events[1], &second_ns));
        const int64_t now_ns = get_error_ns(*state);
        error_ns = now_ns > error_ns ? now_ns : error_ns;
        assert_in_range(first_ns, before_ns - 2 * error_ns,
                        second_ns + 2 * error_ns);
        assert_in_range(second_ns, signal_ns - error_ns, after_ns + error_ns);
        before_ns = second_ns;
    }
    ok(weft_event_post(events[0], NULL));
    ok(weft_event_get_time(events[0], &time_ns));
    assert_in_range(time_ns, before_ns - error_ns, wefti_clock_ns());
    weft_event_destroy(events[0]);
    weft_event_destroy(events[1]);
    weft_stream_destroy(stream);
    weft_gate_destroy(hold);
}

typedef struct asked {
    weft_event *event;
    int64_t begin_ns, error_ns;
    _Atomic bool over;
    bool wrong; /* read after the thread has ended */
} asked;

static void *ask_time_main(void *arg)
{
    asked *it = arg;
    while (!atomic_load(&it->over)) {
        int64_t time_ns;
        const weft_status status = weft_event_get_time(it->event, &time_ns);
        if (status == WEFT_OK) {
            it->wrong |= time_ns < it->begin_ns - it->error_ns ||
                         time_ns > wefti_clock_ns() + it->error_ns;
        } else if (status < 0) {
            it->wrong |= !strstr(weft_error_text(), "never posted");
        }
    }
    return NULL;
}

static void test_event_is_asked_for_times_while_it_is_posted(void **state)
{
    weft_stream *stream = make_stream(*state);
    asked it = {.event = make_event(*state),
                .begin_ns = wefti_clock_ns(),
                .error_ns = get_error_ns(*state)};
    pthread_t thread;
    start(&thread, ask_time_main, &it);
    for (int round = rounds_of(*state, 1000); round > 0; round--) {
        ok(weft_event_post(it.event, round % 2 ? stream : NULL));
        ok(weft_stream_wait(stream));
    }
    atomic_store(&it.over, true);
    join(thread);
    assert_false(it.wrong);
    weft_event_destroy(it.event);
    weft_stream_destroy(stream);
}

static void test_event_misused_refuses(void **state)
{
    weft_event *event;
    refused(weft_event_create(NULL, &event), "device");
    refused(weft_event_create(*state, NULL), "event_out");
    refused(weft_event_post(NULL, NULL), "event");
    refused(weft_event_test(NULL), "event");
    refused(weft_event_wait(NULL, NULL), "event");
    weft_event_destroy(NULL);
}

int main(int argc, char **argv)
{
    choose_kind(argc, argv);
    const struct CMUnitTest tests[] = {
        EACH(test_event_never_posted_has_happened),
        EACH(test_event_posted_happens_after_the_work_before),
        EACH(test_event_posted_now_replaces_the_post_before),
        EACH(test_event_wait_orders_two_streams),
        EACH(test_event_posted_anew_leaves_older_waits_alone),
        EACH(test_event_with_many_posts_under_way_keeps_each),
        EACH(test_event_destroyed_right_after_wait_is_safe),
        EACH(test_event_times_are_the_hosts_clock_and_rise),
        EACH(test_event_is_asked_for_times_while_it_is_posted),
        EACH(test_event_misused_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
