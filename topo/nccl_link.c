/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/nccl_link.c - <nvlink>, <xgmi>, <c2c> and <pcilink> to claims.
 */
#include "topo/nccl_import.h"

#include "base/check.h"
#include "topo/number.h"
#include "topo/rates.h"

#include <stdlib.h>
#include <string.h>

/* Of one host: counted for the reader, all are one node of the graph. */
#define SWITCHES_MOST 64
#define LINKS_MOST    64
#define C2C_MBPS_MOST 1e7

/* ---- GPUs by address ------------------------------------------------------
 */

static int compare_gpus(const void *a, const void *b, void *topo_arg)
{
    const wefti_topo *topo = topo_arg;
    int x = *(const int *)a, y = *(const int *)b;
    int order = strcmp(topo->devices[x].pci.bus, topo->devices[y].pci.bus);
    return order ? order : x - y;
}

static void sort_gpus(wefti_nccl_import *in)
{
    wefti_topo *topo = in->topo;
    in->gpu_count = 0;
    in->gpus_by_bus =
        calloc((size_t)topo->device_count + 1, sizeof(*in->gpus_by_bus));
    topo->out_of_memory |= !in->gpus_by_bus;
    for (int i = 0; i < topo->device_count && in->gpus_by_bus; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_GPU) {
            in->gpus_by_bus[in->gpu_count++] = i;
        }
    }
    if (in->gpu_count > 0) {
        qsort_r(in->gpus_by_bus, (size_t)in->gpu_count, sizeof(int),
                compare_gpus, topo);
    }
}

/* The place of the first with that address; where it would be, if none has. */
static int place_of(const wefti_nccl_import *in, const char *bus)
{
    int low = 0, high = in->gpu_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const wefti_device *d = &in->topo->devices[in->gpus_by_bus[middle]];
        if (strcmp(d->pci.bus, bus) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* GPUs of that PCI device: several share one. */
static int count_at(const wefti_nccl_import *in, const char *bus)
{
    int first = place_of(in, bus), end = first;
    while (end < in->gpu_count &&
           strcmp(in->topo->devices[in->gpus_by_bus[end]].pci.bus, bus) == 0) {
        end++;
    }
    return end - first;
}

/* The first of that PCI device, or -1. */
static int find_gpu_at(const wefti_nccl_import *in, const char *bus)
{
    return count_at(in, bus) > 0 ? in->gpus_by_bus[place_of(in, bus)] : -1;
}

/* How many GPUs of the file are that PCI device: each lists all its links. */
static int sharers_of(const wefti_nccl_import *in, int gpu)
{
    return count_at(in, in->topo->devices[gpu].pci.bus);
}

/* ---- elements -------------------------------------------------------------
 */

/* How many links the element states, or -1 and a warning: what is no number of
 * links is not made one. NCCL itself refuses an element without count. */
static int count_of(wefti_nccl_import *in, const wefti_element *element,
                    const char *label)
{
    const char *text = wefti_element_get(element, "count");
    int count;
    if (!text) {
        wefti_topo_warn(in->topo, 7, label,
                        "line %d: <%s> without a count, which NCCL refuses: "
                        "left out",
                        element->line, element->name);
        return -1;
    }
    count = wefti_number_get(text, -1);
    if (count < 1 || count > LINKS_MOST) {
        wefti_topo_warn(in->topo, 7, label,
                        "line %d: <%s> count \"%.40s\" is no number from 1 to "
                        "%d: left out",
                        element->line, element->name, text, LINKS_MOST);
        return -1;
    }
    return count;
}

/* More links than any such GPU has; 0 where nothing is known of it. */
static int links_most(const wefti_device *d)
{
    const wefti_gpu_model *model =
        wefti_gpu_model_find(d->pci.vendor, d->pci.device, NULL);
    int sm = d->gpu.sm;
    return model && model->links > 0 ? model->links
           : d->gpu.amd              ? 0
           : sm == 60                ? 4
           : sm == 70                ? 6
           : sm == 80                ? 12
           : sm >= 90 && sm < 107    ? 18
           : sm == 107               ? 36
                                     : 0;
}

/* A GPU whose elements together state more links than it can have; its claims
 * begin at the first. */
static void doubt_sum(wefti_nccl_import *in, int gpu, int first)
{
    const wefti_device *d = &in->topo->devices[gpu];
    int most = links_most(d), sum = 0;
    char label[64];
    for (int i = first; i < in->claims.count; i++) {
        const wefti_claim *claim = &in->claims.list[i];
        sum += claim->from == gpu && (claim->type == WEFTI_LINK_NVL ||
                                      claim->type == WEFTI_LINK_XGMI)
                   ? claim->count
                   : 0;
    }
    if (most > 0 && sum > most) {
        wefti_topo_warn(in->topo, 7, wefti_topo_label(in->topo, gpu, label),
                        "%d links listed, its kind has %d at most: as read, "
                        "rates of it are too high",
                        sum, most);
    }
}

/* Once a GPU, however many elements state it. */
static void warn_hidden(wefti_nccl_import *in, int gpu)
{
    char label[64];
    if (in->hidden_links > 0) {
        wefti_topo_warn(in->topo, 8, wefti_topo_label(in->topo, gpu, label),
                        "%d links to a hidden device: taken as a switch",
                        in->hidden_links);
    }
    in->hidden_links = 0;
}

static void claim_link(wefti_nccl_import *in, int gpu,
                       const wefti_element *element)
{
    wefti_topo *topo = in->topo;
    char target[24], label[64];
    wefti_bus_normalise(wefti_element_text(element, "target"), target);
    wefti_topo_label(topo, gpu, label);
    uint32_t kind = wefti_element_hex(element, "tclass");
    wefti_claim claim = {.from = gpu,
                         .to = find_gpu_at(in, target),
                         .type = element->name[0] == 'x' ? WEFTI_LINK_XGMI
                                                         : WEFTI_LINK_NVL,
                         .count = count_of(in, element, label)};
    if (claim.count < 0) {
        return;
    }
    if (!target[0]) {
        wefti_topo_warn(topo, 8, label,
                        "line %d: <%s> without a target, which NCCL refuses%s",
                        element->line, element->name,
                        kind >> 8 == 0x0680 ? ": taken as a switch" : "");
    }
    if (strcmp(target, topo->devices[gpu].pci.bus) == 0) {
        wefti_topo_warn(topo, 6, label,
                        "%d links to itself left out: a fault of the machine "
                        "or of the file",
                        claim.count);
        return;
    }
    if (claim.to < 0 && kind >> 8 == 0x0680 && (kind & 0xff) == 1) {
        claim.to = wefti_topo_numa(topo, gpu);
    } else if (claim.to < 0 && kind >> 16 == 0x03 &&
               !wefti_bus_is_hidden(target)) {
        wefti_topo_warn(topo, 8, label,
                        "%d links to %s, a GPU that is not in the file: left "
                        "out",
                        claim.count, target);
        return;
    }
    int sharers = sharers_of(in, gpu);
    WEFTI_ASSERT(sharers > 0); /* itself */
    claim.count = claim.count > sharers ? claim.count / sharers : 1;
    if (claim.to < 0 && wefti_bus_is_hidden(target)) {
        in->hidden_links += claim.count;
    }
    wefti_claims_add(topo, &in->claims, claim);
}

/* Distinct switch addresses that GPUs of the file name. */
static void count_switches(wefti_nccl_import *in, const wefti_element *element,
                           uint64_t *seen, int *seen_count)
{
    uint32_t kind = wefti_element_hex(element, "tclass");
    char target[24];
    wefti_bus_normalise(wefti_element_text(element, "target"), target);
    if (strcmp(element->name, "nvlink") == 0 && kind >> 16 != 0x03 &&
        kind != 0x068001 && find_gpu_at(in, target) < 0) {
        uint64_t hash = 1469598103934665603u; /* FNV-1a */
        for (const char *c = target; *c; c++) {
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
        }
        int at = 0;
        while (at < *seen_count && seen[at] != hash) {
            at++;
        }
        if (at == *seen_count && at < SWITCHES_MOST) {
            seen[(*seen_count)++] = hash;
        }
    }
}

static void claim_c2c(wefti_nccl_import *in, int gpu,
                      const wefti_element *element)
{
    char label[64];
    wefti_topo_label(in->topo, gpu, label);
    int numa = wefti_topo_numa(in->topo, gpu);
    int count =
        wefti_element_get(element, "count") ? count_of(in, element, label) : 1;
    const char *text = wefti_element_text(element, "bw"), *at = text;
    double GBps = 0;
    if (!wefti_number_read_real(&at, &GBps) || *at || !(GBps > 0) ||
        GBps > C2C_MBPS_MOST) {
        wefti_topo_warn(in->topo, 7, label,
                        "line %d: <c2c> bw \"%.40s\" is no bandwidth: left "
                        "out",
                        element->line, text);
        return;
    }
    GBps = GBps * count / 1000 / sharers_of(in, gpu);
    if (numa >= 0 && count > 0) {
        wefti_claims_add(in->topo, &in->claims,
                         (wefti_claim){.from = gpu,
                                       .to = numa,
                                       .type = WEFTI_LINK_C2C,
                                       .count = count,
                                       .GBps = GBps,
                                       .origin = WEFTI_ORIGIN_READ});
    }
}

static void claim_pcilink(wefti_nccl_import *in, const wefti_element *element)
{
    char from[24], to[24];
    wefti_bus_normalise(wefti_element_text(element->parent, "busid"), from);
    wefti_bus_normalise(wefti_element_text(element, "target"), to);
    int a = wefti_topo_find_bus(in->topo, 0, from);
    int b = wefti_topo_find_bus(in->topo, 0, to);
    if (a >= 0 && b >= 0 && a != b &&
        in->topo->devices[a].kind == WEFTI_TOPO_BRIDGE &&
        in->topo->devices[b].kind == WEFTI_TOPO_BRIDGE && a < b) {
        const wefti_pci *pci = &in->topo->devices[a].pci;
        wefti_claims_add(
            in->topo, &in->claims,
            (wefti_claim){.from = a,
                          .to = b,
                          .type = WEFTI_LINK_PCI,
                          .count = 1,
                          .GBps = wefti_rate_pci(pci->gen, pci->width).GBps});
    }
}

/* GPUs come out of the tree in the order in which they went in. */
static void claim_tree(wefti_nccl_import *in, const wefti_element *element,
                       uint64_t *seen, int *seen_count)
{
    for (int i = 0; i < element->child_count; i++) {
        const wefti_element *child = element->children[i];
        if (strcmp(child->name, "pcilink") == 0) {
            claim_pcilink(in, child);
            continue;
        }
        if (strcmp(child->name, "gpu") != 0) {
            claim_tree(in, child, seen, seen_count);
            continue;
        }
        char bus[24];
        wefti_bus_normalise(wefti_element_text(element, "busid"), bus);
        int gpu = find_gpu_at(in, bus);
        for (int k = 0; k < i && gpu >= 0; k++) { /* several in one pci */
            gpu += strcmp(element->children[k]->name, "gpu") == 0;
        }
        /* Of an address that is there twice there may be earlier ones. */
        int first = gpu >= 0 && sharers_of(in, gpu) == 1 ? in->claims.count : 0;
        for (int k = 0; k < child->child_count && gpu >= 0; k++) {
            const wefti_element *link = child->children[k];
            if (strcmp(link->name, "nvlink") == 0 ||
                strcmp(link->name, "xgmi") == 0) {
                count_switches(in, link, seen, seen_count);
                claim_link(in, gpu, link);
            } else if (strcmp(link->name, "c2c") == 0) {
                claim_c2c(in, gpu, link);
            }
        }
        if (gpu >= 0) {
            doubt_sum(in, gpu, first);
            warn_hidden(in, gpu);
        }
    }
}

bool wefti_nccl_is_of_host(const wefti_element *cpu, const char *host)
{
    const char *hash = wefti_element_get(cpu, "host_hash");
    return strcmp(cpu->name, "cpu") == 0 && strcmp(hash ? hash : "", host) == 0;
}

void wefti_nccl_claim_links(wefti_nccl_import *in, const wefti_element *system,
                            const char *host)
{
    uint64_t seen[SWITCHES_MOST];
    int seen_count = 0;
    sort_gpus(in);
    for (int i = 0; i < system->child_count && in->gpus_by_bus; i++) {
        if (wefti_nccl_is_of_host(system->children[i], host)) {
            claim_tree(in, system->children[i], seen, &seen_count);
        }
    }
    in->topo->switch_chips = seen_count;
    free(in->gpus_by_bus);
    in->gpus_by_bus = NULL;
}

/* Whether GPUs of that kind mostly come with links: by the model where its PCI
 * id is known, else by the generation. */
static bool is_likely_linked(const wefti_device *d)
{
    const wefti_gpu_model *model =
        wefti_gpu_model_find(d->pci.vendor, d->pci.device, NULL);
    if (model) {
        return model->sxm;
    }
    int sm = d->gpu.sm;
    return d->gpu.amd ? sm >= 908
                      : sm == 60 || sm == 70 || sm == 80 || sm == 90 ||
                            (sm >= 100 && sm < 110);
}

void wefti_nccl_complete_links(wefti_nccl_import *in)
{
    wefti_topo *topo = in->topo;
    int likely = 0, links = 0, first = -1;
    for (int i = 0; i < in->claims.count; i++) {
        links += in->claims.list[i].type == WEFTI_LINK_NVL ||
                 in->claims.list[i].type == WEFTI_LINK_XGMI;
    }
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->kind == WEFTI_TOPO_GPU && !d->gpu.template_of &&
            is_likely_linked(d)) {
            first = first < 0 ? i : first;
            likely++;
        }
    }
    if (links > 0 || likely < 2) {
        return;
    }
    int before = in->claims.count;
    for (int i = 0; i < topo->device_count && in->model; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->kind == WEFTI_TOPO_GPU && d->gpu.sm == in->model->sm) {
            wefti_nccl_claim_model(in, i);
        }
    }
    if (in->model && in->claims.count > before) {
        wefti_topo_warn(topo, 19, in->path,
                        "no NVLinks listed: those of a %s taken, as stated",
                        in->model->name);
        return;
    }
    topo->links_unknown = true;
    wefti_topo_warn(topo, 21, in->path,
                    "links unknown: the file lists none for %d GPUs (%.40s), "
                    "which mostly have some; %sread the live machine, to plan "
                    "with them",
                    likely, topo->devices[first].name,
                    in->model ? "" : "say the GPUs' model, or ");
}
