/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/nccl_route.c - the route nccl: NCCL carries operations out.
 */
#include "comm/control/fault.h"
#include "comm/nccl/nccl_call.h"
#include "comm/post/carried_route.h"
#include "device/cuda.h"

static bool is_there(const weft_comm *comm)
{
    return comm->twin != NULL;
}

static const char *find_obstacle(const weft_comm *comm, const weft_op *op,
                                 const wefti_shape *shape)
{
    return wefti_nccl_has(comm->twin, op, shape)
               ? NULL
               : "NCCL has no such operation, type or reduction";
}

static weft_stream *get_stream(const weft_comm *comm)
{
    return comm->twin->stream;
}

static weft_status carry(const wefti_carried *handed, weft_stream *stream)
{
    wefti_twin *twin = handed->comm->twin;
    const weft_op *op = &handed->prepared->desc;
    weft_status status = wefti_cuda_device_enter(twin->comm->device);
    if (status != WEFT_OK) {
        return status;
    }
    pthread_mutex_lock(&twin->calls);
    int result = WEFTI_NCCL_SUCCESS;
    if (!atomic_load(&twin->aborted) && !wefti_fault_is_published(twin->comm)) {
        result = wefti_nccl_call(twin, op, weft_stream_get_native(stream));
    }
    if (result != WEFTI_NCCL_SUCCESS && result != WEFTI_NCCL_IN_PROGRESS) {
        status = wefti_nccl_error(twin->api, twin->handle, result,
                                  weft_collective_text(op->collective));
    }
    pthread_mutex_unlock(&twin->calls);
    wefti_cuda_device_leave(twin->comm->device);
    return status;
}

const wefti_carrier wefti_carrier_nccl = {
    .name = "nccl",
    .by = "NCCL",
    .digest = WEFTI_CHOICE_NCCL,
    .whole = "moves all parts at once",
    .taken = "WEFT_ROUTE=nccl: NCCL carries it out as a whole, where its "
             "buffers are in GPU memory; sums of floats may differ from run to "
             "run",
    .is_there = is_there,
    .find_obstacle = find_obstacle,
    .stream = get_stream,
    .carry = carry};
