/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/paths.c - breadth-first search over one host at a time.
 */
#include "topo/paths.h"

#include "base/check.h"
#include "base/error.h"
#include "topo/cliques.h"
#include "topo/path_cell.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A link, walked in one direction. */
typedef struct edge {
    int to, step;
    bool passes_gpu; /* a GPU may be left by it */
    double GBps, nccl_GBps;
} edge;

/* Those that leave device d: edges[first[d]] .. edges[first[d + 1]]. */
typedef struct adjacency {
    int *first;
    edge *edges;
} adjacency;

const char *wefti_path_type_text(wefti_path_type type)
{
    static const char *const texts[] = {
#define PATH_TEXT(name, text) text,
        WEFTI_PATH_LIST(PATH_TEXT)
#undef PATH_TEXT
    };
    return texts[type];
}

/* ---- links by device ------------------------------------------------------
 */

static int step_to(const wefti_topo *topo, int step)
{
    return wefti_step_from(topo, step ^ 1);
}

static bool is_link_of_gpus(const wefti_topo_link *link)
{
    return link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI;
}

/* A GPU may stand in the middle of two NVLinks, and of nothing else. */
static edge make_edge(const wefti_topo *topo, int step)
{
    const wefti_topo_link *link = &topo->links[step / 2];
    int to = step_to(topo, step);
    bool of_gpus = is_link_of_gpus(link);
    return (edge){.to = to,
                  .step = step,
                  .passes_gpu =
                      of_gpus && topo->devices[to].kind == WEFTI_TOPO_GPU,
                  .GBps = of_gpus && link->count == 0 ? 0 : link->GBps,
                  .nccl_GBps = link->nccl_GBps};
}

static weft_status adjacency_init(const wefti_topo *topo, adjacency *links)
{
    size_t devices = (size_t)topo->device_count;
    links->first = calloc(devices + 2, sizeof(int));
    links->edges =
        calloc(2 * (size_t)topo->link_count + 1, sizeof(*links->edges));
    if (!links->first || !links->edges) {
        free(links->first);
        free(links->edges);
        return wefti_error(WEFT_ERR_NO_MEMORY, "links by device");
    }
    for (int step = 0; step < 2 * topo->link_count; step++) {
        links->first[wefti_step_from(topo, step) + 2]++;
    }
    for (size_t i = 2; i < devices + 2; i++) {
        links->first[i] += links->first[i - 1];
    }
    for (int step = 0; step < 2 * topo->link_count; step++) {
        int at = links->first[wefti_step_from(topo, step) + 1]++;
        links->edges[at] = make_edge(topo, step);
    }
    return WEFT_OK;
}

static void adjacency_fini(adjacency *links)
{
    free(links->first);
    free(links->edges);
}

/* ---- one GPU --------------------------------------------------------------
 */

static wefti_path_type max_type(wefti_path_type a, wefti_path_type b)
{
    return a > b ? a : b;
}

/* What one more link makes of a path of that type. */
static wefti_path_type extend(const wefti_topo *topo, int step,
                              wefti_path_type so_far, int hops)
{
    const wefti_topo_link *link = &topo->links[step / 2];
    wefti_topo_kind from = topo->devices[link->a].kind;
    wefti_topo_kind to = topo->devices[link->b].kind;
    wefti_path_type type = WEFTI_PATH_LOC;
    bool through_gpu =
        hops > 0 && so_far <= WEFTI_PATH_XGMI &&
        topo->devices[wefti_step_from(topo, step)].kind == WEFTI_TOPO_GPU;
    switch (link->type) {
    case WEFTI_LINK_PORT:
        break;
    case WEFTI_LINK_NVL:
        type = through_gpu ? WEFTI_PATH_NVB : WEFTI_PATH_NVL;
        break;
    case WEFTI_LINK_XGMI:
        type = through_gpu ? WEFTI_PATH_XGB : WEFTI_PATH_XGMI;
        break;
    case WEFTI_LINK_C2C:
        type = WEFTI_PATH_C2C;
        break;
    case WEFTI_LINK_PCI:
        type = from == WEFTI_TOPO_NUMA || to == WEFTI_TOPO_NUMA ? WEFTI_PATH_PHB
               : from == WEFTI_TOPO_BRIDGE && to == WEFTI_TOPO_BRIDGE
                   ? WEFTI_PATH_PXB
                   : WEFTI_PATH_PIX;
        break;
    case WEFTI_LINK_SYS:
        type = WEFTI_PATH_SYS;
        break;
    }
    return max_type(so_far, type);
}

/* Walks one link; true if it found a better way to where it leads. */
static bool relax(const wefti_topo *topo, const wefti_path_cell *cell,
                  const edge *e, wefti_path_cell *next)
{
    double GBps = fmin(cell->GBps, e->GBps);
    double nccl_GBps = fmin(cell->nccl_GBps, e->nccl_GBps);
    if (GBps <= 0 ||
        (next->type != WEFTI_PATH_DIS && next->nccl_GBps >= nccl_GBps)) {
        return false;
    }
    *next = (wefti_path_cell){extend(topo, e->step, cell->type, cell->hops),
                              cell->hops + 1, e->step, GBps, nccl_GBps};
    return true;
}

static void search_from(const wefti_topo *topo, const adjacency *links,
                        const wefti_host_paths *host, int gpu,
                        wefti_path_cell *row, int *queue, char *queued)
{
    int head = 0, tail = 0, room = host->device_count + 1;
    for (int i = 0; i < host->device_count; i++) {
        row[i] = (wefti_path_cell){WEFTI_PATH_DIS, INT_MAX, -2, 0, 0};
    }
    row[gpu - host->first_device] =
        (wefti_path_cell){WEFTI_PATH_LOC, 0, -1, 5000, 5000};
    queue[tail++] = gpu;
    while (head != tail) {
        int at = queue[head], slot = at - host->first_device;
        const wefti_path_cell *cell = &row[slot];
        bool through = at != gpu && topo->devices[at].kind == WEFTI_TOPO_GPU;
        head = (head + 1) % room;
        queued[slot] = 0;
        for (int i = links->first[at]; i < links->first[at + 1]; i++) {
            const edge *e = &links->edges[i];
            int to = e->to - host->first_device;
            wefti_path_cell *next = &row[to];
            if (next->hops <= cell->hops ||
                (through && !(e->passes_gpu && cell->hops == 1))) {
                continue;
            }
            if (relax(topo, cell, e, next) && !queued[to]) {
                queue[tail] = e->to;
                tail = (tail + 1) % room;
                queued[to] = 1;
            }
        }
    }
    for (int i = 0; i < host->device_count; i++) {
        row[i].hops = row[i].type == WEFTI_PATH_DIS ? 0 : row[i].hops;
    }
}

/* ---- one host -------------------------------------------------------------
 */

static weft_status host_init(wefti_paths *paths, const adjacency *links,
                             int index)
{
    wefti_host_paths *host = &paths->hosts[index];
    size_t devices = (size_t)host->device_count;
    size_t gpus = (size_t)host->gpu_count;
    host->cells = calloc(gpus * devices + 1, sizeof(*host->cells));
    host->relays = calloc(gpus * (size_t)host->nic_count + 1, sizeof(int));
    int *queue = malloc((devices + 1) * sizeof(*queue));
    char *queued = calloc(devices + 1, 1);
    weft_status status = WEFT_OK;
    if (!host->cells || !host->relays || !queue || !queued) {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "paths of %zu devices", devices);
    } else {
        for (int i = 0; i < host->gpu_count; i++) {
            search_from(paths->topo, links, host,
                        paths->gpus[host->first_gpu + i],
                        host->cells + (size_t)i * devices, queue, queued);
        }
        status = wefti_nic_paths_init(paths, index);
    }
    free(queue);
    free(queued);
    return status;
}

/* ---- all hosts ------------------------------------------------------------
 */

static weft_status list_devices(wefti_paths *paths)
{
    const wefti_topo *topo = paths->topo;
    int host = -1;
    size_t gpus = (size_t)topo->kind_counts[WEFTI_TOPO_GPU] + 1;
    size_t nics = (size_t)topo->kind_counts[WEFTI_TOPO_NIC] + 1;
    size_t hosts = (size_t)topo->kind_counts[WEFTI_TOPO_HOST] + 1;
    paths->gpus = calloc(gpus, sizeof(int));
    paths->gpu_hosts = calloc(gpus, sizeof(int));
    paths->nics = calloc(nics, sizeof(int));
    paths->nic_hosts = calloc(nics, sizeof(int));
    paths->gpu_nics = calloc(gpus, sizeof(int));
    paths->nearest_nics = calloc(gpus, sizeof(int));
    paths->hosts = calloc(hosts, sizeof(*paths->hosts));
    if (!paths->gpus || !paths->gpu_hosts || !paths->nics ||
        !paths->nic_hosts || !paths->gpu_nics || !paths->nearest_nics ||
        !paths->hosts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "paths of %zu GPUs", gpus);
    }
    for (int i = 0; i < topo->device_count; i++) {
        wefti_topo_kind kind = topo->devices[i].kind;
        if (kind == WEFTI_TOPO_HOST) {
            host++;
            paths->hosts[host].first_device = i;
            paths->hosts[host].nvswitch = -1;
            paths->hosts[host].first_gpu = paths->gpu_count;
            paths->hosts[host].first_nic = paths->nic_count;
        }
        paths->hosts[host].device_count++;
        if (kind == WEFTI_TOPO_GPU) {
            WEFTI_ASSERT(topo->devices[i].ordinal == paths->gpu_count);
            paths->gpu_hosts[paths->gpu_count] = host;
            paths->gpus[paths->gpu_count++] = i;
            paths->hosts[host].gpu_count++;
        } else if (kind == WEFTI_TOPO_NIC) {
            paths->nic_hosts[paths->nic_count] = host;
            paths->nics[paths->nic_count++] = i;
            paths->hosts[host].nic_count++;
        } else if (kind == WEFTI_TOPO_NVSWITCH) {
            paths->hosts[host].nvswitch = i;
        }
    }
    paths->host_count = host + 1;
    return WEFT_OK;
}

weft_status wefti_paths_create(const wefti_topo *topo, wefti_paths **paths_out)
{
    adjacency links;
    wefti_paths *paths = calloc(1, sizeof(*paths));
    if (!paths) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "paths");
    }
    paths->topo = topo;
    weft_status status = list_devices(paths);
    if (status == WEFT_OK) {
        status = adjacency_init(topo, &links);
    }
    if (status != WEFT_OK) {
        goto err_paths;
    }
    for (int i = 0; i < paths->host_count && status == WEFT_OK; i++) {
        status = host_init(paths, &links, i);
    }
    adjacency_fini(&links);
    if (status == WEFT_OK) {
        status = wefti_cliques_init(paths);
    }
err_paths:
    if (status != WEFT_OK) {
        wefti_paths_destroy(paths);
        paths = NULL;
    }
    *paths_out = paths;
    return status;
}

void wefti_paths_destroy(wefti_paths *paths)
{
    if (!paths) {
        return;
    }
    for (int i = 0; i < paths->host_count; i++) {
        free(paths->hosts[i].cells);
        free(paths->hosts[i].relays);
    }
    free(paths->hosts);
    free(paths->gpus);
    free(paths->nics);
    free(paths->gpu_hosts);
    free(paths->nic_hosts);
    free(paths->gpu_nics);
    free(paths->nearest_nics);
    wefti_cliques_fini(paths);
    free(paths);
}

/* ---- questions ------------------------------------------------------------
 */

/* To the NVSwitch that joins a GPU to those of other hosts. */
static const wefti_path_cell *to_switch(const wefti_paths *paths, int gpu)
{
    const wefti_host_paths *h = &paths->hosts[paths->gpu_hosts[gpu]];
    return h->nvswitch < 0
               ? NULL
               : wefti_path_cell_of(h, gpu - h->first_gpu, h->nvswitch);
}

static uint64_t domain_of(const wefti_paths *paths, int gpu)
{
    return paths->topo->devices[paths->gpus[gpu]].gpu.domain;
}

bool wefti_paths_leaves_host(const wefti_paths *paths, int gpu)
{
    const wefti_path_cell *cell = to_switch(paths, gpu);
    int clique = paths->host_cliques[paths->gpu_hosts[gpu]];
    return paths->cliques[clique].host_count > 1 &&
           domain_of(paths, gpu) != 0 && cell && cell->type == WEFTI_PATH_NVL;
}

/* Between hosts of one NVLink domain, from switch to switch; false: not so. */
static bool by_domain(const wefti_paths *paths, int a, int b,
                      wefti_topo_path *out)
{
    if (domain_of(paths, a) != domain_of(paths, b) ||
        !wefti_paths_leaves_host(paths, a) ||
        !wefti_paths_leaves_host(paths, b)) {
        return false;
    }
    const wefti_path_cell *x = to_switch(paths, a), *y = to_switch(paths, b);
    *out = (wefti_topo_path){WEFTI_PATH_NVL, x->hops + y->hops,
                             fmin(x->GBps, y->GBps),
                             fmin(x->nccl_GBps, y->nccl_GBps)};
    return true;
}

wefti_topo_path wefti_path_gpu_gpu(const wefti_paths *paths, int a, int b)
{
    int host = paths->gpu_hosts[a];
    wefti_topo_path path;
    if (host == paths->gpu_hosts[b]) {
        const wefti_host_paths *h = &paths->hosts[host];
        return wefti_path_of_cell(
            wefti_path_cell_of(h, a - h->first_gpu, paths->gpus[b]));
    }
    if (by_domain(paths, a, b, &path)) {
        return path;
    }
    int out = wefti_paths_nearest_nic(paths, a);
    int in = wefti_paths_nearest_nic(paths, b);
    if (out < 0 || in < 0) {
        return (wefti_topo_path){.type = WEFTI_PATH_DIS};
    }
    wefti_topo_path x = wefti_path_gpu_nic(paths, a, out);
    wefti_topo_path y = wefti_path_gpu_nic(paths, b, in);
    return (wefti_topo_path){WEFTI_PATH_NET, x.hops + y.hops + 1,
                             fmin(x.GBps, y.GBps),
                             fmin(x.nccl_GBps, y.nccl_GBps)};
}

void wefti_route_append(const wefti_paths *paths, int gpu, int device,
                        wefti_route *route)
{
    const wefti_host_paths *h = &paths->hosts[paths->gpu_hosts[gpu]];
    int begin = route->count, step;
    while ((step = wefti_path_cell_of(h, gpu - h->first_gpu, device)->step) >=
               0 &&
           route->count < WEFTI_ROUTE_MOST) {
        route->steps[route->count++] = step;
        device = wefti_step_from(paths->topo, step);
    }
    for (int i = begin, j = route->count - 1; i < j; i++, j--) {
        int swap = route->steps[i];
        route->steps[i] = route->steps[j];
        route->steps[j] = swap;
    }
}

void wefti_route_gpu_gpu(const wefti_paths *paths, int a, int b,
                         wefti_route *route_out)
{
    wefti_topo_path path;
    route_out->count = 0;
    if (paths->gpu_hosts[a] == paths->gpu_hosts[b]) {
        wefti_route_append(paths, a, paths->gpus[b], route_out);
    } else if (by_domain(paths, a, b, &path)) {
        int host_a = paths->gpu_hosts[a], host_b = paths->gpu_hosts[b];
        wefti_route back = {0};
        wefti_route_append(paths, a, paths->hosts[host_a].nvswitch, route_out);
        wefti_route_append(paths, b, paths->hosts[host_b].nvswitch, &back);
        for (int i = back.count - 1;
             i >= 0 && route_out->count < WEFTI_ROUTE_MOST; i--) {
            route_out->steps[route_out->count++] = back.steps[i] ^ 1;
        }
    }
}
