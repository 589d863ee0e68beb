/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/source_synthetic.c - machines from a short text, for plans and tests.
 *
 *     cluster = group { "+" group }
 *     group   = [ N "x" ] "(" part { "," part } ")"   |   part { "," part }
 *     part    = N "x" model            8xH100, 8xCX7, 2xNUMA, 2xNIC200, 72xNVL
 *
 * A host has two NUMA nodes with four devices or more, else one, unless NUMA
 * says. GPUs and NICs are spread over them in order; each GPU shares a PCIe
 * switch with the NICs of its share (of one card for two, where there are
 * fewer NICs), NICs of a second kind hang on the node itself. GPUs of a kind
 * that has NVLinks are joined by NVSwitches, V100 and P100 of eight by the cube
 * mesh of the DGX-1, AMD's by all-to-all XGMI, of as many as have links for it.
 *
 * Hosts that follow each other fill NVLink domains of as many GPUs as NVL says;
 * GB200 and GB300 are trays of racks of 72 where it says nothing.
 */
#include "topo/topo.h"

#include "base/check.h"
#include "base/error.h"
#include "topo/assemble.h"
#include "topo/rates.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HOSTS_MOST   4096
#define DEVICES_MOST 1024 /* of a kind in one host */

typedef struct nic_model {
    const char *name;
    wefti_nic_kind kind;
    double gbps;
    int gen;
    uint16_t vendor, device;
} nic_model;

static const nic_model nic_models[] = {
    {"CX4", WEFTI_NIC_INFINIBAND, 100, 3, 0x15b3, 0x1013},
    {"CX5", WEFTI_NIC_INFINIBAND, 100, 3, 0x15b3, 0x1017},
    {"CX6", WEFTI_NIC_INFINIBAND, 200, 4, 0x15b3, 0x101b},
    {"CX7", WEFTI_NIC_INFINIBAND, 400, 5, 0x15b3, 0x1021},
    {"CX8", WEFTI_NIC_INFINIBAND, 800, 6, 0x15b3, 0x1023},
    {"ROCE", WEFTI_NIC_ROCE, 100, 4, 0x15b3, 0x101d},
    {"EFA", WEFTI_NIC_EFA, 100, 4, 0x1d0f, 0xefa1},
    {"CXI", WEFTI_NIC_SLINGSHOT, 200, 4, 0x17db, 0x0501},
    {"ETH", WEFTI_NIC_ETHERNET, 10, 3, 0, 0},
    {"NIC", WEFTI_NIC_INFINIBAND, 100, 4, 0, 0}};

#define NIC_KINDS_MOST 4

typedef struct nic_part {
    const nic_model *model;
    int count;
    double gbps; /* the model's, or given with its name */
} nic_part;

typedef struct shape {
    const wefti_gpu_model *gpu; /* NULL: none */
    int gpus, numas;
    int domain_gpus; /* of all hosts of an NVLink domain; 0: each alone */
    nic_part nics[NIC_KINDS_MOST];
    int nic_kinds;
} shape;

typedef struct cursor {
    const char *text, *at;
} cursor;

static weft_status refuse(const cursor *c, const char *wanted)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "synthetic machine \"%.80s\": column %d: wanted %s, "
                       "such as in 2x(8xH100,8xCX7)",
                       c->text, (int)(c->at - c->text) + 1, wanted);
}

static weft_status read_count(cursor *c, int most, int *count_out)
{
    char wanted[48], *end;
    snprintf(wanted, sizeof(wanted), "a number from 1 to %d", most);
    if (!isdigit((unsigned char)*c->at)) {
        return refuse(c, wanted);
    }
    long count = strtol(c->at, &end, 10);
    if (count < 1 || count > most) {
        return refuse(c, wanted);
    }
    c->at = end;
    *count_out = (int)count;
    return WEFT_OK;
}

/* The model's name from the text; nothing of it is kept. */
static weft_status read_part(cursor *c, shape *host)
{
    int count;
    weft_status status = read_count(c, DEVICES_MOST, &count);
    if (status != WEFT_OK) {
        return status;
    }
    if (*c->at != 'x') {
        return refuse(c, "an x");
    }
    c->at++;
    char name[32];
    size_t length = strcspn(c->at, ",()+");
    if (length == 0 || length >= sizeof(name)) {
        return refuse(c, "the name of a model");
    }
    memcpy(name, c->at, length);
    name[length] = '\0';
    const wefti_gpu_model *gpu = wefti_gpu_model_find(0, 0, name);
    if (strcmp(name, "NUMA") == 0) {
        if (host->numas > 0) {
            return refuse(c, "NUMA once a host");
        }
        host->numas = count;
    } else if (strcmp(name, "NVL") == 0) {
        if (host->domain_gpus > 0) {
            return refuse(c, "NVL once a host");
        }
        host->domain_gpus = count;
    } else if (gpu) {
        if (host->gpu) {
            return refuse(c, "one kind of GPUs a host");
        }
        host->gpu = gpu;
        host->gpus = count;
    } else {
        for (size_t i = 0; i < WEFTI_COUNT_OF(nic_models); i++) {
            size_t bytes = strlen(nic_models[i].name);
            if (strncasecmp(name, nic_models[i].name, bytes) == 0) {
                char *end;
                double gbps = strtod(name + bytes, &end);
                if (*end || gbps < 0 || gbps > 100000) {
                    return refuse(c, "Gb/s after the NIC's name");
                }
                if (host->nic_kinds == NIC_KINDS_MOST) {
                    return refuse(c, "at most four kinds of NICs a host");
                }
                gbps = gbps > 0 ? gbps : nic_models[i].gbps;
                host->nics[host->nic_kinds++] =
                    (nic_part){&nic_models[i], count, gbps};
                c->at += length;
                return WEFT_OK;
            }
        }
        return refuse(c, "a GPU (H100, A100, V100, MI300X ..), a NIC (CX7, "
                         "ROCE100, EFA, ETH10 ..), NUMA or NVL");
    }
    c->at += length;
    return WEFT_OK;
}

/* Racks are made of whole hosts. */
static weft_status check_domain(const cursor *c, shape *host)
{
    bool tray = host->gpu && strncmp(host->gpu->name, "GB", 2) == 0;
    char wanted[64];
    if (host->domain_gpus == 0) {
        host->domain_gpus = tray && 72 % host->gpus == 0 ? 72 : 0;
        return WEFT_OK;
    }
    if (!host->gpu || !host->gpu->sxm || host->gpu->sm < 80) {
        return refuse(c, "GPUs with NVSwitches, where NVL is said");
    }
    if (host->domain_gpus % host->gpus != 0) {
        snprintf(wanted, sizeof(wanted), "NVL as a multiple of its %d GPUs",
                 host->gpus);
        return refuse(c, wanted);
    }
    return WEFT_OK;
}

static weft_status read_group(cursor *c, int *hosts_out, shape *host)
{
    *hosts_out = 1;
    *host = (shape){0};
    const char *open = strchr(c->at, '(');
    const char *plus = strchr(c->at, '+');
    bool closed = open && (!plus || open < plus);
    weft_status status = WEFT_OK;
    if (closed && *c->at != '(') {
        status = read_count(c, HOSTS_MOST, hosts_out);
        if (status == WEFT_OK && *c->at != 'x') {
            return refuse(c, "an x");
        }
        c->at += status == WEFT_OK;
    }
    if (status == WEFT_OK && closed) {
        if (*c->at != '(') {
            return refuse(c, "a (");
        }
        c->at++;
    }
    while (status == WEFT_OK) {
        status = read_part(c, host);
        if (status == WEFT_OK && *c->at != ',') {
            break;
        }
        c->at += status == WEFT_OK;
    }
    if (status == WEFT_OK && closed) {
        if (*c->at != ')') {
            return refuse(c, "a comma or a )");
        }
        c->at++;
    }
    return status == WEFT_OK ? check_domain(c, host) : status;
}

/* ---- one host -------------------------------------------------------------
 */

static void set_bus(wefti_device *device, int domain, int bus, int function)
{
    snprintf(device->pci.bus, sizeof(device->pci.bus), "%04x:%02x:00.%d",
             domain & 0xffff, bus & 0xff, function & 7);
}

/* All links of GPU i, as claims. */
static void claim_links(wefti_topo *topo, const shape *host, const int *gpus,
                        wefti_claims *claims)
{
    /* A hybrid cube mesh as of DGX-1V: undirected pairs, and their links. */
    static const int mesh[][3] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2},
                                  {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                                  {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1},
                                  {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
    int links = host->gpu->links;
    claims->one_sided_ok = true;
    if (links == 0 || host->gpus < 2) {
        return;
    }
    if (host->gpu->vendor == 0x1002) {
        for (int i = 0; i < host->gpus; i++) {
            int hive = i - i % (links + 1) + links + 1;
            for (int j = i + 1; j < host->gpus && j < hive; j++) {
                wefti_claims_add(topo, claims,
                                 (wefti_claim){.from = gpus[i],
                                               .to = gpus[j],
                                               .type = WEFTI_LINK_XGMI,
                                               .count = 1});
            }
        }
    } else if (host->gpu->sm < 80 && host->gpus == 8) {
        for (size_t i = 0; i < WEFTI_COUNT_OF(mesh); i++) {
            int count = host->gpu->sm < 70 ? 1 : mesh[i][2];
            wefti_claims_add(topo, claims,
                             (wefti_claim){.from = gpus[mesh[i][0]],
                                           .to = gpus[mesh[i][1]],
                                           .type = WEFTI_LINK_NVL,
                                           .count = count});
        }
    } else if (host->gpu->sxm) {
        for (int i = 0; i < host->gpus; i++) {
            wefti_claims_add(topo, claims,
                             (wefti_claim){.from = gpus[i],
                                           .to = -1,
                                           .type = WEFTI_LINK_NVL,
                                           .count = links});
        }
        topo->switch_chips = host->gpus > 8 ? 12 : host->gpu->sm < 90 ? 6 : 4;
    }
}

/* The NIC of that number in its part, and in the host. */
static void add_nic(wefti_topo *topo, const nic_part *part, int number,
                    int slot, int parent)
{
    char name[32];
    const nic_model *model = part->model;
    int card = wefti_topo_add_device(topo, WEFTI_TOPO_CARD, parent, "");
    if (card < 0) {
        return;
    }
    wefti_device *device = &topo->devices[card];
    device->pci.gen = model->gen;
    device->pci.width = 16;
    device->pci.vendor = model->vendor;
    device->pci.device = model->device;
    device->pci.class_code =
        model->kind == WEFTI_NIC_INFINIBAND ? 0x020700 : 0x020000;
    set_bus(device, 0x100, slot, 0);
    wefti_pci pci = device->pci;
    wefti_pci_link_add(topo, card, WEFTI_ORIGIN_TABLE);
    bool rdma =
        model->kind == WEFTI_NIC_INFINIBAND || model->kind == WEFTI_NIC_ROCE;
    snprintf(name, sizeof(name), "%s%d",
             rdma                                ? "mlx5_"
             : model->kind == WEFTI_NIC_ETHERNET ? "eth"
             : model->kind == WEFTI_NIC_EFA      ? "rdmap"
                                                 : "cxi",
             rdma ? slot : number);
    int nic = wefti_topo_add_device(topo, WEFTI_TOPO_NIC, card, name);
    if (nic >= 0) {
        device = &topo->devices[nic];
        device->pci = pci;
        device->nic.kind = model->kind;
        device->nic.state = WEFTI_NIC_UNKNOWN; /* a text states none */
        device->nic.gbps = part->gbps;
        device->nic.gbps_origin = WEFTI_ORIGIN_TABLE;
        device->nic.dev = slot;
        wefti_topo_add_link(topo, card, nic, WEFTI_LINK_PORT, part->gbps / 8,
                            WEFTI_ORIGIN_TABLE);
    }
}

static int add_gpu(wefti_topo *topo, const shape *host, int number, int parent)
{
    int gpu =
        wefti_topo_add_device(topo, WEFTI_TOPO_GPU, parent, host->gpu->name);
    if (gpu >= 0) {
        wefti_device *device = &topo->devices[gpu];
        device->gpu.sm = host->gpu->sm;
        device->gpu.amd = host->gpu->vendor == 0x1002;
        device->gpu.dev = device->gpu.rank = number;
        device->pci.gen = host->gpu->pci_gen;
        device->pci.width = 16;
        device->pci.vendor = host->gpu->vendor;
        device->pci.device = host->gpu->device;
        device->pci.class_code = device->gpu.amd ? 0x038000 : 0x030200;
        set_bus(device, 0, 0x10 + number, 0);
        wefti_pci_link_add(topo, gpu, WEFTI_ORIGIN_TABLE);
    }
    return gpu;
}

static int add_bridge(wefti_topo *topo, const shape *host, int number,
                      int parent)
{
    int bridge = wefti_topo_add_device(topo, WEFTI_TOPO_BRIDGE, parent, "");
    if (bridge >= 0) {
        wefti_device *device = &topo->devices[bridge];
        const nic_model *nic = host->nics[0].model;
        device->pci.gen = host->gpu ? host->gpu->pci_gen : 1;
        if (nic && nic->gen > device->pci.gen) {
            device->pci.gen = nic->gen;
        }
        device->pci.width = 16;
        device->pci.class_code = 0x060400;
        set_bus(device, 0x200, number, 0);
        wefti_pci_link_add(topo, bridge, WEFTI_ORIGIN_TABLE);
    }
    return bridge;
}

/* Bridge b of `bridges` gets its share of the GPUs and NICs, in order. */
static void add_share(wefti_topo *topo, const shape *host, int b, int bridges,
                      int numa, int *gpus)
{
    int bridge = add_bridge(topo, host, b, numa);
    for (int i = host->gpus * b / bridges;
         i < host->gpus * (b + 1) / bridges && bridge >= 0; i++) {
        gpus[i] = add_gpu(topo, host, i, bridge);
    }
    const nic_part *first = &host->nics[0];
    for (int i = first->count * b / bridges;
         i < first->count * (b + 1) / bridges && bridge >= 0; i++) {
        add_nic(topo, first, i, i, bridge);
    }
}

/* NICs of further kinds: no GPU shares a switch with them. */
static void add_other_nics(wefti_topo *topo, const shape *host,
                           const int *numas, int numa_count)
{
    int slot = host->nics[0].count;
    for (int kind = 1; kind < host->nic_kinds; kind++) {
        const nic_part *part = &host->nics[kind];
        for (int i = 0; i < part->count && !topo->out_of_memory; i++) {
            add_nic(topo, part, i, slot++, numas[i * numa_count / part->count]);
        }
    }
}

static weft_status build_host(const shape *given, wefti_topo **topo_out)
{
    shape host = *given;
    int gpus[DEVICES_MOST], numas[DEVICES_MOST];
    wefti_claims claims = {0};
    for (int i = 0; i < DEVICES_MOST; i++) {
        gpus[i] = numas[i] = -1;
    }
    weft_status status = wefti_topo_create(topo_out);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_topo *topo = *topo_out;
    int nics = host.nics[0].count;
    int devices = host.gpus > nics ? host.gpus : nics;
    int count = host.numas ? host.numas : devices >= 4 ? 2 : 1;
    wefti_topo_add_device(topo, WEFTI_TOPO_HOST, -1, "");
    for (int i = 0; i < count; i++) {
        numas[i] = wefti_topo_add_device(topo, WEFTI_TOPO_NUMA, 0, "");
        if (numas[i] >= 0) {
            wefti_cpu *cpu = &topo->devices[numas[i]].cpu;
            topo->devices[numas[i]].os_index = i;
            *cpu = (wefti_cpu){.arch = "x86_64",
                               .vendor = "GenuineIntel",
                               .family = 6,
                               .model = 143};
        }
    }
    int bridges =
        host.gpus && nics ? (host.gpus < nics ? host.gpus : nics) : devices;
    for (int b = 0; b < bridges && !topo->out_of_memory; b++) {
        add_share(topo, &host, b, bridges, numas[b * count / bridges], gpus);
    }
    if (!topo->out_of_memory) {
        add_other_nics(topo, &host, numas, count);
    }
    if (host.gpu && !topo->out_of_memory) {
        claim_links(topo, &host, gpus, &claims);
    }
    status = wefti_topo_finish(topo, &claims);
    wefti_claims_fini(&claims);
    if (status != WEFT_OK) {
        wefti_topo_destroy(topo);
    }
    return status;
}

/* ---- the cluster ----------------------------------------------------------
 */

/* The NVLink domain that is being filled; numbers begin with 1. */
typedef struct rack {
    int number, gpus_most, gpus;
} rack;

/* Puts a host's GPUs into the domain, or into the next where it is full. */
static void join_rack(wefti_topo *one, const shape *host, rack *r)
{
    bool joins = r->gpus_most == host->domain_gpus &&
                 r->gpus + host->gpus <= r->gpus_most;
    if (host->domain_gpus == 0) {
        return;
    }
    *r = joins ? *r : (rack){r->number + 1, host->domain_gpus, 0};
    r->gpus += host->gpus;
    for (int i = 0; i < one->device_count; i++) {
        if (one->devices[i].kind == WEFTI_TOPO_GPU) {
            one->devices[i].gpu.domain = (uint64_t)r->number;
        }
    }
}

static weft_status add_group(wefti_topo *topo, int hosts, const shape *host,
                             rack *r)
{
    wefti_topo *one;
    weft_status status = build_host(host, &one);
    if (status != WEFT_OK) {
        return status;
    }
    for (int i = 0; i < hosts && status == WEFT_OK; i++) {
        join_rack(one, host, r);
        status = wefti_topo_merge(topo, one);
    }
    wefti_topo_destroy(one);
    return status;
}

weft_status wefti_topo_read_synthetic(const char *text, wefti_topo **topo_out)
{
    cursor c = {text, text};
    wefti_topo *topo;
    int total = 0;
    rack r = {0};
    weft_status status = wefti_topo_create(&topo);
    while (status == WEFT_OK) {
        shape host;
        int hosts;
        status = read_group(&c, &hosts, &host);
        total += status == WEFT_OK ? hosts : 0;
        if (status == WEFT_OK && total > HOSTS_MOST) {
            status = refuse(&c, "at most 4096 hosts");
        }
        if (status == WEFT_OK) {
            status = add_group(topo, hosts, &host, &r);
        }
        if (status != WEFT_OK || *c.at != '+') {
            break;
        }
        c.at++;
    }
    if (status == WEFT_OK && *c.at) {
        status = refuse(&c, "a + or the end");
    }
    if (status != WEFT_OK) {
        wefti_topo_destroy(topo);
        return status;
    }
    snprintf(topo->source, sizeof(topo->source), "synthetic %s", text);
    *topo_out = topo;
    return WEFT_OK;
}
