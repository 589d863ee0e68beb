/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_life.c - MPI_Init, MPI_Init_thread and MPI_Finalize.
 *
 * A program that initializes MPI otherwise (Open MPI's Fortran calls beneath
 * MPI's own names) is left to MPI altogether: then no rank has weft.
 */
#include "doors/mpi/mpi_life.h"

#include "base/log.h"
#include "doors/mpi/mpi_comm.h"
#include "doors/mpi/mpi_report.h"
#include "doors/mpi/mpi_request.h"
#include "doors/mpi/mpi_type.h"

static _Atomic bool is_open;

bool wefti_mpi_is_open(void)
{
    return atomic_load_explicit(&is_open, memory_order_acquire);
}

static int open_door(int code)
{
    if (code != MPI_SUCCESS) {
        return code;
    }
    wefti_mpi_report_open();
    code = wefti_mpi_type_open();
    if (code == MPI_SUCCESS) {
        code = wefti_mpi_comm_open();
    }
    atomic_store(&is_open, code == MPI_SUCCESS);
    return code;
}

int MPI_Init(int *argc, char ***argv)
{
    return open_door(PMPI_Init(argc, argv));
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return open_door(PMPI_Init_thread(argc, argv, required, provided));
}

int MPI_Finalize(void)
{
    if (wefti_mpi_is_open()) {
        atomic_store(&is_open, false);
        wefti_mpi_request_close();
        wefti_mpi_report_close();
        wefti_mpi_comm_close();
        wefti_mpi_type_close();
    }
    return PMPI_Finalize();
}
