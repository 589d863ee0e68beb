/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/source_nccl.c - NCCL's topology XML, and RCCL's, to a graph.
 *
 * Source: NCCL 2.28, src/graph/xml.cc and topo.cc, for what the elements mean.
 * This reader is laxer than NCCL's: only version, numaid and busid must be
 * there, everything else is completed, with a warning.
 */
#include "topo/topo.h"

#include "base/error.h"
#include "topo/nccl_import.h"
#include "topo/number.h"

#include <stdlib.h>
#include <string.h>

static weft_status missing(const wefti_nccl_import *in,
                           const wefti_element *element, const char *attribute)
{
    return wefti_error(WEFT_ERR_INVALID, "%s:%d: <%s> has no attribute \"%s\"",
                       in->path, element->line, element->name, attribute);
}

static int count_children(const wefti_element *element, const char *name)
{
    int count = 0;
    for (int i = 0; i < element->child_count; i++) {
        count += strcmp(element->children[i]->name, name) == 0;
    }
    return count;
}

static weft_status import_tree(wefti_nccl_import *in,
                               const wefti_element *element, int parent);

static weft_status import_bridge(wefti_nccl_import *in,
                                 const wefti_element *element, int parent)
{
    int bridge = wefti_topo_add_device(in->topo, WEFTI_TOPO_BRIDGE, parent, "");
    if (bridge < 0) {
        return wefti_topo_check(in->topo);
    }
    wefti_nccl_read_pci(element, &in->topo->devices[bridge].pci);
    wefti_nccl_link_pci(in, element, bridge);
    int gpus = count_children(element, "gpu");
    for (int i = 0; i < element->child_count && gpus > 1; i++) {
        if (strcmp(element->children[i]->name, "gpu") == 0) {
            wefti_nccl_add_gpu(in, element, element->children[i], bridge,
                               false);
        }
    }
    if (gpus > 1) {
        char label[64];
        wefti_topo_warn(in->topo, 22, wefti_topo_label(in->topo, bridge, label),
                        "%d GPUs in one PCI device share its link; of its "
                        "NVLinks each is given its part",
                        gpus);
    }
    return import_tree(in, element, bridge);
}

/* Whether it reads as domain:bus:device.function. */
static bool is_address(const char *bus)
{
    static const char *const before[4] = {"", ":", ":", "."};
    uint64_t part;
    int count = 0;
    while (count < 4 && wefti_number_skip(&bus, before[count]) &&
           wefti_number_read(&bus, 16, UINT32_MAX, &part)) {
        count++;
    }
    return count == 4 && !*bus;
}

/* What a tree of devices stands on: each has an address of its own. */
static void doubt_address(wefti_nccl_import *in, const wefti_element *element)
{
    char bus[24], label[64];
    wefti_bus_normalise(wefti_element_text(element, "busid"), bus);
    int other = wefti_topo_find_bus(in->topo, 0, bus);
    if (!is_address(bus)) {
        wefti_topo_warn(in->topo, 3, bus,
                        "line %d: busid is no PCI address: nothing can refer "
                        "to it",
                        element->line);
    } else if (other >= 0) {
        wefti_topo_warn(in->topo, 3, wefti_topo_label(in->topo, other, label),
                        "line %d: another device with the same busid",
                        element->line);
    }
}

static weft_status import_pci(wefti_nccl_import *in,
                              const wefti_element *element, int parent)
{
    if (!wefti_element_get(element, "busid")) {
        return missing(in, element, "busid");
    }
    if (in->topo->device_count > WEFTI_HOST_DEVICES_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d: more than %d devices in one host", in->path,
                           element->line, WEFTI_HOST_DEVICES_MOST);
    }
    doubt_address(in, element);
    const char *class_text = wefti_element_get(element, "class");
    uint32_t kind = wefti_element_hex(element, "class") >> 16;
    uint32_t vendor = wefti_element_hex(element, "vendor");
    bool leaf = count_children(element, "pci") == 0;
    const wefti_element *gpu = wefti_element_child(element, "gpu");
    const wefti_element *nic = wefti_element_child(element, "nic");
    in->no_class += !class_text;
    if (!class_text && leaf) {
        kind = vendor == 0x10de || vendor == 0x1002   ? 3
               : vendor == 0x15b3 || vendor == 0x1d0f ? 2
                                                      : 0;
    }
    if (gpu && count_children(element, "gpu") == 1 && leaf) {
        wefti_nccl_add_gpu(in, element, gpu, parent, true);
    } else if (nic) {
        wefti_nccl_add_nic(in, element, nic, parent);
    } else if (leaf && !gpu && (kind == 3 || kind == 0x12)) {
        wefti_nccl_claim_model(
            in, wefti_nccl_add_gpu(in, element, NULL, parent, true));
    } else if (leaf && !gpu && kind == 2) {
        wefti_nccl_add_nic(in, element, NULL, parent);
    } else {
        in->bare_leaves += leaf && !gpu && !class_text;
        return import_bridge(in, element, parent);
    }
    return wefti_topo_check(in->topo);
}

static weft_status import_tree(wefti_nccl_import *in,
                               const wefti_element *element, int parent)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < element->child_count && status == WEFT_OK; i++) {
        const wefti_element *child = element->children[i];
        if (strcmp(child->name, "pci") == 0) {
            status = import_pci(in, child, parent);
        } else if (strcmp(child->name, "nic") == 0 &&
                   strcmp(element->name, "cpu") == 0) {
            wefti_nccl_add_nic(in, NULL, child, parent);
        }
    }
    return status;
}

static weft_status import_cpu(wefti_nccl_import *in,
                              const wefti_element *element)
{
    if (!wefti_element_get(element, "numaid")) {
        return missing(in, element, "numaid");
    }
    char *end;
    const char *id = wefti_element_text(element, "numaid");
    long number = strtol(id, &end, 10);
    if (end == id || *end || number < -1 || number > 1 << 20) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d: <cpu> numaid \"%.40s\": allowed is a number "
                           "from -1 to %d",
                           in->path, element->line, id, 1 << 20);
    }
    for (int i = 0; i < in->topo->device_count; i++) {
        const wefti_device *d = &in->topo->devices[i];
        if (d->kind == WEFTI_TOPO_NUMA && number >= 0 &&
            d->os_index == (int)number) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s:%d: <cpu> numaid \"%.40s\": an earlier "
                               "<cpu> of this host has it",
                               in->path, element->line, id);
        }
    }
    int numa = wefti_topo_add_device(in->topo, WEFTI_TOPO_NUMA, 0, "");
    if (numa < 0) {
        return wefti_topo_check(in->topo);
    }
    wefti_device *device = &in->topo->devices[numa];
    device->os_index = (int)number;
    snprintf(device->cpu.arch, sizeof(device->cpu.arch), "%s",
             wefti_element_text(element, "arch"));
    snprintf(device->cpu.vendor, sizeof(device->cpu.vendor), "%s",
             wefti_element_text(element, "vendor"));
    snprintf(device->cpu.affinity, sizeof(device->cpu.affinity), "%s",
             wefti_element_text(element, "affinity"));
    device->cpu.family = wefti_nccl_int(in, numa, element, "familyid", -1, 0);
    device->cpu.model = wefti_nccl_int(in, numa, element, "modelid", -1, 0);
    in->no_arch += device->cpu.arch[0] == '\0';
    return import_tree(in, element, numa);
}

/* ---- a host ---------------------------------------------------------------
 */

static void warn_template(wefti_nccl_import *in)
{
    wefti_topo *topo = in->topo;
    int gpus = in->template_gpus, nics = in->template_nics;
    if (gpus + nics + in->bare_leaves + in->no_class + in->no_link +
            in->no_arch ==
        0) {
        return;
    }
    char lacks[96] = "";
    if (in->no_class + in->no_link + in->no_arch > 0) {
        snprintf(lacks, sizeof(lacks),
                 "; lacks %d classes, %d link speeds, %d CPU kinds: assumed",
                 in->no_class, in->no_link, in->no_arch);
    }
    topo->is_template = gpus + nics + in->bare_leaves > 0;
    wefti_topo_warn(
        topo, 19, in->path,
        "%s: %d GPUs and %d ports described, %d GPUs and %d ports by their PCI "
        "address only, %d devices without a class%s%s",
        topo->is_template ? "template" : "incomplete",
        topo->kind_counts[WEFTI_TOPO_GPU] - gpus,
        topo->kind_counts[WEFTI_TOPO_NIC] - nics, gpus, nics, in->bare_leaves,
        lacks,
        gpus && !in->model ? "; links between the GPUs are unknown" : "");
    bool linked = !in->model || in->model->links > 0;
    topo->links_unknown =
        gpus > 0 && linked && !wefti_nccl_is_switched(in->model);
    if (topo->links_unknown && in->model) {
        wefti_topo_warn(topo, 21, in->path,
                        "NVLinks unknown: how %s are joined, the model alone "
                        "does not tell; read the live machine, or a dump of "
                        "NCCL's",
                        in->model->name);
    } else if (topo->links_unknown) {
        wefti_topo_warn(topo, 21, in->path,
                        "NVLinks unknown: say the GPUs' model, or read the "
                        "live machine, to plan with them");
    }
    if (topo->kind_counts[WEFTI_TOPO_GPU] == 0 && in->bare_leaves > 0) {
        wefti_topo_warn(topo, 19, in->path,
                        "no GPU is recognisable among %d devices without class",
                        in->bare_leaves);
    }
}

/* GPUs that lack what their neighbours have: NCCL leaves out GPUs without a
 * rank, and the rates of links follow from sm. */
static void warn_unranked(wefti_nccl_import *in)
{
    wefti_topo *topo = in->topo;
    int ranked = 0;
    for (int i = 0; i < topo->device_count; i++) {
        ranked += topo->devices[i].gpu.rank >= 0;
    }
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        char label[64];
        if (d->kind != WEFTI_TOPO_GPU || d->gpu.template_of) {
            continue;
        }
        wefti_topo_label(topo, i, label);
        if (ranked > 0 && d->gpu.rank < 0) {
            wefti_topo_warn(topo, 19, label,
                            "has no rank: NCCL leaves it out, weft does not");
        }
        for (int k = 0; k < i && d->gpu.rank >= 0; k++) {
            const wefti_device *other = &topo->devices[k];
            if (other->kind == WEFTI_TOPO_GPU &&
                other->gpu.rank == d->gpu.rank) {
                wefti_topo_warn(topo, 19, label,
                                "has rank %d and dev %d, rank %d is also that "
                                "of %.24s",
                                d->gpu.rank, d->gpu.dev, d->gpu.rank,
                                other->pci.bus);
                break;
            }
        }
        if (d->gpu.sm == 0) {
            wefti_topo_warn(topo, 19, label,
                            "has no sm, and its model is unknown: rates of "
                            "its links are assumed");
        }
    }
}

/* A fault of one host ends the reading; nothing partial is handed out. */
static weft_status import_host(wefti_nccl_import *in,
                               const wefti_element *system, const char *host)
{
    weft_status status = wefti_topo_create(&in->topo);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_topo_add_device(in->topo, WEFTI_TOPO_HOST, -1, "");
    for (int i = 0; i < system->child_count && status == WEFT_OK; i++) {
        const wefti_element *child = system->children[i];
        if (wefti_nccl_is_of_host(child, host)) {
            status = import_cpu(in, child);
        }
    }
    if (status == WEFT_OK) {
        wefti_nccl_claim_links(in, system, host);
        warn_template(in);
        wefti_nccl_complete_links(in);
        warn_unranked(in);
        status = wefti_topo_finish(in->topo, &in->claims);
    }
    wefti_claims_fini(&in->claims);
    if (status != WEFT_OK) {
        wefti_topo_destroy(in->topo);
        in->topo = NULL;
    }
    return status;
}

/* Whether an earlier <cpu> has the same host_hash. */
static bool seen_before(const wefti_element *system, int index)
{
    const char *hash = wefti_element_text(system->children[index], "host_hash");
    for (int i = 0; i < index; i++) {
        if (wefti_nccl_is_of_host(system->children[i], hash)) {
            return true;
        }
    }
    return false;
}

/*
 * NCCL writes several hosts into one file only where NVLink joins them (GH200
 * and GB200 racks, whose CPUs are NVIDIA's own): then all their switches are
 * one. Boxes of which weft has put several into one file stay apart.
 *
 * Source: NCCL 2.28, src/graph/topo.cc, which fuses files by clique.
 */
static void join_hosts(wefti_topo *topo)
{
    enum { DOMAIN_OF_FILE = 1 };
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        wefti_device *gpu = &topo->devices[link->a];
        int numa = wefti_topo_numa(topo, link->a);
        bool grace =
            strncmp(gpu->name, "GB", 2) == 0 ||
            (numa >= 0 && strcmp(topo->devices[numa].cpu.arch, "arm64") == 0);
        if (link->type == WEFTI_LINK_NVL && gpu->gpu.sm >= 90 && grace &&
            topo->devices[link->b].kind == WEFTI_TOPO_NVSWITCH) {
            gpu->gpu.domain = DOMAIN_OF_FILE;
        }
    }
}

static weft_status import_hosts(const wefti_element *system, const char *path,
                                const wefti_gpu_model *model, wefti_topo *all)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < system->child_count && status == WEFT_OK; i++) {
        const wefti_element *cpu = system->children[i];
        if (strcmp(cpu->name, "cpu") != 0 || seen_before(system, i)) {
            continue;
        }
        wefti_nccl_import in = {.path = path, .model = model};
        status = import_host(&in, system, wefti_element_text(cpu, "host_hash"));
        if (status == WEFT_OK) {
            join_hosts(in.topo);
            status = wefti_topo_merge(all, in.topo);
            wefti_topo_destroy(in.topo);
        }
    }
    if (status == WEFT_OK && all->kind_counts[WEFTI_TOPO_HOST] == 0) {
        return wefti_error(WEFT_ERR_INVALID, "%s:%d: <system> has no <cpu>",
                           path, system->line);
    }
    return status;
}

static weft_status check_system(const wefti_element *system, const char *path)
{
    const char *version = wefti_element_get(system, "version");
    if (strcmp(system->name, "system") != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d: the outermost element is <%.40s>: NCCL's "
                           "topology begins with <system>",
                           path, system->line, system->name);
    }
    if (!version) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d: <system> has no attribute \"version\"", path,
                           system->line);
    }
    if (strcmp(version, "1") != 0 && strcmp(version, "2") != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d: <system> version \"%.40s\": allowed is 1 "
                           "(NCCL) or 2 (RCCL)",
                           path, system->line, version);
    }
    return WEFT_OK;
}

weft_status wefti_topo_read_nccl(const char *path, const char *text,
                                 size_t text_bytes, const char *model_name,
                                 wefti_topo **topo_out)
{
    wefti_markup *markup;
    wefti_topo *topo = NULL;
    const wefti_gpu_model *model = wefti_gpu_model_find(0, 0, model_name);
    if (model_name && !model) {
        return wefti_error(WEFT_ERR_INVALID,
                           "GPU model \"%s\" is not known; such as H100, "
                           "A100, V100 are",
                           model_name);
    }
    weft_status status = wefti_markup_create(path, text, text_bytes, &markup);
    if (status != WEFT_OK) {
        return status;
    }
    status = check_system(markup->root, path);
    if (status == WEFT_OK) {
        status = wefti_topo_create(&topo);
    }
    if (status == WEFT_OK) {
        status = import_hosts(markup->root, path, model, topo);
    }
    if (status != WEFT_OK) {
        wefti_topo_destroy(topo);
        wefti_markup_destroy(markup);
        return status;
    }
    snprintf(topo->source, sizeof(topo->source), "nccl xml %s", path);
    topo->nccl = markup;
    *topo_out = topo;
    return WEFT_OK;
}
