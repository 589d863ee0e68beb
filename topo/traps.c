/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/traps.c - what is suspicious in a graph that is otherwise whole: twins
 * that differ, bridges that cannot be, cards seen twice, ports that are down.
 */
#include "topo/assemble.h"
#include "topo/rates.h"
#include "topo/twins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_link_of_gpus(const wefti_link *link)
{
    return link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI;
}

/* The rate of one link in it, where it is known. */
static double each(const wefti_link *link)
{
    return link->count > 0 ? link->GBps / link->count : 0;
}

/* A link is held against all that share an end with it. */
static void compare_link_rates(wefti_topo *topo)
{
    double *best[2]; /* of each device's NVLinks, and of its XGMI */
    size_t devices = (size_t)topo->device_count + 1;
    best[0] = calloc(devices, sizeof(double));
    best[1] = calloc(devices, sizeof(double));
    if (!best[0] || !best[1]) {
        topo->out_of_memory = true;
    }
    for (int i = 0; i < topo->link_count && !topo->out_of_memory; i++) {
        const wefti_link *link = &topo->links[i];
        double *of_type = best[link->type == WEFTI_LINK_XGMI];
        if (is_link_of_gpus(link)) {
            of_type[link->a] = fmax(of_type[link->a], each(link));
            of_type[link->b] = fmax(of_type[link->b], each(link));
        }
    }
    for (int i = 0; i < topo->link_count && !topo->out_of_memory; i++) {
        const wefti_link *link = &topo->links[i];
        const double *of_type = best[link->type == WEFTI_LINK_XGMI];
        double most = fmax(of_type[link->a], of_type[link->b]);
        if (is_link_of_gpus(link) && link->count > 0 &&
            each(link) < 0.95 * most) {
            char a[64], b[64];
            wefti_topo_warn(topo, 5, wefti_topo_label(topo, link->a, a),
                            "link to %s at %g GB/s, its siblings at %g",
                            wefti_topo_label(topo, link->b, b), each(link),
                            most);
        }
    }
    free(best[0]);
    free(best[1]);
}

static void tell_down_links(wefti_topo *topo)
{
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_link *link = &topo->links[i];
        char a[64], b[64];
        if (link->down > 0) {
            wefti_topo_warn(topo, 4, wefti_topo_label(topo, link->a, a),
                            "%d of %d links to %s down", link->down,
                            link->down + link->count,
                            wefti_topo_label(topo, link->b, b));
        }
    }
}

/* ---- PCIe -----------------------------------------------------------------
 */

/* The first PCI link up of each device; -1 none. free() it. */
static int *list_uplinks(wefti_topo *topo)
{
    int *uplinks = calloc((size_t)topo->device_count + 1, sizeof(*uplinks));
    if (!uplinks) {
        topo->out_of_memory = true;
        return NULL;
    }
    for (int i = 0; i < topo->device_count; i++) {
        uplinks[i] = -1;
    }
    for (int i = topo->link_count - 1; i >= 0; i--) {
        if (topo->links[i].type == WEFTI_LINK_PCI) {
            uplinks[topo->links[i].b] = i;
        }
    }
    return uplinks;
}

/* A hypervisor's bridge: its bus is ffff:, or it says a quarter of its child's
 * rate and less. */
static bool is_pseudo(const char *bus, double GBps, double child_GBps)
{
    return strncmp(bus, "ffff", 4) == 0 || GBps <= child_GBps / 4;
}

bool wefti_port_doubt(wefti_topo *topo, const char *port, double GBps,
                      double child_GBps)
{
    bool pseudo = GBps < 0.99 * child_GBps && is_pseudo(port, GBps, child_GBps);
    if (pseudo) {
        wefti_topo_warn(topo, 11, port,
                        "port says %.3g GB/s above a device at %.3g: not "
                        "believed",
                        GBps, child_GBps);
    }
    return pseudo;
}

/* A bridge slower than what hangs on it: told, and a pseudo one not believed.
 */
static void doubt_bridge(wefti_topo *topo, const int *uplinks, int bridge)
{
    int up = uplinks[bridge], fastest = -1;
    for (int i = bridge + 1; i < topo->device_count && up >= 0; i++) {
        int link = topo->devices[i].parent == bridge ? uplinks[i] : -1;
        if (link >= 0 && !topo->links[link].assumed &&
            (fastest < 0 ||
             topo->links[link].GBps > topo->links[fastest].GBps)) {
            fastest = link;
        }
    }
    if (fastest < 0 ||
        topo->links[up].GBps >= 0.99 * topo->links[fastest].GBps) {
        return;
    }
    char label[64];
    double own = topo->links[up].GBps, child = topo->links[fastest].GBps;
    bool pseudo = is_pseudo(topo->devices[bridge].pci.bus, own, child);
    wefti_topo_label(topo, bridge, label);
    if (!pseudo) {
        wefti_topo_warn(topo, 11, label,
                        "bridge at %.3g GB/s below a device at %.3g: a "
                        "bottleneck, if it is true",
                        own, child);
        return;
    }
    wefti_topo_warn(topo, 11, label,
                    "bridge says %.3g GB/s above a device at %.3g: not "
                    "believed, %.3g taken",
                    own, child, child);
    topo->links[up].GBps = child;
    topo->links[up].nccl_GBps = topo->links[fastest].nccl_GBps;
    topo->links[up].count = topo->links[fastest].count;
    topo->links[up].origin = WEFTI_ORIGIN_TABLE;
    topo->links[up].assumed = true;
    const wefti_pci *believed = &topo->devices[topo->links[fastest].b].pci;
    topo->devices[bridge].pci.gen = believed->gen;
    topo->devices[bridge].pci.width = believed->width;
}

/* A GPU whose PCI link is below its twins' or below what its model can do. */
static void doubt_gpu_link(wefti_topo *topo, const int *uplinks, int gpu)
{
    const wefti_device *d = &topo->devices[gpu];
    int up = uplinks[gpu];
    if (up < 0 || topo->links[up].assumed) {
        return;
    }
    const wefti_gpu_model *model =
        wefti_gpu_model_find(d->pci.vendor, d->pci.device, d->name);
    double own = topo->links[up].GBps, best = own;
    for (int i = 0; i < topo->device_count; i++) {
        int link = wefti_twins_are(d, &topo->devices[i]) ? uplinks[i] : -1;
        if (link >= 0) {
            best = fmax(best, topo->links[link].GBps);
        }
    }
    char label[64];
    if (own < 0.99 * best) {
        wefti_topo_warn(topo, 12, wefti_topo_label(topo, gpu, label),
                        "PCIe at %.3g GB/s, its twins at %.3g: idle or "
                        "degraded",
                        own, best);
    } else if (d->pci.gen == 1 && model && model->pci_gen > 1) {
        wefti_topo_warn(topo, 12, wefti_topo_label(topo, gpu, label),
                        "PCIe at Gen 1, a %s does Gen %d: idle or degraded",
                        model->name, model->pci_gen);
    }
}

/* ---- NICs -----------------------------------------------------------------
 */

static void tell_ports(wefti_topo *topo)
{
    for (int i = 0; i < topo->device_count; i++) {
        char label[64];
        if (topo->devices[i].kind == WEFTI_TOPO_NIC &&
            topo->devices[i].nic.state == WEFTI_NIC_DOWN) {
            wefti_topo_warn(topo, 16, wefti_topo_label(topo, i, label),
                            "port %d is down: left out of paths and rings",
                            topo->devices[i].nic.port);
        }
    }
}

/* One card that shows as several PCI devices: told once, at its first. */
static void tell_shared_cards(wefti_topo *topo)
{
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *a = &topo->devices[i];
        int others = 0;
        bool first = true;
        if (a->kind != WEFTI_TOPO_NIC || a->nic.card_guid == 0) {
            continue;
        }
        for (int j = a->host; j < topo->device_count; j++) {
            const wefti_device *b = &topo->devices[j];
            if (j != i && b->host == a->host && b->kind == WEFTI_TOPO_NIC &&
                b->nic.card_guid == a->nic.card_guid) {
                others++;
                first = first && i < j;
            }
        }
        char label[64];
        if (others > 0 && first) {
            wefti_topo_warn(topo, 15, wefti_topo_label(topo, i, label),
                            "one card shows as %d ports or devices: its PCIe "
                            "counts once a slot",
                            others + 1);
        }
    }
}

/* ---- locality -------------------------------------------------------------
 */

static void tell_locality(wefti_topo *topo)
{
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        char label[64];
        if (d->kind != WEFTI_TOPO_NUMA) {
            continue;
        }
        wefti_topo_label(topo, i, label);
        if (d->os_index < 0) {
            wefti_topo_warn(topo, 13, label,
                            "NUMA node unknown (a guest?): locality of what "
                            "hangs on it is unknown, nothing is pinned by it");
        } else if (strspn(d->cpu.affinity, "0,x") == strlen(d->cpu.affinity) &&
                   d->cpu.affinity[0]) {
            wefti_topo_warn(topo, 14, label,
                            "NUMA node %d has no CPUs: nothing is pinned to "
                            "it",
                            d->os_index);
        }
    }
}

static void doubt_pcie(wefti_topo *topo)
{
    int *uplinks = list_uplinks(topo);
    for (int i = topo->device_count - 1; i >= 0 && uplinks; i--) {
        if (topo->devices[i].kind == WEFTI_TOPO_BRIDGE) {
            doubt_bridge(topo, uplinks, i);
        } else if (topo->devices[i].kind == WEFTI_TOPO_GPU) {
            doubt_gpu_link(topo, uplinks, i);
        }
    }
    free(uplinks);
}

void wefti_traps_find(wefti_topo *topo)
{
    wefti_twins_compare(topo, false);
    compare_link_rates(topo);
    tell_down_links(topo);
    doubt_pcie(topo);
    tell_ports(topo);
    tell_shared_cards(topo);
    tell_locality(topo);
}
