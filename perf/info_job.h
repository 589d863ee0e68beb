/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_job.h - weft-info as the ranks of a job: who they are, and the
 * machines they run on.
 */
#ifndef PERF_INFO_JOB_H
#define PERF_INFO_JOB_H

#include "comm/cluster/cluster.h"

#include <stdbool.h>

/* device: of programs that ask for NCCL or streams (WEFT_ROUTE); else NULL. */
typedef struct wefti_info_job {
    weft_comm *comm;
    weft_device *device;
    wefti_cluster cluster;
} wefti_info_job;

/* Whether a launcher has started several of us; what is wrong with what it
 * left is told on stderr, and is no job. */
bool wefti_info_job_is_there(void);

/*
 * wefti_info_job_open - meets the others and reads all machines; collective.
 *
 * Returns     as weft_comm_create and wefti_cluster_open.
 */
WEFT_NODISCARD weft_status wefti_info_job_open(wefti_info_job *job_out);
void wefti_info_job_close(wefti_info_job *job);

#endif
