/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_collectives.c - MPI's collectives: each is planned for weft, or
 * is MPI's, beneath its name in MPI's profiling interface.
 *
 * A collective has its arguments once in this file, P_ as they are declared for
 * counts of type C and displacements of type D, A_ as they are passed on and F_
 * as a wefti_mpi_call; FORMS makes its functions of that.
 */
#include "doors/mpi/mpi_call.h"
#include "doors/mpi/mpi_report.h"
#include "doors/mpi/mpi_run.h"

#define P_BCAST(C, D)                                                          \
    void *buffer, C count, MPI_Datatype datatype, int root, MPI_Comm comm
#define A_BCAST buffer, count, datatype, root, comm
#define F_BCAST                                                                \
    .what = WEFT_COLLECTIVE_BROADCAST, .send = buffer, .send_count = count,    \
    .send_type = datatype, .recv = buffer, .recv_count = count,                \
    .recv_type = datatype, .root = root

#define P_ALLREDUCE(C, D)                                                      \
    const void *sendbuf, void *recvbuf, C count, MPI_Datatype datatype,        \
        MPI_Op op, MPI_Comm comm
#define A_ALLREDUCE sendbuf, recvbuf, count, datatype, op, comm
#define F_ALLREDUCE                                                            \
    .what = WEFT_COLLECTIVE_ALLREDUCE, .send = sendbuf, .recv = recvbuf,       \
    .recv_count = count, .recv_type = datatype, .op = op

#define P_REDUCE(C, D)                                                         \
    const void *sendbuf, void *recvbuf, C count, MPI_Datatype datatype,        \
        MPI_Op op, int root, MPI_Comm comm
#define A_REDUCE sendbuf, recvbuf, count, datatype, op, root, comm
#define F_REDUCE                                                               \
    .what = WEFT_COLLECTIVE_REDUCE, .send = sendbuf, .recv = recvbuf,          \
    .recv_count = count, .recv_type = datatype, .op = op, .root = root

#define P_REDUCE_SCATTER_BLOCK(C, D)                                           \
    const void *sendbuf, void *recvbuf, C recvcount, MPI_Datatype datatype,    \
        MPI_Op op, MPI_Comm comm
#define A_REDUCE_SCATTER_BLOCK sendbuf, recvbuf, recvcount, datatype, op, comm
#define F_REDUCE_SCATTER_BLOCK                                                 \
    .what = WEFT_COLLECTIVE_REDUCESCATTER, .send = sendbuf, .recv = recvbuf,   \
    .recv_count = recvcount, .recv_type = datatype, .op = op

#define P_REDUCE_SCATTER(C, D)                                                 \
    const void *sendbuf, void *recvbuf, const C *recvcounts,                   \
        MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
#define A_REDUCE_SCATTER sendbuf, recvbuf, recvcounts, datatype, op, comm
#define F_REDUCE_SCATTER                                                       \
    .what = WEFT_COLLECTIVE_REDUCESCATTERV, .send = sendbuf, .recv = recvbuf,  \
    .recv_counts = recvcounts, .recv_type = datatype, .op = op

#define P_ALLGATHER(C, D)                                                      \
    const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf,    \
        C recvcount, MPI_Datatype recvtype, MPI_Comm comm
#define A_ALLGATHER                                                            \
    sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm
#define F_MOVE                                                                 \
    .send = sendbuf, .send_count = sendcount, .send_type = sendtype,           \
    .recv = recvbuf, .recv_count = recvcount, .recv_type = recvtype
#define F_ALLGATHER .what = WEFT_COLLECTIVE_ALLGATHER, F_MOVE

#define P_ALLTOALL(C, D) P_ALLGATHER(C, D)
#define A_ALLTOALL       A_ALLGATHER
#define F_ALLTOALL       .what = WEFT_COLLECTIVE_ALLTOALL, F_MOVE

#define P_GATHER(C, D)                                                         \
    const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf,    \
        C recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm
#define A_GATHER                                                               \
    sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm
#define F_GATHER .what = WEFT_COLLECTIVE_GATHER, F_MOVE, .root = root

#define P_SCATTER(C, D) P_GATHER(C, D)
#define A_SCATTER       A_GATHER
#define F_SCATTER       .what = WEFT_COLLECTIVE_SCATTER, F_MOVE, .root = root

#define P_ALLGATHERV(C, D)                                                     \
    const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf,    \
        const C *recvcounts, const D *displs, MPI_Datatype recvtype,           \
        MPI_Comm comm
#define A_ALLGATHERV                                                           \
    sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm
#define F_TO_PARTS                                                             \
    .send = sendbuf, .send_count = sendcount, .send_type = sendtype,           \
    .recv = recvbuf, .recv_counts = recvcounts, .recv_displs = displs,         \
    .recv_type = recvtype
#define F_ALLGATHERV .what = WEFT_COLLECTIVE_ALLGATHERV, F_TO_PARTS

#define P_GATHERV(C, D)                                                        \
    const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf,    \
        const C *recvcounts, const D *displs, MPI_Datatype recvtype, int root, \
        MPI_Comm comm
#define A_GATHERV                                                              \
    sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, \
        comm
#define F_GATHERV .what = WEFT_COLLECTIVE_GATHERV, F_TO_PARTS, .root = root

#define P_SCATTERV(C, D)                                                       \
    const void *sendbuf, const C *sendcounts, const D *displs,                 \
        MPI_Datatype sendtype, void *recvbuf, C recvcount,                     \
        MPI_Datatype recvtype, int root, MPI_Comm comm
#define A_SCATTERV                                                             \
    sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, \
        comm
#define F_SCATTERV                                                             \
    .what = WEFT_COLLECTIVE_SCATTERV, .send = sendbuf,                         \
    .send_counts = sendcounts, .send_displs = displs, .send_type = sendtype,   \
    .recv = recvbuf, .recv_count = recvcount, .recv_type = recvtype,           \
    .root = root

#define P_ALLTOALLV(C, D)                                                      \
    const void *sendbuf, const C *sendcounts, const D *sdispls,                \
        MPI_Datatype sendtype, void *recvbuf, const C *recvcounts,             \
        const D *rdispls, MPI_Datatype recvtype, MPI_Comm comm
#define A_ALLTOALLV                                                            \
    sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,      \
        recvtype, comm
#define F_ALLTOALLV                                                            \
    .what = WEFT_COLLECTIVE_ALLTOALLV, .send = sendbuf,                        \
    .send_counts = sendcounts, .send_displs = sdispls, .send_type = sendtype,  \
    .recv = recvbuf, .recv_counts = recvcounts, .recv_displs = rdispls,        \
    .recv_type = recvtype

#define P_BARRIER(C, D) MPI_Comm comm
#define A_BARRIER       comm
#define F_BARRIER       .what = WEFT_COLLECTIVE_BARRIER

/* PARAMETERS, ARGUMENTS and the fields are lists: macros until they stand in
 * their places. */
#define BLOCKING(name, PARAMETERS, ARGUMENTS, ...)                             \
    int MPI_##name(PARAMETERS)                                                 \
    {                                                                          \
        const wefti_mpi_call call = {.comm = comm, __VA_ARGS__};               \
        wefti_mpi_job job;                                                     \
        const int64_t from_ns = wefti_mpi_report_now();                        \
        const wefti_mpi_left left = wefti_mpi_call_plan(&call, true, &job);    \
        if (left == WEFTI_MPI_LEFT_NOT) {                                      \
            return wefti_mpi_run(&job, from_ns);                               \
        }                                                                      \
        const int code = PMPI_##name(ARGUMENTS);                               \
        wefti_mpi_report_left(call.what, left, from_ns);                       \
        return code;                                                           \
    }

#define NONBLOCKING(name, PARAMETERS, ARGUMENTS, ...)                          \
    int MPI_##name(PARAMETERS, MPI_Request *request)                           \
    {                                                                          \
        const wefti_mpi_call call = {.comm = comm, __VA_ARGS__};               \
        int code = MPI_SUCCESS;                                                \
        return wefti_mpi_begin(&call, false, request, &code) ==                \
                       WEFTI_MPI_LEFT_NOT                                      \
                   ? code                                                      \
                   : PMPI_##name(ARGUMENTS, request);                          \
    }

#define PERSISTENT(name, PARAMETERS, ARGUMENTS, ...)                           \
    int MPI_##name(PARAMETERS, MPI_Info info, MPI_Request *request)            \
    {                                                                          \
        const wefti_mpi_call call = {.comm = comm, __VA_ARGS__};               \
        int code = MPI_SUCCESS;                                                \
        return wefti_mpi_begin(&call, true, request, &code) ==                 \
                       WEFTI_MPI_LEFT_NOT                                      \
                   ? code                                                      \
                   : PMPI_##name(ARGUMENTS, info, request);                    \
    }

#define PLAIN_FORMS(name, lower, KEY)                                          \
    BLOCKING(name, P_##KEY(int, int), A_##KEY, F_##KEY)                        \
    NONBLOCKING(I##lower, P_##KEY(int, int), A_##KEY, F_##KEY)

#if WEFTI_MPI_HAS_PERSISTENT
#define ALL_FORMS(name, lower, KEY)                                            \
    PLAIN_FORMS(name, lower, KEY)                                              \
    PERSISTENT(name##_init, P_##KEY(int, int), A_##KEY, F_##KEY)
#else
#define ALL_FORMS(name, lower, KEY) PLAIN_FORMS(name, lower, KEY)
#endif

#if WEFTI_MPI_HAS_LARGE
#define LARGE(KEY) F_##KEY, .large = true
#define FORMS(name, lower, KEY)                                                \
    ALL_FORMS(name, lower, KEY)                                                \
    BLOCKING(name##_c, P_##KEY(MPI_Count, MPI_Aint), A_##KEY, LARGE(KEY))      \
    NONBLOCKING(I##lower##_c, P_##KEY(MPI_Count, MPI_Aint), A_##KEY,           \
                LARGE(KEY))                                                    \
    PERSISTENT(name##_init_c, P_##KEY(MPI_Count, MPI_Aint), A_##KEY, LARGE(KEY))
#else
#define FORMS(name, lower, KEY) ALL_FORMS(name, lower, KEY)
#endif

FORMS(Bcast, bcast, BCAST)
FORMS(Allreduce, allreduce, ALLREDUCE)
FORMS(Reduce, reduce, REDUCE)
FORMS(Reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER_BLOCK)
FORMS(Reduce_scatter, reduce_scatter, REDUCE_SCATTER)
FORMS(Allgather, allgather, ALLGATHER)
FORMS(Allgatherv, allgatherv, ALLGATHERV)
FORMS(Gather, gather, GATHER)
FORMS(Gatherv, gatherv, GATHERV)
FORMS(Scatter, scatter, SCATTER)
FORMS(Scatterv, scatterv, SCATTERV)
FORMS(Alltoall, alltoall, ALLTOALL)
FORMS(Alltoallv, alltoallv, ALLTOALLV)
ALL_FORMS(Barrier, barrier, BARRIER)
