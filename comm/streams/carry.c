/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/streams/carry.c - a list of stream work, handed to the stream.
 */
#include "comm/streams/streams.h"

#include "comm/control/fault.h"
#include "comm/core/wake.h"
#include "device/cuda.h"
#include "kernels/wire/launch.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_ELEMS = 4096, BLOCKS_MOST = 64 };

/* An operation on its way, and marks, or else flags, that are given in one
 * batch. turn counts those of its kind. */
typedef struct carrying {
    wefti_streams *streams;
    const weft_op *op;
    weft_stream *stream;
    uint64_t turn;
    size_t elem_bytes;
    wefti_mark marks[WEFTI_MARKS_MOST];
    wefti_flag flags[WEFTI_FLAGS_MOST];
    size_t mark_count;
    bool captured;
} carrying;

static weft_status flush(carrying *own)
{
    const size_t count = own->mark_count;
    own->mark_count = 0;
    return count == 0      ? WEFT_OK
           : own->captured ? wefti_stream_flag(own->stream, own->flags, count)
                           : wefti_stream_mark(own->stream, own->marks, count);
}

static weft_status add_mark(carrying *own, weft_gate *gate, size_t chunk,
                            uint64_t epoch, bool waits)
{
    own->marks[own->mark_count++] = (wefti_mark){gate, chunk, epoch, waits};
    return own->mark_count == WEFTI_MARKS_MOST ? flush(own) : WEFT_OK;
}

static weft_status add_flag(carrying *own, weft_gate *gate,
                            wefti_work_mark mark, bool waits, uint32_t value)
{
    const size_t chunk =
        wefti_streams_flag(own->turn % WEFTI_GRAPH_AREAS, mark);
    own->flags[own->mark_count++] = (wefti_flag){gate, chunk, waits, value};
    return own->mark_count == WEFTI_FLAGS_MOST ? flush(own) : WEFT_OK;
}

static size_t area_of(const carrying *own)
{
    return own->captured ? WEFTI_STREAM_AREAS + own->turn % WEFTI_GRAPH_AREAS
                         : (size_t)(own->turn % WEFTI_STREAM_AREAS);
}

static size_t chunk_of(const carrying *own, wefti_work_mark mark)
{
    return area_of(own) * WEFTI_MARKS + mark;
}

static weft_status await(carrying *own, const wefti_work *work)
{
    uint64_t turn = own->turn;
    weft_gate *comes = own->streams->peers[work->peer].comes;
    if (own->captured) {
        weft_status status = add_flag(own, comes, work->mark, true, 0);
        return status == WEFT_OK ? add_flag(own, comes, work->mark, false, 0)
                                 : status;
    }
    if (work->mark == WEFTI_MARK_READ) {
        if (turn <= WEFTI_STREAM_AREAS) {
            return WEFT_OK; /* none has used the area */
        }
        turn -= WEFTI_STREAM_AREAS;
    }
    return add_mark(own, comes, chunk_of(own, work->mark), turn, true);
}

static weft_status raise_mark(carrying *own, wefti_work_mark mark)
{
    weft_status status = WEFT_OK;
    const weft_comm *comm = own->streams->comm;
    for (int peer = 0; status == WEFT_OK && peer < comm->nranks; peer++) {
        weft_gate *goes = own->streams->peers[peer].goes;
        if (!own->captured) {
            status = add_mark(own, goes, chunk_of(own, mark), own->turn, false);
        } else if (peer != comm->rank) {
            status = add_flag(own, goes, mark, false, 1);
        }
    }
    return status;
}

/* NULL: a buffer that this rank does not have. */
static unsigned char *find(const carrying *own, wefti_work_place place,
                           int rank, size_t elem)
{
    const wefti_streams *streams = own->streams;
    unsigned char *base =
        place == WEFTI_WORK_SEND ? (unsigned char *)own->op->send
        : place == WEFTI_WORK_RECV
            ? own->op->recv
            : streams->peers[rank].staging + area_of(own) * streams->area_bytes;
    return base ? base + elem * own->elem_bytes : NULL;
}

static weft_status copy(carrying *own, const wefti_work *work)
{
    const int rank = own->streams->comm->rank;
    unsigned char *dst = find(own, work->dst, rank, work->dst_elem);
    const unsigned char *src = find(own, work->src, work->peer, work->src_elem);
    weft_status status = flush(own);
    return status == WEFT_OK && dst && dst != src
               ? weft_device_copy(own->streams->comm->device, dst, src,
                                  work->elems * own->elem_bytes, own->stream)
               : status;
}

static unsigned count_blocks(const weft_comm *comm, size_t elems)
{
    const size_t most = comm->sm_budget ? (size_t)comm->sm_budget : BLOCKS_MOST;
    const size_t wanted = (elems - 1) / BLOCK_ELEMS + 1;
    return (unsigned)(wanted < most ? wanted : most);
}

static weft_status reduce(carrying *own, const wefti_work *work)
{
    const weft_comm *comm = own->streams->comm;
    wefti_reduce_args args = {
        .dst = find(own, work->dst, comm->rank, work->dst_elem),
        .elems = work->elems,
        .redop = own->op->redop,
        .source_count = (uint32_t)comm->nranks};
    char kernel[32];
    for (int rank = 0; rank < comm->nranks; rank++) {
        args.sources[rank] =
            rank == comm->rank
                ? find(own, work->src, rank, work->src_elem)
                : find(own, WEFTI_WORK_AREA, rank, work->peer_elem);
    }
    snprintf(kernel, sizeof(kernel), "wefti_reduce_%s",
             weft_dtype_text(own->op->dtype));
    const wefti_launch launch = {.kernel = kernel,
                                 .blocks = count_blocks(comm, work->elems),
                                 .threads = WEFTI_LAUNCH_THREADS,
                                 .args = &args,
                                 .args_bytes = sizeof(args)};
    weft_status status = flush(own);
    return status == WEFT_OK ? wefti_stream_launch(own->stream, &launch)
                             : status;
}

static weft_status take(void *context, const wefti_work *work)
{
    carrying *own = context;
    switch (work->kind) {
    case WEFTI_WORK_AWAIT:
        return await(own, work);
    case WEFTI_WORK_SIGNAL:
        return raise_mark(own, work->mark);
    case WEFTI_WORK_COPY:
        return copy(own, work);
    default:
        return reduce(own, work);
    }
}

/* Its end comes last, behind what peers wait for; and also behind a turn of
 * which the stream has refused a part, for what it has taken will run. */
static weft_status end_turn(carrying *own, weft_status status)
{
    wefti_streams *streams = own->streams;
    weft_status flushed = flush(own);
    if (own->captured) {
        return status != WEFT_OK ? status : flushed;
    }
    const wefti_mark ended = {streams->ended, area_of(own), own->turn, false};
    weft_status marked = wefti_stream_mark(own->stream, &ended, 1);
    if (marked == WEFT_OK) {
        atomic_store(&streams->queued[area_of(own)], own->turn);
    }
    return status != WEFT_OK ? status : flushed != WEFT_OK ? flushed : marked;
}

/* calls is held. next: turn of the next of its kind. */
static weft_status carry(wefti_streams *streams, const weft_op *op,
                         weft_stream *stream, bool captured, uint64_t *next)
{
    const weft_comm *comm = streams->comm;
    const wefti_problem problem = {.collective = op->collective,
                                   .rank = comm->rank,
                                   .nranks = comm->nranks,
                                   .root = op->root,
                                   .count = op->count};
    carrying own = {.streams = streams,
                    .op = op,
                    .stream = stream,
                    .captured = captured,
                    .elem_bytes = weft_dtype_bytes(op->dtype)};
    const size_t area_elems = streams->area_bytes / own.elem_bytes;
    const size_t turns = wefti_work_turns(&problem, area_elems);
    weft_status status = WEFT_OK;
    for (size_t turn = 0; status == WEFT_OK && turn < turns; turn++) {
        own.turn = (*next)++;
        status =
            wefti_work_list(&problem, area_elems, turn, captured, take, &own);
        status = end_turn(&own, status);
    }
    return status;
}

weft_status wefti_streams_carry(wefti_streams *streams, const weft_op *op,
                                weft_stream *stream)
{
    weft_comm *comm = streams->comm;
    wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, comm->rank);
    weft_status status = WEFT_OK;
    atomic_fetch_add(&streams->queueing, 1);
    pthread_mutex_lock(&streams->calls);
    atomic_fetch_add(&page->streams_posted, 1);
    if (!wefti_fault_is_published(comm)) {
        status = carry(streams, op, stream, false, &streams->turn);
    }
    pthread_mutex_unlock(&streams->calls);
    atomic_fetch_sub(&streams->queueing, 1);
    return status;
}

weft_status wefti_streams_capture(wefti_streams *streams, const weft_op *op,
                                  weft_stream *stream)
{
    weft_comm *comm = streams->comm;
    wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, comm->rank);
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&streams->calls);
    atomic_fetch_add(&page->streams_posted, 1);
    if (!streams->has_graphs) {
        streams->has_graphs = true;
        wefti_cuda_note_graphs(comm->device, true);
    }
    status = carry(streams, op, stream, true, &streams->captured);
    pthread_mutex_unlock(&streams->calls);
    pthread_mutex_lock(&comm->engine->lock);
    wefti_streams_watch(streams);
    pthread_mutex_unlock(&comm->engine->lock);
    wefti_engine_wake(comm->engine); /* that one has become pending */
    return status;
}
