/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/thread.h - the threads that the library starts for itself.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What they have at least, thread-local storage included, however small the
 * limit of the process is. */
enum { WEFTI_THREAD_STACK_BYTES = 2 << 20 };

/*
 * wefti_thread_start - a thread that takes no signals: they are the program's.
 *
 * thread_out  to be joined; NULL: detached.
 *
 * Returns     0, or an errno, also in errno: nothing runs then.
 */
int wefti_thread_start(void *(*run)(void *), void *argument,
                       pthread_t *thread_out);

/*
 * What such a thread has done, for others to read: it calls begin first, and
 * adds to wakeups each time it returns from a sleep.
 *
 * wakeups   relaxed: it stands for itself
 * clock     of its CPU time; running: begin -> readers, so that clock is known
 */
typedef struct wefti_thread_work {
    _Atomic uint64_t wakeups;
    clockid_t clock;
    _Atomic int running;
} wefti_thread_work;

void wefti_thread_work_begin(wefti_thread_work *work);

static inline void wefti_thread_work_woken(wefti_thread_work *work)
{
    atomic_fetch_add_explicit(&work->wakeups, 1, memory_order_relaxed);
}

/* CPU time so far; 0 before it has begun, and after its end. */
int64_t wefti_thread_work_ns(const wefti_thread_work *work);

/* How often the kernel has taken the core from the calling thread. */
int64_t wefti_thread_preemptions(void);

/* Of the calling thread's stack, what is left; 0: not known. */
size_t wefti_thread_stack_left(void);

#endif
