/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/nccl_route.c - which operations NCCL gets, and how they are queued.
 */
#include "comm/post/nccl_route.h"

#include "base/error.h"
#include "comm/control/fault.h"
#include "comm/engine/op.h"
#include "comm/nccl/nccl_call.h"
#include "device/cuda.h"

#include <stdio.h>

/* ---- the choice -----------------------------------------------------------
 */

/* By what all ranks know of op; why not, else NULL. */
static const char *find_obstacle(const wefti_twin *twin, const weft_op *op,
                                 const wefti_shape *shape)
{
    return twin->comm->tuning.allowed[op->collective]
               ? "WEFT_ALGO asks for an algorithm of weft's own"
           : !wefti_nccl_has(twin, op, shape)
               ? "NCCL has no such operation, type or reduction"
           : !shape->varied && op->count == 0
               ? "nothing to move: ranks only meet"
           : !shape->varied && op->gate_elems
               ? "gate chunks leave one by one, and NCCL moves all at once"
           : op->deferred_counts
               ? "its counts are deferred, and NCCL wants them at the post"
               : NULL;
}

static bool has_elements(const size_t *counts, size_t count, int nranks)
{
    bool some = !counts && count > 0;
    for (int rank = 0; counts && !some && rank < nranks; rank++) {
        some = counts[rank] > 0;
    }
    return some;
}

/* Whether what this rank uses is the device's; a rank that uses nothing goes
 * with the others. */
static bool is_on_device(const weft_comm *comm, const wefti_prepared *prepared)
{
    const weft_op *op = &prepared->desc;
    const wefti_role *role = &prepared->role;
    const bool sends =
        role->sends && has_elements(op->send_counts, op->count, comm->nranks);
    const bool receives =
        role->receives && op->recv &&
        has_elements(op->recv_counts, op->count, comm->nranks);
    return (!sends || prepared->places.send) &&
           (!receives || prepared->places.recv);
}

/* The stream waits at these gates, so they have to be the device's own. */
static weft_status check_own_gate(const weft_comm *comm, const char *name,
                                  const weft_gate *gate)
{
    if (!gate ||
        wefti_device_is_same(wefti_gate_get_device(gate), comm->device)) {
        return WEFT_OK;
    }
    return wefti_error(
        WEFT_ERR_UNSUPPORTED,
        "%s is a gate of the %s device: allowed on \"%s\", by NCCL, is one of "
        "its own device, or WEFT_ROUTE=steps",
        name, wefti_device_get_table(wefti_gate_get_device(gate))->kind,
        comm->name);
}

static weft_status check_gates(const weft_comm *comm, const weft_op *op)
{
    if (op->gate_elems && wefti_op_is_gated(op)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "gate_elems WEFT_GATE_PER_RANK in %s on \"%s\": "
                           "NCCL moves all parts at once; allowed is 0, or "
                           "WEFT_ROUTE=steps",
                           weft_collective_text(op->collective), comm->name);
    }
    weft_status status = check_own_gate(comm, "ready", op->ready);
    return status == WEFT_OK ? check_own_gate(comm, "writable", op->writable)
                             : status;
}

weft_status wefti_nccl_choose(const weft_comm *comm, wefti_prepared *prepared)
{
    const weft_op *op = &prepared->desc;
    if (!comm->twin || find_obstacle(comm->twin, op, prepared->role.shape) ||
        !is_on_device(comm, prepared)) {
        return WEFT_OK;
    }
    prepared->choice = (wefti_choice){
        .chunk_elems = 1, .digest = WEFTI_CHOICE_NCCL, .nccl = true};
    return check_gates(comm, op);
}

const char *wefti_nccl_why(const weft_comm *comm, const weft_op *op)
{
    if (comm->tuning.route != WEFTI_ROUTE_NCCL) {
        return NULL;
    }
    if (!comm->twin) {
        return comm->route_why;
    }
    const char *obstacle =
        find_obstacle(comm->twin, op, wefti_shape_get(op->collective));
    return obstacle ? obstacle
                    : "WEFT_ROUTE=nccl: NCCL carries it out as a whole, where "
                      "its buffers are in GPU memory; sums of floats may "
                      "differ from run to run";
}

bool wefti_nccl_takes(const weft_comm *comm, const weft_op *op)
{
    return comm->twin &&
           !find_obstacle(comm->twin, op, wefti_shape_get(op->collective)) &&
           (!op->send || wefti_device_owns(comm->device, op->send)) &&
           (!op->recv || wefti_device_owns(comm->device, op->recv));
}

/* ---- posting --------------------------------------------------------------
 */

weft_stream *wefti_nccl_stream(const weft_comm *comm)
{
    return comm->twin->stream;
}

static weft_status call(wefti_twin *twin, const weft_op *op,
                        weft_stream *stream)
{
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

weft_status wefti_nccl_carry(void *handed, weft_stream *stream)
{
    const wefti_nccl_handed *own = handed;
    weft_comm *comm = own->comm;
    const weft_op *op = &own->prepared->desc;
    weft_status status = WEFT_OK;
    if (op->ready && own->prepared->role.sends) {
        status = weft_gate_wait(op->ready, op->ready_chunk, own->epoch, stream);
    }
    if (status == WEFT_OK && op->writable && own->prepared->role.receives &&
        op->recv) {
        status = weft_gate_wait(op->writable, op->writable_chunk, own->epoch,
                                stream);
    }
    if (status == WEFT_OK) {
        status = call(comm->twin, op, stream);
    }
    if (status != WEFT_OK) {
        char text[256];
        snprintf(text, sizeof(text),
                 "%s on \"%s\": rank %d could not hand it to NCCL: %s",
                 weft_collective_text(op->collective), comm->name, comm->rank,
                 weft_error_text());
        wefti_fault_publish(comm, status, comm->rank, 0, "%s", text);
        status = wefti_error(status, "%s", text);
    }
    return status;
}
