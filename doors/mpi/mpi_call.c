/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_call.c - from a call's arguments to a weft_op.
 */
#include "doors/mpi/mpi_call.h"

#include "base/error.h"
#include "doors/mpi/mpi_life.h"

#include <stdlib.h>
#include <string.h>

/* Which buffers of a collective that moves data count, on which rank, and how
 * many blocks they have. */
typedef enum who { NOBODY, EVERYBODY, THE_ROOT, THE_OTHERS } who;

typedef struct shape {
    who sends, receives;
    bool send_parts, recv_parts; /* a block for each rank, else one */
    bool rooted;
} shape;

static const shape shapes[WEFT_COLLECTIVE_COUNT] = {
    [WEFT_COLLECTIVE_BROADCAST] = {THE_ROOT, THE_OTHERS, false, false, true},
    [WEFT_COLLECTIVE_ALLGATHER] = {EVERYBODY, EVERYBODY, false, true, false},
    [WEFT_COLLECTIVE_ALLGATHERV] = {EVERYBODY, EVERYBODY, false, true, false},
    [WEFT_COLLECTIVE_GATHER] = {EVERYBODY, THE_ROOT, false, true, true},
    [WEFT_COLLECTIVE_GATHERV] = {EVERYBODY, THE_ROOT, false, true, true},
    [WEFT_COLLECTIVE_SCATTER] = {THE_ROOT, EVERYBODY, true, false, true},
    [WEFT_COLLECTIVE_SCATTERV] = {THE_ROOT, EVERYBODY, true, false, true},
    [WEFT_COLLECTIVE_ALLTOALL] = {EVERYBODY, EVERYBODY, true, true, false},
    [WEFT_COLLECTIVE_ALLTOALLV] = {EVERYBODY, EVERYBODY, true, true, false},
};

static bool is_among(who some, bool is_root)
{
    return some == EVERYBODY || (some == THE_ROOT && is_root) ||
           (some == THE_OTHERS && !is_root);
}

/* What else a side has is 0 as yet. */
static bool fill_send(const wefti_mpi_call *call, int blocks,
                      wefti_mpi_side *side)
{
    side->user = (char *)(uintptr_t)call->send;
    side->blocks = blocks;
    side->large = call->large;
    side->count = call->send_count;
    side->counts = call->send_counts;
    side->displs = call->send_displs;
    return wefti_mpi_type_get(call->send_type, call->comm, &side->type) &&
           wefti_mpi_side_check(side);
}

static bool fill_recv(const wefti_mpi_call *call, int blocks,
                      wefti_mpi_side *side)
{
    side->user = call->recv;
    side->blocks = blocks;
    side->large = call->large;
    side->count = call->recv_count;
    side->counts = call->recv_counts;
    side->displs = call->recv_displs;
    return wefti_mpi_type_get(call->recv_type, call->comm, &side->type) &&
           wefti_mpi_side_check(side);
}

/* The buffers that count on this rank; false: MPI will refuse them. */
static bool fill_sides(const wefti_mpi_call *call, const shape *form,
                       wefti_mpi_job *job)
{
    const bool is_root = job->comm->rank == call->root;
    const int nranks = job->comm->nranks;
    bool sends = is_among(form->sends, is_root);
    bool receives = is_among(form->receives, is_root);
    if (form->send_parts && form->recv_parts) {
        /* MPI_Alltoall in place: what is received into is sent from a copy. */
        job->in_place = call->send == MPI_IN_PLACE;
    } else {
        job->in_place = form->sends != THE_ROOT
                            ? receives && call->send == MPI_IN_PLACE
                            : sends && call->recv == MPI_IN_PLACE;
    }
    if (job->in_place && form->send_parts && form->recv_parts) {
        if (!fill_recv(call, nranks, &job->send)) {
            return false;
        }
        job->send.packed = true;
        sends = false;
        job->in_place = false;
    } else if (job->in_place) {
        sends &= form->send_parts;
        receives &= form->recv_parts;
    }
    return (!sends ||
            fill_send(call, form->send_parts ? nranks : 1, &job->send)) &&
           (!receives ||
            fill_recv(call, form->recv_parts ? nranks : 1, &job->recv));
}

static bool make_room(wefti_mpi_job *job, int nranks, size_t **room_out)
{
    *room_out = job->room;
    if (nranks > WEFTI_MPI_ROOM) {
        *room_out = job->allocated = malloc(4 * sizeof(size_t) * nranks);
    }
    return *room_out != NULL;
}

static void place(wefti_mpi_job *job, size_t *room)
{
    wefti_mpi_side_place(&job->send, room);
    wefti_mpi_side_place(&job->recv, room + 2 * (size_t)job->comm->nranks);
    if (job->send.blocks > 0 && job->recv.blocks > 0 &&
        wefti_mpi_side_overlaps(&job->send, &job->recv)) {
        job->send.packed = true; /* weft is stricter than MPI, by span */
        wefti_mpi_side_place(&job->send, room);
    }
    job->status = wefti_mpi_side_open(&job->send);
    if (job->status == WEFT_OK) {
        job->status = wefti_mpi_side_open(&job->recv);
    }
}

/* The bytes that this rank alone sends or receives, and where. */
static void give_own(wefti_mpi_job *job)
{
    weft_op *op = &job->op;
    const wefti_mpi_side *parts =
        job->send.blocks > 1 ? &job->send : &job->recv;
    const int rank = job->comm->rank;
    op->send = job->send.data;
    op->recv = job->recv.data;
    if (job->in_place && parts == &job->recv) {
        op->send = wefti_mpi_side_block(parts, rank);
    } else if (job->in_place) {
        op->recv = wefti_mpi_side_block(parts, rank);
    }
    const wefti_mpi_side *own = job->send.blocks == 1   ? &job->send
                                : job->recv.blocks == 1 ? &job->recv
                                                        : NULL;
    op->count =
        own ? own->block_bytes : wefti_mpi_side_block_bytes(parts, rank);
}

static wefti_mpi_left plan_move(const wefti_mpi_call *call, wefti_mpi_job *job)
{
    const shape *form = &shapes[call->what];
    weft_op *op = &job->op;
    size_t *room;
    if (!fill_sides(call, form, job)) {
        return WEFTI_MPI_LEFT_ARGUMENT;
    }
    op->dtype = WEFT_DTYPE_U8;
    op->root = form->rooted ? call->root : 0;
    if (!make_room(job, job->comm->nranks, &room)) {
        job->status = wefti_error(WEFT_ERR_NO_MEMORY,
                                  "no memory for the counts of %d ranks",
                                  job->comm->nranks);
        return WEFTI_MPI_LEFT_NOT;
    }
    place(job, room);
    if (job->status != WEFT_OK) {
        return WEFTI_MPI_LEFT_NOT;
    }
    give_own(job);
    if (call->what == WEFT_COLLECTIVE_BROADCAST) {
        op->send = op->recv = op->send ? (void *)(uintptr_t)op->send : op->recv;
    }
    op->send_counts = job->send.bytes;
    op->send_displs = job->send.offsets;
    op->recv_counts = job->recv.bytes;
    op->recv_displs = job->recv.offsets;
    job->moved_bytes = job->send.span_bytes > job->recv.span_bytes
                           ? job->send.span_bytes
                           : job->recv.span_bytes;
    return WEFTI_MPI_LEFT_NOT;
}

/* MPI_Reduce_scatter in place reads all of the buffer and writes its start. */
static void receive_apart(const wefti_mpi_call *call, wefti_mpi_job *job,
                          MPI_Count count)
{
    job->recv = (wefti_mpi_side){
        .user = call->recv, .blocks = 1, .count = count, .packed = true};
    wefti_mpi_type_get(call->recv_type, call->comm, &job->recv.type);
    wefti_mpi_side_place(&job->recv, NULL);
    job->status = wefti_mpi_side_open(&job->recv);
    job->op.recv = job->recv.data;
}

/* Each rank's share of a sum, which may differ; false: no such counts. */
static bool plan_shares(const wefti_mpi_call *call, size_t per,
                        wefti_mpi_job *job)
{
    const int nranks = job->comm->nranks;
    size_t *room;
    if (!call->recv_counts || !make_room(job, nranks, &room)) {
        return false;
    }
    size_t sum = 0;
    for (int i = 0; i < nranks; i++) {
        const MPI_Count count = call->large
                                    ? ((const MPI_Count *)call->recv_counts)[i]
                                    : ((const int *)call->recv_counts)[i];
        if (count < 0) {
            return false;
        }
        room[i] = (size_t)count * per;
        sum += room[i];
    }
    job->op.send_counts = room;
    job->op.count = room[job->comm->rank];
    job->moved_bytes = sum * weft_dtype_bytes(job->op.dtype);
    return true;
}

static wefti_mpi_left plan_reduction(const wefti_mpi_call *call,
                                     wefti_mpi_job *job)
{
    wefti_mpi_reduction reduction;
    weft_op *op = &job->op;
    const bool in_place = call->send == MPI_IN_PLACE;
    if (!wefti_mpi_reduction_get(call->recv_type, call->op, &reduction)) {
        return WEFTI_MPI_LEFT_OPERATION;
    }
    if (call->recv_count < 0 || (call->what == WEFT_COLLECTIVE_REDUCE &&
                                 in_place && job->comm->rank != call->root)) {
        return WEFTI_MPI_LEFT_ARGUMENT;
    }
    op->dtype = reduction.dtype;
    op->redop = reduction.redop;
    op->root = call->what == WEFT_COLLECTIVE_REDUCE ? call->root : 0;
    op->count = (size_t)call->recv_count * reduction.per;
    op->send = in_place ? call->recv : call->send;
    op->recv = call->recv;
    job->moved_bytes = op->count * weft_dtype_bytes(op->dtype);
    if (call->what == WEFT_COLLECTIVE_REDUCESCATTERV &&
        !plan_shares(call, reduction.per, job)) {
        return WEFTI_MPI_LEFT_ARGUMENT;
    }
    if (call->what == WEFT_COLLECTIVE_REDUCESCATTER) {
        job->moved_bytes *= (size_t)job->comm->nranks;
    }
    if (in_place && (call->what == WEFT_COLLECTIVE_REDUCESCATTER ||
                     call->what == WEFT_COLLECTIVE_REDUCESCATTERV)) {
        receive_apart(call, job, (MPI_Count)(op->count / reduction.per));
    }
    return WEFTI_MPI_LEFT_NOT;
}

static bool has_root(weft_collective what)
{
    return shapes[what].rooted || what == WEFT_COLLECTIVE_REDUCE;
}

static bool reduces(weft_collective what)
{
    return what == WEFT_COLLECTIVE_ALLREDUCE ||
           what == WEFT_COLLECTIVE_REDUCE ||
           what == WEFT_COLLECTIVE_REDUCESCATTER ||
           what == WEFT_COLLECTIVE_REDUCESCATTERV;
}

/* Of a size that it sees gcc clears by rep stos, which takes as long to begin
 * as the rest of a small call. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noipa))
#endif
static void
clear(void *from, size_t bytes)
{
    memset(from, 0, bytes);
}

wefti_mpi_left wefti_mpi_call_plan(const wefti_mpi_call *call, bool may_wait,
                                   wefti_mpi_job *job)
{
    wefti_mpi_comm *comm =
        wefti_mpi_is_open() ? wefti_mpi_comm_get(call->comm, may_wait) : NULL;
    if (!comm) {
        return WEFTI_MPI_LEFT_OFF;
    }
    if (comm->left != WEFTI_MPI_LEFT_NOT) {
        return comm->left;
    }
    if (has_root(call->what) &&
        (call->root < 0 || call->root >= comm->nranks)) {
        return WEFTI_MPI_LEFT_ARGUMENT;
    }
    clear(job, offsetof(wefti_mpi_job, room));
    job->comm = comm;
    job->op.size_bytes = sizeof(job->op);
    job->op.collective = call->what;
    wefti_mpi_left left = WEFTI_MPI_LEFT_NOT;
    if (reduces(call->what)) {
        left = plan_reduction(call, job);
    } else if (call->what != WEFT_COLLECTIVE_BARRIER) {
        left = plan_move(call, job);
    }
    if (left != WEFTI_MPI_LEFT_NOT) {
        free(job->allocated);
    }
    return left;
}

/* Of an operation that goes on, MPI's communicator may have been freed. */
static MPI_Comm packer_of(const wefti_mpi_comm *comm)
{
    return atomic_load(&comm->handle) ? comm->mpi : MPI_COMM_SELF;
}

void wefti_mpi_job_pack(wefti_mpi_job *job)
{
    const MPI_Comm comm = packer_of(job->comm);
    wefti_mpi_side_pack(&job->send, comm);
    if (job->in_place && job->recv.blocks > 1) {
        wefti_mpi_side_pack_block(&job->recv, job->comm->rank, comm);
    }
}

void wefti_mpi_job_unpack(wefti_mpi_job *job)
{
    wefti_mpi_side_unpack(&job->recv, packer_of(job->comm));
}

void wefti_mpi_job_close(wefti_mpi_job *job)
{
    wefti_mpi_side_close(&job->send);
    wefti_mpi_side_close(&job->recv);
    free(job->allocated);
}
