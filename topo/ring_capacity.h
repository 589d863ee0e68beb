/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/ring_capacity.h - what rings of a search take from the links of a host,
 * and what they leave.
 *
 * Invariant   s->left of a link's direction is its capacity less what the
 *             rings that hold now ask of it, and not below 0.
 */
#ifndef TOPO_RING_CAPACITY_H
#define TOPO_RING_CAPACITY_H

#include "topo/ring_search.h"

/* Of the routes that the search has listed: types, costs, steps that leave each
 * GPU. */
void wefti_ring_capacity_init(wefti_ring_search *s);

/* All links are free again. */
void wefti_ring_capacity_reset(wefti_ring_search *s);

/*
 * wefti_ring_take - the search's speed from each link of a route, all or
 * nothing; true: taken. gpus: between two GPUs, not to a NIC.
 * wefti_ring_return - adds GBps to each link; below 0 it subtracts, whatever is
 * left.
 */
bool wefti_ring_take(wefti_ring_search *s, const wefti_route *route, bool gpus);
void wefti_ring_return(wefti_ring_search *s, const wefti_route *route,
                       bool gpus, double GBps);

/* What can still leave a GPU, or with incoming reach it. */
double wefti_ring_left(const wefti_ring_search *s, int gpu, bool incoming);

/* Between two GPUs of the host, by their numbers in it. */
static inline const wefti_route *wefti_ring_route(const wefti_ring_search *s,
                                                  int a, int b)
{
    return &s->routes[a * s->gpu_count + b];
}

static inline wefti_path_type wefti_ring_path_type(const wefti_ring_search *s,
                                                   int a, int b)
{
    return (wefti_path_type)s->types[a * s->gpu_count + b];
}

/* From the NIC to the GPU: the same links, walked the other way. */
void wefti_ring_route_in(const wefti_ring_search *s, int gpu, int nic,
                         wefti_route *route_out);

/* Whether nothing but other rings could forbid that hop. */
bool wefti_ring_hop_fits(const wefti_ring_search *s, int a, int b);

/* What the rings found ask of the busiest link, counted from nothing, as a
 * share of its capacity. */
double wefti_ring_capacity_use(wefti_ring_search *s);

#endif
