/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/nccl/nccl_call.c - which calls of NCCL an operation is.
 *
 *   all_reduce, reduce, broadcast, all_gather, reduce_scatter   the same there
 *   all_gather_v          a broadcast from each rank
 *   reduce_scatter_v      a reduce to each rank
 *   all others            sends and receives; no parts of no elements
 *   messages              a list's sends and receives, in one group
 *
 * Where nothing is reduced elements are bytes, so that any type will do.
 */
#include "comm/nccl/nccl_call.h"

#include <stdint.h>
#include <string.h>

static const int dtypes[WEFT_DTYPE_COUNT] = {
    [WEFT_DTYPE_I8] = WEFTI_NCCL_INT8,
    [WEFT_DTYPE_U8] = WEFTI_NCCL_UINT8,
    [WEFT_DTYPE_I32] = WEFTI_NCCL_INT32,
    [WEFT_DTYPE_U32] = WEFTI_NCCL_UINT32,
    [WEFT_DTYPE_I64] = WEFTI_NCCL_INT64,
    [WEFT_DTYPE_U64] = WEFTI_NCCL_UINT64,
    [WEFT_DTYPE_F16] = WEFTI_NCCL_FLOAT16,
    [WEFT_DTYPE_BF16] = WEFTI_NCCL_BFLOAT16,
    [WEFT_DTYPE_F32] = WEFTI_NCCL_FLOAT32,
    [WEFT_DTYPE_F64] = WEFTI_NCCL_FLOAT64,
    [WEFT_DTYPE_F8E4M3] = WEFTI_NCCL_FLOAT8E4M3,
    [WEFT_DTYPE_F8E5M2] = WEFTI_NCCL_FLOAT8E5M2};

/* Of PREMULSUM there is one for each scalar. */
enum { HAS_NOT = -1, MAKES = -2 };

static int redop_of(weft_redop redop)
{
    switch ((int)redop) {
    case WEFT_REDOP_SUM:
        return WEFTI_NCCL_SUM;
    case WEFT_REDOP_PROD:
        return WEFTI_NCCL_PROD;
    case WEFT_REDOP_MAX:
        return WEFTI_NCCL_MAX;
    case WEFT_REDOP_MIN:
        return WEFTI_NCCL_MIN;
    case WEFT_REDOP_AVG:
        return WEFTI_NCCL_AVG;
    case WEFT_REDOP_PREMULSUM:
        return MAKES;
    default:
        return HAS_NOT;
    }
}

static bool is_small_float(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F8E4M3 || dtype == WEFT_DTYPE_F8E5M2;
}

/* What the calls of one operation have in common. */
typedef struct call {
    const wefti_nccl_api *api;
    struct ncclComm *handle;
    struct CUstream_st *stream;
    const weft_op *op;
    int rank, nranks;
    size_t elem_bytes;
    int dtype, redop; /* of what reduces */
} call;

static const unsigned char *send_at(const call *own, size_t elem)
{
    return (const unsigned char *)own->op->send + elem * own->elem_bytes;
}

static unsigned char *recv_at(const call *own, size_t elem)
{
    return (unsigned char *)own->op->recv + elem * own->elem_bytes;
}

static int send(const call *own, int peer, size_t elem, size_t elems)
{
    return elems ? own->api->ncclSend(send_at(own, elem),
                                      elems * own->elem_bytes, WEFTI_NCCL_UINT8,
                                      peer, own->handle, own->stream)
                 : WEFTI_NCCL_SUCCESS;
}

static int recv(const call *own, int peer, size_t elem, size_t elems)
{
    return elems ? own->api->ncclRecv(recv_at(own, elem),
                                      elems * own->elem_bytes, WEFTI_NCCL_UINT8,
                                      peer, own->handle, own->stream)
                 : WEFTI_NCCL_SUCCESS;
}

/* The first result that is not well; what is only in progress is. */
static int worse(int first, int second)
{
    return first == WEFTI_NCCL_SUCCESS || first == WEFTI_NCCL_IN_PROGRESS
               ? second
               : first;
}

/* The part of a buffer that is rank's: where it begins, and how much it is. */
static size_t place_of(const size_t *displs, const size_t *counts, size_t count,
                       int rank)
{
    if (!counts) {
        return (size_t)rank * count;
    }
    size_t sum = 0;
    for (int p = 0; !displs && p < rank; p++) {
        sum += counts[p];
    }
    return displs ? displs[rank] : sum;
}

static int send_part(const call *own, int to)
{
    const weft_op *op = own->op;
    return send(own, to,
                place_of(op->send_displs, op->send_counts, op->count, to),
                op->send_counts ? op->send_counts[to] : op->count);
}

static int recv_part(const call *own, int from)
{
    const weft_op *op = own->op;
    return recv(own, from,
                place_of(op->recv_displs, op->recv_counts, op->count, from),
                op->recv_counts ? op->recv_counts[from] : op->count);
}

static int exchange_all(const call *own)
{
    int result = WEFTI_NCCL_SUCCESS;
    for (int i = 0; i < own->nranks; i++) {
        const int to = (own->rank + i) % own->nranks;
        const int from = (own->rank - i + own->nranks) % own->nranks;
        result = worse(result, send_part(own, to));
        result = worse(result, recv_part(own, from));
    }
    return result;
}

/* A root's own part that lies where it belongs does not move. */
static int call_rooted(const call *own, bool gathers)
{
    const weft_op *op = own->op;
    const bool root = own->rank == op->root;
    const size_t elem =
        !root ? 0
        : gathers
            ? place_of(op->recv_displs, op->recv_counts, op->count, own->rank)
            : place_of(op->send_displs, op->send_counts, op->count, own->rank);
    const bool still = root && (gathers ? op->send == recv_at(own, elem)
                                        : op->recv == send_at(own, elem));
    int result = still     ? WEFTI_NCCL_SUCCESS
                 : gathers ? send(own, op->root, 0, op->count)
                           : recv(own, op->root, 0, op->count);
    for (int peer = 0; root && peer < own->nranks; peer++) {
        if (peer != own->rank || !still) {
            result = worse(result, gathers ? recv_part(own, peer)
                                           : send_part(own, peer));
        }
    }
    return result;
}

static int gather(const call *own)
{
    return call_rooted(own, true);
}

static int scatter(const call *own)
{
    return call_rooted(own, false);
}

static int all_reduce(const call *own)
{
    const weft_op *op = own->op;
    return own->api->ncclAllReduce(op->send, op->recv, op->count, own->dtype,
                                   own->redop, own->handle, own->stream);
}

static int reduce(const call *own)
{
    const weft_op *op = own->op;
    return own->api->ncclReduce(op->send, op->recv, op->count, own->dtype,
                                own->redop, op->root, own->handle, own->stream);
}

static int reduce_scatter(const call *own)
{
    const weft_op *op = own->op;
    return own->api->ncclReduceScatter(op->send, op->recv, op->count,
                                       own->dtype, own->redop, own->handle,
                                       own->stream);
}

static int all_gather(const call *own)
{
    const weft_op *op = own->op;
    return own->api->ncclAllGather(op->send, op->recv,
                                   op->count * own->elem_bytes,
                                   WEFTI_NCCL_UINT8, own->handle, own->stream);
}

static int broadcast(const call *own)
{
    const weft_op *op = own->op;
    /* A root need not receive; NCCL's then does so in place. */
    void *recv = op->recv ? op->recv : (void *)(uintptr_t)op->send;
    return own->api->ncclBroadcast(op->send, recv, op->count * own->elem_bytes,
                                   WEFTI_NCCL_UINT8, op->root, own->handle,
                                   own->stream);
}

static int all_gather_v(const call *own)
{
    const weft_op *op = own->op;
    int result = WEFTI_NCCL_SUCCESS;
    for (int root = 0; root < own->nranks; root++) {
        const size_t bytes = op->recv_counts[root] * own->elem_bytes;
        void *place =
            recv_at(own, place_of(op->recv_displs, op->recv_counts, 0, root));
        const void *from = root == own->rank ? op->send : place;
        if (bytes) {
            result = worse(result, own->api->ncclBroadcast(
                                       from, place, bytes, WEFTI_NCCL_UINT8,
                                       root, own->handle, own->stream));
        }
    }
    return result;
}

static int reduce_scatter_v(const call *own)
{
    const weft_op *op = own->op;
    int result = WEFTI_NCCL_SUCCESS;
    for (int root = 0; root < own->nranks; root++) {
        const size_t elems = op->send_counts[root];
        const size_t elem = place_of(op->send_displs, op->send_counts, 0, root);
        if (elems) {
            result =
                worse(result,
                      own->api->ncclReduce(send_at(own, elem),
                                           root == own->rank ? op->recv : NULL,
                                           elems, own->dtype, own->redop, root,
                                           own->handle, own->stream));
        }
    }
    return result;
}

/* What weft learns to do later has no call. */
static int (*const calls[WEFT_COLLECTIVE_COUNT])(const call *own) = {
    [WEFT_COLLECTIVE_ALLREDUCE] = all_reduce,
    [WEFT_COLLECTIVE_REDUCE] = reduce,
    [WEFT_COLLECTIVE_BROADCAST] = broadcast,
    [WEFT_COLLECTIVE_ALLGATHER] = all_gather,
    [WEFT_COLLECTIVE_ALLGATHERV] = all_gather_v,
    [WEFT_COLLECTIVE_REDUCESCATTER] = reduce_scatter,
    [WEFT_COLLECTIVE_REDUCESCATTERV] = reduce_scatter_v,
    [WEFT_COLLECTIVE_ALLTOALL] = exchange_all,
    [WEFT_COLLECTIVE_ALLTOALLV] = exchange_all,
    [WEFT_COLLECTIVE_GATHER] = gather,
    [WEFT_COLLECTIVE_GATHERV] = gather,
    [WEFT_COLLECTIVE_SCATTER] = scatter,
    [WEFT_COLLECTIVE_SCATTERV] = scatter};

bool wefti_nccl_has(const wefti_twin *twin, const weft_op *op,
                    const wefti_shape *shape)
{
    return (calls[op->collective] || op->collective == WEFT_COLLECTIVE_SEND ||
            op->collective == WEFT_COLLECTIVE_RECV) &&
           (!shape->reduces ||
            (redop_of(op->redop) != HAS_NOT &&
             (twin->small_floats || !is_small_float(op->dtype))));
}

static int end_group(wefti_twin *twin, int result)
{
    return wefti_twin_settle(twin, worse(result, twin->api->ncclGroupEnd()));
}

static int call_group(wefti_twin *twin, const call *own)
{
    const int result = own->api->ncclGroupStart();
    return result == WEFTI_NCCL_SUCCESS
               ? end_group(twin, calls[own->op->collective](own))
               : result;
}

static call make_call(const wefti_twin *twin, const weft_op *op,
                      struct CUstream_st *stream)
{
    return (call){.api = twin->api,
                  .handle = twin->handle,
                  .stream = stream,
                  .op = op,
                  .rank = twin->comm->rank,
                  .nranks = twin->comm->nranks,
                  .elem_bytes = weft_dtype_bytes(op->dtype)};
}

int wefti_nccl_begin_messages(wefti_twin *twin)
{
    return twin->api->ncclGroupStart();
}

int wefti_nccl_call_message(wefti_twin *twin, const weft_op *op,
                            struct CUstream_st *stream, int result)
{
    const call own = make_call(twin, op, stream);
    return worse(result, op->collective == WEFT_COLLECTIVE_SEND
                             ? send(&own, op->root, 0, op->count)
                             : recv(&own, op->root, 0, op->count));
}

int wefti_nccl_end_messages(wefti_twin *twin, int result)
{
    return end_group(twin, result);
}

int wefti_nccl_call(wefti_twin *twin, const weft_op *op,
                    struct CUstream_st *stream)
{
    const wefti_shape *shape = wefti_shape_get(op->collective);
    call own = make_call(twin, op, stream);
    if (!shape->reduces) {
        return call_group(twin, &own);
    }
    own.dtype = dtypes[op->dtype];
    own.redop = redop_of(op->redop);
    if (own.redop != MAKES) {
        return call_group(twin, &own);
    }
    unsigned char scale[8];
    memcpy(scale, op->scale, own.elem_bytes);
    int result = twin->api->ncclRedOpCreatePreMulSum(
        &own.redop, scale, own.dtype, WEFTI_NCCL_SCALAR_HOST_IMMEDIATE,
        twin->handle);
    if (result == WEFTI_NCCL_SUCCESS) {
        result = call_group(twin, &own);
    }
    if (result == WEFTI_NCCL_SUCCESS) {
        result = twin->api->ncclRedOpDestroy(own.redop, twin->handle);
    }
    return result;
}
