/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/paths.c - breadth-first search over one host at a time.
 */
#include "topo/paths.h"

#include "base/check.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How a GPU reaches one device of its host. */
typedef struct wefti_path_cell {
    wefti_path_type type;
    int hops;
    int step; /* the last link of the path, as in a route; -1 at the start */
    double GBps, nccl_GBps;
} wefti_path_cell;

/* Links of a host by device: steps first[d - base] .. first[d - base + 1]. */
typedef struct adjacency {
    int *first, *steps;
    int base, count;
} adjacency;

const char *wefti_path_type_text(wefti_path_type type)
{
    static const char *const texts[] = {
#define PATH_TEXT(name) #name,
        WEFTI_PATH_LIST(PATH_TEXT)
#undef PATH_TEXT
    };
    return texts[type];
}

/* ---- links by device ------------------------------------------------------
 */

static int step_from(const wefti_topo *topo, int step)
{
    const wefti_link *link = &topo->links[step / 2];
    return step % 2 ? link->b : link->a;
}

static int step_to(const wefti_topo *topo, int step)
{
    const wefti_link *link = &topo->links[step / 2];
    return step % 2 ? link->a : link->b;
}

static weft_status adjacency_init(const wefti_topo *topo, adjacency *links)
{
    size_t devices = (size_t)topo->device_count;
    links->base = 0;
    links->count = topo->device_count;
    links->first = calloc(devices + 2, sizeof(int));
    links->steps = calloc(2 * (size_t)topo->link_count + 1, sizeof(int));
    if (!links->first || !links->steps) {
        free(links->first);
        free(links->steps);
        return wefti_error(WEFT_ERR_NO_MEMORY, "links by device");
    }
    for (int step = 0; step < 2 * topo->link_count; step++) {
        links->first[step_from(topo, step) + 2]++;
    }
    for (size_t i = 2; i < devices + 2; i++) {
        links->first[i] += links->first[i - 1];
    }
    for (int step = 0; step < 2 * topo->link_count; step++) {
        links->steps[links->first[step_from(topo, step) + 1]++] = step;
    }
    return WEFT_OK;
}

static void adjacency_fini(adjacency *links)
{
    free(links->first);
    free(links->steps);
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
    const wefti_link *link = &topo->links[step / 2];
    wefti_topo_kind from = topo->devices[link->a].kind;
    wefti_topo_kind to = topo->devices[link->b].kind;
    wefti_path_type type = WEFTI_PATH_LOC;
    switch (link->type) {
    case WEFTI_LINK_PORT:
        break;
    case WEFTI_LINK_NVL:
    case WEFTI_LINK_XGMI:
        type = topo->devices[step_from(topo, step)].kind == WEFTI_TOPO_GPU &&
                       so_far == WEFTI_PATH_NVL && hops > 0
                   ? WEFTI_PATH_NVB
                   : WEFTI_PATH_NVL;
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

/* A GPU may stand in the middle of two NVLinks, and of nothing else. */
static bool may_pass(const wefti_topo *topo, int step, int hops)
{
    const wefti_link *link = &topo->links[step / 2];
    return (link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI) &&
           topo->devices[step_to(topo, step)].kind == WEFTI_TOPO_GPU &&
           hops == 1;
}

static double link_GBps(const wefti_link *link)
{
    bool alive = link->count > 0 || (link->type != WEFTI_LINK_NVL &&
                                     link->type != WEFTI_LINK_XGMI);
    return alive ? link->GBps : 0;
}

/* Walks one step; true if it found a better way to where it leads. */
static bool relax(const wefti_topo *topo, const wefti_host_paths *host,
                  wefti_path_cell *row, int step)
{
    const wefti_link *link = &topo->links[step / 2];
    const wefti_path_cell *cell =
        &row[step_from(topo, step) - host->first_device];
    wefti_path_cell *next = &row[step_to(topo, step) - host->first_device];
    double GBps = fmin(cell->GBps, link_GBps(link));
    double nccl_GBps = fmin(cell->nccl_GBps, link->nccl_GBps);
    if (GBps <= 0 || next->step == -1 ||
        (next->type != WEFTI_PATH_DIS &&
         (next->hops <= cell->hops || next->nccl_GBps >= nccl_GBps))) {
        return false;
    }
    *next = (wefti_path_cell){extend(topo, step, cell->type, cell->hops),
                              cell->hops + 1, step, GBps, nccl_GBps};
    return true;
}

static void search_from(const wefti_topo *topo, const adjacency *links,
                        const wefti_host_paths *host, int gpu,
                        wefti_path_cell *row, int *queue, char *queued)
{
    int head = 0, tail = 0, room = host->device_count + 1;
    for (int i = 0; i < host->device_count; i++) {
        row[i] = (wefti_path_cell){WEFTI_PATH_DIS, 0, -2, 0, 0};
    }
    row[gpu - host->first_device] =
        (wefti_path_cell){WEFTI_PATH_LOC, 0, -1, 5000, 5000};
    queue[tail++] = gpu;
    while (head != tail) {
        int at = queue[head], slot = at - host->first_device;
        head = (head + 1) % room;
        queued[slot] = 0;
        for (int i = links->first[at]; i < links->first[at + 1]; i++) {
            int step = links->steps[i];
            int to = step_to(topo, step) - host->first_device;
            bool through =
                at != gpu && topo->devices[at].kind == WEFTI_TOPO_GPU;
            if (through && !may_pass(topo, step, row[slot].hops)) {
                continue;
            }
            if (relax(topo, host, row, step) && !queued[to]) {
                queue[tail] = to + host->first_device;
                tail = (tail + 1) % room;
                queued[to] = 1;
            }
        }
    }
}

/* ---- one host -------------------------------------------------------------
 */

static wefti_path_cell *cell_of(const wefti_host_paths *host, int gpu,
                                int device)
{
    return &host->cells[(size_t)gpu * (size_t)host->device_count +
                        (size_t)(device - host->first_device)];
}

static wefti_path path_of(const wefti_path_cell *cell)
{
    return (wefti_path){cell->type, cell->hops, cell->GBps, cell->nccl_GBps};
}

/* GPU to NIC without a relay: by C2C, and round by the CPU where the NIC may
 * not reach the GPU's memory. */
static wefti_path direct_nic(const wefti_paths *paths, int host_index, int gpu,
                             int nic)
{
    const wefti_topo *topo = paths->topo;
    const wefti_host_paths *host = &paths->hosts[host_index];
    int device = paths->nics[host->first_nic + nic];
    const wefti_device *g = &topo->devices[paths->gpus[host->first_gpu + gpu]];
    wefti_path path = path_of(cell_of(host, gpu, device));
    if (!wefti_topo_nic_usable(topo, device)) {
        return (wefti_path){.type = WEFTI_PATH_DIS};
    }
    if (path.type == WEFTI_PATH_PHB) {
        int first = device, step;
        while ((step = cell_of(host, gpu, first)->step) >= 0) {
            first = step_from(topo, step);
            if (cell_of(host, gpu, first)->step == -1 &&
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

/* Bandwidth first, then detours. */
static bool is_wider(wefti_path a, wefti_path b)
{
    return a.nccl_GBps > b.nccl_GBps ||
           (a.nccl_GBps >= b.nccl_GBps && a.type < b.type);
}

/* Whether the GPU has no wider way to any NIC and the NIC none to any GPU: what
 * NCCL calls local, and makes a relay of. */
static bool belong_together(const wefti_paths *paths, int host_index, int gpu,
                            int nic)
{
    const wefti_host_paths *host = &paths->hosts[host_index];
    wefti_path own = direct_nic(paths, host_index, gpu, nic);
    bool widest = own.type != WEFTI_PATH_DIS;
    for (int other = 0; other < host->gpu_count && widest; other++) {
        widest = !is_wider(direct_nic(paths, host_index, other, nic), own);
    }
    for (int other = 0; other < host->nic_count && widest; other++) {
        widest = !is_wider(direct_nic(paths, host_index, gpu, other), own);
    }
    return widest;
}

/* The GPU that serves a NIC; of equals, NICs take turns. */
static int server_of(const wefti_paths *paths, int host_index, int nic)
{
    const wefti_host_paths *host = &paths->hosts[host_index];
    int equals = 0, turn = 0;
    for (int gpu = 0; gpu < host->gpu_count; gpu++) {
        equals += belong_together(paths, host_index, gpu, nic);
    }
    if (equals == 0) {
        return -1;
    }
    for (int other = 0; other < nic; other++) {
        bool alike = true;
        for (int gpu = 0; gpu < host->gpu_count && alike; gpu++) {
            wefti_path a = direct_nic(paths, host_index, gpu, nic);
            wefti_path b = direct_nic(paths, host_index, gpu, other);
            alike = a.type == b.type;
        }
        turn += alike;
    }
    turn %= equals;
    for (int gpu = 0; gpu < host->gpu_count; gpu++) {
        if (belong_together(paths, host_index, gpu, nic) && turn-- == 0) {
            return gpu;
        }
    }
    return -1;
}

/* Where a GPU one NVLink path away brings more, or spares the host bridge. */
static void find_relays(wefti_paths *paths, int host_index)
{
    wefti_host_paths *host = &paths->hosts[host_index];
    for (int nic = 0; nic < host->nic_count; nic++) {
        int server = server_of(paths, host_index, nic);
        for (int gpu = 0; gpu < host->gpu_count; gpu++) {
            int *relay = &host->relays[gpu * host->nic_count + nic];
            *relay = -1;
            if (server < 0 || server == gpu) {
                continue;
            }
            int device = paths->gpus[host->first_gpu + server];
            wefti_path there = direct_nic(paths, host_index, server, nic);
            wefti_path own = direct_nic(paths, host_index, gpu, nic);
            if (there.type <= WEFTI_PATH_P2C &&
                cell_of(host, gpu, device)->type <= WEFTI_PATH_NVL &&
                (there.nccl_GBps > own.nccl_GBps ||
                 own.type > WEFTI_PATH_PXN)) {
                *relay = server;
            }
        }
    }
}

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
        find_relays(paths, index);
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
    paths->hosts = calloc(hosts, sizeof(*paths->hosts));
    if (!paths->gpus || !paths->gpu_hosts || !paths->nics ||
        !paths->nic_hosts || !paths->hosts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "paths of %zu GPUs", gpus);
    }
    for (int i = 0; i < topo->device_count; i++) {
        wefti_topo_kind kind = topo->devices[i].kind;
        if (kind == WEFTI_TOPO_HOST) {
            host++;
            paths->hosts[host].first_device = i;
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
    free(paths);
}

/* ---- questions ------------------------------------------------------------
 */

/* Detours first, then bandwidth: a GPU whose PCIe is asleep does not move. */
static bool is_nearer(wefti_path a, wefti_path b)
{
    return a.type < b.type || (a.type == b.type && a.nccl_GBps > b.nccl_GBps);
}

static int best_nic(const wefti_paths *paths, int gpu)
{
    int host = paths->gpu_hosts[gpu], best = -1;
    const wefti_host_paths *h = &paths->hosts[host];
    wefti_path near = {.type = WEFTI_PATH_DIS};
    for (int i = 0; i < h->nic_count; i++) {
        wefti_path path = wefti_path_gpu_nic(paths, gpu, h->first_nic + i);
        if (is_nearer(path, near)) {
            near = path;
            best = h->first_nic + i;
        }
    }
    return best;
}

int wefti_paths_nic_of(const wefti_paths *paths, int gpu)
{
    const wefti_host_paths *host = &paths->hosts[paths->gpu_hosts[gpu]];
    int best = best_nic(paths, gpu), equals = 0, turn = 0;
    if (best < 0) {
        return -1;
    }
    wefti_path near = wefti_path_gpu_nic(paths, gpu, best);
    for (int other = host->first_gpu; other < gpu; other++) {
        turn += best_nic(paths, other) == best;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < host->nic_count; i++) {
            int nic = host->first_nic + i;
            wefti_path path = wefti_path_gpu_nic(paths, gpu, nic);
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

wefti_path wefti_path_gpu_gpu(const wefti_paths *paths, int a, int b)
{
    int host = paths->gpu_hosts[a];
    if (host == paths->gpu_hosts[b]) {
        const wefti_host_paths *h = &paths->hosts[host];
        return path_of(cell_of(h, a - h->first_gpu, paths->gpus[b]));
    }
    int out = best_nic(paths, a), in = best_nic(paths, b);
    if (out < 0 || in < 0) {
        return (wefti_path){.type = WEFTI_PATH_DIS};
    }
    wefti_path x = wefti_path_gpu_nic(paths, a, out);
    wefti_path y = wefti_path_gpu_nic(paths, b, in);
    return (wefti_path){WEFTI_PATH_NET, x.hops + y.hops + 1,
                        fmin(x.GBps, y.GBps), fmin(x.nccl_GBps, y.nccl_GBps)};
}

static int relay_of(const wefti_paths *paths, int gpu, int nic)
{
    const wefti_host_paths *h = &paths->hosts[paths->gpu_hosts[gpu]];
    int relay =
        h->relays[(gpu - h->first_gpu) * h->nic_count + nic - h->first_nic];
    return relay < 0 ? -1 : relay + h->first_gpu;
}

wefti_path wefti_path_gpu_nic(const wefti_paths *paths, int gpu, int nic)
{
    int host = paths->gpu_hosts[gpu];
    if (host != paths->nic_hosts[nic]) {
        return (wefti_path){.type = WEFTI_PATH_DIS};
    }
    const wefti_host_paths *h = &paths->hosts[host];
    int relay = relay_of(paths, gpu, nic);
    if (relay < 0) {
        return direct_nic(paths, host, gpu - h->first_gpu, nic - h->first_nic);
    }
    wefti_path a = wefti_path_gpu_gpu(paths, gpu, relay);
    wefti_path b =
        direct_nic(paths, host, relay - h->first_gpu, nic - h->first_nic);
    return (wefti_path){WEFTI_PATH_PXN, a.hops + b.hops, fmin(a.GBps, b.GBps),
                        fmin(a.nccl_GBps, b.nccl_GBps)};
}

/* Appends the links from a GPU to a device of its host. */
static void append(const wefti_paths *paths, int gpu, int device,
                   wefti_route *route)
{
    const wefti_host_paths *h = &paths->hosts[paths->gpu_hosts[gpu]];
    int begin = route->count, step;
    while ((step = cell_of(h, gpu - h->first_gpu, device)->step) >= 0 &&
           route->count < WEFTI_ROUTE_MOST) {
        route->steps[route->count++] = step;
        device = step_from(paths->topo, step);
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
    route_out->count = 0;
    append(paths, a, paths->gpus[b], route_out);
}

void wefti_route_gpu_nic(const wefti_paths *paths, int gpu, int nic,
                         wefti_route *route_out)
{
    int relay = relay_of(paths, gpu, nic);
    route_out->count = 0;
    if (relay >= 0) {
        append(paths, gpu, paths->gpus[relay], route_out);
        gpu = relay;
    }
    append(paths, gpu, paths->nics[nic], route_out);
}
