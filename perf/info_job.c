/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_job.c - one communicator, one graph.
 */
#include "perf/info_job.h"

#include "comm/oob/source.h"

#include <stdio.h>

bool wefti_info_job_is_there(void)
{
    int rank, nranks = 1;
    if (wefti_launch_source_find_rank(&rank, &nranks) != WEFT_OK) {
        fprintf(stderr, "weft-info: not as a rank of a job: %s\n",
                weft_error_text());
        return false;
    }
    return nranks > 1;
}

weft_status wefti_info_job_open(wefti_info_job *job_out)
{
    *job_out = (wefti_info_job){0};
    weft_status status = weft_comm_create(NULL, &job_out->comm);
    if (status == WEFT_OK) {
        status = wefti_cluster_open(job_out->comm, NULL, &job_out->cluster);
    }
    if (status != WEFT_OK) {
        wefti_info_job_close(job_out);
    }
    return status;
}

void wefti_info_job_close(wefti_info_job *job)
{
    wefti_cluster_close(&job->cluster);
    weft_comm_destroy(job->comm);
    *job = (wefti_info_job){0};
}
