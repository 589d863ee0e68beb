/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/route_groups.h - how a job that does not run would group its
 * ranks, bound near the places where a machine has them.
 */
#ifndef COMM_CLUSTER_ROUTE_GROUPS_H
#define COMM_CLUSTER_ROUTE_GROUPS_H

#include "base/json.h"
#include "comm/pattern/nest.h"
#include "topo/levels.h"
#include "weft/status.h"

#include <stdio.h>

typedef struct wefti_grouping wefti_grouping;

/*
 * wefti_route_groups_create - a rank for each place, which says of itself what
 * WEFT_LEVELS does here; both are NULL where there are no such levels, and
 * freed with free().
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
wefti_route_groups_create(const wefti_levels *levels,
                          wefti_grouping **grouping_out, wefti_nest **nest_out);

/* The groups of each level, innermost first, that a byte need enter but once;
 * NULL: there are none. */
void wefti_route_groups_print(const wefti_nest *nest, FILE *file);
void wefti_route_groups_write(const wefti_nest *nest, wefti_json *json);

#endif
