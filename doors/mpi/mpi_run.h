/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_run.h - a call carried out, here and now.
 */
#ifndef DOORS_MPI_MPI_RUN_H
#define DOORS_MPI_MPI_RUN_H

#include "doors/mpi/mpi_call.h"

/* What a planned call comes to, which it closes. Returns MPI's code. */
int wefti_mpi_run(wefti_mpi_job *job);

#endif
