/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_life.h - from MPI_Init to MPI_Finalize.
 */
#ifndef DOORS_MPI_MPI_LIFE_H
#define DOORS_MPI_MPI_LIFE_H

#include <stdbool.h>

/* Whether weft takes part: MPI was initialized through this library, and has
 * not been finalized. */
bool wefti_mpi_is_open(void);

#endif
