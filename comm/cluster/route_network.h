/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/route_network.h - what joins the ranks that meet at a level.
 */
#ifndef COMM_CLUSTER_ROUTE_NETWORK_H
#define COMM_CLUSTER_ROUTE_NETWORK_H

#include "topo/levels.h"

/* Whether ranks of several hosts meet at that level: then bytes go through the
 * network, whatever joins their GPUs. */
bool wefti_route_is_network(const wefti_levels *levels, int level);

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

/* Whether these links are NVLink's (or XGMI's), which weft's own steps on host
 * memory do not use. */
bool wefti_route_is_nvlink(const wefti_levels *levels, int level);

#endif
