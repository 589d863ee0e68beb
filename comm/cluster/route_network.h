/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/route_network.h - what joins the ranks that meet at a level, and
 * what the NICs of a machine that does not run would carry.
 */
#ifndef COMM_CLUSTER_ROUTE_NETWORK_H
#define COMM_CLUSTER_ROUTE_NETWORK_H

#include "comm/core/net_rates.h"
#include "topo/levels.h"

/*
 * Without a job.
 *
 * nics     different ones that a host's ranks have, of the host with fewest; 0:
 *          none is known
 * rails    over how many of them messages would be spread, at least 1
 * rates    by the speed of these, of the slowest host; the usual ones where it
 *          is not known or not wanted
 */
typedef struct wefti_route_network {
    int nics, rails;
    wefti_known_rates rates;
} wefti_route_network;

/* Whether ranks of several hosts meet at that level: then bytes go through the
 * network, whatever joins their GPUs. */
bool wefti_route_is_network(const wefti_levels *levels, int level);

/* Whether a level's links are NVLink's (or XGMI's), which weft's own steps on
 * host memory do not use. */
bool wefti_route_is_nvlink(const wefti_levels *levels, int level);

/* Whether there are several ranks, each on a host of its own. */
bool wefti_route_is_apart(const wefti_levels *levels);

/* The largest number of ranks that meet at that level. */
int wefti_route_count_ranks(const wefti_levels *levels, int level);

/* GB/s of the slowest port of ranks that meet at a level of the network; 0: it
 * is none, or a port's speed is not known. */
double wefti_route_port_GBps(const wefti_paths *paths,
                             const wefti_levels *levels, int level);

/* GB/s of the links by which two ranks reach each other there: NVLink's, or the
 * slowest port's. 0: the host's memory, whose speed nobody has read. */
double wefti_route_link_GBps(const wefti_paths *paths,
                             const wefti_levels *levels, int level);

/*
 * wefti_route_network_find - what the hosts of levels have, by the settings in
 * force: WEFT_NET_INTERFACE, WEFT_NET_RAILS, WEFT_NET_TRANSPORT, and
 * WEFT_NET_RATES as `is_measured`. A NIC that is 16 times slower than the
 * host's fastest is no rail, as in a job.
 *
 * Returns     OK | ERR_INVALID: WEFT_NET_RAILS, or more interfaces
 *             named for tcp than that | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
wefti_route_network_find(const wefti_paths *paths, const wefti_levels *levels,
                         bool is_measured, wefti_route_network *network_out);

#endif
