/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/stream_work.c - the turns of each collective.
 */
#include "comm/pattern/stream_work.h"

#include "base/check.h"

/* Below so many elements a rank, a sum of one hop: each adds up everything. */
enum { TWO_HOPS_ELEMS = 1024, ALIGN_ELEMS = 16 };

/* One turn being listed. */
typedef struct list {
    const wefti_problem *problem;
    weft_status (*take)(void *context, const wefti_work *work);
    void *context;
    weft_status status;
    size_t piece;        /* elements of a part in one turn, at most */
    size_t begin, elems; /* of this turn's, in a part */
    bool flagged;
    uint64_t awaited[WEFTI_MARKS]; /* a bit for each peer */
} list;

bool wefti_work_has(weft_collective collective)
{
    switch (collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
    case WEFT_COLLECTIVE_REDUCESCATTER:
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_BROADCAST:
    case WEFT_COLLECTIVE_GATHER:
    case WEFT_COLLECTIVE_SCATTER:
    case WEFT_COLLECTIVE_ALLTOALL:
        return true;
    default:
        return false;
    }
}

/* An area has one part of the turn, or one for each rank. */
static size_t piece_of(const wefti_problem *problem, size_t area_elems)
{
    const weft_collective collective = problem->collective;
    const bool parted = collective == WEFT_COLLECTIVE_REDUCESCATTER ||
                        collective == WEFT_COLLECTIVE_SCATTER ||
                        collective == WEFT_COLLECTIVE_ALLTOALL;
    const size_t piece =
        parted ? area_elems / (size_t)problem->nranks : area_elems;
    WEFTI_ASSERT(piece > 0);
    return piece > ALIGN_ELEMS ? piece / ALIGN_ELEMS * ALIGN_ELEMS : piece;
}

size_t wefti_work_turns(const wefti_problem *problem, size_t area_elems)
{
    return (problem->count - 1) / piece_of(problem, area_elems) + 1;
}

static void add(list *own, wefti_work work)
{
    if (own->status == WEFT_OK) {
        own->status = own->take(own->context, &work);
    }
}

static void await(list *own, wefti_work_mark mark, int peer)
{
    const uint64_t bit = (uint64_t)1 << peer;
    if (own->flagged &&
        (peer == own->problem->rank || own->awaited[mark] & bit)) {
        return;
    }
    own->awaited[mark] |= bit;
    add(own,
        (wefti_work){.kind = WEFTI_WORK_AWAIT, .mark = mark, .peer = peer});
}

static void await_all(list *own, wefti_work_mark mark)
{
    for (int peer = 0; peer < own->problem->nranks; peer++) {
        await(own, mark, peer);
    }
}

static void raise_mark(list *own, wefti_work_mark mark)
{
    add(own, (wefti_work){.kind = WEFTI_WORK_SIGNAL, .mark = mark});
}

static void copy(list *own, wefti_work_place dst, size_t dst_elem,
                 wefti_work_place src, size_t src_elem, int peer, size_t elems)
{
    if (elems > 0) {
        add(own, (wefti_work){.kind = WEFTI_WORK_COPY,
                              .src = src,
                              .dst = dst,
                              .peer = peer,
                              .src_elem = src_elem,
                              .dst_elem = dst_elem,
                              .elems = elems});
    }
}

static void reduce(list *own, size_t dst_elem, size_t src_elem,
                   size_t peer_elem, size_t elems)
{
    if (elems > 0) {
        add(own, (wefti_work){.kind = WEFTI_WORK_REDUCE,
                              .src = WEFTI_WORK_SEND,
                              .dst = WEFTI_WORK_RECV,
                              .src_elem = src_elem,
                              .dst_elem = dst_elem,
                              .peer_elem = peer_elem,
                              .elems = elems});
    }
}

/* Where a rank's part of a buffer has this turn's elements. */
static size_t part(const list *own, int rank)
{
    return (size_t)rank * own->problem->count + own->begin;
}

/* Where an area with a part for each rank has that rank's. */
static size_t area_part(const list *own, int rank)
{
    return (size_t)rank * own->piece;
}

static void stage_whole(list *own)
{
    copy(own, WEFTI_WORK_AREA, 0, WEFTI_WORK_SEND, own->begin, 0, own->elems);
}

/* All parts but this rank's own, which nobody reads from its area. */
static void stage_parts(list *own)
{
    const wefti_problem *problem = own->problem;
    for (int rank = 0; rank < problem->nranks; rank++) {
        if (rank != problem->rank) {
            copy(own, WEFTI_WORK_AREA, area_part(own, rank), WEFTI_WORK_SEND,
                 part(own, rank), 0, own->elems);
        }
    }
}

static void all_gather(list *own)
{
    const wefti_problem *problem = own->problem;
    stage_whole(own);
    raise_mark(own, WEFTI_MARK_FILLED);
    copy(own, WEFTI_WORK_RECV, part(own, problem->rank), WEFTI_WORK_SEND,
         own->begin, 0, own->elems);
    for (int peer = 0; peer < problem->nranks; peer++) {
        if (peer != problem->rank) {
            await(own, WEFTI_MARK_FILLED, peer);
            copy(own, WEFTI_WORK_RECV, part(own, peer), WEFTI_WORK_AREA, 0,
                 peer, own->elems);
        }
    }
}

static void all_to_all(list *own)
{
    const wefti_problem *problem = own->problem;
    stage_parts(own);
    raise_mark(own, WEFTI_MARK_FILLED);
    copy(own, WEFTI_WORK_RECV, part(own, problem->rank), WEFTI_WORK_SEND,
         part(own, problem->rank), 0, own->elems);
    for (int peer = 0; peer < problem->nranks; peer++) {
        if (peer != problem->rank) {
            await(own, WEFTI_MARK_FILLED, peer);
            copy(own, WEFTI_WORK_RECV, part(own, peer), WEFTI_WORK_AREA,
                 area_part(own, problem->rank), peer, own->elems);
        }
    }
}

/* One rank's elements to all: a whole buffer, or a part to each. */
static void from_root(list *own, bool parts)
{
    const wefti_problem *problem = own->problem;
    const int rank = problem->rank, root = problem->root;
    if (rank == root && parts) {
        stage_parts(own);
    } else if (rank == root) {
        stage_whole(own);
    }
    raise_mark(own, WEFTI_MARK_FILLED);
    if (rank == root) {
        copy(own, WEFTI_WORK_RECV, own->begin, WEFTI_WORK_SEND,
             parts ? part(own, rank) : own->begin, 0, own->elems);
        return;
    }
    await(own, WEFTI_MARK_FILLED, root);
    copy(own, WEFTI_WORK_RECV, own->begin, WEFTI_WORK_AREA,
         parts ? area_part(own, rank) : 0, root, own->elems);
}

/* All ranks' elements to one: side by side, or added up. */
static void to_root(list *own, bool sums)
{
    const wefti_problem *problem = own->problem;
    const int root = problem->root;
    if (problem->rank != root) {
        stage_whole(own);
    }
    raise_mark(own, WEFTI_MARK_FILLED);
    if (problem->rank != root) {
        return;
    }
    if (!sums) {
        copy(own, WEFTI_WORK_RECV, part(own, root), WEFTI_WORK_SEND, own->begin,
             0, own->elems);
    }
    for (int peer = 0; peer < problem->nranks; peer++) {
        if (peer != root) {
            await(own, WEFTI_MARK_FILLED, peer);
        }
        if (peer != root && !sums) {
            copy(own, WEFTI_WORK_RECV, part(own, peer), WEFTI_WORK_AREA, 0,
                 peer, own->elems);
        }
    }
    if (sums) {
        reduce(own, own->begin, own->begin, 0, own->elems);
    }
}

static void reduce_scatter(list *own)
{
    const int rank = own->problem->rank;
    stage_parts(own);
    raise_mark(own, WEFTI_MARK_FILLED);
    await_all(own, WEFTI_MARK_FILLED);
    reduce(own, own->begin, part(own, rank), area_part(own, rank), own->elems);
}

/* The share goes back into the area, where nobody else reads that range. */
static void all_reduce(list *own)
{
    const wefti_problem *problem = own->problem;
    const int nranks = problem->nranks;
    size_t from;
    stage_whole(own);
    raise_mark(own, WEFTI_MARK_FILLED);
    await_all(own, WEFTI_MARK_FILLED);
    if (own->elems < (size_t)nranks * TWO_HOPS_ELEMS) {
        reduce(own, own->begin, own->begin, 0, own->elems);
        return;
    }
    const size_t share = wefti_share(own->elems, nranks, problem->rank, &from);
    reduce(own, own->begin + from, own->begin + from, from, share);
    copy(own, WEFTI_WORK_AREA, from, WEFTI_WORK_RECV, own->begin + from, 0,
         share);
    raise_mark(own, WEFTI_MARK_SUMMED);
    for (int peer = 0; peer < nranks; peer++) {
        const size_t theirs = wefti_share(own->elems, nranks, peer, &from);
        if (peer != problem->rank && theirs > 0) {
            await(own, WEFTI_MARK_SUMMED, peer);
            copy(own, WEFTI_WORK_RECV, own->begin + from, WEFTI_WORK_AREA, from,
                 peer, theirs);
        }
    }
}

weft_status wefti_work_list(
    const wefti_problem *problem, size_t area_elems, size_t turn, bool flagged,
    weft_status (*take)(void *context, const wefti_work *work), void *context)
{
    list own = {.problem = problem,
                .take = take,
                .context = context,
                .flagged = flagged,
                .piece = piece_of(problem, area_elems)};
    own.begin = turn * own.piece;
    WEFTI_ASSERT(own.begin < problem->count);
    const size_t left = problem->count - own.begin;
    own.elems = left < own.piece ? left : own.piece;
    await_all(&own, WEFTI_MARK_READ);
    switch (problem->collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        all_reduce(&own);
        break;
    case WEFT_COLLECTIVE_REDUCE:
        to_root(&own, true);
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        reduce_scatter(&own);
        break;
    case WEFT_COLLECTIVE_ALLGATHER:
        all_gather(&own);
        break;
    case WEFT_COLLECTIVE_BROADCAST:
        from_root(&own, false);
        break;
    case WEFT_COLLECTIVE_GATHER:
        to_root(&own, false);
        break;
    case WEFT_COLLECTIVE_SCATTER:
        from_root(&own, true);
        break;
    default:
        WEFTI_ASSERT(problem->collective == WEFT_COLLECTIVE_ALLTOALL);
        all_to_all(&own);
        break;
    }
    if (flagged) { /* of two hops no share is empty: SUMMED is awaited */
        await_all(&own, WEFTI_MARK_FILLED);
    }
    raise_mark(&own, WEFTI_MARK_READ);
    return own.status;
}
