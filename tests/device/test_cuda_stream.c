/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: streams of others, streams that are being captured, streams with a
 * budget of multiprocessors, and events with their times.
 * Method: the fake driver; what a program would do beside weft is done by the
 * driver's own functions.
 */
#include "cuda_test.h"

#include "device/cuda_gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* A stream of the program's, in the primary context of a GPU. */
static CUstream make_native(int ordinal, CUcontext *context_out)
{
    CUstream native;
    CHECK_OK(cuDevicePrimaryCtxRetain(context_out, ordinal));
    CHECK_OK(cuCtxPushCurrent_v2(*context_out));
    CHECK_OK(cuStreamCreateWithPriority(&native, CU_STREAM_NON_BLOCKING, 0));
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
    return native;
}

static void check_wrapped(void *arg)
{
    (void)arg;
    CUcontext context;
    weft_device *device = open_cuda(0);
    weft_stream *stream = NULL;
    CUstream native = make_native(0, &context);
    weft_gate *gate = make_gate(device, 2);
    CHECK_REFUSED(WEFT_ERR_INVALID, weft_stream_wrap(device, NULL, &stream),
                  "native is NULL");
    CHECK_REFUSED(WEFT_ERR_INVALID,
                  weft_stream_wrap(device, (void *)2, &stream), "PER_THREAD");
    CHECK_WEFT(weft_stream_wrap(device, native, &stream));
    CHECK(weft_stream_get_native(stream) == native);
    CHECK(weft_stream_get_sms(stream) ==
          wefti_cuda_gpu_of(device)->multiprocessors);
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, stream));
    CHECK_WEFT(weft_gate_signal(gate, 1, 1, stream));
    weft_stream_destroy(stream); /* returns, though the stream stands */
    CHECK(weft_gate_test(gate, 1, 1) == WEFT_INPROGRESS);
    /* The gate, and what the stream has yet to store. */
    CHECK(atomic_load(&device->objects) == 2);
    CHECK_WEFT(weft_gate_signal(gate, 0, 1, NULL));
    CHECK_WEFT(weft_gate_wait(gate, 1, 1, NULL));
    weft_gate_destroy(gate);
    /* Its owner's still. */
    CHECK_OK(cuCtxPushCurrent_v2(context));
    CHECK_OK(cuStreamSynchronize(native));
    CHECK_OK(cuStreamDestroy_v2(native));
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
    close_cuda(device);
}

static void check_wrapped_elsewhere(void *arg)
{
    (void)arg;
    CUcontext context;
    if (has_gpus(2)) {
        weft_device *device = open_cuda(0);
        weft_stream *stream;
        CUstream other = make_native(1, &context);
        CHECK_REFUSED(WEFT_ERR_INVALID,
                      weft_stream_wrap(device, other, &stream),
                      "not a stream of the primary context of cuda device 0");
        close_cuda(device);
    }
}

static void *let_go_late(void *word)
{
    usleep(100 * 1000);
    atomic_store((_Atomic uint64_t *)word, 1);
    return NULL;
}

/* A stream of the program's own stands at a wait of the program's own, with
 * much of weft's behind it, when weft gives it up: the stream will yet store
 * how far it has come, into memory of the device. */
static void check_given_up(void *arg)
{
    (void)arg;
    enum { COPIES = 200 };
    CUcontext context;
    weft_device *device = open_cuda(0);
    weft_stream *stream = NULL;
    CUstream native = make_native(0, &context);
    CUdeviceptr memory = 0;
    void *word = NULL;
    pthread_t thread;
    CHECK_OK(cuCtxPushCurrent_v2(context));
    CHECK_OK(cuMemAlloc_v2(&memory, 64));
    CHECK_OK(cuMemHostAlloc(&word, sizeof(uint64_t), 0));
    atomic_store((_Atomic uint64_t *)word, 0);
    CHECK_OK(cuStreamWaitValue64_v2(native, (CUdeviceptr)(uintptr_t)word, 1,
                                    CU_STREAM_WAIT_VALUE_GEQ));
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
    CHECK_WEFT(weft_stream_wrap(device, native, &stream));
    for (int i = 0; i < COPIES; i++) {
        CHECK_WEFT(weft_device_copy(device, (void *)(uintptr_t)memory,
                                    (void *)(uintptr_t)(memory + 32), 8,
                                    stream));
    }
    weft_stream_destroy(stream);
    CHECK(pthread_create(&thread, NULL, let_go_late, word) == 0);
    weft_device_close(device);
    CHECK(atomic_load((_Atomic uint64_t *)word) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    /* Closed, and not kept: what is opened is another. */
    device = open_cuda(0);
    CHECK(device->opened == 1 && atomic_load(&device->objects) == 0);
    close_cuda(device);
    CHECK_OK(cuCtxPushCurrent_v2(context));
    CHECK_OK(cuStreamDestroy_v2(native));
    CHECK_OK(cuMemFree_v2(memory));
    CHECK_OK(cuMemFreeHost(word));
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
}

static void test_cuda_stream_given_up_keeps_its_device(void **state)
{
    (void)state;
    in_child(check_given_up, NULL, NULL);
}

static void test_cuda_stream_wrapped_stays_its_owners(void **state)
{
    (void)state;
    in_child(check_wrapped, NULL, NULL);
    in_child(check_wrapped_elsewhere, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

static void refuse_captured(weft_device *device, weft_stream *stream,
                            weft_gate *gate, weft_event *event, char *memory)
{
    static const char said[] = "being captured";
    char host[8];
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_gate_wait(gate, 0, 1, stream),
                  said);
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_gate_signal(gate, 0, 1, stream),
                  said);
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED,
                  weft_device_copy(device, memory, host, 8, stream), said);
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED,
                  weft_device_copy(device, host, memory, 8, stream), said);
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_event_post(event, stream), said);
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_stream_wait(stream), said);
}

/* Nothing of weft breaks a capture: neither of the stream itself, nor one of
 * the program that forbids all threads what is unsafe. */
static void check_captured(void *arg)
{
    (void)arg;
    CUcontext context;
    CUgraph graph = NULL;
    weft_device *device = open_cuda(0);
    weft_stream *stream = NULL, *beside = make_stream(device);
    weft_event *event, *posted;
    CUstream native = make_native(0, &context);
    weft_gate *gate = make_gate(device, 1);
    CHECK_WEFT(weft_event_create(device, &event));
    CHECK_WEFT(weft_event_create(device, &posted));
    CHECK_WEFT(weft_event_post(event, beside));
    CHECK_WEFT(weft_stream_wrap(device, native, &stream));
    CHECK_OK(cuCtxPushCurrent_v2(context));
    CHECK_OK(cuStreamBeginCapture_v2(native, CU_STREAM_CAPTURE_MODE_GLOBAL));
    char *memory = make_memory(device, WEFT_MEMORY_DEVICE, 64);
    refuse_captured(device, stream, gate, posted, memory);
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_event_wait(event, stream),
                  "being captured");
    CHECK_WEFT(weft_gate_signal(gate, 0, 1, beside));
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, NULL));
    CHECK_WEFT(weft_stream_wait(beside));
    CHECK_WEFT(weft_event_wait(event, NULL));
    weft_device_free(device, memory);
    CHECK_OK(cuStreamEndCapture(native, &graph));
    CHECK(graph != NULL);
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, stream)); /* as before */
    CHECK_WEFT(weft_stream_wait(stream));
    CHECK_OK(cuStreamDestroy_v2(native));
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
    weft_stream_destroy(stream);
    weft_stream_destroy(beside);
    weft_event_destroy(event);
    weft_event_destroy(posted);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_stream_captured_is_refused_unbroken(void **state)
{
    (void)state;
    in_child(check_captured, NULL, NULL);
}

static void check_budgets(void *arg)
{
    (void)arg;
    static const struct {
        int budget, given;
    } cases[] = {{16, 16}, {20, 16},   {8, 8},    {131, 128},
                 {0, 132}, {132, 132}, {200, 132}};
    weft_device *device = open_cuda(0);
    const wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    if (gpu->multiprocessors != 132) {
        fprintf(stderr, "left out: what is of chips with 132 SMs\n");
        close_cuda(device);
        return;
    }
    weft_event *event;
    weft_gate *gate = make_gate(device, 1);
    CHECK_WEFT(weft_event_create(device, &event));
    uint64_t epoch = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_stream_config config = {.size_bytes = sizeof(config),
                                     .priority = -100,
                                     .sm_budget = cases[i].budget};
        weft_stream *stream;
        int priority = 0;
        int64_t ns = 0;
        CHECK_WEFT(weft_stream_create_as(device, &config, &stream));
        CHECK(weft_stream_get_sms(stream) == cases[i].given);
        CHECK_OK(cuCtxPushCurrent_v2(wefti_cuda_stream_of(stream)->context));
        CHECK_OK(
            cuStreamGetPriority(weft_stream_get_native(stream), &priority));
        CHECK_OK(cuCtxPopCurrent_v2(NULL));
        CHECK(priority == gpu->priority_greatest);
        /* It does all that a stream does, events of other contexts too. */
        CHECK_WEFT(weft_event_wait(event, stream));
        CHECK_WEFT(weft_gate_signal(gate, 0, ++epoch, stream));
        CHECK_WEFT(weft_event_post(event, stream));
        CHECK_WEFT(weft_event_wait(event, NULL));
        CHECK_WEFT(weft_event_get_time(event, &ns));
        CHECK_WEFT(weft_gate_test(gate, 0, epoch));
        weft_stream_destroy(stream);
        /* It outlives its stream, and the stream's context. */
        int64_t later_ns = 0;
        CHECK_WEFT(weft_event_test(event));
        CHECK_WEFT(weft_event_get_time(event, &later_ns));
        CHECK(later_ns > ns - 10 * 1000 * 1000);
    }
    for (int budget = 1; budget <= 7; budget++) {
        weft_stream_config config = {.size_bytes = sizeof(config),
                                     .sm_budget = budget};
        weft_stream *stream;
        CHECK_REFUSED(WEFT_ERR_INVALID,
                      weft_stream_create_as(device, &config, &stream),
                      "the least that cuda device 0 can part is 8 of its 132");
    }
    weft_event_destroy(event);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_stream_budgets_are_what_the_chip_parts(void **state)
{
    (void)state;
    in_child(check_budgets, NULL, NULL);
}

static void check_no_budgets(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    weft_stream_config config = {.size_bytes = sizeof(config), .sm_budget = 16};
    weft_stream *stream;
    CHECK(!wefti_device_can(device, WEFT_CAP_SM_BUDGET));
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED,
                  weft_stream_create_as(device, &config, &stream),
                  "the cuda device has no budgets");
    close_cuda(device);
}

static void test_cuda_stream_budgets_need_a_driver_that_has_them(void **state)
{
    (void)state;
    in_child(check_no_budgets, NULL, "WEFT_FAKE_GPU_DRIVER_VERSION", "12020",
             NULL);
    in_child(check_no_budgets, NULL, "WEFT_FAKE_GPU_MISSING",
             "cuGreenCtxStreamCreate", NULL);
}

/* The same question inside: how much the answer may be wrong. */
static int64_t get_error_ns(weft_device *device)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    int64_t ns, error_ns;
    CUevent event;
    CHECK_WEFT(wefti_cuda_enter(gpu));
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK_OK(cuEventRecord(event, gpu->stream));
    CHECK_OK(cuEventSynchronize(event));
    CHECK_WEFT(wefti_cuda_clock_read(gpu, event, &ns, &error_ns));
    CHECK_OK(cuEventDestroy_v2(event));
    wefti_cuda_leave(gpu);
    return error_ns;
}

/* An event that never comes to its turn, as on a GPU whose connections are all
 * held up: of the driver's two questions this one answers for it. */
static int (*query)(CUevent event);
static CUevent stuck;

static int query_stuck(CUevent event)
{
    return event == stuck ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* The GPU's own stream may stand behind one that waits for this thread. */
static void check_clock_held_up(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    wefti_cuda_api api = *gpu->api;
    int64_t ns = 0, error_ns = 0;
    query = api.cuEventQuery;
    CHECK_WEFT(wefti_cuda_enter(gpu));
    CHECK_OK(cuEventCreate(&stuck, CU_EVENT_DEFAULT));
    CHECK_OK(cuEventRecord(stuck, gpu->stream));
    CHECK_OK(cuEventSynchronize(stuck));
    gpu->api = &api;
    api.cuEventQuery = query_stuck;
    CHECK_STATUS(WEFT_INPROGRESS,
                 wefti_cuda_clock_read(gpu, stuck, &ns, &error_ns));
    api.cuEventQuery = query;
    CHECK_WEFT(wefti_cuda_clock_read(gpu, stuck, &ns, &error_ns));
    /* With an older base it makes do, however far it is. */
    usleep(120 * 1000);
    CHECK_OK(cuEventRecord(stuck, gpu->stream));
    CHECK_OK(cuEventSynchronize(stuck));
    api.cuEventQuery = query_stuck;
    int64_t later_ns = 0;
    CHECK_WEFT(wefti_cuda_clock_read(gpu, stuck, &later_ns, &error_ns));
    CHECK(later_ns - ns > 100 * 1000 * 1000);
    api.cuEventQuery = query;
    CHECK_OK(cuEventDestroy_v2(stuck));
    wefti_cuda_leave(gpu);
    close_cuda(device);
}

static void test_cuda_event_times_do_not_wait_for_a_gpu_held_up(void **state)
{
    (void)state;
    in_child(check_clock_held_up, NULL, NULL);
}

/* What the driver says of the legacy stream while another one captures. */
static int say_implicit(CUstream stream, int *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return WEFTI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static void check_implicit(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    wefti_cuda_api api = *gpu->api;
    weft_stream *stream = make_stream(device);
    weft_gate *gate = make_gate(device, 1);
    gpu->api = &api;
    int (*asked)(CUstream stream, int *status) = api.cuStreamIsCapturing;
    api.cuStreamIsCapturing = say_implicit;
    CHECK_STATUS(WEFT_ERR_UNSUPPORTED, weft_gate_signal(gate, 0, 1, stream));
    api.cuStreamIsCapturing = asked;
    CHECK_WEFT(weft_gate_signal(gate, 0, 1, stream));
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_stream_beside_a_capture_is_no_failure(void **state)
{
    (void)state;
    in_child(check_implicit, NULL, NULL);
}

/* Each lies between what the host saw before it could happen and after it
 * had, by no more than the clocks' error. */
static void check_times(void *arg)
{
    (void)arg;
    enum { EVENTS = 20, ROUNDING_NS = 1000 };
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    weft_gate *gate = make_gate(device, 1);
    weft_event *event;
    int64_t last_ns = 0, ns = 0;
    CHECK_WEFT(weft_event_create(device, &event));
    CHECK_REFUSED(WEFT_ERR_INVALID, weft_event_get_time(event, &ns),
                  "never posted");
    for (uint64_t i = 1; i <= EVENTS; i++) {
        CHECK_WEFT(weft_gate_wait(gate, 0, i, stream));
        CHECK_WEFT(weft_event_post(event, stream));
        CHECK_STATUS(WEFT_INPROGRESS, weft_event_get_time(event, &ns));
        CHECK_STATUS(WEFT_INPROGRESS, weft_event_test(event));
        if (i % 5 == 0) {
            usleep(120 * 1000); /* then the clock's base is renewed */
        }
        const int64_t before_ns = wefti_clock_ns();
        CHECK_WEFT(weft_gate_signal(gate, 0, i, NULL));
        CHECK_WEFT(weft_event_wait(event, NULL));
        const int64_t after_ns = wefti_clock_ns();
        CHECK_WEFT(weft_event_get_time(event, &ns));
        const int64_t error_ns = get_error_ns(device) + ROUNDING_NS;
        CHECK(ns > before_ns - error_ns && ns < after_ns + error_ns);
        CHECK(ns > last_ns - 2 * error_ns);
        last_ns = ns;
    }
    CHECK_WEFT(weft_event_post(event, NULL)); /* now, by the host */
    CHECK_WEFT(weft_event_get_time(event, &ns));
    CHECK(ns <= wefti_clock_ns() && ns > last_ns - 2 * get_error_ns(device));
    weft_event_destroy(event);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_event_times_are_the_hosts(void **state)
{
    (void)state;
    in_child(check_times, NULL, "WEFT_FAKE_GPU_DELAY", "0", NULL);
}

/* An event orders two streams, and is what it was when it was waited for. */
static void check_events(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    weft_stream *slow = make_stream(device), *fast = make_stream(device);
    weft_stream *waits = make_stream(device);
    weft_gate *gate = make_gate(device, 2);
    weft_event *event;
    CHECK_WEFT(weft_event_create(device, &event));
    CHECK_WEFT(weft_event_test(event));
    CHECK_WEFT(weft_event_wait(event, waits));
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, slow));
    CHECK_WEFT(weft_event_post(event, slow));
    CHECK_WEFT(weft_event_wait(event, waits));
    CHECK_WEFT(weft_gate_signal(gate, 1, 1, waits));
    CHECK_WEFT(weft_event_post(event, fast));
    CHECK_WEFT(weft_event_wait(event, NULL));
    CHECK_WEFT(weft_event_test(event));
    CHECK_STATUS(WEFT_INPROGRESS, weft_gate_test(gate, 1, 1));
    CHECK_WEFT(weft_gate_signal(gate, 0, 1, NULL));
    CHECK_WEFT(weft_gate_wait(gate, 1, 1, NULL));
    weft_event_destroy(event);
    weft_stream_destroy(slow);
    weft_stream_destroy(fast);
    weft_stream_destroy(waits);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_event_posted_anew_leaves_older_waits(void **state)
{
    (void)state;
    in_child(check_events, NULL, "WEFT_FAKE_GPU_SEED", "3", NULL);
    in_child(check_events, NULL, "WEFT_FAKE_GPU_SEED", "4", NULL);
}

/* Stderr of the streams that are made, one more than arg says. */
static void check_warned(void *arg)
{
    const int wanted = *(const int *)arg;
    weft_stream *streams[40];
    char told[1000] = "";
    const int file = memfd_create("told", 0), kept = dup(2);
    CHECK(file >= 0 && kept >= 0 && dup2(file, 2) == 2);
    weft_device *device = open_cuda(0);
    for (int i = 0; i < wanted; i++) {
        streams[i] = make_stream(device);
    }
    const ssize_t before = pread(file, told, sizeof(told) - 1, 0);
    streams[wanted] = make_stream(device);
    weft_stream_destroy(streams[wanted]);
    streams[wanted] = make_stream(device);
    const ssize_t after = pread(file, told, sizeof(told) - 1, 0);
    CHECK(dup2(kept, 2) == 2);
    CHECK(before == 0);
    CHECK(strstr(told, "more streams than connections (") != NULL);
    CHECK(after > 0 && strchr(told, '\n') == told + after - 1); /* once */
    for (int i = 0; i <= wanted; i++) {
        weft_stream_destroy(streams[i]);
    }
    close_cuda(device);
    close(file);
    close(kept);
}

static void test_cuda_streams_beyond_the_connections_are_told_once(void **state)
{
    int usual = 7, most = 31;
    (void)state;
    in_child(check_warned, &usual, "CUDA_DEVICE_MAX_CONNECTIONS", "", NULL);
    in_child(check_warned, &most, "CUDA_DEVICE_MAX_CONNECTIONS", "99", NULL);
}

/* Freeing waits for no stream at a gate: raising that takes a copy here, which
 * the driver would not take meanwhile. */
static void check_freed_beside(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0);
    weft_stream *stands = make_stream(device), *other = make_stream(device);
    weft_gate *gate = make_gate(device, 1);
    weft_pointer found = {.size_bytes = sizeof(found)};
    const weft_memory_kind kinds[] = {WEFT_MEMORY_PINNED, WEFT_MEMORY_DEVICE,
                                      WEFT_MEMORY_EXPORTABLE};
    void *given[3], *room = make_memory(device, WEFT_MEMORY_DEVICE, 8);
    for (int k = 0; k < 3; k++) {
        given[k] = make_memory(device, kinds[k], 4097);
    }
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, stands));
    for (int k = 0; k < 3; k++) {
        weft_device_free(device, given[k]);
        CHECK_WEFT(weft_device_copy(device, room, "8 bytes", 8, other));
    }
    CHECK_WEFT(weft_gate_signal(gate, 0, 1, other));
    CHECK_WEFT(weft_stream_wait(stands));
    CHECK_WEFT(weft_stream_wait(other));
    weft_device_free(device, room); /* and those before it */
    for (int k = 0; k < 3; k++) {
        CHECK_WEFT(weft_device_query(device, given[k], &found));
        CHECK(found.kind == WEFT_MEMORY_HOST);
    }
    weft_stream_destroy(stands);
    weft_stream_destroy(other);
    weft_gate_destroy(gate);
    close_cuda(device);
}

static void test_cuda_memory_freed_waits_for_no_stream_at_a_gate(void **state)
{
    (void)state;
    const char *const seeds[] = {"1", "2", "3", "4"};
    for (int i = 0; i < 4; i++) {
        in_child(check_freed_beside, NULL, "WEFT_FAKE_GPU_SEED", seeds[i],
                 NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_stream_wrapped_stays_its_owners),
        cmocka_unit_test(test_cuda_stream_given_up_keeps_its_device),
        cmocka_unit_test(test_cuda_stream_captured_is_refused_unbroken),
        cmocka_unit_test(test_cuda_stream_budgets_are_what_the_chip_parts),
        cmocka_unit_test(test_cuda_stream_budgets_need_a_driver_that_has_them),
        cmocka_unit_test(test_cuda_stream_beside_a_capture_is_no_failure),
        cmocka_unit_test(test_cuda_event_times_are_the_hosts),
        cmocka_unit_test(test_cuda_event_times_do_not_wait_for_a_gpu_held_up),
        cmocka_unit_test(test_cuda_event_posted_anew_leaves_older_waits),
        cmocka_unit_test(test_cuda_memory_freed_waits_for_no_stream_at_a_gate),
        cmocka_unit_test(
            test_cuda_streams_beyond_the_connections_are_told_once),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}
