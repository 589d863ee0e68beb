/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_nccl_calls.c - the stand-in's operations: calls, their
 * groups, and what they reduce by.
 */
#include "tests/fake/fake_nccl.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local int depth;
static _Thread_local struct {
    struct ncclComm *comm;
    CUstream stream;
    size_t count;
    nccl_call calls[NCCL_CALLS];
} pending;

int ncclGroupStart(void)
{
    depth++;
    return WEFTI_NCCL_SUCCESS;
}

/* A call may be in progress for a while: by chance, where that is legal. */
static int submit(void)
{
    struct ncclComm *comm = pending.comm;
    const size_t bytes = pending.count * sizeof(nccl_call);
    nccl_group *group = malloc(sizeof(*group) + bytes);
    nccl_demand(group != NULL, "no memory");
    pthread_mutex_lock(&comm->lock);
    group->number = ++comm->submitted;
    nccl_demand(comm->submitted - comm->done < NCCL_WORDS,
                "too much is queued");
    pthread_mutex_unlock(&comm->lock);
    group->count = pending.count;
    memcpy(group->calls, pending.calls, bytes);
    if (!comm->blocking && rand_r(&comm->seed) % 2) {
        comm->held = group;
        comm->held_stream = pending.stream;
        comm->questions = rand_r(&comm->seed) % 3;
        return WEFTI_NCCL_IN_PROGRESS;
    }
    nccl_launch(comm, group, pending.stream);
    return WEFTI_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    nccl_demand(depth > 0, "ncclGroupEnd without ncclGroupStart");
    const bool outermost = --depth == 0;
    int result = WEFTI_NCCL_SUCCESS;
    if (outermost && pending.comm) {
        result = submit();
        pending.comm = NULL;
        pending.count = 0;
    }
    return result;
}

/* Only memory of a GPU, or pinned. */
static bool is_reached(const void *pointer)
{
    unsigned kind = 0;
    CUpointer_attribute what = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *places[] = {&kind};
    return cuPointerGetAttributes(1, &what, places,
                                  (CUdeviceptr)(uintptr_t)pointer) ==
               CUDA_SUCCESS &&
           kind != 0;
}

static int add(struct ncclComm *comm, CUstream stream, const nccl_call *call)
{
    CUcontext current = NULL;
    const nccl_fault *fault = &comm->fault;
    nccl_check_comm(comm);
    if (atomic_load(&comm->state) != WEFTI_NCCL_SUCCESS || comm->held) {
        return nccl_fail(WEFTI_NCCL_INVALID_ARGUMENT, "a call is in progress");
    }
    if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != comm->context) {
        return nccl_fail(WEFTI_NCCL_UNHANDLED_CUDA_ERROR,
                         "another GPU is current");
    }
    if (call->dtype < 0 || call->dtype > WEFTI_NCCL_FLOAT8E5M2 ||
        call->peer < 0 || call->peer >= comm->nranks ||
        (call->send && !is_reached(call->send)) ||
        (call->recv && !is_reached(call->recv))) {
        return nccl_fail(WEFTI_NCCL_INVALID_ARGUMENT,
                         "a buffer, type or rank that is none");
    }
    if (strcmp(fault->kind, "reject") == 0 &&
        comm->submitted + 1 == fault->at &&
        (fault->rank < 0 || fault->rank == comm->rank)) {
        return nccl_fail(WEFTI_NCCL_INTERNAL_ERROR, "rejected on demand");
    }
    if (call->count == 0 && call->kind < NCCL_SEND) {
        return WEFTI_NCCL_SUCCESS;
    }
    nccl_demand(!pending.comm ||
                    (pending.comm == comm && pending.stream == stream),
                "a group of two communicators or streams");
    nccl_demand(pending.count < NCCL_CALLS, "a group of too many calls");
    pending.comm = comm;
    pending.stream = stream;
    pending.calls[pending.count++] = *call;
    if (depth > 0) {
        return WEFTI_NCCL_SUCCESS;
    }
    ncclGroupStart();
    return ncclGroupEnd();
}

static int add_reduction(struct ncclComm *comm, CUstream stream, nccl_call call)
{
    if (call.op > WEFTI_NCCL_AVG) {
        const int made = call.op - WEFTI_NCCL_AVG - 1;
        nccl_demand(made < NCCL_OPS && comm->op_used[made],
                    "an op that is none");
        call.scales = true;
        memcpy(call.scale, comm->scales[made], sizeof(call.scale));
        call.op = WEFTI_NCCL_SUM;
    }
    return add(comm, stream, &call);
}

int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op,
                  struct ncclComm *comm, CUstream stream)
{
    return add_reduction(comm, stream,
                         (nccl_call){.kind = NCCL_ALL_REDUCE,
                                     .send = send,
                                     .recv = recv,
                                     .count = count,
                                     .dtype = dtype,
                                     .op = op});
}

int ncclReduce(const void *send, void *recv, size_t count, int dtype, int op,
               int root, struct ncclComm *comm, CUstream stream)
{
    return add_reduction(comm, stream,
                         (nccl_call){.kind = NCCL_REDUCE,
                                     .send = send,
                                     .recv = root == comm->rank ? recv : NULL,
                                     .count = count,
                                     .dtype = dtype,
                                     .op = op,
                                     .peer = root});
}

int ncclReduceScatter(const void *send, void *recv, size_t recv_count,
                      int dtype, int op, struct ncclComm *comm, CUstream stream)
{
    return add_reduction(comm, stream,
                         (nccl_call){.kind = NCCL_REDUCE_SCATTER,
                                     .send = send,
                                     .recv = recv,
                                     .count = recv_count,
                                     .dtype = dtype,
                                     .op = op});
}

int ncclBroadcast(const void *send, void *recv, size_t count, int dtype,
                  int root, struct ncclComm *comm, CUstream stream)
{
    const nccl_call call = {.kind = NCCL_BROADCAST,
                            .send = root == comm->rank ? send : NULL,
                            .recv = recv,
                            .count = count,
                            .dtype = dtype,
                            .peer = root};
    return add(comm, stream, &call);
}

int ncclAllGather(const void *send, void *recv, size_t send_count, int dtype,
                  struct ncclComm *comm, CUstream stream)
{
    const nccl_call call = {.kind = NCCL_ALL_GATHER,
                            .send = send,
                            .recv = recv,
                            .count = send_count,
                            .dtype = dtype};
    return add(comm, stream, &call);
}

int ncclSend(const void *send, size_t count, int dtype, int peer,
             struct ncclComm *comm, CUstream stream)
{
    const nccl_call call = {.kind = NCCL_SEND,
                            .send = send,
                            .count = count,
                            .dtype = dtype,
                            .peer = peer};
    return add(comm, stream, &call);
}

int ncclRecv(void *recv, size_t count, int dtype, int peer,
             struct ncclComm *comm, CUstream stream)
{
    const nccl_call call = {.kind = NCCL_RECV,
                            .recv = recv,
                            .count = count,
                            .dtype = dtype,
                            .peer = peer};
    return add(comm, stream, &call);
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence,
                             struct ncclComm *comm)
{
    nccl_check_comm(comm);
    int made = 0;
    while (made < NCCL_OPS && comm->op_used[made]) {
        made++;
    }
    if (made == NCCL_OPS || residence != WEFTI_NCCL_SCALAR_HOST_IMMEDIATE) {
        return nccl_fail(WEFTI_NCCL_INVALID_ARGUMENT, "no such scalar");
    }
    comm->op_used[made] = true;
    memcpy(comm->scales[made], scalar, nccl_elem_bytes(dtype));
    *op = WEFTI_NCCL_AVG + 1 + made;
    return WEFTI_NCCL_SUCCESS;
}

#ifndef FAKE_NCCL_LACKS
int ncclRedOpDestroy(int op, struct ncclComm *comm)
{
    nccl_check_comm(comm);
    const int made = op - WEFTI_NCCL_AVG - 1;
    if (made < 0 || made >= NCCL_OPS || !comm->op_used[made]) {
        return nccl_fail(WEFTI_NCCL_INVALID_ARGUMENT, "no op of its own");
    }
    comm->op_used[made] = false;
    return WEFTI_NCCL_SUCCESS;
}
#endif
