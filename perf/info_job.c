/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_job.c - one communicator, one graph.
 */
#include "perf/info_job.h"

#include "base/settings.h"
#include "comm/oob/source.h"
#include "device/cuda.h"

#include <stdio.h>
#include <string.h>

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

/* As weft-perf has it, this rank's share of the GPUs; where there is none, the
 * ranks find that when they meet. */
static void open_gpu(wefti_info_job *job)
{
    int rank = 0, nranks, count = 0, version;
    const char *route = wefti_setting_text(WEFTI_SETTING_ROUTE);
    if (strcmp(route, "nccl") != 0 && strcmp(route, "streams") != 0) {
        return;
    }
    weft_status status = wefti_launch_source_find_rank(&rank, &nranks);
    if (status == WEFT_OK) {
        status = wefti_cuda_count(&count, &version);
    }
    if (status == WEFT_OK && count > 0) {
        status = weft_device_open("cuda", rank % count, &job->device);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "weft-info: rank %d has no GPU: %s\n", rank,
                weft_error_text());
    }
}

weft_status wefti_info_job_open(wefti_info_job *job_out)
{
    *job_out = (wefti_info_job){0};
    open_gpu(job_out);
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .device = job_out->device};
    weft_status status = weft_comm_create(&config, &job_out->comm);
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
    weft_device_close(job->device);
    *job = (wefti_info_job){0};
}
