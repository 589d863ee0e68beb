/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/saver.c - the copy, and the thread that writes it.
 *
 * The thread reads of the replica only what no step changes.
 */
#include "trainer/checkpoint/saver.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64 };

/* Ranks come to a cut one after the other, and disks are slow. */
enum { WARN_MS = 300000 };

/* ---- the writer -----------------------------------------------------------
 */

/* With the lock: after the copy has been written. */
static void note_end(wefti_saver *saver, weft_status status, int failed)
{
    if (status != WEFT_OK) {
        snprintf(saver->error, sizeof(saver->error), "%s", weft_error_text());
        saver->status = status;
        saver->failed = failed;
    }
    saver->busy = false;
    pthread_cond_broadcast(&saver->changed);
}

static void *run_writer(void *context)
{
    wefti_saver *saver = context;
    pthread_mutex_lock(&saver->lock);
    while (!saver->ending || saver->busy) {
        if (saver->busy) {
            int failed = 0;
            wefti_savepoint_save save = saver->save;
            pthread_mutex_unlock(&saver->lock);
            save.failed = &failed;
            weft_status status = wefti_savepoint_save_run(&save);
            pthread_mutex_lock(&saver->lock);
            note_end(saver, status, failed);
        } else {
            pthread_cond_wait(&saver->changed, &saver->lock);
        }
    }
    pthread_mutex_unlock(&saver->lock);
    return NULL;
}

static weft_status open_writer(wefti_saver *saver)
{
    weft_comm *job = saver->replica->config.comm;
    weft_comm_config config = {
        .size_bytes = sizeof(config), .name = "checkpoint", .warn_ms = WARN_MS};
    weft_status status =
        weft_comm_split(job, 0, weft_comm_get_rank(job), &config, &saver->comm);
    if (status != WEFT_OK) {
        return status;
    }
    saver->has_thread =
        wefti_thread_start(run_writer, saver, &saver->thread) == 0;
    return saver->has_thread
               ? WEFT_OK
               : wefti_error_system("no thread that writes checkpoints");
}

/* ---- life -----------------------------------------------------------------
 */

weft_status wefti_saver_create(wefti_replica *replica, bool writes)
{
    wefti_saver *saver = calloc(1, sizeof(*saver));
    if (!saver) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to save with");
    }
    saver->replica = replica;
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->changed, NULL);
    weft_status status = wefti_state_list_shares(replica, false, &saver->list);
    if (writes && status == WEFT_OK) {
        status =
            wefti_saver_reserve(saver, wefti_state_count_bytes(&saver->list));
    }
    if (writes && status == WEFT_OK) {
        status = open_writer(saver);
    }
    if (status != WEFT_OK) {
        wefti_saver_destroy(saver);
        return status;
    }
    replica->saver = saver;
    return WEFT_OK;
}

weft_status wefti_saver_relist(wefti_saver *saver)
{
    wefti_state_list list;
    weft_status status = wefti_state_list_shares(saver->replica, false, &list);
    if (status == WEFT_OK) {
        wefti_state_list_fini(&saver->list);
        saver->list = list;
    }
    return status == WEFT_OK && saver->has_thread
               ? wefti_saver_reserve(saver, wefti_state_count_bytes(&list))
               : status;
}

bool wefti_saver_writes(const wefti_saver *saver)
{
    return saver && saver->has_thread;
}

weft_status wefti_saver_reserve(wefti_saver *saver, size_t bytes)
{
    if (bytes <= saver->copy_bytes) {
        return WEFT_OK;
    }
    size_t whole = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    unsigned char *copy = aligned_alloc(ALIGN_BYTES, whole);
    if (!copy) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a copy of the state, %zu bytes; "
                           "checkpoint.async: false saves without one",
                           bytes);
    }
    free(saver->copy);
    saver->copy = copy;
    saver->copy_bytes = whole;
    return WEFT_OK;
}

void wefti_saver_abort(wefti_saver *saver)
{
    if (saver && saver->comm) {
        (void)!weft_comm_abort(saver->comm);
    }
}

void wefti_saver_destroy(wefti_saver *saver)
{
    if (!saver) {
        return;
    }
    if (saver->has_thread) {
        pthread_mutex_lock(&saver->lock);
        saver->ending = true;
        pthread_cond_broadcast(&saver->changed);
        pthread_mutex_unlock(&saver->lock);
        pthread_join(saver->thread, NULL);
    }
    /* A communicator's fault is reported by the training's own. */
    if (saver->status != WEFT_OK && !saver->reported &&
        !wefti_replica_is_fault(saver->status)) {
        wefti_log(WEFTI_LOG_WARN, weft_comm_get_rank(saver->comm),
                  "a checkpoint was not written: %s", saver->error);
    }
    weft_comm_destroy(saver->comm);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->lock);
    wefti_state_list_fini(&saver->list);
    free(saver->copy);
    free(saver);
}

/* ---- the training's side --------------------------------------------------
 */

void wefti_saver_start(wefti_saver *saver, const wefti_savepoint_save *save)
{
    pthread_mutex_lock(&saver->lock);
    WEFTI_ASSERT(saver->has_thread && !saver->busy);
    saver->save = *save;
    saver->save.comm = saver->comm;
    saver->save.copy = saver->copy;
    saver->busy = true;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

/* Returns with the lock. */
static void await_end(wefti_saver *saver)
{
    int64_t before_ns = wefti_clock_ns();
    pthread_mutex_lock(&saver->lock);
    while (saver->busy) {
        pthread_cond_wait(&saver->changed, &saver->lock);
    }
    saver->replica->save_wait_ns += wefti_clock_ns() - before_ns;
}

weft_status wefti_saver_settle(wefti_saver *saver)
{
    if (!saver) {
        return WEFT_OK;
    }
    await_end(saver);
    weft_status status = saver->status;
    if (status != WEFT_OK) {
        saver->reported = true;
        saver->replica->failed = saver->failed;
        wefti_error_keep("%s", saver->error);
    }
    pthread_mutex_unlock(&saver->lock);
    return status;
}

void wefti_saver_await(wefti_saver *saver)
{
    if (saver) {
        await_end(saver);
        pthread_mutex_unlock(&saver->lock);
    }
}
