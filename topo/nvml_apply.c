/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nvml_apply.c - what NVML reports, put into a host's graph.
 */
#include "topo/nvml.h"
#include "topo/rates.h"

#include <stdio.h>
#include <string.h>

/* The GPU at that address, or a new one at an unknown place. */
static int gpu_at(wefti_topo *topo, const wefti_nvml_gpu *gpu)
{
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_GPU &&
            strcmp(topo->devices[i].pci.bus, gpu->bus) == 0) {
            return i;
        }
    }
    int place = -1;
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_NUMA &&
            topo->devices[i].os_index < 0) {
            place = i;
        }
    }
    if (place < 0) {
        place = wefti_topo_add_device(topo, WEFTI_TOPO_NUMA, 0, "");
    }
    int index = place < 0 ? -1
                          : wefti_topo_add_device(topo, WEFTI_TOPO_GPU, place,
                                                  gpu->name);
    if (index >= 0) {
        snprintf(topo->devices[index].pci.bus,
                 sizeof(topo->devices[index].pci.bus), "%s", gpu->bus);
        wefti_pci_link_add(topo, index, WEFTI_ORIGIN_TABLE);
    }
    return index;
}

/* The slower of what GPU and port can do; what runs now may be asleep. */
static void apply_pcie(wefti_topo *topo, int device, const wefti_nvml_gpu *gpu)
{
    wefti_device *d = &topo->devices[device];
    int link = wefti_topo_find_link(topo, d->parent, device, WEFTI_LINK_PCI);
    if (link < 0 || gpu->max_gen < 1 || gpu->max_width < 1) {
        return;
    }
    d->pci.gen = gpu->max_gen;
    d->pci.width = gpu->max_width;
    wefti_rate rate = wefti_rate_pci(d->pci.gen, d->pci.width);
    topo->links[link].GBps = rate.GBps;
    topo->links[link].nccl_GBps = rate.nccl_GBps;
    topo->links[link].count = d->pci.width;
    topo->links[link].origin = WEFTI_ORIGIN_READ;
    topo->links[link].assumed = false;
    d->pci.now_gen = gpu->gen;
    d->pci.now_width = gpu->width;
}

/* One link among many is lost in their sum. */
static void warn_slow_links(wefti_topo *topo, const wefti_nvml_gpu *gpu,
                            int device)
{
    double best = 0;
    char label[64];
    wefti_topo_label(topo, device, label);
    for (int i = 0; i < gpu->link_count; i++) {
        const wefti_nvml_link *link = &gpu->links[i];
        best = link->up && link->GBps > best ? link->GBps : best;
    }
    for (int i = 0; i < gpu->link_count; i++) {
        const wefti_nvml_link *link = &gpu->links[i];
        if (link->exists && link->up && link->GBps > 0 &&
            link->GBps < 0.95 * best) {
            wefti_topo_warn(topo, 5, label,
                            "link %d at %g GB/s, its siblings at %g", i,
                            link->GBps, best);
        }
    }
}

/* Where links of a GPU that are down lead is unknown; they are counted where
 * its others lead. */
static void apply_links(wefti_topo *topo, const wefti_nvml_gpu *gpus, int count,
                        const int *devices, int at, wefti_claims *claims)
{
    const wefti_nvml_gpu *gpu = &gpus[at];
    int first = -2, down = 0, hidden = 0, peerless = 0;
    char label[64];
    wefti_topo_label(topo, devices[at], label);
    for (int i = 0; i < gpu->link_count; i++) {
        const wefti_nvml_link *link = &gpu->links[i];
        wefti_claim claim = {.from = devices[at],
                             .to = -1,
                             .type = WEFTI_LINK_NVL,
                             .count = 1,
                             .GBps = link->GBps,
                             .origin = WEFTI_ORIGIN_READ};
        if (!link->exists || !link->up) {
            down += link->exists;
            continue;
        }
        if (link->no_peers) {
            peerless++;
            continue;
        }
        bool found = link->remote == WEFTI_NVML_REMOTE_SWITCH;
        for (int other = 0; other < count && link->bus[0] && !found; other++) {
            if (strcmp(gpus[other].bus, link->bus) == 0) {
                claim.to = devices[other];
                found = true;
            }
        }
        if (!found && link->remote == WEFTI_NVML_REMOTE_IBM) {
            claim.to = wefti_topo_numa(topo, devices[at]);
            found = claim.to >= 0;
        }
        if (claim.to == devices[at]) {
            wefti_topo_warn(topo, 6, label, "link %d leads to itself: left out",
                            i);
            continue;
        }
        if (!found && link->remote == WEFTI_NVML_REMOTE_GPU) {
            wefti_topo_warn(topo, 8, label,
                            "link %d leads to a GPU that is not here (%s): "
                            "left out",
                            i, link->bus[0] ? link->bus : "hidden");
            continue;
        }
        hidden += link->bus[0] == '\0' || wefti_bus_is_hidden(link->bus);
        first = first == -2 ? claim.to : first;
        wefti_claims_add(topo, claims, claim);
    }
    if (hidden > 0) {
        wefti_topo_warn(topo, 8, label,
                        "%d links to a hidden device: taken as a switch",
                        hidden);
    }
    if (peerless > 0) {
        wefti_topo_warn(topo, 8, label,
                        "%d links carry no traffic between GPUs, says "
                        "nvmlDeviceGetNvLinkCapability: left out",
                        peerless);
    }
    if (down > 0 && first != -2) {
        wefti_claims_add(topo, claims,
                         (wefti_claim){.from = devices[at],
                                       .to = first,
                                       .type = WEFTI_LINK_NVL,
                                       .down = down});
    } else if (down > 0) {
        wefti_topo_warn(topo, 4, label, "all %d NVLinks are down", down);
    }
}

static void count_switches(wefti_topo *topo, const wefti_nvml_gpu *gpus,
                           int count)
{
    char seen[64][24];
    int seen_count = 0;
    for (int g = 0; g < count; g++) {
        for (int i = 0; i < gpus[g].link_count; i++) {
            const wefti_nvml_link *link = &gpus[g].links[i];
            int at = 0;
            if (link->remote != WEFTI_NVML_REMOTE_SWITCH || !link->bus[0]) {
                continue;
            }
            while (at < seen_count && strcmp(seen[at], link->bus) != 0) {
                at++;
            }
            if (at == seen_count && at < 64) {
                memcpy(seen[seen_count++], link->bus, sizeof(seen[0]));
            }
        }
    }
    if (seen_count > topo->switch_chips) {
        topo->switch_chips = seen_count;
    }
}

void wefti_nvml_apply(wefti_topo *topo, const wefti_nvml_gpu *gpus, int count,
                      wefti_claims *claims)
{
    enum { GPUS_MOST = 256 };
    int devices[GPUS_MOST];
    if (count > 0) {
        wefti_claims_fini(claims); /* NVML knows better than a matrix */
    }
    for (int i = 0; i < count && i < GPUS_MOST; i++) {
        devices[i] = gpu_at(topo, &gpus[i]);
        if (devices[i] < 0) {
            return;
        }
        wefti_device *d = &topo->devices[devices[i]];
        d->gpu.dev = i;
        d->gpu.sm = gpus[i].sm ? gpus[i].sm : d->gpu.sm;
        d->gpu.domain = gpus[i].domain;
        if (gpus[i].name[0]) {
            snprintf(d->name, sizeof(d->name), "%s", gpus[i].name);
        }
        apply_pcie(topo, devices[i], &gpus[i]);
    }
    for (int i = 0; i < count && i < GPUS_MOST; i++) {
        char label[64];
        if (gpus[i].links_unknown) {
            topo->links_unknown = true;
            wefti_topo_warn(topo, 21, wefti_topo_label(topo, devices[i], label),
                            "links unknown: NVML cannot be asked for its "
                            "NVLinks (nvmlDeviceGetFieldValues, "
                            "nvmlDeviceGetNvLinkState)");
        }
        apply_links(topo, gpus, count, devices, i, claims);
        warn_slow_links(topo, &gpus[i], devices[i]);
        if (gpus[i].c2c_down > 0) {
            wefti_topo_warn(topo, 4, wefti_topo_label(topo, devices[i], label),
                            "%d of %d links to its processor (C2C) down",
                            gpus[i].c2c_down,
                            gpus[i].c2c_down + gpus[i].c2c_count);
        }
        if (gpus[i].c2c_GBps > 0 && wefti_topo_numa(topo, devices[i]) >= 0) {
            wefti_claims_add(
                topo, claims,
                (wefti_claim){.from = devices[i],
                              .to = wefti_topo_numa(topo, devices[i]),
                              .type = WEFTI_LINK_C2C,
                              .count = gpus[i].c2c_count,
                              .GBps = gpus[i].c2c_GBps,
                              .origin = WEFTI_ORIGIN_READ});
        }
    }
    count_switches(topo, gpus, count);
}
