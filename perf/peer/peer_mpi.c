/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_mpi.c - an MPI library as a peer; compiled once with the
 * compiler of each MPI that is installed. MPI's default error handler ends the
 * job with a text, so no status is looked at.
 */
#include "perf/peer/peer_library.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static const MPI_Comm world = MPI_COMM_WORLD;

static const char *version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int chars;
    MPI_Get_library_version(text, &chars);
    text[strcspn(text, ",\n")] = '\0';
    for (char *tab = text; (tab = strchr(tab, '\t'));) {
        *tab = ' '; /* MPICH's */
    }
    return text;
}

static void start(int *rank, int *nranks)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(world, rank);
    MPI_Comm_size(world, nranks);
}

static void finish(void)
{
    MPI_Finalize();
}

static int elems(size_t count)
{
    if (count > INT_MAX) {
        wefti_peer_fail("more elements than an MPI's int holds");
    }
    return (int)count;
}

static void all_reduce(const wefti_peer_call *it)
{
    MPI_Allreduce(it->send, it->recv, elems(it->count), MPI_FLOAT, MPI_SUM,
                  world);
}

static void all_gather(const wefti_peer_call *it)
{
    int count = elems(it->count);
    MPI_Allgather(it->send, count, MPI_FLOAT, it->recv, count, MPI_FLOAT,
                  world);
}

static void reduce_scatter(const wefti_peer_call *it)
{
    MPI_Reduce_scatter_block(it->send, it->recv, elems(it->count), MPI_FLOAT,
                             MPI_SUM, world);
}

static void broadcast(const wefti_peer_call *it)
{
    MPI_Bcast(it->recv, elems(it->count), MPI_FLOAT, it->root, world);
}

static void reduce(const wefti_peer_call *it)
{
    MPI_Reduce(it->send, it->recv, elems(it->count), MPI_FLOAT, MPI_SUM,
               it->root, world);
}

static void alltoall(const wefti_peer_call *it)
{
    int count = elems(it->count);
    MPI_Alltoall(it->send, count, MPI_FLOAT, it->recv, count, MPI_FLOAT, world);
}

static void alltoallv(const wefti_peer_call *it)
{
    int counts[4][WEFTI_PEER_RANKS_MOST]; /* send, where, recv, where */
    size_t send_first = 0, recv_first = 0;
    for (int rank = 0; rank < it->nranks; rank++) {
        counts[0][rank] = elems(it->send_counts[rank]);
        counts[1][rank] = elems(send_first);
        counts[2][rank] = elems(it->recv_counts[rank]);
        counts[3][rank] = elems(recv_first);
        send_first += it->send_counts[rank];
        recv_first += it->recv_counts[rank];
    }
    MPI_Alltoallv(it->send, counts[0], counts[1], MPI_FLOAT, it->recv,
                  counts[2], counts[3], MPI_FLOAT, world);
}

static void gather(const wefti_peer_call *it)
{
    int count = elems(it->count);
    MPI_Gather(it->send, count, MPI_FLOAT, it->recv, count, MPI_FLOAT, it->root,
               world);
}

static void scatter(const wefti_peer_call *it)
{
    int count = elems(it->count);
    MPI_Scatter(it->send, count, MPI_FLOAT, it->recv, count, MPI_FLOAT,
                it->root, world);
}

static void sendrecv(const wefti_peer_call *it)
{
    int count = elems(it->count);
    MPI_Sendrecv(it->send, count, MPI_FLOAT, it->to, 0, it->recv, count,
                 MPI_FLOAT, it->from, 0, world, MPI_STATUS_IGNORE);
}

static void barrier(const wefti_peer_call *it)
{
    (void)it;
    MPI_Barrier(world);
}

const wefti_peer_library wefti_peer_library_used = {
    .version = version,
    .start = start,
    .finish = finish,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
    .reduce = reduce,
    .alltoall = alltoall,
    .alltoallv = alltoallv,
    .gather = gather,
    .scatter = scatter,
    .sendrecv = sendrecv,
    .barrier = barrier,
};
