/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_end.c - how communicators end, and what is asked about those
 * that fail: from any thread, while another is blocked inside.
 */
#include "doors/nccl/door_end.h"

#include "doors/nccl/door_group.h"
#include "doors/nccl/door_job.h"
#include "doors/nccl/door_text.h"

int wefti_door_destroy(wefti_door_comm *comm)
{
    const int result = wefti_door_take(comm, "ncclCommDestroy");
    if (result == WEFTI_DOOR_SUCCESS) {
        wefti_door_drop(comm);
    }
    return result;
}

/* What was posted is flushed by whoever destroys it: leaving is local. */
int wefti_door_finalize(wefti_door_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const bool again = comm->finalized, revoked = comm->revoked;
    comm->finalized = true;
    pthread_mutex_unlock(&comm->lock);
    wefti_door_leave(comm);
    if (revoked) {
        return wefti_door_error(WEFTI_DOOR_INVALID_USAGE,
                                "ncclCommFinalize: the communicator has been "
                                "revoked: allowed are destroy, split, shrink");
    }
    return again ? wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                    "ncclCommFinalize: it has been called "
                                    "already")
                 : WEFTI_DOOR_SUCCESS;
}

/* One whose making failed can be ended, one that is being made cannot. */
static int submit_end(struct ncclComm *handle, const char *call,
                      wefti_door_making kind)
{
    wefti_door_job job = {.kind = kind};
    if (!handle) {
        return WEFTI_DOOR_SUCCESS;
    }
    int result = wefti_door_enter(handle, call, &job.parent);
    if (result != WEFTI_DOOR_SUCCESS) {
        return wefti_door_group_note(result);
    }
    if (wefti_door_settle(job.parent) == WEFTI_DOOR_IN_PROGRESS) {
        wefti_door_leave(job.parent);
        return wefti_door_group_note(wefti_door_error(
            WEFTI_DOOR_INVALID_ARGUMENT,
            "%s: the communicator's last call is still in progress: wait for "
            "ncclCommGetAsyncError, or end it by ncclCommAbort",
            call));
    }
    job.blocking = job.parent->wish.blocking;
    return wefti_door_submit(&job);
}

int pncclCommFinalize(struct ncclComm *comm)
{
    return submit_end(comm, "ncclCommFinalize", WEFTI_DOOR_FINALIZE);
}
WEFTI_DOOR_WEAK(CommFinalize)

int pncclCommDestroy(struct ncclComm *comm)
{
    return submit_end(comm, "ncclCommDestroy", WEFTI_DOOR_DESTROY);
}
WEFTI_DOOR_WEAK(CommDestroy)

/* Whoever is blocked inside comes out with an error, on all ranks. */
static void stop(wefti_door_comm *comm)
{
    pthread_mutex_lock(&comm->lock); /* a split may put another one there */
    weft_status status = comm->weft ? weft_comm_abort(comm->weft) : WEFT_OK;
    pthread_mutex_unlock(&comm->lock);
    if (status != WEFT_OK) {
        wefti_door_error(WEFTI_DOOR_INTERNAL_ERROR, "abort: %s",
                         weft_error_text());
    }
}

int pncclCommAbort(struct ncclComm *handle)
{
    wefti_door_comm *comm;
    if (!handle) {
        return WEFTI_DOOR_SUCCESS;
    }
    int result = wefti_door_enter(handle, "ncclCommAbort", &comm);
    if (result == WEFTI_DOOR_SUCCESS) {
        result = wefti_door_take(comm, "ncclCommAbort");
    }
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    weft_status status = weft_cancel_post(comm->cancel);
    stop(comm);
    wefti_door_drop(comm);
    return wefti_door_status(status, "ncclCommAbort");
}
WEFTI_DOOR_WEAK(CommAbort)

static int revoke(wefti_door_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const bool again = comm->revoked, made = comm->weft != NULL;
    comm->revoked = comm->revoked || made;
    pthread_mutex_unlock(&comm->lock);
    if (again || !made) {
        return wefti_door_error(
            WEFTI_DOOR_INVALID_USAGE, "ncclCommRevoke: the communicator %s",
            again ? "has been revoked already" : "has not been made yet");
    }
    stop(comm);
    return WEFTI_DOOR_SUCCESS;
}

int pncclCommRevoke(struct ncclComm *handle, int flags)
{
    wefti_door_comm *comm;
    if (!handle) {
        return WEFTI_DOOR_SUCCESS;
    }
    int result = wefti_door_enter(handle, "ncclCommRevoke", &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    result = flags == 0 ? revoke(comm)
                        : wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                           "ncclCommRevoke: revokeFlags is %d: "
                                           "allowed is 0",
                                           flags);
    wefti_door_leave(comm);
    return result;
}
WEFTI_DOOR_WEAK(CommRevoke)

int pncclCommGetAsyncError(struct ncclComm *handle, int *result_out)
{
    wefti_door_comm *comm;
    int result = wefti_door_enter(handle, "ncclCommGetAsyncError", &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    if (result_out) {
        *result_out = wefti_door_settle(comm);
    } else {
        result = wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "ncclCommGetAsyncError: asyncError is NULL");
    }
    wefti_door_leave(comm);
    return result;
}
WEFTI_DOOR_WEAK(CommGetAsyncError)
