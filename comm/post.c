/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post.c - the public calls that post operations; comm's front door.
 *
 *   weft_allreduce -> weft_op_post -> wefti_check_op -> wefti_op_init
 *     NULL stream: wefti_engine_drive until it is done
 *     a stream:    start gate, done gate on the stream; the thread drives
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/relax.h"
#include "comm/control/fault.h"
#include "comm/engine.h"
#include "comm/letters.h"
#include "comm/oneshot.h"
#include "comm/op.h"
#include "comm/op_check.h"

enum { LOOKS_AT_ONCE = 100 }; /* some microseconds */

/* What a blocked caller waits for. */
typedef struct pending_op {
    weft_comm *comm;
    wefti_op *op;
} pending_op;

static bool op_is_done(const void *context)
{
    const pending_op *pending = context;
    return !wefti_op_pending(pending->op);
}

static bool may_post(const void *context)
{
    const weft_comm *comm = ((const pending_op *)context)->comm;
    const wefti_op *op = &comm->ops[(comm->number + 1) % WEFTI_LANES];
    return comm->failed != WEFT_OK ||
           (op->state == WEFTI_OP_FREE &&
            comm->number - comm->completed < (uint64_t)comm->ops_in_flight);
}

static bool may_write(const void *context)
{
    const weft_comm *comm = ((const pending_op *)context)->comm;
    return comm->failed != WEFT_OK || comm->letters_free != NULL;
}

/* A new collective operation, posted. Lock held; its lane is free. */
static wefti_op *take_lane(weft_comm *comm, const weft_op *desc, uint64_t epoch,
                           bool on_stream)
{
    uint64_t number = ++comm->number;
    wefti_op *op = &comm->ops[number % WEFTI_LANES];
    op->number = op->turn = number;
    wefti_op_init(comm, op, desc, epoch, on_stream);
    op->choice = wefti_select(&comm->tuning, comm->nranks, &op->desc);
    op->signature = wefti_signature_pack(&op->desc, op->choice.digest);
    op->state = WEFTI_OP_POSTED;
    comm->active |= 1u << (number % WEFTI_LANES);
    return op;
}

/* What peers still read from the next lane holds this rank up from now on. */
static void want_lane(weft_comm *comm)
{
    wefti_op *op = &comm->ops[(comm->number + 1) % WEFTI_LANES];
    if (op->state == WEFTI_OP_DRAINING) {
        op->moved_ns = wefti_clock_coarse_ns();
    }
    comm->wanted = op;
}

/* Waits for room, then posts. The lock is held on return; NULL: comm has
 * failed, and it is not. */
static wefti_op *take_op(weft_comm *comm, const weft_op *desc, uint64_t epoch,
                         bool on_stream)
{
    bool letter = desc->collective == WEFT_COLLECTIVE_SEND ||
                  desc->collective == WEFT_COLLECTIVE_RECV;
    bool (*room)(const void *) = letter ? may_write : may_post;
    pending_op context = {comm, NULL};
    pthread_mutex_lock(&comm->engine->lock);
    while (!room(&context)) {
        if (!letter) {
            want_lane(comm);
        }
        pthread_mutex_unlock(&comm->engine->lock);
        wefti_engine_drive(comm->engine, room, &context);
        pthread_mutex_lock(&comm->engine->lock);
    }
    comm->wanted = NULL;
    if (comm->failed != WEFT_OK || wefti_fault_act(comm)) {
        pthread_mutex_unlock(&comm->engine->lock);
        return NULL;
    }
    return letter ? wefti_letters_take(comm, desc, epoch, on_stream)
                  : take_lane(comm, desc, epoch, on_stream);
}

/*
 * Looks for the end of a small operation a few times before the lock is given
 * back: its peers are mostly just about to enter it. Bounded, because others
 * may want the lock.
 */
static bool ends_at_once(weft_comm *comm, wefti_op *op)
{
    bool spin = !op->choice.pattern && wefti_engine_spins(comm->engine) &&
                comm->fabric.ns_per_byte <= 0;
    for (int look = 0; spin && look < LOOKS_AT_ONCE; look++) {
        if (op->state != WEFTI_OP_RUNNING || wefti_oneshot_advance(comm, op)) {
            break;
        }
        wefti_relax();
    }
    return !wefti_op_pending(op);
}

static weft_status post_here(weft_comm *comm, const weft_op *desc,
                             uint64_t epoch)
{
    wefti_op *op = take_op(comm, desc, epoch, false);
    if (!op) {
        return wefti_fault_status(comm);
    }
    bool done = false;
    if (op->ring != WEFTI_RING_LETTERS) {
        wefti_op_advance(comm, op);
        done = ends_at_once(comm, op);
    }
    pthread_mutex_unlock(&comm->engine->lock);
    if (!done) {
        pending_op pending = {comm, op};
        wefti_engine_drive(comm->engine, op_is_done, &pending);
    }
    return op->status == WEFT_OK ? WEFT_OK : wefti_fault_status(comm);
}

static weft_status post_on_stream(weft_comm *comm, const weft_op *desc,
                                  uint64_t epoch, weft_stream *stream)
{
    weft_status status = wefti_engine_start(comm->engine);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_op *op = take_op(comm, desc, epoch, true);
    if (!op) {
        return wefti_fault_status(comm);
    }
    size_t chunk = wefti_op_chunk(comm, op);
    uint64_t turn = op->turn;
    atomic_fetch_add(&comm->engine->pending, 1);
    pthread_mutex_unlock(&comm->engine->lock);
    status = weft_gate_signal(comm->start, chunk, turn, stream);
    if (status == WEFT_OK) {
        status = weft_gate_wait(comm->done, chunk, turn, stream);
    }
    if (status != WEFT_OK) {
        /* Its number is taken: the other ranks must not wait for it. */
        wefti_fault_publish(comm, status, comm->rank, turn,
                            "operation #%llu on \"%s\": rank %d's stream "
                            "refused it",
                            (unsigned long long)turn, comm->name, comm->rank);
    }
    wefti_engine_wake(comm->engine);
    return status;
}

/* The communicator's gates must be able to stand in the stream. */
static weft_status check_stream(const weft_comm *comm,
                                const weft_stream *stream)
{
    const wefti_device_table *ours =
        wefti_device_get_table(wefti_gate_get_device(comm->start));
    const wefti_device_table *theirs =
        wefti_device_get_table(wefti_stream_get_device(stream));
    return ours == theirs
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "stream of a %s device: allowed on \"%s\" is a "
                             "%s device's",
                             theirs->kind, comm->name, ours->kind);
}

weft_status weft_op_post(const weft_op *op, uint64_t epoch, weft_comm *comm,
                         weft_stream *stream)
{
    if (!comm) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm is NULL: allowed is a communicator");
    }
    weft_op checked;
    weft_status status = wefti_check_op(op, epoch, comm, &checked);
    if (status == WEFT_OK && stream) {
        status = check_stream(comm, stream);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return stream ? post_on_stream(comm, &checked, epoch, stream)
                  : post_here(comm, &checked, epoch);
}

static weft_status post_plain(weft_collective collective, const void *send,
                              void *recv, size_t count, weft_dtype dtype,
                              weft_redop redop, int root, weft_comm *comm,
                              weft_stream *stream)
{
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = collective,
                  .send = send,
                  .recv = recv,
                  .count = count,
                  .dtype = dtype,
                  .redop = redop,
                  .root = root};
    return weft_op_post(&op, 0, comm, stream);
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
