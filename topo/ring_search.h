/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/ring_search.h - packs rings of one speed into the links of a host, or of
 * all hosts of its NVLink domain; what
 * rings.c then does for every speed.
 */
#ifndef TOPO_RING_SEARCH_H
#define TOPO_RING_SEARCH_H

#include "topo/rings.h"

typedef enum wefti_ring_shape {
    WEFTI_SHAPE_RING,  /* all GPUs and back to the first */
    WEFTI_SHAPE_CHAIN, /* all GPUs */
    WEFTI_SHAPE_NET,   /* NIC, all GPUs, a NIC */
    WEFTI_SHAPE_TREE   /* NIC, first GPU, the same NIC; that GPU, the others */
} wefti_ring_shape;

typedef struct wefti_ring_search {
    const wefti_paths *paths;
    const int *gpus, *nics_all; /* the clique's, ordinals; gpus by number */
    int gpu_count, nic_count;
    wefti_ring_shape shape;
    double speed;
    wefti_path_type limit, nic_limit;
    /* Rings in pairs: one leaves by the NIC that the other enters by, so that
     * two hosts that take them in turns stay on one rail. */
    bool crossing;
    double *left;             /* GB/s by step (link and direction) */
    int first_link, end_link; /* the clique's hosts have none but these */
    wefti_route *routes;      /* [gpu][gpu] */
    unsigned char *types;     /* [gpu][gpu] of the path */
    bool *dear;               /* [gpu][gpu] its PCIe links are asked for more */
    int steps;                /* of this speed's budget */
    int all_steps, steps_most; /* of all speeds, for the caller */
    int ring_steps;            /* when the search for this ring ends */
    unsigned attempt;          /* another order of equals each time */
    int ring_count;
    int *ends, *leaves; /* steps that leave GPU g: leaves[ends[g] .. [g+1]) */
    int *orders;        /* [WEFTI_RINGS_MOST][gpu_count], local */
    int nics[WEFTI_RINGS_MOST], exits[WEFTI_RINGS_MOST];
    char *visited;
} wefti_ring_search;

WEFT_NODISCARD weft_status wefti_ring_search_init(wefti_ring_search *s,
                                                  const wefti_paths *paths,
                                                  int host,
                                                  wefti_ring_shape shape);
void wefti_ring_search_fini(wefti_ring_search *s);

/* False: no ring of that speed, whatever is searched; takes no step of a
 * budget. */
bool wefti_ring_search_may_fit(wefti_ring_search *s, double speed);

/* How many rings of that speed were found; they are in orders and nics. */
int wefti_ring_search_pack(wefti_ring_search *s, double speed);

#endif
