/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_run.c - a call carried out, here and now.
 */
#include "doors/mpi/mpi_run.h"

int wefti_mpi_run(wefti_mpi_job *job)
{
    int code = MPI_SUCCESS;
    weft_status status = job->status;
    if (status == WEFT_OK) {
        wefti_mpi_job_pack(job);
        status = weft_op_post(&job->op, 0, job->comm->weft, NULL);
    }
    if (status == WEFT_OK) {
        wefti_mpi_job_unpack(job);
    } else {
        code = wefti_mpi_comm_raise(job->comm, status);
    }
    wefti_mpi_job_close(job);
    return code;
}
