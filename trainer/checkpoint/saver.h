/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/saver.h - writes savepoints beside the training: a copy of
 * the state, and a thread that writes it.
 *
 *   training   step, copy, step, step, ..., step, (wait,) copy, step ...
 *   writer           write, make durable, commit        write ...
 *
 * There is one copy and one writer, for savepoints after steps and inside them
 * (trainer/checkpoint/pause.h) alike: the next savepoint waits until the last
 * is on disk. The writers of all ranks agree on a communicator of their own, as
 * ranks do that save here and now.
 *
 * Invariant: the copy belongs to the writer from start until it has settled,
 * else to the training.
 */
#ifndef TRAINER_CHECKPOINT_SAVER_H
#define TRAINER_CHECKPOINT_SAVER_H

#include "trainer/checkpoint/savepoint.h"

#include <pthread.h>

typedef struct wefti_saver {
    wefti_replica *replica;
    wefti_state_list list; /* of a savepoint after a step */
    unsigned char *copy;
    size_t copy_bytes;
    weft_comm *comm; /* NULL: there is no writer */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* All below under the lock; save stays as it is while busy. */
    wefti_savepoint_save save;
    bool busy, ending;
    bool reported; /* the error has been handed out */
    weft_status status;
    int failed; /* as in wefti_replica */
    char error[512];
} wefti_saver;

/*
 * wefti_saver_create - adds a saver to replica; the replica's fini ends it.
 *
 * writes   with a writer, and room for the copy of a savepoint after a step:
 *          collective. Else only the place where a snapshot can be read into.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_saver_create(wefti_replica *replica,
                                              bool writes);

/* Of the same bytes those that are other parts of tensors by now have their new
 * places; it has settled. Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_saver_relist(wefti_saver *saver);

/* Whether it has a writer. NULL: no. */
bool wefti_saver_writes(const wefti_saver *saver);

/* Room for a copy of so many bytes, at least; not while it is written. */
WEFT_NODISCARD weft_status wefti_saver_reserve(wefti_saver *saver,
                                               size_t bytes);

/*
 * wefti_saver_start - the copy is made, and the writer has settled: it writes.
 *
 * save     copied; its comm, copy and failed do not count
 */
void wefti_saver_start(wefti_saver *saver, const wefti_savepoint_save *save);

/*
 * wefti_saver_settle - wait until nothing is being written. NULL is legal.
 *
 * Returns     OK | the error that writing has ended with, the replica's failed
 *             set: on all ranks alike, but for the communicator's faults.
 */
WEFT_NODISCARD weft_status wefti_saver_settle(wefti_saver *saver);

/* The same for a rank that ends with an error of its own. */
void wefti_saver_await(wefti_saver *saver);

/* After a failure: a writer that waits for others goes on. NULL is legal. */
void wefti_saver_abort(wefti_saver *saver);

/*
 * wefti_saver_destroy - waits for the writer; an error that no call has
 * returned is logged as a warning. NULL is legal.
 */
void wefti_saver_destroy(wefti_saver *saver);

#endif
