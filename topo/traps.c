/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/traps.c - what is suspicious in a graph that is otherwise whole: twins
 * that differ, cards seen twice, ports that are down; PCIe is topo/pcie.c's.
 */
#include "topo/assemble.h"
#include "topo/twins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_link_of_gpus(const wefti_topo_link *link)
{
    return link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI;
}

/* The rate of one link in it, where it is known. */
static double each(const wefti_topo_link *link)
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
        const wefti_topo_link *link = &topo->links[i];
        double *of_type = best[link->type == WEFTI_LINK_XGMI];
        if (is_link_of_gpus(link)) {
            of_type[link->a] = fmax(of_type[link->a], each(link));
            of_type[link->b] = fmax(of_type[link->b], each(link));
        }
    }
    for (int i = 0; i < topo->link_count && !topo->out_of_memory; i++) {
        const wefti_topo_link *link = &topo->links[i];
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

static void warn_down_links(wefti_topo *topo)
{
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        char a[64], b[64];
        if (link->down > 0) {
            wefti_topo_warn(topo, 4, wefti_topo_label(topo, link->a, a),
                            "%d of %d links to %s down", link->down,
                            link->down + link->count,
                            wefti_topo_label(topo, link->b, b));
        }
    }
}

/* ---- NICs -----------------------------------------------------------------
 */

static void warn_ports(wefti_topo *topo)
{
    for (int i = 0; i < topo->device_count; i++) {
        char label[64];
        const wefti_device *d = &topo->devices[i];
        if (d->kind == WEFTI_TOPO_NIC && d->nic.kind == WEFTI_NIC_WIFI) {
            wefti_topo_warn(topo, 25, wefti_topo_label(topo, i, label),
                            "Wi-Fi: left out of paths and rings");
        } else if (d->kind == WEFTI_TOPO_NIC &&
                   d->nic.state == WEFTI_NIC_DOWN) {
            wefti_topo_warn(topo, 16, wefti_topo_label(topo, i, label),
                            "port %d is down: left out of paths and rings",
                            d->nic.port);
        }
    }
}

/* One card that shows as several PCI devices: one warning, at its first. */
static void warn_shared_cards(wefti_topo *topo)
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

static void warn_locality(wefti_topo *topo)
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

void wefti_traps_find(wefti_topo *topo)
{
    wefti_twins_compare(topo, false);
    compare_link_rates(topo);
    warn_down_links(topo);
    wefti_pcie_doubt(topo);
    warn_ports(topo);
    warn_shared_cards(topo);
    warn_locality(topo);
}
