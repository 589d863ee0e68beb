/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_links.h - what messages of a schedule share: the ports of nodes
 * (--nodes), or the links of a machine (--topology).
 *
 * On a machine each link is two, one for each direction, and so is each port
 * of a NIC. Ranks sit on the GPUs, in the order of the graph or as --places
 * says; a message between hosts goes to the sender's NIC, out of its port, in
 * at the port of the receiver's NIC, and on to the receiver. Ranks without a
 * GPU share their host's usable NICs in turn, and memory costs them nothing.
 */
#ifndef PERF_SCHED_LINKS_H
#define PERF_SCHED_LINKS_H

#include "perf/sched_options.h"
#include "topo/levels.h"

typedef struct wefti_sched_links {
    weft_link *links;
    int node_ranks; /* of --nodes */
    wefti_topo *topo;
    wefti_paths *paths;
    wefti_levels *levels;
    const int *places; /* by rank; NULL: in order; borrowed */
} wefti_sched_links;

/*
 * wefti_sched_links_init - puts links and routes into cost, if the options ask
 * for any; they point into links until fini.
 *
 * Returns     OK | an error (nothing to finish): more ranks than places, a
 *             topology that cannot be read, hosts that no NIC joins.
 */
WEFT_NODISCARD weft_status wefti_sched_links_init(
    wefti_sched_links *links, const wefti_sched_options *options, int ranks,
    weft_schedule_cost *cost);
void wefti_sched_links_fini(wefti_sched_links *links);

#endif
