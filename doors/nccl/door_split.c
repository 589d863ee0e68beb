/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_split.c - communicators of some ranks of another one.
 */
#include "doors/nccl/door_device.h"
#include "doors/nccl/door_group.h"
#include "doors/nccl/door_job.h"
#include "doors/nccl/door_text.h"

#include <stdlib.h>
#include <string.h>

/* The new one's object, with a device of its own; the parent's is open. */
static int add_comm(wefti_door_job *job, int rank, int nranks,
                    const wefti_door_wish *wish)
{
    weft_device *device = NULL;
    if (job->parent->device &&
        weft_device_open("cuda", job->parent->ordinal, &device) != WEFT_OK) {
        return wefti_door_error(WEFTI_DOOR_UNHANDLED_CUDA_ERROR, "GPU %d: %s",
                                job->parent->ordinal, weft_error_text());
    }
    job->comm = wefti_door_comm_create(rank, nranks, wish, device,
                                       job->parent->ordinal);
    if (!job->comm) {
        weft_device_close(device);
        return WEFTI_DOOR_SYSTEM_ERROR;
    }
    *job->place = wefti_door_handle(job->comm);
    return WEFTI_DOOR_SUCCESS;
}

static int begin(wefti_door_job *job, struct ncclComm *handle, const char *call,
                 const wefti_door_config *config, wefti_door_wish *wish_out)
{
    int result = wefti_door_enter_ready(handle, call, &job->parent);
    if (result == WEFTI_DOOR_SUCCESS && !job->place) {
        result = wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "%s: newcomm is NULL", call);
    }
    if (result == WEFTI_DOOR_SUCCESS) {
        *job->place = NULL;
        result = wefti_door_config_read(config, &job->parent->wish, wish_out);
    }
    job->blocking = result == WEFTI_DOOR_SUCCESS && wish_out->blocking;
    return result;
}

/* Hands it on, or gives back what there is of it. */
static int go_on(wefti_door_job *job, int result)
{
    if (result == WEFTI_DOOR_SUCCESS) {
        return wefti_door_submit(job);
    }
    if (job->parent) {
        wefti_door_leave(job->parent);
    }
    free(job->ranks);
    return wefti_door_group_note(result);
}

int pncclCommSplit(struct ncclComm *handle, int color, int key,
                   struct ncclComm **comm_out, wefti_door_config *config)
{
    wefti_door_wish wish;
    wefti_door_job job = {.kind = WEFTI_DOOR_SPLIT,
                          .place = comm_out,
                          .color = color,
                          .key = key};
    int result = begin(&job, handle, "ncclCommSplit", config, &wish);
    if (result == WEFTI_DOOR_SUCCESS && color < WEFTI_DOOR_NO_COLOR) {
        result = wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "ncclCommSplit: color is %d: allowed is -1 "
                                  "(none) or more",
                                  color);
    }
    if (result == WEFTI_DOOR_SUCCESS && color != WEFTI_DOOR_NO_COLOR) {
        result = add_comm(&job, 0, 1, &wish);
    }
    return go_on(&job, result);
}
WEFTI_DOOR_WEAK(CommSplit)

/* Copies the list; and how many of it stand before this rank. */
static int check_list(wefti_door_job *job, const int *ranks, int rank_count,
                      int *before_out)
{
    const int own = job->parent->rank, nranks = job->parent->nranks;
    if (!ranks || rank_count < 1 || rank_count >= nranks) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "ncclCommShrink: %d ranks%s to leave out, of "
                                "%d: allowed is 1 to %d",
                                rank_count, ranks ? "" : " at NULL", nranks,
                                nranks - 1);
    }
    *before_out = 0;
    for (int i = 0; i < rank_count; i++) {
        if (ranks[i] < 0 || ranks[i] >= nranks || ranks[i] == own) {
            return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                    "ncclCommShrink: excludeRanksList[%d] is "
                                    "%d: allowed is 0 to %d, and not the "
                                    "caller, %d",
                                    i, ranks[i], nranks - 1, own);
        }
        *before_out += ranks[i] < own;
    }
    job->ranks = malloc((size_t)rank_count * sizeof(int));
    if (!job->ranks) {
        return wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR,
                                "ncclCommShrink: out of memory");
    }
    memcpy(job->ranks, ranks, (size_t)rank_count * sizeof(int));
    job->rank_count = rank_count;
    return WEFTI_DOOR_SUCCESS;
}

int pncclCommShrink(struct ncclComm *handle, int *ranks, int rank_count,
                    struct ncclComm **comm_out, wefti_door_config *config,
                    int flags)
{
    wefti_door_wish wish;
    int before = 0;
    wefti_door_job job = {.kind = WEFTI_DOOR_SHRINK,
                          .place = comm_out,
                          .abort = flags == WEFTI_DOOR_SHRINK_ABORT};
    int result = begin(&job, handle, "ncclCommShrink", config, &wish);
    if (result == WEFTI_DOOR_SUCCESS && flags != 0 && !job.abort) {
        result = wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "ncclCommShrink: shrinkFlags is %d: allowed "
                                  "is 0 or 1",
                                  flags);
    }
    if (result == WEFTI_DOOR_SUCCESS) {
        result = check_list(&job, ranks, rank_count, &before);
    }
    if (result == WEFTI_DOOR_SUCCESS) {
        result = add_comm(&job, job.parent->rank - before,
                          job.parent->nranks - rank_count, &wish);
    }
    return go_on(&job, result);
}
WEFTI_DOOR_WEAK(CommShrink)
