/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/thread.c - signals blocked, a stack of its own size.
 *
 * ulimit -s is what a thread has by default, and some set it to 64 KiB.
 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/* The process's default where that is enough. */
static int size_stack(pthread_attr_t *attributes)
{
    size_t bytes = 0;
    (void)pthread_attr_getstacksize(attributes, &bytes);
    return bytes < WEFTI_THREAD_STACK_BYTES
               ? pthread_attr_setstacksize(attributes, WEFTI_THREAD_STACK_BYTES)
               : 0;
}

int wefti_thread_start(void *(*run)(void *), void *argument,
                       pthread_t *thread_out)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int failure = pthread_attr_init(&attributes);
    if (failure) {
        errno = failure;
        return failure;
    }
    failure = size_stack(&attributes);
    if (!failure && !thread_out) {
        failure =
            pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    }
    if (!failure) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failure = pthread_create(&thread, &attributes, run, argument);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attributes);
    if (!failure && thread_out) {
        *thread_out = thread;
    }
    errno = failure;
    return failure;
}

void wefti_thread_work_begin(wefti_thread_work *work)
{
    if (pthread_getcpuclockid(pthread_self(), &work->clock) == 0) {
        atomic_store_explicit(&work->running, 1, memory_order_release);
    }
}

int64_t wefti_thread_work_ns(const wefti_thread_work *work)
{
    struct timespec used = {0};
    if (!atomic_load_explicit(&work->running, memory_order_acquire) ||
        clock_gettime(work->clock, &used) != 0) {
        return 0;
    }
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

int64_t wefti_thread_preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

size_t wefti_thread_stack_left(void)
{
    pthread_attr_t attributes;
    void *lowest = NULL;
    size_t bytes = 0;
    const char here = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return 0;
    }
    (void)pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    const uintptr_t at = (uintptr_t)&here, end = (uintptr_t)lowest;
    return at > end && at - end <= bytes ? at - end : 0;
}
