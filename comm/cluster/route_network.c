/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/route_network.c - links and ports of places, host by host.
 */
#include "comm/cluster/route_network.h"

#include <string.h>

bool wefti_route_is_network(const wefti_levels *levels, int level)
{
    for (int i = 1; i < levels->place_count; i++) {
        if (levels->domains[level][i] == levels->domains[level][i - 1] &&
            levels->hosts[i] != levels->hosts[i - 1]) {
            return true;
        }
    }
    return false;
}

bool wefti_route_is_nvlink(const wefti_levels *levels, int level)
{
    return strcmp(levels->names[level], "nvlink") == 0;
}

bool wefti_route_is_apart(const wefti_levels *levels)
{
    for (int i = 1; i < levels->place_count; i++) {
        if (levels->hosts[i] == levels->hosts[i - 1]) {
            return false;
        }
    }
    return levels->place_count > 1;
}

int wefti_route_count_ranks(const wefti_levels *levels, int level)
{
    const int *domains = levels->domains[level];
    int most = 0, run = 0;
    for (int i = 0; i < levels->place_count; i++) {
        run = i > 0 && domains[i] == domains[i - 1] ? run + 1 : 1;
        most = run > most ? run : most;
    }
    return most;
}

static double nic_GBps(const wefti_paths *paths, int nic)
{
    return paths->topo->devices[paths->nics[nic]].nic.gbps / 8;
}

/* Of the host's ports that may be used the fastest, or the one that a GPU's
 * traffic takes; GB/s, 0 unknown. */
static double port_GBps(const wefti_paths *paths, const wefti_levels *levels,
                        int place)
{
    const wefti_host_paths *host = &paths->hosts[levels->hosts[place]];
    double most = 0;
    if (levels->rails[place] >= 0) {
        return nic_GBps(paths, levels->rails[place]);
    }
    for (int i = host->first_nic; i < host->first_nic + host->nic_count; i++) {
        if (wefti_topo_nic_usable(paths->topo, paths->nics[i]) &&
            nic_GBps(paths, i) > most) {
            most = nic_GBps(paths, i);
        }
    }
    return most;
}

double wefti_route_port_GBps(const wefti_paths *paths,
                             const wefti_levels *levels, int level)
{
    double least = 0;
    if (!wefti_route_is_network(levels, level)) {
        return 0;
    }
    for (int i = 0; i < levels->place_count; i++) {
        double GBps = port_GBps(paths, levels, i);
        if (GBps <= 0) {
            return 0;
        }
        least = least > 0 && least < GBps ? least : GBps;
    }
    return least;
}

double wefti_route_link_GBps(const wefti_paths *paths,
                             const wefti_levels *levels, int level)
{
    return wefti_route_is_nvlink(levels, level)
               ? levels->GBps[level]
               : wefti_route_port_GBps(paths, levels, level);
}
