/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/shared_thread.h - threads of this process that serve several members
 * each, such as all jobs of a rank.
 *
 *   joins                              leaves
 *     one that takes the member, or      the member is out already
 *     a new one; it is added             the last one ends the thread
 *
 * A kind puts a wefti_shared_thread first in a struct of its own, and keeps its
 * members there; the lock is theirs.
 */
#ifndef BASE_SHARED_THREAD_H
#define BASE_SHARED_THREAD_H

#include "base/thread.h"
#include "weft/status.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct wefti_shared_thread {
    struct wefti_shared_thread *next; /* of its kind */
    int users;                        /* that have joined and not left */
    pid_t process; /* a forked child has the list, and no thread */
    pthread_t thread;
    wefti_thread_work work;
    _Atomic bool stopping; /* stored before it is woken */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} wefti_shared_thread;

/*
 * name    for top
 * what    for errors
 * bytes   of the kind's struct, which begins zeroed
 * open    what else it needs, lock of the list held; close: NULL, or legal
 *         after a failure of it
 * run     the thread: until stopping
 * takes   whether it may serve the member too; lock held
 * add     from then on it does; its thread may not run yet. Lock held.
 */
typedef struct wefti_shared_kind {
    const char *name, *what;
    size_t bytes;
    weft_status (*open)(wefti_shared_thread *self);
    void (*close)(wefti_shared_thread *self);
    void *(*run)(void *self);
    void (*wake)(wefti_shared_thread *self);
    bool (*takes)(const wefti_shared_thread *self, const void *member);
    weft_status (*add)(wefti_shared_thread *self, void *member);
} wefti_shared_kind;

/* Those of a kind in this process. */
typedef struct wefti_shared_list {
    const wefti_shared_kind *kind;
    pthread_mutex_t lock;
    wefti_shared_thread *first;
} wefti_shared_list;

#define WEFTI_SHARED_LIST(table)                                               \
    {                                                                          \
        .kind = &(table), .lock = PTHREAD_MUTEX_INITIALIZER                    \
    }

/*
 * wefti_shared_join - adds the member to a thread that takes it, or a new one.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM | as open and add: it may have
 *             been added to a thread that is gone.
 */
WEFT_NODISCARD weft_status wefti_shared_join(wefti_shared_list *list,
                                             void *member);

/* Its member is there no more. */
void wefti_shared_leave(wefti_shared_list *list, wefti_shared_thread *self);

#endif
