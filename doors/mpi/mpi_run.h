/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_run.h - a call carried out: here and now, or behind a handle.
 */
#ifndef DOORS_MPI_MPI_RUN_H
#define DOORS_MPI_MPI_RUN_H

#include "doors/mpi/mpi_call.h"

/* What a planned call comes to, which it closes; the program made it at
 * from_ns. Returns MPI's code. */
int wefti_mpi_run(wefti_mpi_job *job, int64_t from_ns);

/*
 * wefti_mpi_begin - plans a call that does not wait, and starts it unless it is
 * persistent.
 *
 * Returns    NOT: *code_out is what MPI's function returns. Else MPI has it.
 */
wefti_mpi_left wefti_mpi_begin(const wefti_mpi_call *call, bool persistent,
                               MPI_Request *handle_out, int *code_out);

#endif
