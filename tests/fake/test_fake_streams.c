/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: streams, copies, events and memory operations of the fake driver keep
 * the documented order and no more.
 *
 * Method: one case a process. What nothing orders is seen in the wrong order
 * for one of several seeds at least; with the order expressed, never.
 */
#include "tests/fake/fake_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

enum { BYTES = 4096, SEEDS = 40, ORDERED_SEEDS = 5, ROUNDS = 30 };

/* The status of a program in which the thread sanitizer has found a race. */
#ifdef __SANITIZE_THREAD__
enum { RACE_REPORTED = 66 };
#else
enum { RACE_REPORTED = 0 };
#endif

/* Ends a case. One that found disorder has raced, and leaves past the thread
 * sanitizer, which would say so. */
static void leave(bool disorder)
{
    if (disorder) {
        syscall(SYS_exit_group, 3);
    }
    _exit(0);
}

/* Whether one of so many cases, with a seed each, found disorder. A race that
 * the thread sanitizer reports is one. */
static bool find_disorder(void (*check)(void *arg), void *arg,
                          const char *devices, int seeds)
{
    bool found = false;
    for (int seed = 1; seed <= seeds && !found; seed++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", seed);
        pid_t child = fork();
        if (child == 0) {
            alarm(CASE_SECONDS);
            setenv("WEFT_FAKE_GPU_SEED", text, 1);
            setenv("WEFT_FAKE_GPU_COUNT", devices, 1);
            check(arg);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        int code = WEXITSTATUS(status);
        assert_true(code == 0 || code == 3 || code == RACE_REPORTED);
        found = code != 0;
    }
    return found;
}

static bool holds(const unsigned char *bytes, unsigned char value)
{
    for (int i = 0; i < BYTES; i++) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
}

/* A copy to pinned memory that nobody waits for is not yet there. */
static void check_missing_sync(void *arg)
{
    bool sync = *(bool *)arg;
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(BYTES);
    _Atomic unsigned char *host = new_pinned(BYTES);
    CHECK_OK(cuMemsetD8Async(memory, 1, BYTES, stream));
    CHECK_OK(cuMemcpyDtoHAsync_v2((void *)host, memory, BYTES, stream));
    if (sync) {
        CHECK_OK(cuStreamSynchronize(stream));
    }
    unsigned char seen = atomic_load(&host[BYTES - 1]);
    CHECK(seen == 1 || seen == 0xff);
    leave(seen != 1);
}

static void test_missing_synchronisation_is_seen(void **state)
{
    (void)state;
    bool sync = false;
    assert_true(find_disorder(check_missing_sync, &sync, "1", SEEDS));
    sync = true;
    assert_false(find_disorder(check_missing_sync, &sync, "1", ORDERED_SEEDS));
}

/* One stream fills, another copies; with and without an event between. */
static void check_two_streams(void *arg)
{
    bool ordered = *(bool *)arg, disorder = false;
    open_device(0);
    CUstream first = new_stream(), second = new_stream();
    CUdeviceptr memory = new_memory(BYTES);
    unsigned char *host = new_pinned(BYTES);
    CUevent event;
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 1; i <= ROUNDS; i++) {
        CHECK_OK(cuMemsetD8Async(memory, (unsigned char)i, BYTES, first));
        if (ordered) {
            CHECK_OK(cuEventRecord(event, first));
            CHECK_OK(cuStreamWaitEvent(second, event, 0));
        }
        CHECK_OK(cuMemcpyDtoHAsync_v2(host, memory, BYTES, second));
        CHECK_OK(cuStreamSynchronize(second));
        disorder = disorder || !holds(host, (unsigned char)i);
        CHECK_OK(cuStreamSynchronize(first));
    }
    leave(disorder);
}

static void test_streams_are_ordered_by_events_only(void **state)
{
    (void)state;
    bool ordered = false;
    assert_true(find_disorder(check_two_streams, &ordered, "1", SEEDS));
    ordered = true;
    assert_false(
        find_disorder(check_two_streams, &ordered, "1", ORDERED_SEEDS));
}

/* Two copies to one place, in two streams: the last is one or the other, or
 * parts of both. */
static void check_two_copies(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream streams[2] = {new_stream(), new_stream()};
    CUdeviceptr memory = new_memory(BYTES);
    unsigned char *host = new_pinned(2 * BYTES), *seen = new_pinned(BYTES);
    memset(host, 1, BYTES);
    memset(host + BYTES, 2, BYTES);
    bool disorder = false;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 2; k++) {
            CHECK_OK(cuMemcpyHtoDAsync_v2(memory, host + k * BYTES, BYTES,
                                          streams[k]));
        }
        CHECK_OK(cuCtxSynchronize());
        CHECK_OK(cuMemcpyDtoHAsync_v2(seen, memory, BYTES, streams[0]));
        CHECK_OK(cuStreamSynchronize(streams[0]));
        disorder = disorder || !holds(seen, 2);
    }
    leave(disorder);
}

static void test_copies_of_two_streams_are_unordered(void **state)
{
    (void)state;
    assert_true(find_disorder(check_two_copies, NULL, "1", SEEDS));
}

/* Pageable memory: staged by the call, which waits where it is written. */
static void check_pageable(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(BYTES);
    unsigned char *host = malloc(BYTES);
    for (int i = 1; i < ROUNDS; i++) {
        memset(host, i, BYTES);
        CHECK_OK(cuMemcpyAsync(memory, address_of(host), BYTES, stream));
        memset(host, 0, BYTES);
        CHECK_OK(cuMemcpyAsync(address_of(host), memory, BYTES, stream));
        CHECK(holds(host, (unsigned char)i));
    }
    free(host);
}

static void test_pageable_memory_is_staged(void **state)
{
    (void)state;
    in_child(check_pageable, NULL, NULL);
}

static void count_call(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void check_events(void *arg)
{
    (void)arg;
    CUcontext first = open_device(0), second;
    CUstream stream = new_stream(), other;
    CUevent start, end, bare;
    float ms = -1;
    static _Atomic int calls;
    CUdeviceptr gate = address_of(new_pinned(8));
    *(_Atomic uint32_t *)(uintptr_t)gate = 0;
    CHECK_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_OK(cuCtxSetCurrent(second));
    other = new_stream();
    CHECK_OK(cuCtxSetCurrent(first));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuEventCreate(&bare, CU_EVENT_INTERPROCESS));
    CHECK_OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK_OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CHECK_OK(cuEventCreate(&bare, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuEventQuery(start)); /* never recorded */
    CHECK_OK(cuStreamWaitEvent(stream, start, 0));
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, end));
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(start, other));
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(start, NULL));
    CHECK_OK(cuEventRecord(start, stream));
    CHECK_OK(cuStreamWaitValue32_v2(stream, gate, 1, 0));
    CHECK_OK(cuLaunchHostFunc(stream, count_call, (void *)&calls));
    CHECK_OK(cuEventRecord(end, stream));
    CHECK_OK(cuEventRecord(bare, stream));
    CHECK_OK(cuStreamWaitEvent(other, end, 0)); /* of another context */
    CHECK_OK(cuEventSynchronize(start));
    CHECK_IS(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    CHECK_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    CHECK_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
    CHECK_IS(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
    CHECK(atomic_load(&calls) == 0);
    atomic_store((_Atomic uint32_t *)(uintptr_t)gate, 1);
    CHECK_OK(cuEventSynchronize(end));
    CHECK(atomic_load(&calls) == 1);
    CHECK_OK(cuStreamSynchronize(other));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuEventElapsedTime_v2(&ms, start, end));
    CHECK(ms >= 0);
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, bare));
    CHECK_OK(cuEventDestroy_v2(bare));
    CHECK_OK(cuStreamDestroy_v2(stream));
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
}

static void test_events(void **state)
{
    (void)state;
    in_child(check_events, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

/* A wait keeps to the record that was the latest when it was queued. */
static void check_recorded_again(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream blocked = new_stream(), waiter = new_stream(), free_one;
    _Atomic uint32_t *gate = new_pinned(4);
    CUevent event;
    atomic_store(gate, 0);
    free_one = new_stream();
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuStreamWaitValue32_v2(blocked, address_of((void *)gate), 1, 0));
    CHECK_OK(cuEventRecord(event, blocked));
    CHECK_OK(cuStreamWaitEvent(waiter, event, 0));
    CHECK_OK(cuEventRecord(event, free_one));
    CHECK_OK(cuEventSynchronize(event)); /* the second record */
    CHECK_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(waiter));
    CHECK_OK(cuEventDestroy_v2(event)); /* while others still use it */
    atomic_store(gate, 1);
    CHECK_OK(cuStreamSynchronize(waiter));
}

static void test_event_recorded_again_keeps_earlier_waits(void **state)
{
    (void)state;
    in_child(check_recorded_again, NULL, NULL);
}

/* Whether a wait of 64 or 32 bits for `want` is met by `have`. */
static bool is_met(CUstream stream, _Atomic uint64_t *word, uint64_t have,
                   uint64_t want, unsigned flags, bool wide)
{
    struct timespec pause = {0, 3000000};
    atomic_store(word, have);
    CUdeviceptr at = address_of((void *)word);
    if (wide) {
        CHECK_OK(cuStreamWaitValue64_v2(stream, at, want, flags));
    } else {
        CHECK_OK(cuStreamWaitValue32_v2(stream, at, (uint32_t)want, flags));
    }
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 20 && result == CUDA_ERROR_NOT_READY; i++) {
        result = cuStreamQuery(stream);
        if (result == CUDA_ERROR_NOT_READY) {
            nanosleep(&pause, NULL); /* a time in which nothing may happen */
        }
    }
    bool met = result == CUDA_SUCCESS;
    if (!met) { /* let it go */
        unsigned kind = flags & 3;
        atomic_store(word, kind == CU_STREAM_WAIT_VALUE_NOR   ? 0
                           : kind == CU_STREAM_WAIT_VALUE_AND ? UINT64_MAX
                                                              : want);
    }
    CHECK_OK(cuStreamSynchronize(stream));
    return met;
}

static void check_waits(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream s = new_stream();
    _Atomic uint64_t *w = new_pinned(8);
    uint64_t half = UINT64_C(1) << 63;
    CHECK(is_met(s, w, 5, 5, 0, true) && is_met(s, w, 6, 5, 0, true));
    CHECK(!is_met(s, w, 4, 5, 0, true));
    CHECK(is_met(s, w, 2, UINT64_MAX - 2, 0, true)); /* around the end */
    CHECK(!is_met(s, w, UINT64_MAX - 2, 2, 0, true));
    CHECK(is_met(s, w, half - 1 + 9, 9, 0, true));
    CHECK(!is_met(s, w, half + 9, 9, 0, true));
    CHECK(is_met(s, w, 2, UINT32_MAX - 2, 0, false));
    CHECK(!is_met(s, w, UINT32_MAX - 2, 2, 0, false));
    CHECK(is_met(s, w, 7, 7, CU_STREAM_WAIT_VALUE_EQ, true));
    CHECK(!is_met(s, w, 8, 7, CU_STREAM_WAIT_VALUE_EQ, true));
    CHECK(is_met(s, w, 6, 2, CU_STREAM_WAIT_VALUE_AND, true));
    CHECK(is_met(s, w, 6, 3, CU_STREAM_WAIT_VALUE_AND, true));
    CHECK(!is_met(s, w, 4, 3, CU_STREAM_WAIT_VALUE_AND, true));
    CHECK(is_met(s, w, 6, 2, CU_STREAM_WAIT_VALUE_NOR, true));
    CHECK(!is_met(s, w, UINT64_MAX - 2, 2, CU_STREAM_WAIT_VALUE_NOR, true));
    CHECK(!is_met(s, w, UINT32_MAX - 2, 2, CU_STREAM_WAIT_VALUE_NOR, false));
    CHECK(is_met(s, w, 1, 1, CU_STREAM_WAIT_VALUE_FLUSH, true));
}

static void test_waits_are_cyclic(void **state)
{
    (void)state;
    in_child(check_waits, NULL, "WEFT_FAKE_GPU_DELAY", "5", NULL);
}

static void check_values_refused(void *arg)
{
    (void)arg;
    CUcontext first = open_device(0), second;
    CUstream stream = new_stream();
    CUdeviceptr own = new_memory(64), peer;
    static _Atomic uint64_t pageable;
    CHECK_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_OK(cuCtxSetCurrent(second));
    peer = new_memory(64);
    CHECK_OK(cuCtxSetCurrent(first));
    CHECK_IS(
        CUDA_ERROR_INVALID_VALUE,
        cuStreamWriteValue64_v2(stream, address_of((void *)&pageable), 1, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamWaitValue64_v2(stream, peer, 1, 0));
    CHECK_OK(cuCtxEnablePeerAccess(second, 0));
    CHECK_IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
             cuCtxEnablePeerAccess(second, 0));
    CHECK_OK(cuStreamWriteValue64_v2(stream, peer, 1, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamWriteValue64_v2(stream, own + 4, 1, 0));
    CHECK_OK(cuStreamWriteValue32_v2(stream, own + 4, 1, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamWriteValue32_v2(stream, own + 64, 1, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamWaitValue32_v2(stream, own, 1, 4));
    CUstreamBatchMemOpParams batch[3] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                        .address = own,
                        .value64 = 3}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64,
                       .address = own,
                       .value64 = 3,
                       .flags = CU_STREAM_WAIT_VALUE_EQ}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                        .address = own + 8,
                        .value = 9}}};
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamBatchMemOp_v2(stream, 256, batch, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamBatchMemOp_v2(stream, 3, batch, 1));
    CHECK_OK(cuStreamBatchMemOp_v2(stream, 3, batch, 0));
    CHECK_OK(cuStreamSynchronize(stream));
    batch[1].operation = (CUstreamBatchMemOpType)17;
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamBatchMemOp_v2(stream, 3, batch, 0));
}

static void test_values_out_of_reach_are_refused(void **state)
{
    (void)state;
    in_child(check_values_refused, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

/* Data and then a value go to another device; its stream waits for the value,
 * with a flush or without, and copies the data. */
static void check_remote_writes(void *arg)
{
    unsigned flush = *(bool *)arg ? CU_STREAM_WAIT_VALUE_FLUSH : 0;
    bool disorder = false;
    CUcontext first = open_device(0), second;
    CUstream writer = new_stream(), reader;
    unsigned char *host = new_pinned(2 * BYTES);
    CHECK_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_OK(cuCtxEnablePeerAccess(second, 0));
    CHECK_OK(cuCtxSetCurrent(second));
    CUdeviceptr data = new_memory(BYTES), value = new_memory(8);
    reader = new_stream();
    CHECK_OK(cuStreamWriteValue64_v2(reader, value, 0, 0));
    CHECK_OK(cuStreamSynchronize(reader));
    for (int i = 1; i <= ROUNDS; i++) {
        memset(host, i, BYTES);
        CHECK_OK(cuStreamWaitValue64_v2(reader, value, (uint64_t)i, flush));
        CHECK_OK(cuMemcpyDtoHAsync_v2(host + BYTES, data, BYTES, reader));
        CHECK_OK(cuCtxSetCurrent(first));
        CHECK_OK(cuMemcpyHtoDAsync_v2(data, host, BYTES, writer));
        CHECK_OK(cuStreamWriteValue64_v2(writer, value, (uint64_t)i, 0));
        CHECK_OK(cuStreamSynchronize(reader));
        disorder = disorder || !holds(host + BYTES, (unsigned char)i);
        CHECK_OK(cuStreamSynchronize(writer));
    }
    leave(disorder);
}

static void test_remote_writes_need_a_flush(void **state)
{
    (void)state;
    bool flush = false;
    assert_true(find_disorder(check_remote_writes, &flush, "2", SEEDS));
    flush = true;
    assert_false(
        find_disorder(check_remote_writes, &flush, "2", ORDERED_SEEDS));
}

static void call_driver(void *arg)
{
    int count;
    *(CUresult *)arg = cuDeviceGetCount(&count);
}

/* Raises its own flag and waits a while for the other's. */
typedef struct meeting {
    _Atomic bool here, *other;
    bool met;
} meeting;

static void meet(void *arg)
{
    meeting *self = arg;
    struct timespec pause = {0, 1000000};
    atomic_store(&self->here, true);
    for (int i = 0; i < 200 && !atomic_load(self->other); i++) {
        nanosleep(&pause, NULL);
    }
    self->met = atomic_load(self->other);
}

static void check_host_functions(void *arg)
{
    (void)arg;
    static meeting both[2];
    CUresult result = CUDA_SUCCESS;
    open_device(0);
    CUstream streams[2] = {new_stream(), new_stream()};
    CHECK_OK(cuLaunchHostFunc(streams[0], call_driver, &result));
    CHECK_OK(cuStreamSynchronize(streams[0]));
    CHECK(result == CUDA_ERROR_NOT_PERMITTED);
    for (int i = 0; i < 2; i++) {
        both[i].other = &both[!i].here;
        CHECK_OK(cuLaunchHostFunc(streams[i], meet, &both[i]));
    }
    CHECK_OK(cuCtxSynchronize());
    leave(!both[0].met || !both[1].met);
}

static void test_host_functions_may_be_serialised(void **state)
{
    (void)state;
    assert_true(find_disorder(check_host_functions, NULL, "1", SEEDS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_synchronisation_is_seen),
        cmocka_unit_test(test_streams_are_ordered_by_events_only),
        cmocka_unit_test(test_copies_of_two_streams_are_unordered),
        cmocka_unit_test(test_pageable_memory_is_staged),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_event_recorded_again_keeps_earlier_waits),
        cmocka_unit_test(test_waits_are_cyclic),
        cmocka_unit_test(test_values_out_of_reach_are_refused),
        cmocka_unit_test(test_remote_writes_need_a_flush),
        cmocka_unit_test(test_host_functions_may_be_serialised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
