/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_group.c - a group ends in three parts: communicators are
 * made, operations launched, communicators ended. One that has failed does none
 * of it.
 */
#include "doors/nccl/door_group.h"

#include "doors/nccl/door_end.h"
#include "doors/nccl/door_job.h"
#include "doors/nccl/door_text.h"

#include <stdlib.h>
#include <string.h>

/* Of a thread; between groups all of it is 0. ends are of DESTROY and
 * FINALIZE. */
typedef struct wefti_door_group {
    int depth;
    int error;
    bool mixed_known, blocking;
    wefti_door_call *calls;
    size_t call_count;
    wefti_door_job **jobs;
    size_t job_count;
    wefti_door_job **ends;
    size_t end_count;
} wefti_door_group;

static _Thread_local wefti_door_group group;

bool wefti_door_group_is_open(void)
{
    return group.depth > 0;
}

int wefti_door_group_note(int result)
{
    if (group.depth > 0 && result != WEFTI_DOOR_SUCCESS &&
        result != WEFTI_DOOR_IN_PROGRESS) {
        group.error = result;
    }
    return result;
}

/* Room for one more element behind count, which grows by doubling. */
static bool grow(void *array_inout, size_t count, size_t elem_bytes)
{
    void *array;
    if ((count & (count - 1)) != 0 && count > 0) {
        return true;
    }
    memcpy(&array, array_inout, sizeof(array));
    array = realloc(array, (count ? 2 * count : 1) * elem_bytes);
    if (array) {
        memcpy(array_inout, &array, sizeof(array));
        return true;
    }
    wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR, "a group: out of memory");
    return false;
}

static int check_mixed(const char *call, bool blocking)
{
    if (group.mixed_known && group.blocking != blocking) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: communicators that block and such that do "
                                "not are in one group: allowed is one kind",
                                call);
    }
    group.mixed_known = true;
    group.blocking = blocking;
    return WEFTI_DOOR_SUCCESS;
}

int wefti_door_group_add(const wefti_door_call *call, bool blocking)
{
    const int result = check_mixed(call->name, blocking);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    if (!grow(&group.calls, group.call_count, sizeof(*call))) {
        return WEFTI_DOOR_SYSTEM_ERROR;
    }
    group.calls[group.call_count++] = *call;
    return WEFTI_DOOR_SUCCESS;
}

static int end_one(wefti_door_job *job)
{
    const int result = job->kind == WEFTI_DOOR_DESTROY
                           ? wefti_door_destroy(job->parent)
                           : wefti_door_finalize(job->parent);
    free(job);
    return result;
}

static int add_job(wefti_door_job *job)
{
    const bool ends =
        job->kind == WEFTI_DOOR_DESTROY || job->kind == WEFTI_DOOR_FINALIZE;
    const int result = check_mixed("a communicator's call", job->blocking);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    if (ends ? !grow(&group.ends, group.end_count, sizeof(job))
             : !grow(&group.jobs, group.job_count, sizeof(job))) {
        return WEFTI_DOOR_SYSTEM_ERROR;
    }
    if (ends) {
        group.ends[group.end_count++] = job;
    } else {
        group.jobs[group.job_count++] = job;
    }
    return WEFTI_DOOR_SUCCESS;
}

int wefti_door_submit(const wefti_door_job *given)
{
    wefti_door_job *job = malloc(sizeof(*job));
    if (!job) {
        return wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR, "out of memory");
    }
    *job = *given;
    if (group.depth == 0) {
        return job->kind == WEFTI_DOOR_DESTROY ||
                       job->kind == WEFTI_DOOR_FINALIZE
                   ? end_one(job)
                   : wefti_door_run(&job, 1);
    }
    const int result = add_job(job);
    if (result != WEFTI_DOOR_SUCCESS) {
        wefti_door_cancel(job);
    }
    return wefti_door_group_note(result);
}

/* Takes what the group has, and leaves none. */
static wefti_door_group take(void)
{
    const wefti_door_group taken = group;
    memset(&group, 0, sizeof(group));
    return taken;
}

static void release(wefti_door_group *taken)
{
    free(taken->calls);
    free(taken->jobs);
    free(taken->ends);
}

static void cancel(wefti_door_group *taken)
{
    for (size_t i = 0; i < taken->job_count; i++) {
        wefti_door_cancel(taken->jobs[i]);
    }
    for (size_t i = 0; i < taken->end_count; i++) {
        wefti_door_cancel(taken->ends[i]);
    }
}

/* The later result, unless it says less than the earlier one. */
static int join(int result, int next)
{
    const bool says_less =
        next == WEFTI_DOOR_SUCCESS ||
        (next == WEFTI_DOOR_IN_PROGRESS && result != WEFTI_DOOR_SUCCESS);
    return says_less ? result : next;
}

static int carry_out(wefti_door_group *taken)
{
    int result = WEFTI_DOOR_SUCCESS;
    if (taken->job_count > 0) {
        result = wefti_door_run(taken->jobs, taken->job_count);
    }
    if (result == WEFTI_DOOR_SUCCESS || result == WEFTI_DOOR_IN_PROGRESS) {
        result =
            join(result, wefti_door_launch(taken->calls, taken->call_count));
    }
    for (size_t i = 0; i < taken->end_count; i++) {
        result = join(result, end_one(taken->ends[i]));
    }
    return result;
}

static int end(bool simulated)
{
    if (group.depth == 0) {
        return wefti_door_error(WEFTI_DOOR_INVALID_USAGE,
                                "ncclGroupEnd: no group was started by this "
                                "thread");
    }
    if (--group.depth > 0) {
        return WEFTI_DOOR_SUCCESS;
    }
    wefti_door_group taken = take();
    int result = taken.error;
    if (result != WEFTI_DOOR_SUCCESS || simulated) {
        cancel(&taken);
    } else {
        result = carry_out(&taken);
    }
    release(&taken);
    return result;
}

int pncclGroupStart(void)
{
    group.depth++;
    return WEFTI_DOOR_SUCCESS;
}
WEFTI_DOOR_WEAK(GroupStart)

int pncclGroupEnd(void)
{
    return end(false);
}
WEFTI_DOOR_WEAK(GroupEnd)

/* The caller's struct may be of another version: shorter or longer. */
static int read_simulation(const wefti_door_simulation *given,
                           wefti_door_simulation *own)
{
    size_t bytes = 0;
    if (given) {
        memcpy(&bytes, &given->size, sizeof(bytes));
    }
    if (bytes < offsetof(wefti_door_simulation, estimatedTime)) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "ncclGroupSimulateEnd: simInfo is NULL or of "
                                "%zu bytes: begin with "
                                "NCCL_SIM_INFO_INITIALIZER",
                                bytes);
    }
    memcpy(own, given, bytes < sizeof(*own) ? bytes : sizeof(*own));
    return own->magic == WEFTI_DOOR_SIMULATION_MAGIC
               ? WEFTI_DOOR_SUCCESS
               : wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "ncclGroupSimulateEnd: simInfo.magic is "
                                  "0x%x: begin with NCCL_SIM_INFO_INITIALIZER",
                                  own->magic);
}

/* Nothing is launched, and no time is known: weft promises none. */
int pncclGroupSimulateEnd(wefti_door_simulation *simulation)
{
    wefti_door_simulation own;
    int result = wefti_door_group_note(read_simulation(simulation, &own));
    const int ended = end(true);
    if (result != WEFTI_DOOR_SUCCESS || ended != WEFTI_DOOR_SUCCESS) {
        return ended != WEFTI_DOOR_SUCCESS ? ended : result;
    }
    own.estimatedTime = -1.0f;
    memcpy(simulation, &own, own.size < sizeof(own) ? own.size : sizeof(own));
    return WEFTI_DOOR_SUCCESS;
}
WEFTI_DOOR_WEAK(GroupSimulateEnd)
