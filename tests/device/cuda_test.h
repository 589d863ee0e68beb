/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/device/cuda_test.h - what the tests of the cuda device share. They run
 * on the fake driver (tests/fake), which they are linked with, so that its
 * functions can be called as a program with streams and memory of its own
 * would. Each case is a process of its own: fake_test.h.
 */
#ifndef TESTS_DEVICE_CUDA_TEST_H
#define TESTS_DEVICE_CUDA_TEST_H

#include "base/clock.h"
#include "device/holds.h"
#include "device/object.h"
#include "tests/fake/fake_test.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

/* The call returns this status; its text has this much in it. */
#define CHECK_STATUS(status, call)                                             \
    do {                                                                       \
        weft_status got_ = (call);                                             \
        if (got_ != (status)) {                                                \
            fprintf(stderr, "%s:%d: %s: %d, not %d: %s\n", __FILE__, __LINE__, \
                    #call, (int)got_, (int)(status), weft_error_text());       \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

#define CHECK_WEFT(call) CHECK_STATUS(WEFT_OK, call)

#define CHECK_REFUSED(status, call, text)                                      \
    do {                                                                       \
        CHECK_STATUS(status, call);                                            \
        if (!strstr(weft_error_text(), text)) {                                \
            fprintf(stderr, "%s:%d: %s: no \"%s\" in: %s\n", __FILE__,         \
                    __LINE__, #call, text, weft_error_text());                 \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

/* Before any case: kernels of the fake's own stand behind this file. On the
 * driver of the system (scripts/gpu-check) weft's are used. */
static inline int set_kernels(void **state)
{
    (void)state;
    return getenv("WEFT_TEST_DRIVER") ? 0
                                      : setenv("WEFT_KERNELS", TEST_KERNELS, 1);
}

static inline weft_device *open_cuda(int index)
{
    weft_device *device = NULL;
    CHECK_WEFT(weft_device_open("cuda", index, &device));
    return device;
}

/* Nothing of the device is left, nor any context current. */
static inline void close_cuda(weft_device *device)
{
    CUcontext current = NULL;
    wefti_device_tend(device);
    CHECK(atomic_load(&device->objects) == 0);
    CHECK_OK(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    weft_device_close(device);
}

static inline weft_stream *make_stream(weft_device *device)
{
    weft_stream *stream = NULL;
    CHECK_WEFT(weft_stream_create(device, 0, &stream));
    return stream;
}

static inline weft_gate *make_gate(weft_device *device, size_t chunks)
{
    weft_gate *gate = NULL;
    CHECK_WEFT(weft_gate_create(device, chunks, &gate));
    return gate;
}

static inline void *make_memory(weft_device *device, weft_memory_kind kind,
                                size_t bytes)
{
    void *memory = NULL;
    CHECK_WEFT(weft_device_alloc_kind(device, kind, bytes, &memory));
    return memory;
}

static inline void fill(void *memory, size_t bytes, uint64_t seed)
{
    uint8_t *out = memory;
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        out[i] = (uint8_t)(seed >> 40);
    }
}

static inline int count_descriptors(void)
{
    int count = 0;
    DIR *open_ones = opendir("/proc/self/fd");
    CHECK(open_ones != NULL);
    while (readdir(open_ones)) {
        count++;
    }
    closedir(open_ones);
    return count;
}

#endif
