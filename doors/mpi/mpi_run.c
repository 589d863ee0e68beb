/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_run.c - a call carried out: here and now, or behind a handle.
 */
#include "doors/mpi/mpi_run.h"

#include "doors/mpi/mpi_report.h"
#include "doors/mpi/mpi_request.h"

int wefti_mpi_run(wefti_mpi_job *job, int64_t from_ns)
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
    wefti_mpi_report_call(job->op.collective, job->moved_bytes, from_ns);
    wefti_mpi_job_close(job);
    return code;
}

wefti_mpi_left wefti_mpi_begin(const wefti_mpi_call *call, bool persistent,
                               MPI_Request *handle_out, int *code_out)
{
    wefti_mpi_request *request = wefti_mpi_request_create();
    if (!request) {
        *code_out = MPI_ERR_NO_MEM;
        PMPI_Comm_call_errhandler(call->comm, *code_out);
        return WEFTI_MPI_LEFT_NOT;
    }
    /* Making a persistent one may wait for the other ranks. */
    const wefti_mpi_left left =
        wefti_mpi_call_plan(call, persistent, &request->job);
    if (left == WEFTI_MPI_LEFT_NOT) {
        *code_out = wefti_mpi_request_open(request, persistent, handle_out);
    } else {
        wefti_mpi_report_left(call->what, left, wefti_mpi_report_now());
        wefti_mpi_request_destroy(request);
    }
    return left;
}
