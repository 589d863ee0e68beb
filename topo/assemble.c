/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/assemble.c - PCI links and NICs, and the pass that completes a graph.
 */
#include "topo/assemble.h"

#include "base/check.h"
#include "topo/number.h"
#include "topo/rates.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BROADCOM 0x1000

void wefti_bus_normalise(const char *text, char bus[24])
{
    static const char *const before[4] = {"", ":", ":", "."};
    uint64_t parts[4];
    const char *at = text;
    int count = 0;
    while (count < 4 && wefti_number_skip(&at, before[count]) &&
           wefti_number_read(&at, 16, UINT32_MAX, &parts[count])) {
        count++;
    }
    if (count == 4 && !*at) {
        snprintf(bus, 24, "%04x:%02x:%02x.%x", (unsigned)parts[0],
                 (unsigned)parts[1] & 0xff, (unsigned)parts[2] & 0xff,
                 (unsigned)parts[3] & 0xf);
        return;
    }
    snprintf(bus, 24, "%s", text);
    for (char *c = bus; *c; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
}

bool wefti_bus_is_hidden(const char *bus)
{
    return strncmp(bus, "fffffff:", 8) == 0;
}

int wefti_pci_link_add(wefti_topo *topo, int device, wefti_origin origin)
{
    if (device < 0) {
        return -1;
    }
    const wefti_pci *pci = &topo->devices[device].pci;
    wefti_rate rate = wefti_rate_pci(pci->gen, pci->width);
    int link = wefti_topo_add_link(topo, topo->devices[device].parent, device,
                                   WEFTI_LINK_PCI, rate.GBps, origin);
    if (link >= 0) {
        topo->links[link].nccl_GBps = rate.nccl_GBps;
        topo->links[link].assumed = origin == WEFTI_ORIGIN_TABLE;
        topo->links[link].count = pci->width > 0 ? pci->width : 16;
    }
    return link;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A radio's class is "other network", which some NICs have too: the makers of
 * radios distinguish them (pci.ids). */
static bool is_radio(const wefti_pci *pci)
{
    static const uint16_t makers[] = {
        0x8086, 0x14e4, 0x168c, 0x17cb, 0x10ec, 0x14c3, 0x1814,
    };
    bool found = false;
    for (size_t i = 0; i < WEFTI_COUNT_OF(makers); i++) {
        found |= pci->vendor == makers[i];
    }
    return found && pci->class_code >> 8 == 0x0280;
}

wefti_nic_kind wefti_nic_kind_guess(const wefti_pci *pci, const char *name)
{
    if (begins(name, "wl") || (is_radio(pci) && !name[0])) {
        return WEFTI_NIC_WIFI;
    }
    if (pci->vendor == 0x1d0f || begins(name, "efa") || begins(name, "rdmap")) {
        return pci->vendor == 0x1d0f && pci->device == 0xec20
                   ? WEFTI_NIC_ETHERNET /* ENA */
                   : WEFTI_NIC_EFA;
    }
    if (pci->vendor == 0x17db || begins(name, "cxi") || begins(name, "hsn")) {
        return WEFTI_NIC_SLINGSHOT;
    }
    if (pci->class_code >> 8 == 0x0207 || begins(name, "ib") ||
        begins(name, "hfi1") || begins(name, "hsi")) {
        return WEFTI_NIC_INFINIBAND;
    }
    if (begins(name, "mlx") || begins(name, "roce") ||
        begins(name, "bnxt_re")) {
        return pci->class_code >> 8 == 0x0200 || begins(name, "roce") ||
                       begins(name, "bnxt") || strstr(name, "bond")
                   ? WEFTI_NIC_ROCE
                   : WEFTI_NIC_INFINIBAND;
    }
    return WEFTI_NIC_ETHERNET;
}

void wefti_nic_rate_infer(wefti_topo *topo, int nic)
{
    wefti_device *device = &topo->devices[nic];
    char label[64];
    wefti_topo_label(topo, nic, label);
    const wefti_pci *pci = &device->pci;
    double gbps = wefti_rate_nic(pci->vendor, pci->device);
    device->nic.gbps_origin = WEFTI_ORIGIN_TABLE;
    device->nic.gbps_assumed = true;
    if (device->nic.kind == WEFTI_NIC_WIFI) {
        device->nic.gbps = 0; /* as the air is: no table knows it */
        return;
    }
    if (gbps <= 0) {
        device->nic.gbps = 10;
        wefti_topo_warn(topo, 17, label, "no rate known: assumed 10 Gb/s");
        return;
    }
    if (pci->gen > 0 && pci->width > 0) {
        double limit = 8 * wefti_rate_pci(pci->gen, pci->width).GBps;
        gbps = gbps < limit ? gbps : (double)(int)limit;
    }
    device->nic.gbps = gbps;
    wefti_topo_warn(topo, 17, label,
                    "no rate read: %g Gb/s inferred from PCI id %04x:%04x and "
                    "its PCI link",
                    gbps, pci->vendor, pci->device);
}

const char *wefti_topo_label(const wefti_topo *topo, int device, char text[64])
{
    const wefti_device *d = &topo->devices[device];
    char id[WEFTI_TOPO_ID_BYTES];
    wefti_topo_id(topo, device, id);
    bool named = d->kind == WEFTI_TOPO_NIC && d->name[0];
    snprintf(text, 64, "%.14s%s%.24s%s%.16s", id, named ? " " : "",
             named ? d->name : "", d->pci.bus[0] ? " " : "", d->pci.bus);
    return text;
}

/* ---- two-level Broadcom switches ------------------------------------------
 */

/* Which family: 4, 5, or 0; level 0 is the upper switch. */
static int broadcom_gen(const wefti_pci *pci, int level)
{
    if (pci->vendor != BROADCOM || pci->sub_vendor != BROADCOM) {
        return 0;
    }
    if (pci->device == 0xc010 && (pci->sub_device & 0xf000) == 0xa000) {
        return 4;
    }
    if (pci->device == 0xc030 &&
        (pci->sub_device & 0xf000) == (level ? 0x1000 : 0x0000)) {
        return 5;
    }
    return 0;
}

/* Hangs child's children on its parent, one step of what NCCL does too. */
static void dissolve(wefti_topo *topo, int child)
{
    int parent = topo->devices[child].parent;
    for (int i = child + 1; i < topo->device_count; i++) {
        if (topo->devices[i].parent == child) {
            topo->devices[i].parent = parent;
        }
    }
    int kept = 0;
    for (int i = 0; i < topo->link_count; i++) {
        wefti_topo_link link = topo->links[i];
        if (link.type == WEFTI_LINK_PCI && link.b == child) {
            continue;
        }
        link.a = link.a == child ? parent : link.a;
        topo->links[kept++] = link;
    }
    topo->link_count = kept;
}

static void join_switches(wefti_topo *topo)
{
    for (int i = 0; i < topo->device_count; i++) {
        wefti_device *upper = &topo->devices[i];
        int gen =
            upper->kind == WEFTI_TOPO_BRIDGE ? broadcom_gen(&upper->pci, 0) : 0;
        bool joined = false;
        for (int j = i + 1; gen && j < topo->device_count; j++) {
            wefti_device *lower = &topo->devices[j];
            if (lower->parent == i && lower->kind == WEFTI_TOPO_BRIDGE &&
                broadcom_gen(&lower->pci, 1) == gen) {
                dissolve(topo, j);
                lower->pci.vendor = 0; /* it is not an upper switch now */
                joined = true;
            }
        }
        if (joined) {
            upper->pci.sub_vendor = 0; /* nor a lower one of its parent */
        }
    }
}

/* ---- the pass -------------------------------------------------------------
 */

static void link_numa_nodes(wefti_topo *topo)
{
    int last = topo->device_count;
    for (int a = 0; a < last; a++) {
        for (int b = a + 1; b < last; b++) {
            if (topo->devices[b].host != topo->devices[a].host) {
                break;
            }
            if (topo->devices[a].kind == WEFTI_TOPO_NUMA &&
                topo->devices[b].kind == WEFTI_TOPO_NUMA &&
                wefti_topo_find_link(topo, a, b, WEFTI_LINK_SYS) < 0) {
                double x = wefti_rate_sys(&topo->devices[a].cpu);
                double y = wefti_rate_sys(&topo->devices[b].cpu);
                wefti_topo_add_link(topo, a, b, WEFTI_LINK_SYS, x < y ? x : y,
                                    WEFTI_ORIGIN_TABLE);
            }
        }
    }
}

weft_status wefti_topo_finish(wefti_topo *topo, const wefti_claims *claims)
{
    if (claims && !topo->out_of_memory) {
        wefti_claims_settle(topo, claims);
    }
    if (!topo->out_of_memory) {
        link_numa_nodes(topo);
        wefti_traps_find(topo);
        join_switches(topo);
    }
    for (int i = 0; i < topo->link_count; i++) {
        topo->links[i].latency_us = wefti_rate_latency_us(topo->links[i].type);
    }
    return wefti_topo_check(topo);
}
