/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_query.c - what is asked of the library and of a communicator.
 */
#include "doors/nccl/door_comm.h"
#include "doors/nccl/door_text.h"

static int refuse_null(const char *call, const char *argument)
{
    return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                            argument);
}

int pncclGetVersion(int *version)
{
    if (!version) {
        return refuse_null("ncclGetVersion", "version");
    }
    *version = WEFTI_DOOR_VERSION;
    return WEFTI_DOOR_SUCCESS;
}
WEFTI_DOOR_WEAK(GetVersion)

const char *pncclGetErrorString(int result)
{
    switch (result) {
#define TEXT(name, theirs, value, text)                                        \
    case value:                                                                \
        return text;
        WEFTI_DOOR_RESULT_LIST(TEXT)
#undef TEXT
    default:
        return "unknown result code";
    }
}
WEFTI_DOOR_WEAK(GetErrorString)

const char *pncclGetLastError(struct ncclComm *comm)
{
    (void)comm; /* callers pass NULL */
    return wefti_door_last_text();
}
WEFTI_DOOR_WEAK(GetLastError)

/* Weft's log is not NCCL's. */
void pncclResetDebugInit(void)
{
}
WEFTI_DOOR_WEAK(ResetDebugInit)

typedef enum what { COUNT, DEVICE, RANK } what;

static int ask(struct ncclComm *handle, const char *call, what asked,
               int *value_out)
{
    wefti_door_comm *comm;
    const int result = wefti_door_enter_ready(handle, call, &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    const int value = asked == COUNT    ? comm->nranks
                      : asked == DEVICE ? comm->ordinal
                                        : comm->rank;
    wefti_door_leave(comm);
    if (!value_out) {
        return refuse_null(call, "the place for the answer");
    }
    *value_out = value;
    return WEFTI_DOOR_SUCCESS;
}

int pncclCommCount(struct ncclComm *comm, int *count_out)
{
    return ask(comm, "ncclCommCount", COUNT, count_out);
}
WEFTI_DOOR_WEAK(CommCount)

int pncclCommCuDevice(struct ncclComm *comm, int *device_out)
{
    return ask(comm, "ncclCommCuDevice", DEVICE, device_out);
}
WEFTI_DOOR_WEAK(CommCuDevice)

int pncclCommUserRank(struct ncclComm *comm, int *rank_out)
{
    return ask(comm, "ncclCommUserRank", RANK, rank_out);
}
WEFTI_DOOR_WEAK(CommUserRank)
