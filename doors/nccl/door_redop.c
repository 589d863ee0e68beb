/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_redop.c - sums of products with a scalar, which belong to one
 * communicator. Their numbers are never used again, so that those of another
 * communicator, or that were destroyed, are known as such.
 */
#include "doors/nccl/door_comm.h"
#include "doors/nccl/door_text.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Of the process. */
static _Atomic int last_op = WEFTI_DOOR_BUILT_IN_OPS - 1;

static int check(const int *op_out, const void *scalar, int dtype,
                 int residence)
{
    if (!op_out || !scalar) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "ncclRedOpCreatePreMulSum: %s is NULL",
                                scalar ? "op" : "scalar");
    }
    if (dtype < 0 || dtype >= WEFT_DTYPE_COUNT) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "ncclRedOpCreatePreMulSum: datatype is %d: "
                                "allowed is 0 to %d",
                                dtype, WEFT_DTYPE_COUNT - 1);
    }
    if (residence != WEFTI_DOOR_SCALAR_DEVICE &&
        residence != WEFTI_DOOR_SCALAR_HOST) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "ncclRedOpCreatePreMulSum: residence is %d: "
                                "allowed is 0 or 1",
                                residence);
    }
    return WEFTI_DOOR_SUCCESS;
}

/* A place that is free, or a new one. Lock held. */
static wefti_door_redop *find_place(wefti_door_comm *comm, int op)
{
    for (size_t i = 0; i < comm->redop_count; i++) {
        if (comm->redops[i].op == op) {
            return &comm->redops[i];
        }
    }
    if (op != 0) {
        return NULL;
    }
    wefti_door_redop *moved =
        realloc(comm->redops, (comm->redop_count + 1) * sizeof(*moved));
    if (!moved) {
        return NULL;
    }
    comm->redops = moved;
    return &moved[comm->redop_count++];
}

static int add(wefti_door_comm *comm, const wefti_door_redop *redop)
{
    pthread_mutex_lock(&comm->lock);
    wefti_door_redop *place = find_place(comm, 0);
    if (place) {
        *place = *redop;
    }
    pthread_mutex_unlock(&comm->lock);
    return place ? WEFTI_DOOR_SUCCESS
                 : wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR,
                                    "ncclRedOpCreatePreMulSum: out of memory");
}

int pncclRedOpCreatePreMulSum(int *op_out, void *scalar, int dtype,
                              int residence, struct ncclComm *handle)
{
    wefti_door_comm *comm;
    wefti_door_redop redop = {
        .dtype = dtype, .residence = residence, .scalar = scalar};
    int result =
        wefti_door_enter_ready(handle, "ncclRedOpCreatePreMulSum", &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    result = check(op_out, scalar, dtype, residence);
    if (result == WEFTI_DOOR_SUCCESS) {
        redop.op =
            atomic_fetch_add_explicit(&last_op, 1, memory_order_relaxed) + 1;
        if (residence == WEFTI_DOOR_SCALAR_HOST) {
            memcpy(redop.value, scalar, weft_dtype_bytes((weft_dtype)dtype));
        }
        result = add(comm, &redop);
    }
    wefti_door_leave(comm);
    if (result == WEFTI_DOOR_SUCCESS) {
        *op_out = redop.op;
    }
    return result;
}
WEFTI_DOOR_WEAK(RedOpCreatePreMulSum)

int pncclRedOpDestroy(int op, struct ncclComm *handle)
{
    wefti_door_comm *comm;
    wefti_door_redop *place = NULL;
    const int result =
        wefti_door_enter_ready(handle, "ncclRedOpDestroy", &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    if (op >= WEFTI_DOOR_BUILT_IN_OPS) {
        pthread_mutex_lock(&comm->lock);
        place = find_place(comm, op);
        if (place) {
            place->op = 0;
        }
        pthread_mutex_unlock(&comm->lock);
    }
    wefti_door_leave(comm);
    return place ? WEFTI_DOOR_SUCCESS
                 : wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                    "ncclRedOpDestroy: op is %d: allowed is "
                                    "what ncclRedOpCreatePreMulSum has made on "
                                    "this communicator",
                                    op);
}
WEFTI_DOOR_WEAK(RedOpDestroy)
