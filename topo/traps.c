/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/traps.c - what is suspicious in a graph that is otherwise whole: twins
 * that differ, cards seen twice, ports that are down; PCIe is topo/pcie.c's.
 */
#include "topo/assemble.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_link_of_gpus(const wefti_link *link)
{
    return link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI;
}

static int count_links(const wefti_topo *topo, int gpu)
{
    int count = 0;
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_link *link = &topo->links[i];
        if (is_link_of_gpus(link) && (link->a == gpu || link->b == gpu)) {
            count += link->count;
        }
    }
    return count;
}

static bool are_twins(const wefti_device *a, const wefti_device *b)
{
    return a->kind == WEFTI_TOPO_GPU && b->kind == WEFTI_TOPO_GPU &&
           a->gpu.sm == b->gpu.sm && a->gpu.amd == b->gpu.amd &&
           strcmp(a->name, b->name) == 0;
}

/* What most GPUs of its model have; the higher of two that are as frequent. */
static int usual_count(const wefti_topo *topo, int gpu, const int *counts)
{
    enum { COUNTS_MOST = 1024 };
    int votes[COUNTS_MOST] = {0}, usual = 0;
    for (int i = 0; i < topo->device_count; i++) {
        if (are_twins(&topo->devices[i], &topo->devices[gpu]) &&
            counts[i] < COUNTS_MOST) {
            votes[counts[i]]++;
        }
    }
    for (int count = 0; count < COUNTS_MOST; count++) {
        usual =
            votes[count] > 0 && votes[count] >= votes[usual] ? count : usual;
    }
    return usual;
}

/* AMD's boards join their GPUs unevenly, in two kinds of places; of one that is
 * broken there are fewer than of the others. */
static bool is_by_design(const wefti_topo *topo, int gpu, const int *counts,
                         int usual)
{
    int own = 0, others = 0;
    for (int i = 0; i < topo->device_count; i++) {
        if (are_twins(&topo->devices[i], &topo->devices[gpu])) {
            own += counts[i] == counts[gpu];
            others += counts[i] == usual;
        }
    }
    return topo->devices[gpu].gpu.amd && counts[gpu] > 0 && own >= 2 &&
           own == others;
}

static void compare_link_counts(wefti_topo *topo)
{
    int *counts = calloc((size_t)topo->device_count + 1, sizeof(*counts));
    if (!counts) {
        topo->out_of_memory = true;
        return;
    }
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_GPU) {
            counts[i] = count_links(topo, i);
        }
    }
    for (int i = 0; i < topo->device_count; i++) {
        char label[64];
        if (topo->devices[i].kind != WEFTI_TOPO_GPU) {
            continue;
        }
        int usual = usual_count(topo, i, counts);
        if (counts[i] != usual && !is_by_design(topo, i, counts, usual)) {
            wefti_topo_warn(topo, 4, wefti_topo_label(topo, i, label),
                            "%d links to other GPUs or switches, its twins "
                            "have %d",
                            counts[i], usual);
        }
    }
    free(counts);
}

/* The rate of one link in it, where it is known. */
static double each(const wefti_link *link)
{
    return link->count > 0 ? link->GBps / link->count : 0;
}

static void compare_link_rates(wefti_topo *topo)
{
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_link *link = &topo->links[i];
        double best = 0;
        for (int j = 0; j < topo->link_count; j++) {
            const wefti_link *other = &topo->links[j];
            if (is_link_of_gpus(link) && other->type == link->type &&
                (other->a == link->a || other->b == link->b ||
                 other->a == link->b || other->b == link->a)) {
                best = fmax(best, each(other));
            }
        }
        if (link->count > 0 && each(link) < 0.95 * best) {
            char a[64], b[64];
            wefti_topo_warn(topo, 5, wefti_topo_label(topo, link->a, a),
                            "link to %s at %g GB/s, its siblings at %g",
                            wefti_topo_label(topo, link->b, b), each(link),
                            best);
        }
    }
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

/* ---- NICs -----------------------------------------------------------------
 */

static void tell_ports(wefti_topo *topo)
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

void wefti_traps_find(wefti_topo *topo)
{
    compare_link_counts(topo);
    compare_link_rates(topo);
    tell_down_links(topo);
    wefti_pcie_doubt(topo);
    tell_ports(topo);
    tell_shared_cards(topo);
    tell_locality(topo);
}
