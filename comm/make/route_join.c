/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/route_join.c - which route, and what is said where it is none.
 */
#include "comm/make/route_join.h"

#include "base/log.h"
#include "comm/post/carried_route.h"

#include <stdio.h>

void wefti_route_join(weft_comm *comm)
{
    if (comm->tuning.route == WEFTI_ROUTE_NCCL) {
        wefti_twin_join(comm);
    } else if (comm->tuning.route == WEFTI_ROUTE_STREAMS) {
        wefti_streams_join(comm);
    }
}

void wefti_route_keep_why(weft_comm *comm, const char *why)
{
    snprintf(comm->route_why, sizeof(comm->route_why), "%s", why);
    wefti_log(comm->rank == 0 ? WEFTI_LOG_WARN : WEFTI_LOG_INFO, comm->rank,
              "\"%s\": WEFT_ROUTE=%s is not possible, weft's own steps are "
              "taken: %s",
              comm->name, wefti_carrier_of(comm->tuning.route)->name, why);
}
