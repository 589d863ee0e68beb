/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/route_network.c - NICs of places, host by host.
 *
 * Ranks of a host send over rails that they all have (comm/net/rails.h). Those
 * of a machine that is only described are taken to be its fastest NICs.
 */
#include "comm/cluster/route_network.h"

#include "base/error.h"
#include "base/settings.h"

#include <stdlib.h>
#include <string.h>

enum { SLOWEST = 16 }; /* times slower than the fastest: not worth it */

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

/* ---- rails --------------------------------------------------------------- */

/* Falling. */
static int compare_rates(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first < second) - (first > second);
}

/*
 * The speeds of the NICs that the host's places have, the fastest first: those
 * that its GPUs' traffic takes, each once, or all that may be used. Places lie
 * host by host; *place is the first of a host, and then of the next.
 */
static int list_host(const wefti_paths *paths, const wefti_levels *levels,
                     int *place, double *GBps_out)
{
    const int at = levels->hosts[*place];
    const wefti_host_paths *host = &paths->hosts[at];
    const int first = *place;
    int count = 0;
    while (*place < levels->place_count && levels->hosts[*place] == at) {
        (*place)++;
    }
    for (int i = host->first_nic; i < host->first_nic + host->nic_count; i++) {
        bool given = false, taken = false;
        for (int p = first; p < *place; p++) {
            given |= levels->rails[p] >= 0;
            taken |= levels->rails[p] == i;
        }
        if (given ? taken
                  : wefti_topo_nic_usable(paths->topo, paths->nics[i])) {
            GBps_out[count++] = nic_GBps(paths, i);
        }
    }
    qsort(GBps_out, (size_t)count, sizeof(*GBps_out), compare_rates);
    while (count > 1 && GBps_out[count - 1] * SLOWEST < GBps_out[0]) {
        count--;
    }
    return count;
}

static bool has_hosts(const wefti_levels *levels)
{
    for (int i = 1; i < levels->place_count; i++) {
        if (levels->hosts[i] != levels->hosts[i - 1]) {
            return true;
        }
    }
    return false;
}

static int count_names(const char *names)
{
    int count = names[0] != '\0';
    for (; *names; names++) {
        count += *names == ',';
    }
    return count;
}

/* How many rails the settings ask for: those that are named, or as many as may
 * be, which ranks only find where they measure, and by weft's own tcp. What a
 * job of several hosts would refuse (comm/net/net_join.c) is refused here. */
static weft_status count_asked(const wefti_levels *levels, bool is_measured,
                               int *asked_out)
{
    const char *names = wefti_setting_text(WEFTI_SETTING_NET_INTERFACE);
    const bool tcp =
        strcmp(wefti_setting_text(WEFTI_SETTING_NET_TRANSPORT), "tcp") == 0;
    const int named = count_names(names);
    int64_t most;
    weft_status status = wefti_setting_int(WEFTI_SETTING_NET_RAILS, &most);
    if (status != WEFT_OK) {
        return status;
    }
    if (tcp && named > most && has_hosts(levels)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_NET_INTERFACE=%s: allowed is to name up to "
                           "%lld, as WEFT_NET_RAILS says",
                           names, (long long)most);
    }
    *asked_out = named > 0 ? named : tcp && is_measured ? (int)most : 1;
    return WEFT_OK;
}

static double add_up(const double *GBps, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += GBps[i];
    }
    return sum;
}

/* What `asked` rails of the slowest host carry; 0: of one nothing is known. */
static double find_least(const wefti_paths *paths, const wefti_levels *levels,
                         int asked, double *room, wefti_route_network *network)
{
    double least = 0;
    network->rails = asked;
    for (int place = 0; place < levels->place_count;) {
        const bool is_first = place == 0;
        int count = list_host(paths, levels, &place, room);
        network->nics =
            is_first || count < network->nics ? count : network->nics;
    }
    if (network->nics > 0 && network->nics < asked) {
        network->rails = network->nics;
    }
    for (int place = 0; place < levels->place_count;) {
        int count = list_host(paths, levels, &place, room);
        double sum =
            add_up(room, count < network->rails ? count : network->rails);
        if (sum <= 0) {
            return 0;
        }
        least = least > 0 && least < sum ? least : sum;
    }
    return least;
}

weft_status wefti_route_network_find(const wefti_paths *paths,
                                     const wefti_levels *levels,
                                     bool is_measured,
                                     wefti_route_network *network_out)
{
    int asked;
    *network_out = (wefti_route_network){.rails = 1};
    weft_status status = count_asked(levels, is_measured, &asked);
    double *room = calloc((size_t)paths->nic_count + 1, sizeof(*room));
    if (status == WEFT_OK && !room) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "%d NICs", paths->nic_count);
    }
    if (status == WEFT_OK) {
        double GBps = find_least(paths, levels, asked, room, network_out);
        if (network_out->nics == 0) { /* then only what is named */
            status = count_asked(levels, false, &network_out->rails);
        }
        if (GBps > 0 && is_measured) {
            network_out->rates = wefti_known_rates_of_link(GBps);
        }
    }
    free(room);
    return status;
}
