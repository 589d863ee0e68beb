/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nccl_device.c - <pci>, <gpu>, <nic> and <net> to devices.
 */
#include "topo/nccl_import.h"

#include "topo/assemble.h"
#include "topo/number.h"
#include "topo/rates.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Some files state kb/s, which reads as a thousand times too much. */
#define PORT_GBPS_MOST  6400
#define PORT_MBPS_LEAST 10

void wefti_nccl_read_pci(const wefti_element *element, wefti_pci *pci)
{
    wefti_bus_normalise(wefti_element_text(element, "busid"), pci->bus);
    pci->class_code = wefti_element_hex(element, "class");
    pci->vendor = (uint16_t)wefti_element_hex(element, "vendor");
    pci->device = (uint16_t)wefti_element_hex(element, "device");
    pci->sub_vendor = (uint16_t)wefti_element_hex(element, "subsystem_vendor");
    pci->sub_device = (uint16_t)wefti_element_hex(element, "subsystem_device");
    wefti_rate_pci_parse(wefti_element_text(element, "link_speed"), &pci->gen);
    int width = wefti_element_int(element, "link_width", 0);
    pci->width = width > 0 && width <= 64 ? width : 16;
}

/* The link above a pci element, with what had to be assumed of it. */
void wefti_nccl_link_pci(wefti_nccl_import *in, const wefti_element *element,
                         int device)
{
    const char *speed = wefti_element_get(element, "link_speed");
    const char *width = wefti_element_get(element, "link_width");
    int gen;
    wefti_speed_text known = wefti_rate_pci_parse(speed, &gen);
    bool wide = width && strtol(width, NULL, 10) > 0;
    int link = wefti_pci_link_add(
        in->topo, device,
        known != WEFTI_SPEED_UNKNOWN ? WEFTI_ORIGIN_READ : WEFTI_ORIGIN_TABLE);
    if (link < 0) {
        return;
    }
    char label[64];
    wefti_topo_label(in->topo, device, label);
    in->no_link += !speed;
    if (speed && known == WEFTI_SPEED_LOOSE) {
        in->topo->links[link].nccl_GBps =
            wefti_rate_pci(3, in->topo->devices[device].pci.width).nccl_GBps;
        wefti_topo_warn(in->topo, 9, label,
                        "link_speed \"%.40s\" read as Gen %d; NCCL reads Gen 3",
                        speed, gen);
    } else if (speed && known == WEFTI_SPEED_UNKNOWN) {
        wefti_topo_warn(in->topo, 9, label,
                        "link_speed \"%.40s\" is unknown: Gen 3 assumed",
                        speed);
    }
    if (width && !wide) {
        wefti_topo_warn(in->topo, 10, label,
                        "link_width \"%.40s\": x16 assumed", width);
    }
}

int wefti_nccl_int(wefti_nccl_import *in, int device,
                   const wefti_element *element, const char *name, int least,
                   int fallback)
{
    const char *text = wefti_element_get(element, name);
    char *end, label[64];
    if (!text) {
        return fallback;
    }
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > INT_MAX) {
        wefti_topo_warn(in->topo, 19, wefti_topo_label(in->topo, device, label),
                        "line %d: <%s> %s \"%.40s\" is no such number: not "
                        "believed",
                        element->line, element->name, name, text);
        return fallback;
    }
    return (int)value;
}

static int gcn_of(const wefti_element *element)
{
    const char *text = wefti_element_text(element, "gcn");
    if (strncmp(text, "gfx90a", 6) == 0) { /* RCCL counts it so */
        return 910;
    }
    text += strncmp(text, "gfx", 3) == 0 ? 3 : 0;
    return (int)strtol(text, NULL, 10);
}

static void name_gpu(wefti_device *device, const wefti_gpu_model *model)
{
    if (model) {
        snprintf(device->name, sizeof(device->name), "%s", model->name);
        device->gpu.sm = device->gpu.sm ? device->gpu.sm : model->sm;
        device->gpu.amd = model->vendor == 0x1002;
    } else if (device->gpu.amd) {
        if (device->gpu.sm == 910) {
            snprintf(device->name, sizeof(device->name), "gfx90a");
        } else {
            snprintf(device->name, sizeof(device->name), "gfx%d",
                     device->gpu.sm);
        }
    } else if (device->gpu.sm) {
        snprintf(device->name, sizeof(device->name), "sm%d", device->gpu.sm);
    }
}

int wefti_nccl_add_gpu(wefti_nccl_import *in, const wefti_element *pci_element,
                       const wefti_element *element, int parent, bool own_link)
{
    int index = wefti_topo_add_device(in->topo, WEFTI_TOPO_GPU, parent, "GPU");
    if (index < 0) {
        return index;
    }
    wefti_device *device = &in->topo->devices[index];
    wefti_nccl_read_pci(pci_element, &device->pci);
    if (element) {
        bool amd = wefti_element_get(element, "gcn") ||
                   wefti_element_child(element, "xgmi");
        device->gpu.amd = amd;
        device->gpu.sm = amd ? gcn_of(element)
                             : wefti_nccl_int(in, index, element, "sm", 0, 0);
        device->gpu.dev = wefti_nccl_int(in, index, element, "dev", -1, -1);
        device->gpu.rank = wefti_nccl_int(in, index, element, "rank", -1, -1);
        device->gpu.gdr = wefti_element_int(element, "gdr", 1) != 0;
        in->described++;
    } else {
        device->gpu.template_of = true;
        in->template_gpus++;
    }
    const wefti_gpu_model *model =
        wefti_gpu_model_find(device->pci.vendor, device->pci.device, NULL);
    name_gpu(device, device->gpu.template_of && in->model ? in->model : model);
    if (own_link) {
        wefti_nccl_link_pci(in, pci_element, index);
    } else {
        wefti_pci_link_add(in->topo, index, WEFTI_ORIGIN_TABLE);
    }
    return index;
}

bool wefti_nccl_is_switched(const wefti_gpu_model *model)
{
    return model && model->vendor == 0x10de && model->sxm && model->sm >= 80;
}

void wefti_nccl_claim_model(wefti_nccl_import *in, int gpu)
{
    if (wefti_nccl_is_switched(in->model)) {
        wefti_claims_add(in->topo, &in->claims,
                         (wefti_claim){.from = gpu,
                                       .to = -1,
                                       .type = WEFTI_LINK_NVL,
                                       .count = in->model->links});
    }
}

/* Cards that differ in their function only are one card. */
static int card_at(wefti_nccl_import *in, const wefti_element *pci_element,
                   int parent)
{
    wefti_pci pci = {0};
    if (pci_element) {
        wefti_nccl_read_pci(pci_element, &pci);
        size_t slot = strcspn(pci.bus, ".");
        for (int i = 0; i < in->topo->device_count; i++) {
            const wefti_device *other = &in->topo->devices[i];
            if (other->kind == WEFTI_TOPO_CARD && other->parent == parent &&
                strncmp(other->pci.bus, pci.bus, slot + 1) == 0 &&
                pci.bus[slot] == '.') {
                return i;
            }
        }
    }
    int card = wefti_topo_add_device(in->topo, WEFTI_TOPO_CARD, parent, "");
    if (card >= 0 && pci_element) {
        in->topo->devices[card].pci = pci;
        wefti_nccl_link_pci(in, pci_element, card);
    } else if (card >= 0) {
        wefti_topo_add_link(in->topo, parent, card, WEFTI_LINK_PCI, 5000,
                            WEFTI_ORIGIN_TABLE);
    }
    return card;
}

/* Gb/s of a port, 0 where the file says none that can be true. */
static double read_speed(wefti_nccl_import *in, const wefti_element *net,
                         int port)
{
    const char *text = wefti_element_text(net, "speed"), *at = text;
    double mbps = 0;
    char label[64];
    const char *wrong = NULL;
    bool number = wefti_number_read_real(&at, &mbps) && !*at;
    if (!wefti_element_get(net, "dev")) {
        wefti_topo_warn(in->topo, 19, wefti_topo_label(in->topo, port, label),
                        "line %d: <net> has no dev, which NCCL refuses: its "
                        "place in the file is taken",
                        net->line);
    }
    if (text[0] && !number) {
        wrong = "is no number of Mb/s";
    } else if (mbps > PORT_GBPS_MOST * 1000.0) {
        wrong = "is beyond any port";
    } else if (mbps > 0 && mbps < PORT_MBPS_LEAST) {
        wrong = "is below any port (it counts Mb/s)";
    }
    if (wrong) {
        wefti_topo_warn(in->topo, 17, wefti_topo_label(in->topo, port, label),
                        "speed \"%.20s\" %s: not believed", text, wrong);
    }
    return wrong ? 0 : mbps / 1000;
}

/* A port that is on no PCI device may stand below every <cpu>. */
static int find_again(const wefti_topo *topo, const wefti_element *net)
{
    const char *name = wefti_element_text(net, "name");
    int dev = wefti_element_int(net, "dev", -1);
    for (int i = 0; i < topo->device_count && dev >= 0 && name[0]; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->kind == WEFTI_TOPO_NIC && !d->pci.bus[0] && d->nic.dev == dev &&
            strcmp(d->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static int add_port(wefti_nccl_import *in, const wefti_element *pci_element,
                    int card, const wefti_element *net)
{
    const char *name = net ? wefti_element_text(net, "name") : "";
    int index =
        card < 0 ? -1
                 : wefti_topo_add_device(in->topo, WEFTI_TOPO_NIC, card, name);
    if (index < 0) {
        return index;
    }
    wefti_device *device = &in->topo->devices[index];
    device->pci = in->topo->devices[card].pci;
    if (pci_element) {
        wefti_nccl_read_pci(pci_element, &device->pci);
    }
    device->nic.kind = wefti_nic_kind_guess(&device->pci, name);
    device->nic.state = WEFTI_NIC_UNKNOWN; /* no such file states it */
    double gbps = 0;
    if (net) {
        device->nic.dev = wefti_nccl_int(in, index, net, "dev", -1, -1);
        device->nic.port = wefti_nccl_int(in, index, net, "port", -1, 1);
        device->nic.gdr = wefti_element_int(net, "gdr", 1) != 0;
        device->nic.card_guid =
            strtoull(wefti_element_text(net, "guid"), NULL, 16);
        gbps = read_speed(in, net, index);
    }
    if (gbps > 0) {
        device->nic.gbps = gbps;
        device->nic.gbps_origin = WEFTI_ORIGIN_READ;
    } else {
        wefti_nic_rate_infer(in->topo, index);
    }
    wefti_topo_add_link(in->topo, card, index, WEFTI_LINK_PORT,
                        in->topo->devices[index].nic.gbps / 8,
                        gbps > 0 ? WEFTI_ORIGIN_READ : WEFTI_ORIGIN_TABLE);
    return index;
}

void wefti_nccl_add_nic(wefti_nccl_import *in, const wefti_element *pci_element,
                        const wefti_element *nic, int parent)
{
    const wefti_element *net = nic ? wefti_element_child(nic, "net") : NULL;
    int again = net && !pci_element ? find_again(in->topo, net) : -1;
    if (again >= 0) {
        char label[64];
        wefti_topo_warn(in->topo, 15, wefti_topo_label(in->topo, again, label),
                        "line %d: the same port again, near another NUMA node: "
                        "counts once",
                        net->line);
        return;
    }
    int card = card_at(in, pci_element, parent);
    int ports = 0;
    for (int i = 0; nic && i < nic->child_count; i++) {
        if (strcmp(nic->children[i]->name, "net") == 0) {
            add_port(in, pci_element, card, nic->children[i]);
            ports++;
        }
    }
    if (!nic) {
        in->template_nics++;
    }
    if (ports == 0 && !nic) {
        add_port(in, pci_element, card, NULL);
    } else if (ports == 0 && card >= 0) {
        char label[64];
        wefti_topo_warn(in->topo, 19, wefti_topo_label(in->topo, card, label),
                        "a <nic> without <net>: its ports are unknown, left "
                        "out");
    }
    in->described += ports;
}
