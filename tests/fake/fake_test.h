/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_test.h - what the tests of the fake driver share: each case
 * runs in a process of its own, with its own environment, as the driver reads
 * that once.
 *
 * With WEFT_TEST_DRIVER=system (scripts/gpu-check) the driver is the machine's:
 * cases that ask the fake for a limit or an error are left out by name, and so
 * is what needs more GPUs than there are.
 */
#ifndef TESTS_FAKE_FAKE_TEST_H
#define TESTS_FAKE_FAKE_TEST_H

#include "tests/fake/fake_functions.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CASE_SECONDS = 40, LEFT_OUT = 77 };

#ifdef __SANITIZE_THREAD__
/* Each case ends a process, with threads: not a second later. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=0";
}
#endif

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

#define CHECK_IS(result, call)                                                 \
    do {                                                                       \
        CUresult got_ = (call);                                                \
        if (got_ != (result)) {                                                \
            fprintf(stderr, "%s:%d: %s: %d, not %d\n", __FILE__, __LINE__,     \
                    #call, (int)got_, (int)(result));                          \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

#define CHECK_OK(call) CHECK_IS(CUDA_SUCCESS, call)

static inline bool is_system_driver(void)
{
    const char *set = getenv("WEFT_TEST_DRIVER");
    return set && strcmp(set, "system") == 0;
}

/* Whether the driver has so many GPUs; if not, it says what is left out. */
static inline bool has_gpus(int wanted)
{
    int count = 0;
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDeviceGetCount(&count));
    if (count < wanted) {
        fprintf(stderr, "left out: what needs %d GPUs\n", wanted);
    }
    return count >= wanted;
}

/* One of a case's environment. What the fake would do by chance, another
 * driver does by itself; a limit or an error it cannot be asked for. */
static inline void set_case(const char *name, const char *value)
{
    static const char *const chances[] = {
        "WEFT_FAKE_GPU_SEED", "WEFT_FAKE_GPU_DELAY", "WEFT_FAKE_GPU_COUNT"};
    bool fakes = strncmp(name, "WEFT_FAKE_GPU_", 14) == 0;
    if (!is_system_driver() || !fakes) {
        setenv(name, value, 1);
        return;
    }
    for (size_t i = 0; i < sizeof(chances) / sizeof(chances[0]); i++) {
        fakes = fakes && strcmp(name, chances[i]) != 0;
    }
    if (fakes) {
        fprintf(stderr, "left out: a case with %s=%s\n", name, value);
        _exit(LEFT_OUT);
    }
}

/* Runs check(arg) in a child; environment: name, value, ..., NULL. Returns the
 * status of waitpid. */
static inline int run_case(void (*check)(void *arg), void *arg, va_list pairs)
{
    pid_t child = fork();
    if (child == 0) {
        const char *name;
        alarm(CASE_SECONDS);
        signal(SIGSEGV, SIG_DFL); /* cmocka's would go on with the tests */
        signal(SIGBUS, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        setenv("WEFT_FAKE_GPU_SEED", "7", 0);
        while ((name = va_arg(pairs, const char *))) {
            set_case(name, va_arg(pairs, const char *));
        }
        check(arg);
        _exit(0);
    }
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static inline void in_child(void (*check)(void *arg), void *arg, ...)
{
    va_list pairs;
    va_start(pairs, arg);
    int status = run_case(check, arg, pairs);
    va_end(pairs);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != LEFT_OUT) {
        assert_int_equal(status, 0);
    }
}

/* Whether check() ended its child by a fault, or by a sanitizer's report. */
static inline bool faults_in_child(void (*check)(void *arg), void *arg, ...)
{
    va_list pairs;
    va_start(pairs, arg);
    int status = run_case(check, arg, pairs);
    va_end(pairs);
    return WIFSIGNALED(status)
               ? WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS ||
                     WTERMSIG(status) == SIGABRT
               : WEXITSTATUS(status) != 0;
}

/* The primary context of a device, current. */
static inline CUcontext open_device(int ordinal)
{
    CUcontext context;
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, ordinal));
    CHECK_OK(cuCtxSetCurrent(context));
    return context;
}

static inline CUdeviceptr new_memory(size_t bytes)
{
    CUdeviceptr made = 0;
    CHECK_OK(cuMemAlloc_v2(&made, bytes));
    return made;
}

static inline void *new_pinned(size_t bytes)
{
    void *made = NULL;
    CHECK_OK(cuMemHostAlloc(&made, bytes, 0));
    return made;
}

static inline CUstream new_stream(void)
{
    CUstream made;
    CHECK_OK(cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0));
    return made;
}

static inline CUdeviceptr address_of(const void *host)
{
    return (CUdeviceptr)(uintptr_t)host;
}

#endif
