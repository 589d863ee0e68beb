/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_job.c - each kind is one call of weft's; then its outcome is
 * left where the next call on the communicator finds it.
 */
#include "doors/nccl/door_job.h"

#include "base/error.h"
#include "base/thread.h"
#include "doors/nccl/door_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_comm_config config_of(const wefti_door_comm *comm)
{
    return (weft_comm_config){.size_bytes = sizeof(weft_comm_config),
                              .name =
                                  comm->wish.name[0] ? comm->wish.name : NULL,
                              .device = comm->device,
                              .cancel = comm->cancel};
}

static weft_status create(wefti_door_job *job, weft_comm **weft_out)
{
    weft_comm_config config = config_of(job->comm);
    config.id = &job->id;
    config.rank = job->comm->rank;
    config.nranks = job->comm->nranks;
    return weft_comm_create(&config, weft_out);
}

/*
 * A communicator that was revoked has failed, and weft splits none of these: so
 * its ranks first make another one of them all, which takes its place.
 */
static weft_status heal(wefti_door_comm *parent)
{
    weft_comm *failed = wefti_door_get_weft(parent), *healed = NULL;
    weft_fault fault = {.size_bytes = sizeof(fault)};
    pthread_mutex_lock(&parent->lock);
    const bool revoked = parent->revoked;
    pthread_mutex_unlock(&parent->lock);
    weft_status status = weft_comm_get_fault(failed, &fault);
    if (status != WEFT_OK || fault.status == WEFT_OK || !revoked) {
        return status;
    }
    status = weft_comm_shrink(failed, &healed);
    if (status != WEFT_OK) {
        return status;
    }
    if (weft_comm_get_nranks(healed) != parent->nranks) {
        weft_comm_destroy(healed);
        return wefti_error(WEFT_ERR_PEER,
                           "the communicator was revoked, and of its %d ranks "
                           "not all are left: allowed is ncclCommShrink",
                           parent->nranks);
    }
    pthread_mutex_lock(&parent->lock);
    parent->weft = healed;
    pthread_mutex_unlock(&parent->lock);
    weft_comm_destroy(failed);
    return WEFT_OK;
}

static weft_status split(wefti_door_job *job, weft_comm **weft_out)
{
    weft_comm_config config = {.size_bytes = sizeof(config)};
    if (job->comm) {
        config = config_of(job->comm);
    }
    weft_status status = heal(job->parent);
    return status == WEFT_OK
               ? weft_comm_split(wefti_door_get_weft(job->parent), job->color,
                                 job->key, &config, weft_out)
               : status;
}

static weft_status shrink(wefti_door_job *job, weft_comm **weft_out)
{
    weft_comm *parent = wefti_door_get_weft(job->parent);
    weft_comm_config config = config_of(job->comm);
    config.cancel = NULL;
    if (job->abort && weft_comm_abort(parent) != WEFT_OK) {
        return WEFT_ERR_INVALID;
    }
    return weft_comm_shrink_without(parent, job->ranks, job->rank_count,
                                    &config, weft_out);
}

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}

/* The same on all ranks: of the id, or of what was called on the parent. */
static uint64_t hash_of(const wefti_door_job *job)
{
    uint64_t hash = job->parent ? job->parent->hash : 0xcbf29ce484222325u;
    if (!job->parent) {
        return mix(hash, &job->id, sizeof(job->id));
    }
    hash = mix(hash, &job->parent->children, sizeof(job->parent->children));
    hash = mix(hash, &job->kind, sizeof(job->kind));
    hash = mix(hash, &job->color, sizeof(job->color));
    return mix(hash, job->ranks, sizeof(int) * (size_t)job->rank_count);
}

/* Its numbers are known to be right only now: ranks may have died. */
static void keep_made(const wefti_door_job *job, weft_comm *weft)
{
    wefti_door_comm *comm = job->comm;
    pthread_mutex_lock(&comm->lock);
    comm->hash = hash_of(job);
    comm->weft = weft;
    comm->rank = weft_comm_get_rank(weft);
    comm->nranks = weft_comm_get_nranks(weft);
    pthread_mutex_unlock(&comm->lock);
}

static int make(wefti_door_job *job)
{
    static const char *const calls[] = {"ncclCommInitRank", "ncclCommSplit",
                                        "ncclCommShrink"};
    weft_comm *weft = NULL;
    weft_status status = job->kind == WEFTI_DOOR_INIT    ? create(job, &weft)
                         : job->kind == WEFTI_DOOR_SPLIT ? split(job, &weft)
                                                         : shrink(job, &weft);
    if (job->parent) {
        job->parent->children++;
    }
    if (status == WEFT_OK && job->comm) {
        keep_made(job, weft);
    }
    return wefti_door_status(status, calls[job->kind]);
}

static void set_busy(wefti_door_comm *comm, int change)
{
    if (comm) {
        pthread_mutex_lock(&comm->lock);
        comm->busy += change;
        pthread_mutex_unlock(&comm->lock);
    }
}

static void begin(wefti_door_job *job)
{
    set_busy(job->comm, 1);
    set_busy(job->parent, 1);
}

/* Who asked for it learns of it now, or by its handle. */
static void end(wefti_door_job *job, bool handle_stays)
{
    wefti_door_comm *comm = job->comm;
    free(job->ranks);
    if (comm) {
        pthread_mutex_lock(&comm->lock);
        comm->state = job->result;
        comm->busy--;
        pthread_mutex_unlock(&comm->lock);
    }
    set_busy(job->parent, -1);
    if (job->parent) {
        wefti_door_leave(job->parent);
    }
    if (comm && (handle_stays || job->result == WEFTI_DOOR_SUCCESS)) {
        wefti_door_leave(comm);
    } else if (comm) {
        *job->place = NULL;
        if (wefti_door_take(comm, "") == WEFTI_DOOR_SUCCESS) {
            wefti_door_drop(comm);
        }
    }
}

static void run(wefti_door_job *job)
{
    job->result = make(job);
    snprintf(job->text, sizeof(job->text), "%s",
             job->result == WEFTI_DOOR_SUCCESS ? "" : wefti_door_last_text());
}

static void *run_chain(void *argument)
{
    for (wefti_door_job *job = argument; job; job = job->next) {
        run(job);
    }
    return NULL;
}

/* Gives the jobs back; the last error of several, its text this thread's. */
static int end_chain(wefti_door_job *job, bool handle_stays)
{
    int result = WEFTI_DOOR_SUCCESS;
    while (job) {
        wefti_door_job *next = job->next;
        if (job->result != WEFTI_DOOR_SUCCESS) {
            result = wefti_door_error(job->result, "%s", job->text);
        }
        end(job, handle_stays);
        free(job);
        job = next;
    }
    return result;
}

static void *run_behind(void *argument)
{
    run_chain(argument);
    end_chain(argument, true);
    return NULL;
}

static void refuse_chain(wefti_door_job *job, const char *why)
{
    for (; job; job = job->next) {
        job->result = WEFTI_DOOR_SYSTEM_ERROR;
        snprintf(job->text, sizeof(job->text), "%s", why);
    }
}

/* The heads of chains, at the front of jobs. */
static size_t link_chains(wefti_door_job **jobs, size_t count)
{
    size_t heads = 0;
    for (size_t i = 0; i < count; i++) {
        wefti_door_job *job = jobs[i], *last = NULL;
        for (size_t k = 0; job->parent && k < heads; k++) {
            last = jobs[k]->parent == job->parent ? jobs[k] : last;
        }
        while (last && last->next) {
            last = last->next;
        }
        if (last) {
            last->next = job;
        } else {
            jobs[heads++] = job;
        }
        begin(job);
    }
    return heads;
}

static int run_all_behind(wefti_door_job **heads, size_t count)
{
    int result = WEFTI_DOOR_IN_PROGRESS;
    for (size_t i = 0; i < count; i++) {
        if (wefti_thread_start(run_behind, heads[i], NULL) != 0) {
            refuse_chain(heads[i], "no thread could be started");
            result = end_chain(heads[i], false);
        }
    }
    return result;
}

/* Each may wait for the others; the last is the caller's own. */
static int run_together(wefti_door_job **heads, size_t count)
{
    int result = WEFTI_DOOR_SUCCESS;
    pthread_t *threads = calloc(count, sizeof(*threads));
    bool *started = calloc(count, sizeof(*started));
    for (size_t i = 0; threads && started && i + 1 < count; i++) {
        started[i] = wefti_thread_start(run_chain, heads[i], &threads[i]) == 0;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        if (!threads || !started || !started[i]) {
            refuse_chain(heads[i], "no thread could be started");
        }
    }
    run_chain(heads[count - 1]);
    for (size_t i = 0; i < count; i++) {
        if (threads && started && started[i]) {
            pthread_join(threads[i], NULL);
        }
        const int ended = end_chain(heads[i], false);
        result = ended == WEFTI_DOOR_SUCCESS ? result : ended;
    }
    free(threads);
    free(started);
    return result;
}

int wefti_door_run(wefti_door_job **jobs, size_t count)
{
    const size_t heads = link_chains(jobs, count);
    return jobs[0]->blocking ? run_together(jobs, heads)
                             : run_all_behind(jobs, heads);
}

void wefti_door_cancel(wefti_door_job *job)
{
    begin(job);
    job->result = WEFTI_DOOR_INVALID_USAGE;
    end(job, false);
    free(job);
}
