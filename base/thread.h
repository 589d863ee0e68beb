/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/thread.h - the threads that the library starts for itself.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

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

/* Of the calling thread's stack, what is left; 0: not known. */
size_t wefti_thread_stack_left(void);

#endif
