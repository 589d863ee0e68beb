/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_idle.c - a probe makes MPI look at everything; one of
 * MPI_COMM_SELF, in MPICH, only at itself.
 */
#include "doors/mpi/mpi_idle.h"

#include "doors/mpi/mpi_abi.h"

void wefti_mpi_idle(void *unused)
{
    int found;
    (void)unused;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found,
                MPI_STATUS_IGNORE);
}
