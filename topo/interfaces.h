/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/interfaces.h - network interfaces that are no PCI device (a
 * container's, an emulated host's, a paravirtual one), and the limits that are
 * set on interfaces.
 */
#ifndef TOPO_INTERFACES_H
#define TOPO_INTERFACES_H

#include "topo/assemble.h"

/*
 * wefti_interfaces_add - root is "/sys". Interfaces that lead nowhere, or only
 * to another of this host (bridges, bonds, tunnels, loopback), are left out.
 */
void wefti_interfaces_add(wefti_topo *topo, const char *root);

/* Rates of token buckets, asked of the kernel; without an answer nothing
 * changes. */
void wefti_interfaces_limit(wefti_topo *topo);

/* Sending by that port is limited to gbps, if that is less than what it can
 * do. */
void wefti_nic_limit(wefti_topo *topo, int nic, double gbps);

/*
 * wefti_nics_limit_ranks - each rank sends at most so many GB/s
 * (WEFT_EMULATE_GBPS): so a port of a host with several of them carries that
 * much of each. rank_counts by the host's ordinal.
 */
void wefti_nics_limit_ranks(wefti_topo *topo, double GBps,
                            const int *rank_counts);

#endif
