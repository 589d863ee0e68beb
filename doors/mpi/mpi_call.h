/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_call.h - a collective as a program calls it, and what weft is
 * asked to do for it.
 *
 * Whether weft has a call is decided by what MPI wants alike on all ranks: the
 * communicator and, of a reduction, type and operation. Whatever is of one rank
 * alone (a type with gaps, MPI_IN_PLACE, buffers that overlap) only decides
 * which memory weft works in: the program's, or a packed copy.
 *
 *     program's buffer --pack--> copy --weft--> copy --unpack--> its buffer
 */
#ifndef DOORS_MPI_MPI_CALL_H
#define DOORS_MPI_MPI_CALL_H

#include "doors/mpi/mpi_comm.h"
#include "doors/mpi/mpi_side.h"
#include "weft/request.h"

/*
 * Arguments under MPI's names; what a collective lacks is 0. weft's names of
 * collectives: REDUCESCATTER is MPI_Reduce_scatter_block.
 *
 * large    the arrays are MPI_Count and MPI_Aint, else int
 */
typedef struct wefti_mpi_call {
    weft_collective what;
    const void *send;
    MPI_Count send_count;
    const void *send_counts, *send_displs;
    MPI_Datatype send_type;
    void *recv;
    MPI_Count recv_count;
    const void *recv_counts, *recv_displs;
    MPI_Datatype recv_type;
    MPI_Op op;
    int root;
    bool large;
    MPI_Comm comm;
} wefti_mpi_call;

enum { WEFTI_MPI_ROOM = 64 };

/*
 * A call that weft has. Not to be moved: op points into it.
 *
 * in_place   the buffer's own block is what this rank sends, or is to receive
 * status     what kept this rank alone from it: it is raised instead
 * room       for bytes and offsets of small communicators; larger ones allocate
 */
typedef struct wefti_mpi_job {
    wefti_mpi_comm *comm;
    weft_op op;
    wefti_mpi_side send, recv;
    bool in_place;
    weft_status status;
    size_t moved_bytes;
    size_t *allocated;
    size_t room[4 * WEFTI_MPI_ROOM];
} wefti_mpi_job;

/*
 * wefti_mpi_call_plan - what weft is to do.
 *
 * may_wait   as of wefti_mpi_comm_get
 *
 * Returns    NOT: job_out is to be closed. Else MPI has the call.
 */
wefti_mpi_left wefti_mpi_call_plan(const wefti_mpi_call *call, bool may_wait,
                                   wefti_mpi_job *job_out);

/* Before weft starts it, each time; after it is done; at the end. */
void wefti_mpi_job_pack(wefti_mpi_job *job);
void wefti_mpi_job_unpack(wefti_mpi_job *job);
void wefti_mpi_job_close(wefti_mpi_job *job);

#endif
