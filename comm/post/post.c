/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/post.c - the public calls that post operations; comm's front door.
 *
 *   weft_allreduce, weft_op_post
 *     prepare: wefti_check_op, the choice, the signature (a plan has them)
 *     wefti_post_prepared: wefti_collective_post
 *       NULL stream: wefti_request_run, until it is done
 *       a stream:    wefti_request_queue; the thread drives
 */
#include "comm/post/post.h"

#include "base/check.h"
#include "base/error.h"
#include "base/sized.h"
#include "comm/core/live.h"
#include "comm/post/carried_route.h"
#include "comm/post/op_check.h"
#include "comm/post/p2p.h"

#include <stddef.h>
#include <string.h>

/* All of *prepared that follows from its desc, with that of the communicator's
 * tuning or another. */
static weft_status prepare_with(const wefti_tuning *tuning,
                                wefti_prepared *prepared, uint64_t epoch,
                                const weft_comm *comm)
{
    weft_op *desc = &prepared->desc;
    weft_status status =
        wefti_check_op(desc, epoch, comm, &prepared->role, &prepared->places);
    if (status != WEFT_OK || wefti_op_is_p2p(desc)) {
        return status;
    }
    wefti_scope scope = wefti_comm_scope(comm, tuning);
    prepared->choice =
        wefti_choice_cache_get(comm->choices, &scope, desc, &prepared->role);
    status = prepared->choice.refused
                 ? wefti_select_refuse(&scope, desc, &prepared->role)
                 : wefti_route_choose(comm, prepared);
    prepared->signature = wefti_signature_pack(desc, prepared->choice.digest);
    return status;
}

static weft_status prepare(wefti_prepared *prepared, uint64_t epoch,
                           const weft_comm *comm)
{
    return prepare_with(&comm->tuning, prepared, epoch, comm);
}

/* The op of a caller that was compiled against any weft. */
static weft_status read_op(weft_op *desc, const weft_op *op)
{
    if (!op) {
        return wefti_error(WEFT_ERR_INVALID,
                           "op is NULL: allowed is a weft_op");
    }
    return wefti_sized_read("op", op, offsetof(weft_op, ready), desc,
                            sizeof(*desc));
}

weft_status wefti_post_prepare(const weft_op *op, uint64_t epoch,
                               const weft_comm *comm,
                               wefti_prepared *prepared_out)
{
    if (!wefti_comm_is_live(comm)) {
        weft_status refused = wefti_comm_refuse(comm, "comm");
        WEFTI_ASSERT(refused < 0);
        return refused;
    }
    if (!op || op->size_bytes != sizeof(*op)) {
        weft_status status = read_op(&prepared_out->desc, op);
        if (status != WEFT_OK) {
            return status;
        }
    } else {
        prepared_out->desc = *op;
    }
    return prepare(prepared_out, epoch, comm);
}

weft_status wefti_post_prepared(const wefti_prepared *prepared, uint64_t epoch,
                                weft_comm *comm, weft_stream *stream,
                                weft_request **handle_out)
{
    weft_status status = stream ? wefti_check_stream(stream, comm) : WEFT_OK;
    if (status != WEFT_OK) {
        return status;
    }
    if (wefti_op_is_p2p(&prepared->desc)) {
        wefti_p2p_message message = {
            .desc = prepared->desc, .places = prepared->places, .epoch = epoch};
        return wefti_p2p_post_messages(&message, 1, comm, stream, handle_out);
    }
    return wefti_collective_post(prepared, epoch, comm, stream, handle_out);
}

weft_status weft_op_post(const weft_op *op, uint64_t epoch, weft_comm *comm,
                         weft_stream *stream)
{
    wefti_prepared prepared;
    weft_status status = wefti_post_prepare(op, epoch, comm, &prepared);
    return status == WEFT_OK
               ? wefti_post_prepared(&prepared, epoch, comm, stream, NULL)
               : status;
}

weft_status weft_op_begin(const weft_op *op, uint64_t epoch, weft_comm *comm,
                          weft_request **request_out)
{
    wefti_prepared prepared;
    weft_status status = wefti_request_check_out(request_out);
    if (status == WEFT_OK) {
        status = wefti_post_prepare(op, epoch, comm, &prepared);
    }
    return status == WEFT_OK
               ? wefti_post_prepared(&prepared, epoch, comm, NULL, request_out)
               : status;
}

weft_status wefti_post_for(wefti_purpose purpose, const weft_op *op,
                           weft_comm *comm)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    /* WEFT_ALGO is about what a program posts. */
    wefti_tuning tuning = comm->tuning;
    memset(tuning.allowed, 0, sizeof(tuning.allowed));
    wefti_prepared prepared = {.desc = *op};
    weft_status status = prepare_with(&tuning, &prepared, 0, comm);
    if (status != WEFT_OK) {
        return status;
    }
    prepared.signature.kind |= wefti_purpose_bits(purpose);
    return wefti_post_prepared(&prepared, 0, comm, NULL, NULL);
}

weft_status wefti_post_exchange(wefti_purpose purpose, const void *mine,
                                void *all, size_t bytes, weft_comm *comm)
{
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLGATHER,
                  .send = mine,
                  .recv = all,
                  .count = bytes,
                  .dtype = WEFT_DTYPE_U8};
    return wefti_post_for(purpose, &op, comm);
}

static weft_status post_plain(weft_collective collective, const void *send,
                              void *recv, size_t count, weft_dtype dtype,
                              weft_redop redop, int root, weft_comm *comm,
                              weft_stream *stream)
{
    /* Copied: a processor does that faster than it clears as much. */
    static const weft_op empty = {.size_bytes = sizeof(empty)};
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    wefti_prepared prepared;
    weft_op *op = &prepared.desc;
    *op = empty;
    op->collective = collective;
    op->send = send;
    op->recv = recv;
    op->count = count;
    op->dtype = dtype;
    op->redop = redop;
    op->root = root;
    weft_status status = prepare(&prepared, 0, comm);
    return status == WEFT_OK
               ? wefti_post_prepared(&prepared, 0, comm, stream, NULL)
               : status;
}

weft_status weft_allreduce(const void *send, void *recv, size_t count,
                           weft_dtype dtype, weft_redop redop, weft_comm *comm,
                           weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_ALLREDUCE, send, recv, count, dtype,
                      redop, 0, comm, stream);
}

weft_status weft_reduce(const void *send, void *recv, size_t count,
                        weft_dtype dtype, weft_redop redop, int root,
                        weft_comm *comm, weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_REDUCE, send, recv, count, dtype, redop,
                      root, comm, stream);
}

weft_status weft_allgather(const void *send, void *recv, size_t send_elems,
                           weft_dtype dtype, weft_comm *comm,
                           weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_ALLGATHER, send, recv, send_elems, dtype,
                      WEFT_REDOP_SUM, 0, comm, stream);
}

weft_status weft_reducescatter(const void *send, void *recv, size_t recv_elems,
                               weft_dtype dtype, weft_redop redop,
                               weft_comm *comm, weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_REDUCESCATTER, send, recv, recv_elems,
                      dtype, redop, 0, comm, stream);
}

weft_status weft_broadcast(const void *send, void *recv, size_t count,
                           weft_dtype dtype, int root, weft_comm *comm,
                           weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_BROADCAST, send, recv, count, dtype,
                      WEFT_REDOP_SUM, root, comm, stream);
}

weft_status weft_alltoall(const void *send, void *recv, size_t count,
                          weft_dtype dtype, weft_comm *comm,
                          weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_ALLTOALL, send, recv, count, dtype,
                      WEFT_REDOP_SUM, 0, comm, stream);
}

weft_status weft_gather(const void *send, void *recv, size_t count,
                        weft_dtype dtype, int root, weft_comm *comm,
                        weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_GATHER, send, recv, count, dtype,
                      WEFT_REDOP_SUM, root, comm, stream);
}

weft_status weft_scatter(const void *send, void *recv, size_t count,
                         weft_dtype dtype, int root, weft_comm *comm,
                         weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_SCATTER, send, recv, count, dtype,
                      WEFT_REDOP_SUM, root, comm, stream);
}

weft_status weft_alltoallv(const void *send, const size_t *send_counts,
                           const size_t *send_displs, void *recv,
                           const size_t *recv_counts, const size_t *recv_displs,
                           weft_dtype dtype, weft_comm *comm,
                           weft_stream *stream)
{
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLTOALLV,
                  .send = send,
                  .recv = recv,
                  .send_counts = send_counts,
                  .send_displs = send_displs,
                  .recv_counts = recv_counts,
                  .recv_displs = recv_displs,
                  .dtype = dtype};
    return weft_op_post(&op, 0, comm, stream);
}

weft_status weft_gatherv(const void *send, size_t send_elems, void *recv,
                         const size_t *recv_counts, const size_t *recv_displs,
                         weft_dtype dtype, int root, weft_comm *comm,
                         weft_stream *stream)
{
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_GATHERV,
                  .send = send,
                  .recv = recv,
                  .count = send_elems,
                  .recv_counts = recv_counts,
                  .recv_displs = recv_displs,
                  .dtype = dtype,
                  .root = root};
    return weft_op_post(&op, 0, comm, stream);
}

weft_status weft_scatterv(const void *send, const size_t *send_counts,
                          const size_t *send_displs, void *recv,
                          size_t recv_elems, weft_dtype dtype, int root,
                          weft_comm *comm, weft_stream *stream)
{
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_SCATTERV,
                  .send = send,
                  .recv = recv,
                  .count = recv_elems,
                  .send_counts = send_counts,
                  .send_displs = send_displs,
                  .dtype = dtype,
                  .root = root};
    return weft_op_post(&op, 0, comm, stream);
}

weft_status weft_allgatherv(const void *send, size_t send_elems, void *recv,
                            const size_t *recv_counts,
                            const size_t *recv_displs, weft_dtype dtype,
                            weft_comm *comm, weft_stream *stream)
{
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLGATHERV,
                  .send = send,
                  .recv = recv,
                  .count = send_elems,
                  .recv_counts = recv_counts,
                  .recv_displs = recv_displs,
                  .dtype = dtype};
    return weft_op_post(&op, 0, comm, stream);
}

weft_status weft_reducescatterv(const void *send, void *recv,
                                const size_t *recv_counts, weft_dtype dtype,
                                weft_redop redop, weft_comm *comm,
                                weft_stream *stream)
{
    size_t own = comm && recv_counts ? recv_counts[comm->rank] : 0;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_REDUCESCATTERV,
                  .send = send,
                  .recv = recv,
                  .count = own,
                  .send_counts = recv_counts,
                  .dtype = dtype,
                  .redop = redop};
    return weft_op_post(&op, 0, comm, stream);
}

weft_status weft_barrier(weft_comm *comm, weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_BARRIER, NULL, NULL, 0, WEFT_DTYPE_U8,
                      WEFT_REDOP_SUM, 0, comm, stream);
}

weft_status weft_send(const void *send, size_t count, weft_dtype dtype,
                      int peer, weft_comm *comm, weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_SEND, send, NULL, count, dtype,
                      WEFT_REDOP_SUM, peer, comm, stream);
}

weft_status weft_recv(void *recv, size_t count, weft_dtype dtype, int peer,
                      weft_comm *comm, weft_stream *stream)
{
    return post_plain(WEFT_COLLECTIVE_RECV, NULL, recv, count, dtype,
                      WEFT_REDOP_SUM, peer, comm, stream);
}
