/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nic_paths.c - from GPUs to NICs: directly, or by a GPU that is nearer
 * (PXN), and which NIC each GPU should use.
 *
 * Everything is asked of a table of direct paths, [GPU][NIC], so that a host of
 * a thousand of each takes as long as the table.
 */
#include "topo/path_cell.h"

#include "base/check.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* GPU to NIC without a relay: by C2C, and round by the CPU where the NIC may
 * not reach the GPU's memory. */
static wefti_topo_path direct_nic(const wefti_paths *paths, int host_index,
                                  int gpu, int nic)
{
    const wefti_topo *topo = paths->topo;
    const wefti_host_paths *host = &paths->hosts[host_index];
    int device = paths->nics[host->first_nic + nic];
    const wefti_device *g = &topo->devices[paths->gpus[host->first_gpu + gpu]];
    wefti_topo_path path =
        wefti_path_of_cell(wefti_path_cell_of(host, gpu, device));
    if (!wefti_topo_nic_usable(topo, device)) {
        return (wefti_topo_path){.type = WEFTI_PATH_DIS};
    }
    if (path.type == WEFTI_PATH_PHB) {
        int first = device, step;
        while ((step = wefti_path_cell_of(host, gpu, first)->step) >= 0) {
            first = wefti_step_from(topo, step);
            if (wefti_path_cell_of(host, gpu, first)->step == -1 &&
                topo->links[step / 2].type == WEFTI_LINK_C2C) {
                path.type = WEFTI_PATH_P2C;
            }
        }
    }
    bool gdr = g->gpu.gdr && topo->devices[device].nic.gdr;
    if (!gdr && path.type < WEFTI_PATH_PHB) {
        path.type = WEFTI_PATH_PHB;
    }
    return path;
}

/* ---- relays ---------------------------------------------------------------
 */

/* Bandwidth first, then detours. */
static bool is_wider(wefti_topo_path a, wefti_topo_path b)
{
    return a.nccl_GBps > b.nccl_GBps ||
           (a.nccl_GBps >= b.nccl_GBps && a.type < b.type);
}

/* What relays are chosen by; freed once they are. */
typedef struct direct_table {
    const wefti_host_paths *host;
    wefti_topo_path *paths;    /* [gpu_count][nic_count] */
    wefti_topo_path *gpu_best; /* the widest of each GPU, of each NIC */
    wefti_topo_path *nic_best;
    unsigned char *types; /* [nic_count][gpu_count] */
    int *turns;           /* NICs before it that all GPUs reach alike */
    int *alike;           /* one NIC of each sort */
    int *alike_counts;    /* of it so far */
} direct_table;

static wefti_topo_path at(const direct_table *t, int gpu, int nic)
{
    return t->paths[(size_t)gpu * (size_t)t->host->nic_count + (size_t)nic];
}

static void table_fini(direct_table *t)
{
    free(t->paths);
    free(t->gpu_best);
    free(t->nic_best);
    free(t->types);
    free(t->turns);
    free(t->alike);
    free(t->alike_counts);
}

/* NICs of one sort take turns; sorts are few, or all NICs differ early. */
static void count_turns(direct_table *t)
{
    size_t gpus = (size_t)t->host->gpu_count;
    int sorts = 0;
    for (int nic = 0; nic < t->host->nic_count; nic++) {
        const unsigned char *own = t->types + (size_t)nic * gpus;
        int sort = 0;
        while (sort < sorts && memcmp(t->types + (size_t)t->alike[sort] * gpus,
                                      own, gpus) != 0) {
            sort++;
        }
        if (sort == sorts) {
            t->alike[sorts++] = nic;
        }
        t->turns[nic] = t->alike_counts[sort]++;
    }
}

static weft_status table_init(const wefti_paths *paths, int host_index,
                              direct_table *t)
{
    const wefti_host_paths *host = &paths->hosts[host_index];
    size_t gpus = (size_t)host->gpu_count, nics = (size_t)host->nic_count;
    const wefti_topo_path none = {.type = WEFTI_PATH_DIS};
    *t = (direct_table){.host = host};
    t->paths = calloc(gpus * nics + 1, sizeof(*t->paths));
    t->types = calloc(gpus * nics + 1, 1);
    t->gpu_best = calloc(gpus + 1, sizeof(*t->gpu_best));
    t->nic_best = calloc(nics + 1, sizeof(*t->nic_best));
    t->turns = calloc(nics + 1, sizeof(int));
    t->alike = calloc(nics + 1, sizeof(int));
    t->alike_counts = calloc(nics + 1, sizeof(int));
    if (!t->paths || !t->types || !t->gpu_best || !t->nic_best || !t->turns ||
        !t->alike || !t->alike_counts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "paths of %zu GPUs to %zu NICs",
                           gpus, nics);
    }
    for (size_t gpu = 0; gpu < gpus; gpu++) {
        t->gpu_best[gpu] = none;
        for (size_t nic = 0; nic < nics; nic++) {
            wefti_topo_path *path = &t->paths[gpu * nics + nic];
            *path = direct_nic(paths, host_index, (int)gpu, (int)nic);
            t->types[nic * gpus + gpu] = (unsigned char)path->type;
            t->nic_best[nic] = gpu == 0 ? none : t->nic_best[nic];
            if (is_wider(*path, t->nic_best[nic])) {
                t->nic_best[nic] = *path;
            }
            if (is_wider(*path, t->gpu_best[gpu])) {
                t->gpu_best[gpu] = *path;
            }
        }
    }
    count_turns(t);
    return WEFT_OK;
}

/* Whether the GPU has no wider way to any NIC and the NIC none to any GPU: what
 * NCCL calls local, and makes a relay of. */
static bool belong_together(const direct_table *t, int gpu, int nic)
{
    wefti_topo_path own = at(t, gpu, nic);
    return own.type != WEFTI_PATH_DIS && !is_wider(t->gpu_best[gpu], own) &&
           !is_wider(t->nic_best[nic], own);
}

/* The GPU that serves a NIC; of equals, NICs take turns. */
static int server_of(const direct_table *t, int nic)
{
    int equals = 0;
    for (int gpu = 0; gpu < t->host->gpu_count; gpu++) {
        equals += belong_together(t, gpu, nic);
    }
    int turn = equals > 0 ? t->turns[nic] % equals : 0;
    for (int gpu = 0; gpu < t->host->gpu_count && equals > 0; gpu++) {
        if (belong_together(t, gpu, nic) && turn-- == 0) {
            return gpu;
        }
    }
    return -1;
}

/* Where a GPU one NVLink path away brings more, or spares the host bridge. */
static void find_relays(const wefti_paths *paths, const direct_table *t)
{
    const wefti_host_paths *host = t->host;
    for (int nic = 0; nic < host->nic_count; nic++) {
        int server = server_of(t, nic);
        for (int gpu = 0; gpu < host->gpu_count; gpu++) {
            int *relay = &host->relays[gpu * host->nic_count + nic];
            *relay = -1;
            if (server < 0 || server == gpu) {
                continue;
            }
            int device = paths->gpus[host->first_gpu + server];
            wefti_topo_path there = at(t, server, nic);
            wefti_topo_path own = at(t, gpu, nic);
            if (there.type <= WEFTI_PATH_P2C &&
                wefti_path_cell_of(host, gpu, device)->type <=
                    WEFTI_PATH_XGMI &&
                (there.nccl_GBps > own.nccl_GBps ||
                 own.type > WEFTI_PATH_PXN)) {
                *relay = server;
            }
        }
    }
}

/* ---- the NIC of each GPU --------------------------------------------------
 */

/* Detours first, then bandwidth: a GPU whose PCIe is asleep does not move. */
static bool is_nearer(wefti_topo_path a, wefti_topo_path b)
{
    return a.type < b.type || (a.type == b.type && a.nccl_GBps > b.nccl_GBps);
}

static int nearest_nic(const wefti_paths *paths, const wefti_host_paths *host,
                       int gpu)
{
    int best = -1;
    wefti_topo_path near = {.type = WEFTI_PATH_DIS};
    for (int i = 0; i < host->nic_count; i++) {
        wefti_topo_path path =
            wefti_path_gpu_nic(paths, gpu, host->first_nic + i);
        if (is_nearer(path, near)) {
            near = path;
            best = host->first_nic + i;
        }
    }
    return best;
}

/* Of the NICs that are as near as the best, the turn-th. */
static int nic_in_turn(const wefti_paths *paths, const wefti_host_paths *host,
                       int gpu, int turn)
{
    int best = paths->nearest_nics[gpu], equals = 0;
    wefti_topo_path near = wefti_path_gpu_nic(paths, gpu, best);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < host->nic_count; i++) {
            int nic = host->first_nic + i;
            wefti_topo_path path = wefti_path_gpu_nic(paths, gpu, nic);
            bool equal =
                path.type == near.type && path.nccl_GBps >= near.nccl_GBps;
            if (pass == 0) {
                equals += equal;
            } else if (equal && turn-- == 0) {
                return nic;
            }
        }
        WEFTI_ASSERT(equals > 0); /* the best is as good as itself */
        turn = turn % equals;
    }
    return best;
}

/* users: [nic_count] zeros. */
static void assign_nics(wefti_paths *paths, const wefti_host_paths *host,
                        int *users)
{
    for (int i = 0; i < host->gpu_count; i++) {
        int gpu = host->first_gpu + i;
        int best = nearest_nic(paths, host, gpu);
        paths->nearest_nics[gpu] = best;
        paths->gpu_nics[gpu] =
            best < 0 ? -1
                     : nic_in_turn(paths, host, gpu,
                                   users[best - host->first_nic]++);
    }
}

weft_status wefti_nic_paths_init(wefti_paths *paths, int host_index)
{
    const wefti_host_paths *host = &paths->hosts[host_index];
    direct_table t;
    weft_status status = table_init(paths, host_index, &t);
    int *users = calloc((size_t)host->nic_count + 1, sizeof(int));
    if (status == WEFT_OK && !users) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "NICs of a host");
    }
    if (status == WEFT_OK) {
        find_relays(paths, &t);
        assign_nics(paths, host, users);
    }
    free(users);
    table_fini(&t);
    return status;
}

int wefti_paths_nic_of(const wefti_paths *paths, int gpu)
{
    return paths->gpu_nics[gpu];
}

int wefti_paths_nearest_nic(const wefti_paths *paths, int gpu)
{
    return paths->nearest_nics[gpu];
}

/* ---- questions ------------------------------------------------------------
 */

static int relay_of(const wefti_paths *paths, int gpu, int nic)
{
    const wefti_host_paths *h = &paths->hosts[paths->gpu_hosts[gpu]];
    int relay =
        h->relays[(gpu - h->first_gpu) * h->nic_count + nic - h->first_nic];
    return relay < 0 ? -1 : relay + h->first_gpu;
}

wefti_topo_path wefti_path_gpu_nic(const wefti_paths *paths, int gpu, int nic)
{
    int host = paths->gpu_hosts[gpu];
    if (host != paths->nic_hosts[nic]) {
        return (wefti_topo_path){.type = WEFTI_PATH_DIS};
    }
    const wefti_host_paths *h = &paths->hosts[host];
    int relay = relay_of(paths, gpu, nic);
    if (relay < 0) {
        return direct_nic(paths, host, gpu - h->first_gpu, nic - h->first_nic);
    }
    wefti_topo_path a = wefti_path_gpu_gpu(paths, gpu, relay);
    wefti_topo_path b =
        direct_nic(paths, host, relay - h->first_gpu, nic - h->first_nic);
    return (wefti_topo_path){WEFTI_PATH_PXN, a.hops + b.hops,
                             fmin(a.GBps, b.GBps),
                             fmin(a.nccl_GBps, b.nccl_GBps)};
}

void wefti_route_gpu_nic(const wefti_paths *paths, int gpu, int nic,
                         wefti_route *route_out)
{
    int relay = relay_of(paths, gpu, nic);
    route_out->count = 0;
    if (relay >= 0) {
        wefti_route_append(paths, gpu, paths->gpus[relay], route_out);
        gpu = relay;
    }
    wefti_route_append(paths, gpu, paths->nics[nic], route_out);
}
