/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/routes.h - which way each collective takes at each size: the
 * levels it crosses, the algorithm, the fabric, the chunks, and why.
 */
#ifndef COMM_CLUSTER_ROUTES_H
#define COMM_CLUSTER_ROUTES_H

#include "base/json.h"
#include "comm/cluster/cluster.h"

#include <stdio.h>

struct wefti_report;

/* What really runs: the hosts are of each rank, by ordinal
 * (comm/cluster/cluster.h). */
typedef struct wefti_routes_job {
    weft_comm *comm;
    const int *hosts;
} wefti_routes_job;

/* The fabric that carries comm's operations: self, shm, net or shm+net. */
const char *wefti_routes_fabric(weft_comm *comm);

/*
 * wefti_routes_show - as a member of json or as text; neither: only
 * whether it can be said.
 *
 * ranks       how many, as given; NULL: those of the job, else one a GPU, else
 *             one a CPU that may be used
 * job         what really runs; NULL: nothing, then ranks fill host by host
 * live        the report is of this machine
 *
 * Returns     OK | ERR_INVALID: ranks, or a setting that weft refuses |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_routes_show(const struct wefti_report *report,
                                             const char *ranks,
                                             const wefti_routes_job *job,
                                             bool live, wefti_json *json,
                                             FILE *file);

#endif
