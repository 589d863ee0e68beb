/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/cluster.h - the machines of a communicator's ranks as one graph.
 *
 * A host here is what shares memory. Hosts describe themselves as the first
 * communicator is made, where there are several (comm/make/hosts.h); the graph
 * is made of that whenever somebody asks for it, without a word to other ranks.
 * On one host, or where WEFT_MACHINES is off, the machine is read then, by each
 * domain's lowest rank, who tells the others. A library of its own: libweft has
 * no need of hwloc.
 */
#ifndef COMM_CLUSTER_CLUSTER_H
#define COMM_CLUSTER_CLUSTER_H

#include "weft/comm.h"

#include <stdbool.h>

struct wefti_live_config;
struct wefti_topo;

typedef struct wefti_cluster {
    struct wefti_topo *topo; /* hosts in the order of their lowest ranks */
    int *hosts;              /* [nranks] the host of each rank, by ordinal */
    int host_count;
} wefti_cluster;

/* Whether some of its ranks share no memory. */
bool wefti_cluster_is_wide(const weft_comm *comm);

/*
 * wefti_cluster_open - collective over comm unless its hosts have described
 * themselves; the same graph on every rank.
 *
 * live        where machines are read now, on those ranks that do; NULL: as
 *             usual, and only if they have not described themselves.
 * Returns     OK | ERR_SYSTEM (a rank could not read its machine; the same on
 *             all, the reason only there) | ERR_NO_MEMORY | the communicator's
 *             fault.
 * Blocks      for as long as reading a machine takes.
 */
WEFT_NODISCARD weft_status
wefti_cluster_open(weft_comm *comm, const struct wefti_live_config *live,
                   wefti_cluster *cluster_out);
void wefti_cluster_close(wefti_cluster *cluster);

#endif
