/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/ring_search.c - depth first over the orders of the GPUs, ring after
 * ring, taking the speed from every link of every hop.
 *
 * The last ring's order, then its reverse, are tried before anything else. A
 * ring that was found stays; attempts that order equals otherwise make up for
 * that.
 */
#include "topo/ring_search.h"

#include "base/error.h"
#include "topo/ring_capacity.h"

#include <stdlib.h>
#include <string.h>

/* Steps of the search for one speed, and for one ring of it. */
#define STEPS_MOST (1 << 14)
#define PER_RING   (1 << 10)
#define ROUNDING   1e-6
/* Of a GPU that cannot come next; keys of those that can may be negative. */
#define NO_CANDIDATE -1e18

static bool nic_allowed(const wefti_ring_search *s, int gpu, int nic)
{
    return wefti_path_gpu_nic(s->paths, s->gpus[gpu], nic).type <= s->nic_limit;
}

/* ---- one ring -------------------------------------------------------------
 */

/* The same for the same attempt, ring and pair; otherwise anything. */
static unsigned scatter(const wefti_ring_search *s, int at, int gpu)
{
    unsigned x = s->attempt * 2654435761u + (unsigned)s->ring_count * 40503u +
                 (unsigned)at * 9973u + (unsigned)gpu * 131u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

/* Every fourth attempt of chains: the poorest GPUs are ends, of which one
 * link's direction is left alone. */
static bool spares_the_poor(const wefti_ring_search *s)
{
    return (s->shape == WEFTI_SHAPE_CHAIN || s->shape == WEFTI_SHAPE_TREE) &&
           s->attempt % 4 == 1;
}

/* The order in which GPUs are tried after `at`: what the last ring did, what
 * its reverse does, then the nearest and widest. */
static void rank_candidates(const wefti_ring_search *s, const int *order,
                            int depth, int count, double *keys)
{
    int at = order[depth - 1], preferred[2] = {-1, -1};
    /* Every second attempt takes no ring twice but what is widest: repeating
     * uses some links up while others are never asked for. */
    if (s->ring_count > 0 && s->attempt % 2 == 0) {
        const int *last = s->orders + (s->ring_count - 1) * s->gpu_count;
        for (int i = 0; i < s->gpu_count; i++) {
            if (last[i] == at) {
                preferred[0] = last[(i + 1) % s->gpu_count];
                preferred[1] = last[(i + s->gpu_count - 1) % s->gpu_count];
            }
        }
        /* A chain leaves its last GPU's links alone: in turns each GPU's. */
        bool turns =
            s->shape == WEFTI_SHAPE_CHAIN || s->shape == WEFTI_SHAPE_TREE;
        bool reversed = s->ring_count % 2 == 1 && s->limit <= WEFTI_PATH_XGB &&
                        !(turns && s->attempt % 4 == 0);
        if (reversed) {
            int swap = preferred[0];
            preferred[0] = preferred[1];
            preferred[1] = swap;
        }
    }
    for (int gpu = 0; gpu < count; gpu++) {
        const wefti_route *route = wefti_ring_route(s, at, gpu);
        double least = route->count > 0 ? 1e9 : 0;
        keys[gpu] = NO_CANDIDATE;
        if (s->visited[gpu] || wefti_ring_path_type(s, at, gpu) > s->limit) {
            continue;
        }
        for (int i = 0; i < route->count; i++) {
            double left = s->left[route->steps[i]];
            least = left < least ? left : least;
        }
        if (least < s->speed - ROUNDING) {
            continue;
        }
        keys[gpu] = gpu == preferred[0]   ? 1e12
                    : gpu == preferred[1] ? 1e11
                    : spares_the_poor(s)  ? wefti_ring_left(s, gpu, false)
                    : s->attempt > 0
                        ? 4 * least + (double)(scatter(s, at, gpu) % 256)
                    : s->ring_count == 0 ? 1e6 - gpu
                                         : 100 * least - route->count;
    }
}

/* The best that is left, the first of equals; -1: none. Most often the first
 * will do, so they are not sorted. */
static int next_candidate(int count, double *keys)
{
    int best = -1;
    for (int gpu = 0; gpu < count; gpu++) {
        if (keys[gpu] > (best < 0 ? NO_CANDIDATE : keys[best])) {
            best = gpu;
        }
    }
    if (best >= 0) {
        keys[best] = NO_CANDIDATE;
    }
    return best;
}

/* Plain Ethernet serves only where there is nothing better. */
static bool serves(const wefti_ring_search *s, int nic)
{
    const wefti_topo *topo = s->paths->topo;
    int device = s->paths->nics[nic];
    if (topo->devices[device].nic.kind != WEFTI_NIC_ETHERNET) {
        return wefti_topo_nic_usable(topo, device);
    }
    for (int i = 0; i < s->nic_count; i++) {
        int other = s->paths->nics[s->nics_all[i]];
        if (topo->devices[other].nic.kind != WEFTI_NIC_ETHERNET &&
            wefti_topo_nic_usable(topo, other)) {
            return false;
        }
    }
    return wefti_topo_nic_usable(topo, device);
}

static bool leave_by(wefti_ring_search *s, int gpu, int nic)
{
    wefti_route out;
    if (!nic_allowed(s, gpu, nic)) {
        return false;
    }
    wefti_route_gpu_nic(s->paths, s->gpus[gpu], nic, &out);
    if (!wefti_ring_take(s, &out, false)) {
        return false;
    }
    s->exits[s->ring_count] = nic;
    return true;
}

/* The second ring of a pair goes the other way between the first one's NICs. */
static bool is_second(const wefti_ring_search *s)
{
    return s->crossing && s->ring_count % 2 == 1;
}

/* Out by a NIC: that of the entry, or another where rings cross. */
static bool close_by_nic(wefti_ring_search *s, int gpu)
{
    int entry = s->nics[s->ring_count];
    if (!s->crossing || is_second(s)) {
        return leave_by(s, gpu,
                        s->crossing ? s->nics[s->ring_count - 1] : entry);
    }
    for (int i = 0; i < s->nic_count; i++) {
        int nic = s->nics_all[i];
        if (nic != entry && serves(s, nic) &&
            wefti_path_gpu_nic(s->paths, s->gpus[gpu], nic).type !=
                WEFTI_PATH_PXN &&
            leave_by(s, gpu, nic)) {
            return true;
        }
    }
    return false;
}

/* The hop that ends a ring. */
static bool close_ring(wefti_ring_search *s, const int *order)
{
    int last = order[s->gpu_count - 1];
    if (s->shape == WEFTI_SHAPE_NET) {
        return close_by_nic(s, last);
    }
    if (s->shape != WEFTI_SHAPE_RING || s->gpu_count == 1) {
        return true;
    }
    return wefti_ring_path_type(s, last, order[0]) <= s->limit &&
           wefti_ring_take(s, wefti_ring_route(s, last, order[0]), true);
}

/* Extends a ring by one GPU; true when it could be closed. */
static bool extend(wefti_ring_search *s, int depth)
{
    const int count = s->gpu_count;
    double keys[WEFTI_RING_GPUS_MOST];
    int next, *order = s->orders + s->ring_count * s->gpu_count;
    if (depth == s->gpu_count) {
        return close_ring(s, order);
    }
    rank_candidates(s, order, depth, count, keys);
    while ((next = next_candidate(count, keys)) >= 0) {
        const wefti_route *route = wefti_ring_route(s, order[depth - 1], next);
        if (++s->steps > s->ring_steps) {
            return false;
        }
        if (!wefti_ring_take(s, route, true)) {
            continue;
        }
        order[depth] = next;
        s->visited[next] = 1;
        bool done = extend(s, depth + 1);
        s->visited[next] = 0;
        if (done) {
            return true;
        }
        wefti_ring_return(s, route, true, s->speed);
    }
    return false;
}

static bool start_at(wefti_ring_search *s, int gpu)
{
    s->orders[s->ring_count * s->gpu_count] = gpu;
    s->visited[gpu] = 1;
    bool done = extend(s, 1);
    s->visited[gpu] = 0;
    return done;
}

/* A tree's host receives and sends by the GPU that its chain begins at. */
static bool enter(wefti_ring_search *s, int gpu, int nic)
{
    wefti_route in;
    wefti_ring_route_in(s, gpu, nic, &in);
    if (!wefti_ring_take(s, &in, false)) {
        return false;
    }
    if (s->shape == WEFTI_SHAPE_TREE && !leave_by(s, gpu, nic)) {
        wefti_ring_return(s, &in, false, s->speed);
        return false;
    }
    return true;
}

static void leave_again(wefti_ring_search *s, int gpu, int nic)
{
    wefti_route way;
    wefti_ring_route_in(s, gpu, nic, &way);
    wefti_ring_return(s, &way, false, s->speed);
    if (s->shape == WEFTI_SHAPE_TREE) {
        wefti_route_gpu_nic(s->paths, s->gpus[gpu], nic, &way);
        wefti_ring_return(s, &way, false, s->speed);
    }
}

/* Enters by a NIC at a GPU near it. */
static bool start_by_nic(wefti_ring_search *s, int nic)
{
    for (int gpu = 0; gpu < s->gpu_count; gpu++) {
        wefti_topo_path path = wefti_path_gpu_nic(s->paths, s->gpus[gpu], nic);
        if (path.type > s->nic_limit || path.type == WEFTI_PATH_PXN ||
            !enter(s, gpu, nic)) {
            continue;
        }
        s->nics[s->ring_count] = nic;
        if (start_at(s, gpu)) {
            return true;
        }
        leave_again(s, gpu, nic);
    }
    return false;
}

/* Chains begin at each GPU in turns, or at those that can take least. */
static bool start_anywhere(wefti_ring_search *s)
{
    double above = -1;
    int last = -1;
    for (int i = 0; i < s->gpu_count; i++) {
        int gpu = (s->ring_count + i) % s->gpu_count;
        if (spares_the_poor(s)) { /* the next in the order of what is left */
            double least = 1e9;
            for (int k = 0; k < s->gpu_count; k++) {
                double own = wefti_ring_left(s, k, true);
                if ((own > above || (own == above && k > last)) &&
                    own < least) {
                    least = own;
                    gpu = k;
                }
            }
            above = least;
            last = gpu;
        }
        s->ring_steps = s->steps + PER_RING / 4;
        if (start_at(s, gpu)) {
            return true;
        }
    }
    return false;
}

/* One more ring, in what is left; true when it was found. */
static bool find_ring(wefti_ring_search *s)
{
    s->ring_steps = s->steps + PER_RING;
    s->nics[s->ring_count] = s->exits[s->ring_count] = -1;
    if (s->shape == WEFTI_SHAPE_RING) {
        return start_at(s, 0);
    }
    if (s->shape == WEFTI_SHAPE_CHAIN) {
        return start_anywhere(s);
    }
    if (is_second(s)) {
        return start_by_nic(s, s->exits[s->ring_count - 1]);
    }
    for (int i = 0; i < s->nic_count; i++) {
        int nic = s->nics_all[(s->ring_count + i) % s->nic_count];
        if (serves(s, nic) && start_by_nic(s, nic)) {
            return true;
        }
    }
    return false;
}

/* ---- one speed ------------------------------------------------------------
 */

bool wefti_ring_search_may_fit(wefti_ring_search *s, double speed)
{
    int list[WEFTI_RING_GPUS_MOST], known = 1, ends = 0;
    s->speed = speed;
    memset(s->visited, 0, (size_t)s->gpu_count);
    list[0] = 0;
    s->visited[0] = 1;
    for (int i = 0; i < known; i++) {
        int hops = 0;
        for (int gpu = 0; gpu < s->gpu_count; gpu++) {
            if (!wefti_ring_hop_fits(s, list[i], gpu)) {
                continue;
            }
            hops++;
            if (!s->visited[gpu]) {
                s->visited[gpu] = 1;
                list[known++] = gpu;
            }
        }
        ends += hops < 2;
    }
    /* A GPU with one neighbour can only be an end. */
    bool closed = s->shape == WEFTI_SHAPE_RING && s->gpu_count > 2;
    return known == s->gpu_count && ends <= (closed ? 0 : 2);
}

int wefti_ring_search_pack(wefti_ring_search *s, double speed)
{
    s->speed = speed;
    s->steps = 0;
    s->ring_count = 0;
    memset(s->visited, 0, (size_t)s->gpu_count);
    wefti_ring_capacity_reset(s);
    while (s->ring_count < WEFTI_RINGS_MOST && s->steps < STEPS_MOST &&
           find_ring(s)) {
        s->ring_count++;
    }
    s->ring_count -= is_second(s); /* one without the other */
    s->all_steps += s->steps;
    return s->ring_count;
}

weft_status wefti_ring_search_init(wefti_ring_search *s,
                                   const wefti_paths *paths, int host,
                                   wefti_ring_shape shape)
{
    const wefti_clique *clique = &paths->cliques[paths->host_cliques[host]];
    size_t gpus = (size_t)clique->gpu_count;
    *s = (wefti_ring_search){.paths = paths,
                             .gpus = paths->clique_gpus + clique->first_gpu,
                             .nics_all = paths->clique_nics + clique->first_nic,
                             .gpu_count = clique->gpu_count,
                             .nic_count = clique->nic_count,
                             .shape = shape};
    s->left = calloc(2 * (size_t)paths->topo->link_count + 1, sizeof(double));
    s->routes = calloc(gpus * gpus + 1, sizeof(*s->routes));
    s->types = calloc(gpus * gpus + 1, 1);
    s->dear = calloc(gpus * gpus + 1, sizeof(bool));
    s->orders = calloc(gpus * WEFTI_RINGS_MOST + 1, sizeof(int));
    s->visited = calloc(gpus + 1, 1);
    s->ends = calloc(gpus + 1, sizeof(int));
    s->leaves = calloc(2 * (size_t)paths->topo->link_count + 1, sizeof(int));
    if (!s->left || !s->ends || !s->leaves || !s->routes || !s->types ||
        !s->dear || !s->orders || !s->visited) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "rings over %zu GPUs", gpus);
    }
    for (int a = 0; a < s->gpu_count; a++) {
        for (int b = 0; b < s->gpu_count; b++) {
            wefti_route_gpu_gpu(paths, s->gpus[a], s->gpus[b],
                                &s->routes[a * s->gpu_count + b]);
        }
    }
    wefti_ring_capacity_init(s);
    return WEFT_OK;
}

void wefti_ring_search_fini(wefti_ring_search *s)
{
    free(s->left);
    free(s->ends);
    free(s->leaves);
    free(s->routes);
    free(s->types);
    free(s->dear);
    free(s->orders);
    free(s->visited);
}
