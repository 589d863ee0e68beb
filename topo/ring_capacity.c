/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/ring_capacity.c - every hop takes the speed of its ring from each link
 * on its way, in its direction; what a search abandons it returns.
 */
#include "topo/ring_capacity.h"

#include <math.h>
#include <string.h>

#define ROUNDING 1e-6

/* ---- one route ------------------------------------------------------------
 */

/* Traffic of two GPUs through one Intel host bridge costs 6/5 on PCIe; on the
 * way to another NUMA node NCCL counts nothing more. */
static bool is_dear(const wefti_topo *topo, const wefti_route *route)
{
    bool bridged = false;
    for (int i = 0; i < route->count; i++) {
        const wefti_topo_link *link = &topo->links[route->steps[i] / 2];
        if (link->type == WEFTI_LINK_SYS) {
            return false;
        }
        for (int end = 0; end < 2; end++) {
            const wefti_device *d = &topo->devices[end ? link->b : link->a];
            bridged = bridged || (d->kind == WEFTI_TOPO_NUMA &&
                                  strcmp(d->cpu.vendor, "GenuineIntel") == 0);
        }
    }
    return bridged;
}

/* What one step of a route between two GPUs is asked for. */
static double cost(const wefti_ring_search *s, const wefti_route *route,
                   int step, double GBps)
{
    bool dear = s->dear[route - s->routes] &&
                s->paths->topo->links[step / 2].type == WEFTI_LINK_PCI;
    return dear ? GBps * 6 / 5 : GBps;
}

void wefti_ring_return(wefti_ring_search *s, const wefti_route *route,
                       bool gpus, double GBps)
{
    for (int i = 0; i < route->count; i++) {
        int step = route->steps[i];
        double asked = gpus ? cost(s, route, step, GBps) : GBps;
        s->left[step] += asked;
    }
}

bool wefti_ring_take(wefti_ring_search *s, const wefti_route *route, bool gpus)
{
    for (int i = 0; i < route->count; i++) {
        int step = route->steps[i];
        double asked = gpus ? cost(s, route, step, s->speed) : s->speed;
        if (s->left[step] < asked - ROUNDING) {
            return false;
        }
    }
    wefti_ring_return(s, route, gpus, -s->speed);
    return true;
}

/* ---- routes ---------------------------------------------------------------
 */

void wefti_ring_route_in(const wefti_ring_search *s, int gpu, int nic,
                         wefti_route *route)
{
    wefti_route_gpu_nic(s->paths, s->gpus[gpu], nic, route);
    for (int i = 0, j = route->count - 1; i <= j; i++, j--) {
        int swap = route->steps[i] ^ 1;
        route->steps[i] = route->steps[j] ^ 1;
        route->steps[j] = swap;
    }
}

bool wefti_ring_hop_fits(const wefti_ring_search *s, int a, int b)
{
    const wefti_route *route = wefti_ring_route(s, a, b);
    if (a == b || wefti_ring_path_type(s, a, b) > s->limit) {
        return false;
    }
    for (int i = 0; i < route->count; i++) {
        int step = route->steps[i];
        if (s->paths->topo->links[step / 2].nccl_GBps <
            cost(s, route, step, s->speed) - ROUNDING) {
            return false;
        }
    }
    return true;
}

/* ---- all links ------------------------------------------------------------
 */

static int clique_of(const wefti_paths *paths, int device)
{
    const wefti_device *devices = paths->topo->devices;
    return paths->host_cliques[devices[devices[device].host].ordinal];
}

/* Of thousands of hosts a search reads the links of a few. */
static void bound_links(wefti_ring_search *s)
{
    const wefti_topo *topo = s->paths->topo;
    int clique = clique_of(s->paths, s->paths->gpus[s->gpus[0]]);
    s->first_link = 0;
    s->end_link = topo->link_count;
    wefti_ring_capacity_reset(s);
    s->end_link = 0;
    for (int i = 0; i < topo->link_count; i++) {
        if (clique_of(s->paths, topo->links[i].a) == clique ||
            clique_of(s->paths, topo->links[i].b) == clique) {
            s->first_link = s->end_link > 0 ? s->first_link : i;
            s->end_link = i + 1;
        }
    }
}

void wefti_ring_capacity_init(wefti_ring_search *s)
{
    const wefti_topo *topo = s->paths->topo;
    int count = 0;
    for (int gpu = 0; gpu < s->gpu_count; gpu++) {
        int device = s->paths->gpus[s->gpus[gpu]];
        s->ends[gpu] = count;
        for (int link = 0; link < topo->link_count; link++) {
            if (topo->links[link].a == device) {
                s->leaves[count++] = 2 * link;
            } else if (topo->links[link].b == device) {
                s->leaves[count++] = 2 * link + 1;
            }
        }
    }
    s->ends[s->gpu_count] = count;
    bound_links(s);
    for (int i = 0; i < s->gpu_count * s->gpu_count; i++) {
        wefti_topo_path path = wefti_path_gpu_gpu(
            s->paths, s->gpus[i / s->gpu_count], s->gpus[i % s->gpu_count]);
        s->types[i] = (unsigned char)path.type;
        s->dear[i] = is_dear(topo, &s->routes[i]);
    }
}

void wefti_ring_capacity_reset(wefti_ring_search *s)
{
    const wefti_topo *topo = s->paths->topo;
    for (int i = s->first_link; i < s->end_link; i++) {
        s->left[2 * i] = s->left[2 * i + 1] = topo->links[i].nccl_GBps;
    }
}

double wefti_ring_left(const wefti_ring_search *s, int gpu, bool incoming)
{
    double sum = 0;
    for (int i = s->ends[gpu]; i < s->ends[gpu + 1]; i++) {
        sum += s->left[s->leaves[i] ^ incoming];
    }
    return sum;
}

double wefti_ring_capacity_use(wefti_ring_search *s)
{
    const wefti_topo *topo = s->paths->topo;
    double most = 0;
    wefti_route way;
    wefti_ring_capacity_reset(s);
    for (int r = 0; r < s->ring_count; r++) {
        const int *order = s->orders + r * s->gpu_count;
        int hops = s->shape == WEFTI_SHAPE_RING && s->gpu_count > 1
                       ? s->gpu_count
                       : s->gpu_count - 1;
        for (int i = 0; i < hops; i++) {
            wefti_ring_return(
                s, wefti_ring_route(s, order[i], order[(i + 1) % s->gpu_count]),
                true, -s->speed);
        }
        if (s->nics[r] >= 0) {
            int last = s->shape == WEFTI_SHAPE_TREE ? 0 : s->gpu_count - 1;
            wefti_ring_route_in(s, order[0], s->nics[r], &way);
            wefti_ring_return(s, &way, false, -s->speed);
            wefti_route_gpu_nic(s->paths, s->gpus[order[last]], s->exits[r],
                                &way);
            wefti_ring_return(s, &way, false, -s->speed);
        }
    }
    for (int i = 2 * s->first_link; i < 2 * s->end_link; i++) {
        double all = topo->links[i / 2].nccl_GBps;
        if (all > 0 && s->left[i] < all) {
            most = fmax(most, 1 - s->left[i] / all);
        }
    }
    return most;
}
