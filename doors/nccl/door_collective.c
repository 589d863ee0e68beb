/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_collective.c - what moves data: NCCL's arguments as a
 * weft_op, whose counts mean the same.
 */
#include "doors/nccl/door_call.h"

#define CALL(call_name, what, ...)                                             \
    wefti_door_call call = {.handle = comm,                                    \
                            .name = call_name,                                 \
                            .native = stream,                                  \
                            .op = {.collective = what,                         \
                                   .count = count,                             \
                                   .dtype = (weft_dtype)dtype,                 \
                                   __VA_ARGS__}};                              \
    return wefti_door_call_submit(&call)

#define BUFFERS .send = send, .recv = recv

int pncclAllReduce(WEFTI_DOOR_DATA, int op, WEFTI_DOOR_ON)
{
    CALL("ncclAllReduce", WEFT_COLLECTIVE_ALLREDUCE, BUFFERS,
         .redop = (weft_redop)op);
}
WEFTI_DOOR_WEAK(AllReduce)

int pncclReduce(WEFTI_DOOR_DATA, int op, int root, WEFTI_DOOR_ON)
{
    CALL("ncclReduce", WEFT_COLLECTIVE_REDUCE, BUFFERS, .redop = (weft_redop)op,
         .root = root);
}
WEFTI_DOOR_WEAK(Reduce)

int pncclBcast(void *buffer, size_t count, int dtype, int root, WEFTI_DOOR_ON)
{
    CALL("ncclBcast", WEFT_COLLECTIVE_BROADCAST, .send = buffer, .recv = buffer,
         .root = root);
}
WEFTI_DOOR_WEAK(Bcast)

int pncclBroadcast(WEFTI_DOOR_DATA, int root, WEFTI_DOOR_ON)
{
    CALL("ncclBroadcast", WEFT_COLLECTIVE_BROADCAST, BUFFERS, .root = root);
}
WEFTI_DOOR_WEAK(Broadcast)

int pncclAllGather(WEFTI_DOOR_DATA, WEFTI_DOOR_ON)
{
    CALL("ncclAllGather", WEFT_COLLECTIVE_ALLGATHER, BUFFERS);
}
WEFTI_DOOR_WEAK(AllGather)

int pncclReduceScatter(WEFTI_DOOR_DATA, int op, WEFTI_DOOR_ON)
{
    CALL("ncclReduceScatter", WEFT_COLLECTIVE_REDUCESCATTER, BUFFERS,
         .redop = (weft_redop)op);
}
WEFTI_DOOR_WEAK(ReduceScatter)

int pncclAlltoAll(WEFTI_DOOR_DATA, WEFTI_DOOR_ON)
{
    CALL("ncclAlltoAll", WEFT_COLLECTIVE_ALLTOALL, BUFFERS);
}
WEFTI_DOOR_WEAK(AlltoAll)

int pncclGather(WEFTI_DOOR_DATA, int root, WEFTI_DOOR_ON)
{
    CALL("ncclGather", WEFT_COLLECTIVE_GATHER, BUFFERS, .root = root);
}
WEFTI_DOOR_WEAK(Gather)

int pncclScatter(WEFTI_DOOR_DATA, int root, WEFTI_DOOR_ON)
{
    CALL("ncclScatter", WEFT_COLLECTIVE_SCATTER, BUFFERS, .root = root);
}
WEFTI_DOOR_WEAK(Scatter)

int pncclSend(const void *send, size_t count, int dtype, int peer,
              WEFTI_DOOR_ON)
{
    CALL("ncclSend", WEFT_COLLECTIVE_SEND, .send = send, .root = peer);
}
WEFTI_DOOR_WEAK(Send)

int pncclRecv(void *recv, size_t count, int dtype, int peer, WEFTI_DOOR_ON)
{
    CALL("ncclRecv", WEFT_COLLECTIVE_RECV, .recv = recv, .root = peer);
}
WEFTI_DOOR_WEAK(Recv)
