/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/device/device_test.h - what the tests of device/ share: every test
 * runs once for each kind of device, under a deadline. Those of the cuda device
 * are run where the program's argument is "cuda", on the fake driver that it is
 * linked with, and the others where there is none.
 */
#ifndef TESTS_DEVICE_DEVICE_TEST_H
#define TESTS_DEVICE_DEVICE_TEST_H

#include "base/clock.h"
#include "device/cuda_gpu.h"
#include "device/holds.h"
#include "device/object.h"
#include "device/shadow.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* After this a hanging test is killed by SIGALRM; sanitizers are slow. */
enum { DEADLINE_S = 100 };

#define ok(call) assert_int_equal(call, WEFT_OK)

/* The call is refused with ERR_INVALID, and the text says this much. */
#define refused(call, text)                                                    \
    do {                                                                       \
        assert_int_equal(call, WEFT_ERR_INVALID);                              \
        assert_non_null(strstr(weft_error_text(), text));                      \
    } while (0)

static inline int open_kind(const char *kind, void **state)
{
    alarm(DEADLINE_S);
    weft_status status = weft_device_open(kind, 0, (weft_device **)state);
    if (status < 0) {
        print_error("%s: %s\n", kind, weft_error_text());
    }
    return status < 0;
}

static inline int open_host(void **state)
{
    return open_kind("host", state);
}

static inline int open_shadow(void **state)
{
    return open_kind("shadow", state);
}

static inline int open_cuda(void **state)
{
    return open_kind("cuda", state);
}

/* Fails where the test has left something of the device alive. */
static inline int close_device(void **state)
{
    weft_device *device = *state;
    wefti_device_tend(device);
    size_t objects = atomic_load(&device->objects);
    alarm(0);
    weft_device_close(device);
    return objects != 0;
}

/* A test on one kind of device; on each; on those that run their streams by
 * themselves and notify nobody. */
#define ON(kind, test)                                                         \
    {                                                                          \
#test " " #kind, test, open_##kind, close_device, NULL                 \
    }
#define HOST(test)     ON(host, test)
#define SHADOW(test)   ON(shadow, test)
#define LIKE_GPU(test) ON(shadow, test), ON(cuda, test)
#define EACH(test)     ON(host, test), LIKE_GPU(test)

/* Before the tests: which of them are run. */
static inline void choose_kind(int argc, char **argv)
{
    const bool cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
    setenv("WEFT_FAKE_GPU_SEED", "7", 0);
    setenv("WEFT_FAKE_GPU_COUNT", "2", 0); /* as shadow has */
    if (cuda) {
        cmocka_set_test_filter("* cuda");
    } else {
        cmocka_set_skip_filter("* cuda");
    }
}

/* As a program would that calls the driver itself. */
static inline weft_status call_on_cuda(weft_stream *stream,
                                       void (*work)(void *arg), void *arg)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(stream->device);
    weft_status status = wefti_cuda_enter(gpu);
    if (status == WEFT_OK) {
        status =
            wefti_cuda_check(gpu,
                             gpu->api->cuLaunchHostFunc(
                                 weft_stream_get_native(stream), work, arg),
                             "cuLaunchHostFunc");
        wefti_cuda_leave(gpu);
    }
    return status;
}

/* What runs in the order of the stream: a call of the host's, a kernel of the
 * shadow's, a host function of the driver's. */
static inline weft_status run_on(weft_stream *stream, void (*work)(void *arg),
                                 void *arg)
{
    return weft_device_get_caps(stream->device) & WEFT_CAP_HOST_CALLS
               ? weft_stream_call(stream, work, arg)
           : stream->device->table == &wefti_device_cuda
               ? call_on_cuda(stream, work, arg)
               : wefti_shadow_launch(stream, work, arg);
}

/* Rounds of a test: fewer on a device that takes its time. */
static inline int rounds_of(const weft_device *device, int host)
{
    return weft_device_get_caps(device) & WEFT_CAP_NOTIFIES ? host : host / 10;
}

/* Threads of this process. */
static inline int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while (readdir(tasks)) {
        count++;
    }
    closedir(tasks);
    return count - 2; /* . and .. */
}

/*
 * Fails unless count threads are left. The kernel lists one for a moment after
 * it was joined, so that is given ten seconds.
 */
static inline void assert_threads_left(int count)
{
    int64_t begin = wefti_clock_ns();
    while (count_threads() > count &&
           wefti_clock_ns() - begin < INT64_C(10000000000)) {
        sched_yield();
    }
    assert_int_equal(count_threads(), count);
}

static inline weft_gate *make_gate(weft_device *device, size_t chunks)
{
    weft_gate *gate;
    ok(weft_gate_create(device, chunks, &gate));
    return gate;
}

static inline weft_stream *make_stream(weft_device *device)
{
    weft_stream *stream;
    ok(weft_stream_create(device, 0, &stream));
    return stream;
}

static inline void start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    assert_int_equal(pthread_create(thread, NULL, run, arg), 0);
}

static inline void join(pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
}

#endif
