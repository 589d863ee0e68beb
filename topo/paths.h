/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/paths.h - how each GPU reaches each other GPU and each NIC: which kind
 * of path, how fast, over which links.
 *
 * Breadth first from every GPU of a host; of the shortest paths the widest.
 * The type of a path is its worst link's, its bandwidth the least link's. Types
 * are NCCL's, near to far, and two of ours for AMD, where RCCL says NVL and
 * NVB; compare them by name across versions of NCCL.
 *
 * Hosts whose GPUs are in one NVLink domain are one clique: their GPUs reach
 * each other from NVSwitch to NVSwitch, as fast as the slower GPU's links.
 *
 * Source: NCCL 2.28, src/graph/paths.cc.
 */
#ifndef TOPO_PATHS_H
#define TOPO_PATHS_H

#include "topo/graph.h"

/* X(name, text) */
#define WEFTI_PATH_LIST(X)                                                     \
    X(LOC, "LOC") /* itself */                                                 \
    X(NVL, "NVL") /* NVLink, switched or direct */                             \
    X(XGMI, "XGMI")                                                            \
    X(NVB, "NVB")  /* two NVLinks through one GPU */                           \
    X(XGB, "XGMI") /* two XGMI links through one GPU */                        \
    X(C2C, "C2C")                                                              \
    X(PIX, "PIX") /* one PCIe switch */                                        \
    X(PXB, "PXB") /* several */                                                \
    X(P2C, "P2C") /* GPU-NIC by C2C, then PCIe */                              \
    X(PXN, "PXN") /* GPU-NIC through another GPU's NVLink */                   \
    X(PHB, "PHB") /* a host bridge */                                          \
    X(SYS, "SYS") /* between NUMA nodes */                                     \
    X(NET, "NET") /* between hosts */                                          \
    X(DIS, "DIS") /* none */

typedef enum wefti_path_type {
#define WEFTI_PATH_ENUM(name, text) WEFTI_PATH_##name,
    WEFTI_PATH_LIST(WEFTI_PATH_ENUM)
#undef WEFTI_PATH_ENUM
} wefti_path_type;

typedef struct wefti_topo_path {
    wefti_path_type type;
    int hops;
    double GBps;      /* of the hardware */
    double nccl_GBps; /* by NCCL's table */
} wefti_topo_path;

#define WEFTI_ROUTE_MOST 48

/* The links of a path: link * 2, plus 1 if walked from b to a. */
typedef struct wefti_route {
    int count;
    int steps[WEFTI_ROUTE_MOST];
} wefti_route;

/* One host's part of wefti_paths. */
typedef struct wefti_host_paths {
    int first_device, device_count;
    int first_gpu, gpu_count; /* ordinals */
    int first_nic, nic_count;
    int nvswitch;                  /* device; -1 none */
    struct wefti_path_cell *cells; /* [gpu_count][device_count] */
    int *relays; /* [gpu_count][nic_count] PXN's GPU by device, or -1 */
} wefti_host_paths;

/* Hosts of one NVLink domain, or one host: parts of the lists below. */
typedef struct wefti_clique {
    int first_host, host_count;
    int first_gpu, gpu_count;
    int first_nic, nic_count;
} wefti_clique;

typedef struct wefti_paths {
    const wefti_topo *topo; /* borrowed */
    int gpu_count, nic_count, host_count;
    int *gpus, *nics;           /* devices by ordinal */
    int *gpu_hosts, *nic_hosts; /* hosts' ordinals */
    int *gpu_nics;              /* what wefti_paths_nic_of answers */
    int *nearest_nics;          /* without taking turns */
    wefti_host_paths *hosts;
    int clique_count;
    wefti_clique *cliques; /* in the order of their first hosts */
    int *host_cliques;     /* by host */
    int *clique_hosts, *clique_gpus, *clique_nics; /* ordinals, by clique */
} wefti_paths;

/* Returns OK | ERR_NO_MEMORY. topo must outlive the paths. */
WEFT_NODISCARD weft_status wefti_paths_create(const wefti_topo *topo,
                                              wefti_paths **paths_out);
void wefti_paths_destroy(wefti_paths *paths); /* takes NULL */

/* By ordinals, over the whole cluster. */
wefti_topo_path wefti_path_gpu_gpu(const wefti_paths *paths, int a, int b);
wefti_topo_path wefti_path_gpu_nic(const wefti_paths *paths, int gpu, int nic);

/* Whether the GPU reaches those of other hosts by NVLink. */
bool wefti_paths_leaves_host(const wefti_paths *paths, int gpu);

/* The links from one GPU to another, or to a NIC, of its own host; between
 * hosts of a clique, to the one's NVSwitch and from the other's. */
void wefti_route_gpu_gpu(const wefti_paths *paths, int a, int b,
                         wefti_route *route_out);
void wefti_route_gpu_nic(const wefti_paths *paths, int gpu, int nic,
                         wefti_route *route_out);

/*
 * The NIC that a GPU should use: the nearest, then the widest; GPUs that are
 * equally near to several share them in turn. -1: none is up.
 */
int wefti_paths_nic_of(const wefti_paths *paths, int gpu);
/* The nearest, even if other GPUs use it. */
int wefti_paths_nearest_nic(const wefti_paths *paths, int gpu);

const char *wefti_path_type_text(wefti_path_type type);

#endif
