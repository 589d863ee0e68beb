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
    return wefti_op_is_p2p(op) && op->root == comm->rank
               ? "to NCCL a message to oneself must have both its ends in one "
                 "list"
           : wefti_nccl_has(comm->twin, op, shape)
               ? NULL
               : "NCCL has no such operation, type or reduction";
}

static weft_stream *get_stream(const weft_comm *comm)
{
    return comm->twin->stream;
}

static int call_list(wefti_twin *twin, const wefti_carried_list *list,
                     weft_stream *stream)
{
    int result = wefti_nccl_begin_messages(twin);
    if (result != WEFTI_NCCL_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < list->count; i++) {
        result =
            wefti_nccl_call_message(twin, &list->messages[i].desc,
                                    weft_stream_get_native(stream), result);
    }
    return wefti_nccl_end_messages(twin, result);
}

/* A collective, or else a list. */
static weft_status call(wefti_twin *twin, const weft_op *op,
                        const wefti_carried_list *list, weft_stream *stream)
{
    weft_status status = wefti_cuda_device_enter(twin->comm->device);
    if (status != WEFT_OK) {
        return status;
    }
    pthread_mutex_lock(&twin->calls);
    int result = WEFTI_NCCL_SUCCESS;
    if (!atomic_load(&twin->aborted) && !wefti_fault_is_published(twin->comm)) {
        result = op ? wefti_nccl_call(twin, op, weft_stream_get_native(stream))
                    : call_list(twin, list, stream);
    }
    if (result != WEFTI_NCCL_SUCCESS && result != WEFTI_NCCL_IN_PROGRESS) {
        status = wefti_nccl_error(twin->api, twin->handle, result,
                                  op ? weft_collective_text(op->collective)
                                     : "messages");
    }
    pthread_mutex_unlock(&twin->calls);
    wefti_cuda_device_leave(twin->comm->device);
    return status;
}

static weft_status carry(const wefti_carried *handed, weft_stream *stream)
{
    wefti_twin *twin = handed->comm->twin;
    twin->handed++;
    return call(twin, &handed->prepared->desc, NULL, stream);
}

static uint32_t count_handed(const weft_comm *comm)
{
    return comm->twin->handed;
}

static weft_status carry_list(const wefti_carried_list *list,
                              weft_stream *stream)
{
    return call(list->comm->twin, NULL, list, stream);
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
    .carry = carry,
    .count_handed = count_handed,
    .carry_list = carry_list};
