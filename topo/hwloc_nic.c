/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/hwloc_nic.c - ports of a network device, from what hwloc keeps of it:
 * GUIDs, LIDs and states, but neither rate nor link layer.
 */
#include "topo/hwloc_file.h"

#include "topo/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORTS_MOST 16

/* "506b:4b03:003c:eee8" */
static uint64_t read_guid(const char *text)
{
    uint64_t guid = 0;
    for (; *text; text++) {
        if (*text != ':') {
            char digit[2] = {*text, '\0'};
            guid = guid << 4 | strtoull(digit, NULL, 16);
        }
    }
    return guid;
}

static wefti_hwloc_object *find_os_device(const wefti_hwloc_import *in,
                                          const wefti_hwloc_object *pci,
                                          int type)
{
    wefti_hwloc_object *device;
    for (int i = 0; (device = wefti_hwloc_os_device(in, pci, i)); i++) {
        if (wefti_element_int(device->element, "osdev_type", -1) == type) {
            return device;
        }
    }
    return NULL;
}

/*
 * InfiniBand or RoCE: an InfiniBand port has a LID, and a network device
 * above it has a hardware address of 20 bytes.
 */
static wefti_nic_kind kind_of(const wefti_device *device,
                              wefti_hwloc_object *network, unsigned lid)
{
    wefti_nic_kind kind = wefti_nic_kind_guess(&device->pci, device->name);
    if (kind != WEFTI_NIC_INFINIBAND && kind != WEFTI_NIC_ROCE &&
        kind != WEFTI_NIC_ETHERNET) {
        return kind;
    }
    if (device->pci.class_code >> 8 == 0x0207 || (lid > 0 && lid < 0xffff)) {
        return WEFTI_NIC_INFINIBAND;
    }
    if (network && strlen(wefti_hwloc_info(network, "Address")) > 3 * 19) {
        return WEFTI_NIC_INFINIBAND;
    }
    return WEFTI_NIC_ROCE;
}

static int add_port(wefti_hwloc_import *in, wefti_hwloc_object *pci, int card,
                    const char *name)
{
    int nic = wefti_topo_add_device(in->topo, WEFTI_TOPO_NIC, card, name);
    if (nic >= 0) {
        wefti_device *device = &in->topo->devices[nic];
        wefti_hwloc_read_pci(in, pci, &device->pci);
        device->nic.kind = wefti_nic_kind_guess(&device->pci, name);
        device->nic.state = WEFTI_NIC_UNKNOWN;
    }
    return nic;
}

static void finish_port(wefti_hwloc_import *in, int nic)
{
    wefti_nic_rate_infer(in->topo, nic);
    const wefti_device *device = &in->topo->devices[nic];
    wefti_topo_add_link(in->topo, device->parent, nic, WEFTI_LINK_PORT,
                        device->nic.gbps / 8, WEFTI_ORIGIN_TABLE);
}

/* All ports of an OpenFabrics device; how many there were. */
static int add_rdma_ports(wefti_hwloc_import *in, wefti_hwloc_object *pci,
                          wefti_hwloc_object *rdma, wefti_hwloc_object *network,
                          int card)
{
    int count = 0;
    for (int port = 1; port <= PORTS_MOST; port++) {
        char key[32], name[64];
        snprintf(key, sizeof(key), "Port%dState", port);
        const char *state = wefti_hwloc_info(rdma, key);
        if (!state[0]) {
            continue;
        }
        snprintf(name, sizeof(name), port > 1 ? "%.40s:%d" : "%.40s",
                 wefti_hwloc_text(rdma, "name"), port);
        int nic = add_port(in, pci, card, name);
        if (nic < 0) {
            break;
        }
        wefti_device *device = &in->topo->devices[nic];
        snprintf(key, sizeof(key), "Port%dLID", port);
        unsigned lid = (unsigned)strtoul(wefti_hwloc_info(rdma, key), NULL, 16);
        device->nic.port = port;
        int number = 0;
        device->nic.state =
            wefti_number_read_int(&state, &number) && number == 4
                ? WEFTI_NIC_ACTIVE
                : WEFTI_NIC_DOWN;
        if (lid == 0xffff) {
            device->nic.state = WEFTI_NIC_DOWN;
        }
        device->nic.kind = kind_of(device, network, lid);
        device->nic.card_guid =
            read_guid(wefti_hwloc_info(rdma, "SysImageGUID"));
        finish_port(in, nic);
        count++;
    }
    return count;
}

/* Functions of one slot are one card. */
static int card_of(wefti_hwloc_import *in, wefti_hwloc_object *pci, int parent)
{
    wefti_pci own;
    wefti_hwloc_read_pci(in, pci, &own);
    size_t slot = strcspn(own.bus, ".");
    for (int i = 0; i < in->topo->device_count; i++) {
        const wefti_device *other = &in->topo->devices[i];
        if (other->kind == WEFTI_TOPO_CARD && other->parent == parent &&
            strncmp(other->pci.bus, own.bus, slot + 1) == 0) {
            return i;
        }
    }
    int card = wefti_topo_add_device(in->topo, WEFTI_TOPO_CARD, parent, "");
    wefti_hwloc_link_pci(in, pci, card);
    return card;
}

void wefti_hwloc_add_nic(wefti_hwloc_import *in, wefti_hwloc_object *pci,
                         int parent)
{
    wefti_hwloc_object *rdma = find_os_device(in, pci, WEFTI_OSDEV_OPENFABRICS);
    wefti_hwloc_object *network = find_os_device(in, pci, WEFTI_OSDEV_NETWORK);
    int card = parent < 0 ? -1 : card_of(in, pci, parent);
    if (card < 0) {
        return;
    }
    pci->device = card;
    if (rdma && add_rdma_ports(in, pci, rdma, network, card) > 0) {
        return;
    }
    wefti_hwloc_object *device = rdma ? rdma : network;
    int nic =
        add_port(in, pci, card, device ? wefti_hwloc_text(device, "name") : "");
    if (nic < 0) {
        return;
    }
    wefti_device *d = &in->topo->devices[nic];
    d->nic.driverless = !device;
    if (rdma) {
        d->nic.kind = kind_of(d, network, 0);
    } else if (network &&
               strcmp(wefti_hwloc_text(network, "subtype"), "Slingshot") == 0) {
        d->nic.kind = WEFTI_NIC_SLINGSHOT;
    } else if (d->nic.kind == WEFTI_NIC_ROCE) {
        d->nic.kind = WEFTI_NIC_ETHERNET; /* no RDMA device beside it */
    }
    finish_port(in, nic);
    if (!device) {
        char label[64];
        wefti_topo_warn(in->topo, 16, wefti_topo_label(in->topo, nic, label),
                        "no driver has taken this device: left out");
    }
}
