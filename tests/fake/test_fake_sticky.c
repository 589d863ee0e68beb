/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an error of the fake driver's work is sticky: after it nothing runs,
 * and nothing touches memory.
 *
 * Method: one case a process, for several seeds, by which the error comes
 * before or after other work.
 */
#include "tests/fake/fake_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { BYTES = 4096 };

static void count_call(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

typedef struct freeing {
    CUcontext context;
    CUdeviceptr memory;
    _Atomic bool done;
} freeing;

static void *free_memory(void *arg)
{
    freeing *own = arg;
    CHECK_OK(cuCtxSetCurrent(own->context));
    CHECK_OK(cuMemFree_v2(own->memory));
    atomic_store(&own->done, true);
    return NULL;
}

/* Whether a free returns while a stream stands at a wait. */
static bool free_returns(freeing *own, pthread_t *thread)
{
    struct timespec slice = {0, 1000000};
    CHECK(pthread_create(thread, NULL, free_memory, own) == 0);
    for (int i = 0; i < 100 && !atomic_load(&own->done); i++) {
        nanosleep(&slice, NULL);
    }
    return atomic_load(&own->done);
}

enum { FREE_WAITED = 3 };

/* Memory that is freed before its turn comes is an illegal address, if the call
 * does not wait for all that is queued; and then nothing works: calls of the
 * host are not made either. */
static void check_sticky(void *arg)
{
    (void)arg;
    freeing own = {.context = open_device(0)};
    pthread_t thread;
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(BYTES), other;
    void *host = new_pinned(BYTES);
    _Atomic uint32_t *gate = new_pinned(4);
    static _Atomic int calls;
    atomic_store(gate, 0);
    CHECK_OK(cuStreamWaitValue32_v2(stream, address_of((void *)gate), 1, 0));
    CHECK_OK(cuMemcpyDtoHAsync_v2(host, memory, BYTES, stream));
    CHECK_OK(cuLaunchHostFunc(stream, count_call, (void *)&calls));
    own.memory = memory;
    const bool returned = free_returns(&own, &thread);
    atomic_store(gate, 1);
    pthread_join(thread, NULL);
    const CUresult result = cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) { /* the free came after all of it */
        CHECK(!returned && atomic_load(&calls) == 1);
        _exit(FREE_WAITED);
    }
    CHECK(result == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
    CHECK_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&other, 8));
    CHECK_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    CHECK_OK(cuStreamDestroy_v2(stream));  /* its thread drops what is left */
    struct timespec pause = {0, 30000000}; /* in which nothing may happen */
    nanosleep(&pause, NULL);
    CHECK(atomic_load(&calls) == 0);
}

/* How a child ended, as waitpid has it. */
static int end_of_child(void (*check)(void *arg), void *arg, ...)
{
    va_list pairs;
    va_start(pairs, arg);
    int status = run_case(check, arg, pairs);
    va_end(pairs);
    return status;
}

static void test_illegal_address_is_sticky(void **state)
{
    (void)state;
    int ended[FREE_WAITED + 1] = {0};
    for (int i = 1; i <= 8; i++) {
        char seed[16];
        snprintf(seed, sizeof(seed), "%d", i);
        const int status =
            end_of_child(check_sticky, NULL, "WEFT_FAKE_GPU_SEED", seed,
                         "WEFT_FAKE_GPU_DELAY", "0", NULL);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= FREE_WAITED);
        ended[WEXITSTATUS(status)]++;
    }
    assert_int_equal(ended[0] + ended[FREE_WAITED], 8);
    assert_true(ended[0] > 0 && ended[FREE_WAITED] > 0);
}

enum { LARGE_BYTES = 16 << 20 };

/* Once an error is reported, a copy of another stream touches the host's memory
 * no more, which may be unmapped then. The third operation fails: the fill,
 * most often while the copy is at work, or the copy. */
static void check_copies_end(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream copying = new_stream(), failing = new_stream();
    CUdeviceptr memory = new_memory(LARGE_BYTES), other = new_memory(BYTES);
    void *host = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(host != MAP_FAILED);
    CHECK_OK(cuMemHostRegister_v2(host, LARGE_BYTES, 0));
    CHECK_OK(cuMemsetD8Async(memory, 2, LARGE_BYTES, copying));
    CHECK_OK(cuStreamSynchronize(copying));
    CHECK_OK(cuMemcpyDtoHAsync_v2(host, memory, LARGE_BYTES, copying));
    CHECK_OK(cuMemsetD8Async(other, 3, BYTES, failing));
    CUresult result = cuStreamSynchronize(failing);
    if (result == CUDA_SUCCESS) { /* the copy was the third */
        result = cuStreamSynchronize(copying);
    }
    CHECK(result == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(munmap(host, LARGE_BYTES) == 0);
    struct timespec pause = {0, 50000000}; /* longer than a copy's parts */
    nanosleep(&pause, NULL);
}

static void test_nothing_is_copied_after_an_error(void **state)
{
    (void)state;
    for (int i = 1; i <= 8; i++) {
        char seed[16];
        snprintf(seed, sizeof(seed), "%d", i);
        in_child(check_copies_end, NULL, "WEFT_FAKE_GPU_ERROR", "700@3",
                 "WEFT_FAKE_GPU_SEED", seed, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_illegal_address_is_sticky),
        cmocka_unit_test(test_nothing_is_copied_after_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
