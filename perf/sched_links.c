/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_links.c - links and routes for the simulator.
 *
 * Of a machine: link l is 2l from a to b and 2l + 1 back; behind them the port
 * of NIC n is 2n out and 2n + 1 in.
 */
#include "perf/sched_links.h"

#include "base/check.h"
#include "base/error.h"
#include "topo/topo.h"

#include <stdlib.h>

_Static_assert(2 * WEFTI_ROUTE_MOST + 2 <= WEFT_ROUTE_LINKS_MOST,
               "a route between hosts fits");

/* ---- nodes ----------------------------------------------------------------
 */

/* 2 x node goes out, the next comes in. */
static int route_by_node(void *context, int from_rank, int to_rank,
                         int *links_out)
{
    const wefti_sched_links *links = context;
    int from = from_rank / links->node_ranks, to = to_rank / links->node_ranks;
    if (from == to) {
        return 0;
    }
    links_out[0] = 2 * from;
    links_out[1] = 2 * to + 1;
    return 2;
}

static weft_status init_nodes(wefti_sched_links *links,
                              const wefti_sched_options *options, int ranks,
                              weft_schedule_cost *cost)
{
    cost->link_count = 2 * ((ranks - 1) / options->node_ranks + 1);
    links->links = calloc((size_t)cost->link_count, sizeof(*links->links));
    if (!links->links) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--nodes");
    }
    for (int l = 0; l < cost->link_count; l++) {
        links->links[l].busy = options->node_busy;
    }
    links->node_ranks = options->node_ranks;
    cost->route = route_by_node;
    return WEFT_OK;
}

/* ---- a machine ------------------------------------------------------------
 */

static int place_of(const wefti_sched_links *links, int rank)
{
    return links->places ? links->places[rank] : rank;
}

/* The NIC, by ordinal, that a place sends and receives with; -1: none. */
static int nic_of(const wefti_sched_links *links, int place)
{
    const wefti_levels *levels = links->levels;
    const wefti_host_paths *host = &links->paths->hosts[levels->hosts[place]];
    if (levels->gpus[place] >= 0) {
        return levels->rails[place];
    }
    int turn = 0, usable = 0;
    while (place - turn > 0 &&
           levels->hosts[place - turn - 1] == levels->hosts[place]) {
        turn++;
    }
    for (int n = 0; n < host->nic_count; n++) {
        usable += wefti_topo_nic_usable(
            links->topo, links->paths->nics[host->first_nic + n]);
    }
    turn = usable > 0 ? turn % usable : 0;
    for (int n = 0; n < host->nic_count; n++) {
        int nic = host->first_nic + n;
        if (wefti_topo_nic_usable(links->topo, links->paths->nics[nic]) &&
            turn-- == 0) {
            return nic;
        }
    }
    return -1;
}

/* The way from the GPU, or the same way back. */
static int add_route(const wefti_route *route, bool back, int *links_out)
{
    for (int k = 0; k < route->count; k++) {
        links_out[k] = route->steps[back ? route->count - 1 - k : k] ^ back;
    }
    return route->count;
}

static int add_nic(const wefti_sched_links *links, int place, int nic,
                   bool back, int *links_out)
{
    wefti_route route;
    int gpu = links->levels->gpus[place];
    if (gpu < 0) {
        return 0;
    }
    wefti_route_gpu_nic(links->paths, gpu, nic, &route);
    return add_route(&route, back, links_out);
}

static int route_by_machine(void *context, int from_rank, int to_rank,
                            int *links_out)
{
    const wefti_sched_links *links = context;
    const wefti_levels *levels = links->levels;
    int from = place_of(links, from_rank), to = place_of(links, to_rank);
    if (levels->hosts[from] != levels->hosts[to]) {
        int ports = 2 * links->topo->link_count;
        int out = nic_of(links, from), in = nic_of(links, to);
        int count = add_nic(links, from, out, false, links_out);
        links_out[count++] = ports + 2 * out;
        links_out[count++] = ports + 2 * in + 1;
        return count + add_nic(links, to, in, true, links_out + count);
    }
    if (levels->gpus[from] < 0 || levels->gpus[from] == levels->gpus[to]) {
        return 0;
    }
    wefti_route route;
    wefti_route_gpu_gpu(links->paths, levels->gpus[from], levels->gpus[to],
                        &route);
    return add_route(&route, false, links_out);
}

static double busy_us(double bytes, double GBps)
{
    return GBps > 0 ? bytes / (GBps * 1e3) : 0;
}

static weft_status make_links(wefti_sched_links *links, double bytes,
                              weft_schedule_cost *cost)
{
    const wefti_topo *topo = links->topo;
    const wefti_paths *paths = links->paths;
    int ports = 2 * topo->link_count;
    cost->link_count = ports + 2 * paths->nic_count;
    links->links = calloc((size_t)cost->link_count + 1, sizeof(*links->links));
    if (!links->links) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--topology: %d links",
                           cost->link_count);
    }
    for (int l = 0; l < ports; l++) {
        const wefti_topo_link *link = &topo->links[l / 2];
        links->links[l] =
            (weft_link){busy_us(bytes, link->GBps), link->latency_us};
    }
    for (int n = 0; n < 2 * paths->nic_count; n++) {
        double gbps = topo->devices[paths->nics[n / 2]].nic.gbps;
        links->links[ports + n].busy = busy_us(bytes, gbps / 8);
    }
    cost->route = route_by_machine;
    return WEFT_OK;
}

/* Every rank has a place of its own, and hosts reach each other. */
static weft_status check_places(const wefti_sched_links *links, int ranks)
{
    const wefti_levels *levels = links->levels;
    for (int r = 0; r < ranks; r++) {
        int place = place_of(links, r);
        if (place >= levels->place_count) {
            return wefti_error(WEFT_ERR_INVALID,
                               "--topology: rank %d has no place: %s has %d", r,
                               links->topo->source, levels->place_count);
        }
        bool leaves = levels->hosts[place] != levels->hosts[place_of(links, 0)];
        for (int other = 0; other < r; other++) {
            if (place_of(links, other) == place) {
                return wefti_error(WEFT_ERR_INVALID,
                                   "--places: ranks %d and %d are both at %d",
                                   other, r, place);
            }
            if (leaves && (nic_of(links, place) < 0 ||
                           nic_of(links, place_of(links, other)) < 0)) {
                return wefti_error(WEFT_ERR_INVALID,
                                   "--topology: no usable NIC joins the hosts "
                                   "of ranks %d and %d",
                                   other, r);
            }
        }
    }
    return WEFT_OK;
}

static weft_status init_machine(wefti_sched_links *links,
                                const wefti_sched_options *options, int ranks,
                                weft_schedule_cost *cost)
{
    if (options->place_count > 0 && options->place_count != ranks) {
        return wefti_error(WEFT_ERR_INVALID, "--places: %d given for %d ranks",
                           options->place_count, ranks);
    }
    links->places = options->place_count > 0 ? options->places : NULL;
    weft_status status = wefti_topo_open(options->topology, WEFTI_FORMAT_ANY,
                                         NULL, &links->topo);
    if (status == WEFT_OK) {
        status = wefti_paths_create(links->topo, &links->paths);
    }
    int most = ranks - 1; /* the highest place asked for */
    for (int r = 0; links->places && r < ranks; r++) {
        most = links->places[r] > most ? links->places[r] : most;
    }
    if (status == WEFT_OK) {
        int hosts = links->paths->host_count;
        status = wefti_levels_create(
            links->paths, most / (hosts > 0 ? hosts : 1) + 1, &links->levels);
    }
    if (status == WEFT_OK) {
        status = check_places(links, ranks);
    }
    return status == WEFT_OK ? make_links(links, options->message_bytes, cost)
                             : status;
}

weft_status wefti_sched_links_init(wefti_sched_links *links,
                                   const wefti_sched_options *options,
                                   int ranks, weft_schedule_cost *cost)
{
    weft_status status = WEFT_OK;
    *links = (wefti_sched_links){0};
    if (options->topology) {
        status = init_machine(links, options, ranks, cost);
    } else if (options->node_ranks > 0) {
        status = init_nodes(links, options, ranks, cost);
    }
    cost->links = links->links;
    cost->context = links;
    if (status != WEFT_OK) {
        wefti_sched_links_fini(links);
    }
    return status;
}

void wefti_sched_links_fini(wefti_sched_links *links)
{
    free(links->links);
    wefti_levels_destroy(links->levels);
    wefti_paths_destroy(links->paths);
    wefti_topo_destroy(links->topo);
    *links = (wefti_sched_links){0};
}
