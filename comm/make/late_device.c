/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/late_device.c - a device for a communicator that was made without.
 *
 * Each rank looks itself at where its buffers are. Others need to know only
 * where they would read a weft_mem by loads: they ask anew when one is made.
 */
#include "base/error.h"
#include "comm/core/live.h"
#include "comm/engine/copies.h"

/* Streams of the host's device hold gates that a GPU could not wait at. */
static bool has_posted_on_streams(weft_comm *comm)
{
    pthread_mutex_lock(&comm->tickets_lock);
    const bool has = comm->ticket_blocks != NULL;
    pthread_mutex_unlock(&comm->tickets_lock);
    return has;
}

static weft_status check(weft_comm *comm, const weft_device *device)
{
    if (!device) {
        return wefti_error(WEFT_ERR_INVALID, "device is NULL: allowed is one");
    }
    if (comm->device) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "\"%s\" has %s device %d: allowed is that, and not %s device %d",
            comm->name, wefti_device_get_table(comm->device)->kind,
            wefti_device_get_index(comm->device),
            wefti_device_get_table(device)->kind,
            wefti_device_get_index(device));
    }
    const char *what =
        comm->mems                    ? "has memory that ranks put to"
        : has_posted_on_streams(comm) ? "has posted on streams"
        : comm->tuning.single_copy == WEFTI_SINGLE_COPY_ON
            ? "has WEFT_SINGLE_COPY=on, by which peers read its buffers"
            : NULL;
    return what ? wefti_error(WEFT_ERR_INVALID,
                              "\"%s\" %s: a device is allowed before, or when "
                              "it is made",
                              comm->name, what)
                : WEFT_OK;
}

weft_status weft_comm_set_device(weft_comm *comm, weft_device *device)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (device && comm->device && wefti_device_is_same(device, comm->device)) {
        return WEFT_OK;
    }
    weft_status status = check(comm, device);
    if (status == WEFT_OK) {
        status = wefti_copies_create_late(comm, device);
    }
    if (status == WEFT_OK) {
        atomic_store(
            &wefti_shared_get_page(&comm->fabric.shared, comm->rank)->host_only,
            !comm->copies);
    }
    return status;
}
