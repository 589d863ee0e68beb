/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/path_cell.h - what paths.c finds out and nic_paths.c builds on: how
 * each GPU reaches each device of its host.
 */
#ifndef TOPO_PATH_CELL_H
#define TOPO_PATH_CELL_H

#include "topo/paths.h"

typedef struct wefti_path_cell {
    wefti_path_type type;
    int hops;
    int step; /* the last link of the path, as in a route; -1 at the start */
    double GBps, nccl_GBps;
} wefti_path_cell;

/* Of the GPU with that number in its host. */
static inline wefti_path_cell *wefti_path_cell_of(const wefti_host_paths *host,
                                                  int gpu, int device)
{
    return &host->cells[(size_t)gpu * (size_t)host->device_count +
                        (size_t)(device - host->first_device)];
}

static inline wefti_topo_path wefti_path_of_cell(const wefti_path_cell *cell)
{
    return (wefti_topo_path){cell->type, cell->hops, cell->GBps,
                             cell->nccl_GBps};
}

static inline int wefti_step_from(const wefti_topo *topo, int step)
{
    const wefti_topo_link *link = &topo->links[step / 2];
    return step % 2 ? link->b : link->a;
}

/* Appends the links from a GPU, by its ordinal, to a device of its host. */
void wefti_route_append(const wefti_paths *paths, int gpu, int device,
                        wefti_route *route);

/* Relays of one host, whose cells are known; then the NIC of each GPU.
 * Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_nic_paths_init(wefti_paths *paths, int host);

#endif
