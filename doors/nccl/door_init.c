/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_init.c - communicators from an id that the program has passed
 * to all ranks: it is weft's own, of the same 128 bytes.
 */
#include "doors/nccl/door_device.h"
#include "doors/nccl/door_group.h"
#include "doors/nccl/door_job.h"
#include "doors/nccl/door_text.h"

#include <string.h>

_Static_assert(sizeof(wefti_door_id) == sizeof(weft_unique_id), "one id");

int pncclGetUniqueId(wefti_door_id *id)
{
    weft_unique_id own;
    if (!id) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "ncclGetUniqueId: uniqueId is NULL");
    }
    weft_status status = weft_unique_id_create(&own);
    if (status == WEFT_OK) {
        memcpy(id, &own, sizeof(own));
    }
    return wefti_door_status(status, "ncclGetUniqueId");
}
WEFTI_DOOR_WEAK(GetUniqueId)

static int check_ranks(const char *call, struct ncclComm *const *comm,
                       int nranks, int rank)
{
    if (!comm) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT, "%s: comm is NULL",
                                call);
    }
    if (nranks < 1 || rank < 0 || rank >= nranks) {
        return wefti_door_error(
            WEFTI_DOOR_INVALID_ARGUMENT,
            "%s: rank %d of %d: allowed is 1 or more ranks, "
            "numbered from 0",
            call, rank, nranks);
    }
    return WEFTI_DOOR_SUCCESS;
}

static int init(struct ncclComm **place, int nranks, const wefti_door_id *id,
                int rank, const wefti_door_wish *wish, int ordinal)
{
    weft_device *device;
    wefti_door_job job = {
        .kind = WEFTI_DOOR_INIT, .place = place, .blocking = wish->blocking};
    const int result = wefti_door_device_open(ordinal, &device, &ordinal);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    job.comm = wefti_door_comm_create(rank, nranks, wish, device, ordinal);
    if (!job.comm) {
        weft_device_close(device);
        return WEFTI_DOOR_SYSTEM_ERROR;
    }
    memcpy(&job.id, id, sizeof(job.id));
    *place = wefti_door_handle(job.comm);
    return wefti_door_submit(&job);
}

static int check_and_init(const char *call, struct ncclComm **place, int nranks,
                          const wefti_door_id *id, int rank,
                          const wefti_door_config *config)
{
    wefti_door_wish wish;
    int result = check_ranks(call, place, nranks, rank);
    if (result == WEFTI_DOOR_SUCCESS) {
        *place = NULL;
        result = wefti_door_config_read(config, NULL, &wish);
    }
    if (result == WEFTI_DOOR_SUCCESS) {
        result = init(place, nranks, id, rank, &wish, WEFTI_DOOR_CURRENT);
    }
    return wefti_door_group_note(result);
}

int pncclCommInitRank(struct ncclComm **comm, int nranks, wefti_door_id id,
                      int rank)
{
    return check_and_init("ncclCommInitRank", comm, nranks, &id, rank, NULL);
}
WEFTI_DOOR_WEAK(CommInitRank)

int pncclCommInitRankConfig(struct ncclComm **comm, int nranks,
                            wefti_door_id id, int rank,
                            wefti_door_config *config)
{
    return check_and_init("ncclCommInitRankConfig", comm, nranks, &id, rank,
                          config);
}
WEFTI_DOOR_WEAK(CommInitRankConfig)

/* One meeting point does for all: the others stay unused until they close. */
int pncclCommInitRankScalable(struct ncclComm **comm, int nranks, int rank,
                              int id_count, wefti_door_id *ids,
                              wefti_door_config *config)
{
    if (!ids || id_count < 1 || id_count > nranks) {
        return wefti_door_group_note(wefti_door_error(
            WEFTI_DOOR_INVALID_ARGUMENT,
            "ncclCommInitRankScalable: %d ids%s for %d ranks: allowed is 1 to "
            "one for each rank",
            id_count, ids ? "" : " at NULL", nranks));
    }
    return check_and_init("ncclCommInitRankScalable", comm, nranks, ids, rank,
                          config);
}
WEFTI_DOOR_WEAK(CommInitRankScalable)

static int check_devices(struct ncclComm **comms, int count, const int *devices)
{
    int result = check_ranks("ncclCommInitAll", comms, count, 0);
    for (int i = 0; devices && i < count && result == WEFTI_DOOR_SUCCESS; i++) {
        if (devices[i] < 0) {
            result = wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                      "ncclCommInitAll: devlist[%d] is %d", i,
                                      devices[i]);
        }
        for (int k = 0; k < i && result == WEFTI_DOOR_SUCCESS; k++) {
            if (devices[k] == devices[i]) {
                result = wefti_door_error(
                    WEFTI_DOOR_INVALID_USAGE,
                    "ncclCommInitAll: devlist[%d] and [%d] are both %d: "
                    "allowed is each device once",
                    k, i, devices[i]);
            }
        }
    }
    return result;
}

/* A group of its own, or a part of one that is open. */
int pncclCommInitAll(struct ncclComm **comms, int count, const int *devices)
{
    wefti_door_wish wish;
    wefti_door_id id;
    int result = check_devices(comms, count, devices);
    if (result == WEFTI_DOOR_SUCCESS) {
        result = wefti_door_config_read(NULL, NULL, &wish);
    }
    if (result == WEFTI_DOOR_SUCCESS) {
        result = pncclGetUniqueId(&id);
    }
    if (result != WEFTI_DOOR_SUCCESS) {
        return wefti_door_group_note(result);
    }
    wish.blocking = true;
    memset(comms, 0, (size_t)count * sizeof(struct ncclComm *));
    pncclGroupStart();
    for (int i = 0; i < count && result == WEFTI_DOOR_SUCCESS; i++) {
        result = wefti_door_group_note(
            init(&comms[i], count, &id, i, &wish, devices ? devices[i] : i));
    }
    return pncclGroupEnd();
}
WEFTI_DOOR_WEAK(CommInitAll)
