/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/source_hwloc.c - an hwloc topology, from XML or of this machine, to a
 * graph: NUMA nodes, PCI switches as NCCL counts them, GPUs.
 *
 * hwloc shows each port of a switch as a bridge; only upstream ports become
 * bridges of the graph (every second one, counted from the device), and a
 * device's link is the slower of its own and the port's above it.
 */
#include "topo/topo.h"

#include "base/error.h"
#include "topo/hwloc_file.h"
#include "topo/number.h"
#include "topo/rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BRIDGES_MOST 32 /* above one device */
#define NUMA_MOST    1024

/* ---- NUMA nodes -----------------------------------------------------------
 */

/* 32-bit words, highest first, as NCCL writes them; "" if they do not fit. */
static void write_affinity(const wefti_cpuset *set, char *text, size_t room)
{
    int last = WEFTI_CPUSET_WORDS - 1;
    size_t used = 0;
    while (last > 0 && set->words[last] == 0) {
        last--;
    }
    text[0] = '\0';
    for (int word = last; word >= 0 && (size_t)(last + 1) * 9 <= room; word--) {
        used += (size_t)snprintf(text + used, room - used, "%s%08x",
                                 used ? "," : "", set->words[word]);
    }
}

/* The package above the node, or the one that shares its CPUs. */
static const wefti_hwloc_object *package_of(const wefti_hwloc_import *in,
                                            const wefti_hwloc_object *node,
                                            const wefti_cpuset *cpus)
{
    for (const wefti_hwloc_object *up = node; up; up = up->parent) {
        if (up->type == WEFTI_HWLOC_PACKAGE) {
            return up;
        }
    }
    for (int i = 0; i < in->object_count; i++) {
        wefti_cpuset own;
        if (in->objects[i].type == WEFTI_HWLOC_PACKAGE) {
            wefti_hwloc_cpuset(&in->objects[i], &own);
            if (wefti_cpuset_intersects(&own, cpus)) {
                return &in->objects[i];
            }
        }
    }
    return &in->objects[0];
}

static int count_cores(const wefti_hwloc_import *in, const wefti_cpuset *cpus)
{
    int count = 0;
    for (int i = 0; i < in->object_count; i++) {
        const wefti_hwloc_object *object = &in->objects[i];
        wefti_cpuset own;
        if (strcmp(wefti_hwloc_text(object, "type"), "Core") == 0) {
            wefti_hwloc_cpuset(object, &own);
            count += wefti_cpuset_intersects(&own, cpus);
        }
    }
    return count;
}

static int64_t memory_of(const wefti_hwloc_object *node)
{
    const char *text = wefti_hwloc_text(node, "local_memory");
    uint64_t bytes = 0;
    bool read = wefti_number_read(&text, 10, INT64_MAX, &bytes);
    return read && !*text ? (int64_t)bytes : 0;
}

static void describe_cpu(const wefti_hwloc_import *in,
                         const wefti_hwloc_object *node,
                         const wefti_cpuset *cpus, wefti_cpu *cpu)
{
    const wefti_hwloc_object *package = package_of(in, node, cpus);
    const char *arch = wefti_hwloc_info(&in->objects[0], "Architecture");
    snprintf(cpu->arch, sizeof(cpu->arch), "%s",
             strcmp(arch, "aarch64") == 0     ? "arm64"
             : strncmp(arch, "ppc64", 5) == 0 ? "ppc64"
                                              : arch);
    snprintf(cpu->vendor, sizeof(cpu->vendor), "%s",
             wefti_hwloc_info(package, "CPUVendor"));
    cpu->family =
        wefti_number_get(wefti_hwloc_info(package, "CPUFamilyNumber"), 0);
    cpu->model =
        wefti_number_get(wefti_hwloc_info(package, "CPUModelNumber"), 0);
    write_affinity(cpus, cpu->affinity, sizeof(cpu->affinity));
    snprintf(cpu->name, sizeof(cpu->name), "%s",
             wefti_hwloc_info(package, "CPUModel"));
    cpu->cores = count_cores(in, cpus);
    cpu->memory_bytes = memory_of(node);
}

static void add_numa_node(wefti_hwloc_import *in, wefti_hwloc_object *node,
                          int os_index)
{
    wefti_cpuset cpus, all;
    wefti_hwloc_cpuset(node, &cpus);
    memset(&all, 0xff, sizeof(all));
    if (!wefti_cpuset_intersects(&cpus, &all)) {
        char name[32];
        snprintf(name, sizeof(name), "NUMA node %d", os_index);
        wefti_topo_warn(in->topo, 14, name,
                        "has no CPUs (memory of a device): nothing is pinned "
                        "to it");
        return;
    }
    int numa = wefti_topo_add_device(in->topo, WEFTI_TOPO_NUMA, in->host, "");
    if (numa >= 0) {
        in->topo->devices[numa].os_index = os_index;
        describe_cpu(in, node, &cpus, &in->topo->devices[numa].cpu);
        node->device = numa;
    }
}

/* A file of hwloc 1.x may have none: then the machine is one. */
static void add_numa_nodes(wefti_hwloc_import *in)
{
    for (int i = 0; i < in->object_count && !in->topo->out_of_memory &&
                    in->topo->device_count <= NUMA_MOST;
         i++) {
        wefti_hwloc_object *node = &in->objects[i];
        if (node->type == WEFTI_HWLOC_NUMANODE) {
            add_numa_node(in, node,
                          wefti_element_int(node->element, "os_index", 0));
        }
    }
    if (in->topo->kind_counts[WEFTI_TOPO_NUMA] == 0) {
        add_numa_node(in, &in->objects[0], 0);
    }
}

/* A node that stands for "somewhere": made when first needed. */
static int nowhere(wefti_hwloc_import *in)
{
    for (int i = 0; i < in->topo->device_count; i++) {
        if (in->topo->devices[i].kind == WEFTI_TOPO_NUMA &&
            in->topo->devices[i].os_index < 0) {
            return i;
        }
    }
    return wefti_topo_add_device(in->topo, WEFTI_TOPO_NUMA, in->host, "");
}

/* The node whose CPUs are nearest; one with several choices is unknown. */
static int locate(wefti_hwloc_import *in, wefti_hwloc_object *object)
{
    wefti_hwloc_object *near = wefti_hwloc_place(object);
    wefti_cpuset own, other;
    int found = -1, choices = 0;
    for (int i = 0; i < in->object_count && near; i++) {
        const wefti_hwloc_object *node = &in->objects[i];
        if (node->device < 0 ||
            in->topo->devices[node->device].kind != WEFTI_TOPO_NUMA) {
            continue;
        }
        wefti_hwloc_cpuset(near, &own);
        wefti_hwloc_cpuset(node, &other);
        if (wefti_cpuset_intersects(&own, &other)) {
            found = found < 0 ? node->device : found;
            choices++;
        }
    }
    bool whole = near && near->type == WEFTI_HWLOC_MACHINE;
    return found >= 0 && (choices == 1 || !whole) ? found : nowhere(in);
}

/* ---- PCI ------------------------------------------------------------------
 */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Whether an OS device of that name stands below it: "nvml", "cuda". */
static bool has_os_device(const wefti_hwloc_import *in,
                          const wefti_hwloc_object *pci, const char *name)
{
    const wefti_hwloc_object *device;
    for (int i = 0; (device = wefti_hwloc_os_device(in, pci, i)); i++) {
        if (begins(wefti_hwloc_text(device, "name"), name)) {
            return true;
        }
    }
    return false;
}

/* The port above a device is the link's other end. It is reported where its
 * rate is less, and not believed where that cannot be (a hypervisor's). */
static double believe_port(wefti_hwloc_import *in,
                           const wefti_hwloc_object *port, double own,
                           double above)
{
    wefti_pci ids = {0};
    if (above <= 0 || own <= 0 || above >= 0.99 * own) {
        return above > 0 && (above < own || own <= 0) ? above : own;
    }
    wefti_hwloc_read_ids(port, &ids);
    if (wefti_port_doubt(in->topo, ids.bus, above, own)) {
        return own;
    }
    wefti_topo_warn(in->topo, 11, ids.bus,
                    "port at %.3g GB/s above a device at %.3g: a bottleneck, "
                    "if it is true",
                    above, own);
    return above;
}

/* These versions show the most that a GPU with NVML can do, capped at Gen 3. */
static bool is_capped(const wefti_hwloc_import *in, double own)
{
    return own > 15.7 && own < 15.8 &&
           (strncmp(in->version, "2.9", 3) == 0 ||
            strncmp(in->version, "2.10", 4) == 0);
}

void wefti_hwloc_read_pci(wefti_hwloc_import *in,
                          const wefti_hwloc_object *object, wefti_pci *out)
{
    wefti_hwloc_read_ids(object, out);
    double own = wefti_hwloc_link_speed(object);
    double above = wefti_hwloc_is_pci_bridge(object->parent)
                       ? wefti_hwloc_link_speed(object->parent)
                       : 0;
    double speed = believe_port(in, object->parent, own, above);
    bool nvml = has_os_device(in, object, "nvml");
    if (nvml && is_capped(in, own) && above > 16) {
        speed = above;
        wefti_topo_warn(in->topo, 12, out->bus,
                        "hwloc %.20s caps a GPU's PCIe at Gen 3: the port's "
                        "%.4g GB/s taken",
                        in->version, above);
    }
    const wefti_gpu_model *model =
        wefti_gpu_model_find(out->vendor, out->device, NULL);
    if (nvml && above <= 0 && is_capped(in, own) && model &&
        model->pci_gen > 3) {
        speed = 0; /* no port says what it is in truth */
    }
    out->gen = out->width = 0;
    if (speed > 0 && !wefti_rate_pci_decode(speed, &out->gen, &out->width)) {
        out->gen = 3;
        out->width = (int)(speed / (128.0 / 130) + 0.5);
        out->width = out->width < 1 ? 1 : out->width;
    }
}

void wefti_hwloc_link_pci(wefti_hwloc_import *in,
                          const wefti_hwloc_object *object, int device)
{
    if (device < 0) {
        return;
    }
    char label[64];
    wefti_device *d = &in->topo->devices[device];
    wefti_hwloc_read_pci(in, object, &d->pci);
    bool known = d->pci.gen > 0;
    if (!known) {
        const wefti_gpu_model *model =
            wefti_gpu_model_find(d->pci.vendor, d->pci.device, NULL);
        /* Of a bridge no bottleneck out of nothing. */
        d->pci.gen = d->kind == WEFTI_TOPO_BRIDGE ? 5
                     : model                      ? model->pci_gen
                                                  : 3;
        d->pci.width = 16;
        if (d->kind == WEFTI_TOPO_GPU || d->kind == WEFTI_TOPO_CARD) {
            wefti_topo_warn(
                in->topo, 9, wefti_topo_label(in->topo, device, label),
                "PCI link speed not readable: Gen %d x16 assumed", d->pci.gen);
        }
    }
    wefti_pci_link_add(in->topo, device,
                       known ? WEFTI_ORIGIN_READ : WEFTI_ORIGIN_TABLE);
}

/* Makes the switches above a device and returns what it hangs on. */
static int parent_of(wefti_hwloc_import *in, wefti_hwloc_object *device)
{
    wefti_hwloc_object *kept[BRIDGES_MOST];
    int count = 0, number = 0;
    for (wefti_hwloc_object *up = device->parent; wefti_hwloc_is_pci_bridge(up);
         up = up->parent) {
        if (number++ % 2 == 1 && count < BRIDGES_MOST) {
            kept[count++] = up;
        }
    }
    int parent = -1;
    for (int i = count - 1; i >= 0 && !in->topo->out_of_memory; i--) {
        int bridge = kept[i]->device;
        if (bridge < 0) {
            parent = parent >= 0 ? parent : locate(in, device);
            bridge = parent < 0 ? -1
                                : wefti_topo_add_device(
                                      in->topo, WEFTI_TOPO_BRIDGE, parent, "");
            wefti_hwloc_link_pci(in, kept[i], bridge);
            kept[i]->device = bridge;
        }
        parent = bridge;
    }
    return parent >= 0 ? parent : locate(in, device);
}

/* ---- devices --------------------------------------------------------------
 */

static void add_pci(wefti_hwloc_import *in, wefti_hwloc_object *pci)
{
    wefti_pci ids = {0};
    wefti_hwloc_read_ids(pci, &ids);
    if (pci->card == pci) {
        wefti_hwloc_add_gpu(in, pci, parent_of(in, pci));
    } else if (pci->card) {
        return; /* a further function of a GPU */
    } else if (ids.class_code >> 16 == 0x02) {
        wefti_hwloc_add_nic(in, pci, parent_of(in, pci));
    } else if ((ids.class_code >> 8 == 0x0680 && ids.vendor == 0x10de) ||
               strcmp(wefti_hwloc_text(pci, "subtype"), "NVSwitch") == 0) {
        in->topo->switch_chips++;
    }
}

static bool goes_on(const wefti_hwloc_import *in, int object)
{
    return object < in->object_count && !in->topo->out_of_memory &&
           in->topo->device_count <= WEFTI_HOST_DEVICES_MOST;
}

static void add_devices(wefti_hwloc_import *in)
{
    wefti_hwloc_find_gpus(in);
    for (int i = 0; goes_on(in, i); i++) {
        if (in->objects[i].type == WEFTI_HWLOC_PCIDEV) {
            add_pci(in, &in->objects[i]);
        }
    }
    for (int i = 0; goes_on(in, i); i++) {
        wefti_hwloc_object *os = &in->objects[i];
        if (wefti_hwloc_is_lost_gpu(in, os)) {
            wefti_hwloc_add_lost_gpu(in, os, locate(in, os));
        }
    }
}

static void warn_absence(wefti_hwloc_import *in)
{
    wefti_topo *topo = in->topo;
    int devices = 0;
    for (int i = 0; i < in->object_count; i++) {
        devices += in->objects[i].type == WEFTI_HWLOC_PCIDEV;
    }
    if (devices == 0) {
        wefti_topo_warn(topo, 2, in->path,
                        "no I/O devices in it: GPUs and NICs are unknown");
    } else if (topo->kind_counts[WEFTI_TOPO_GPU] == 0) {
        wefti_topo_warn(topo, 2, in->path, "no GPU in it");
    }
}

/* ---- XML ------------------------------------------------------------------
 */

/* "2.0": two numbers; files of hwloc 1.x have no version at all. */
static bool read_version(const char *text, uint64_t *major_out)
{
    uint64_t minor;
    return wefti_number_read(&text, 10, 1000, major_out) &&
           wefti_number_skip(&text, ".") &&
           wefti_number_read(&text, 10, 1000, &minor) && !*text &&
           *major_out > 0;
}

/* Is hwloc's, is of a version that this reader knows. */
static weft_status check_root(const char *path, const wefti_element *root)
{
    const char *version = wefti_element_get(root, "version");
    uint64_t major = 1;
    if (strcmp(root->name, "topology") != 0 &&
        strcmp(root->name, "root") != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d: the outermost element is <%.40s>: hwloc's "
                           "begins with <topology>",
                           path, root->line, root->name);
    }
    if (version && !read_version(version, &major)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s:%d:%d: <%s> version \"%.40s\": allowed is 1.x "
                           "or 2.x such as \"2.0\", or none (hwloc 1)",
                           path, root->line, root->column, root->name, version);
    }
    if (major > 2) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s:%d:%d: hwloc XML version %.20s: newest readable is 2.x; write "
            "it anew with \"lstopo --export-xml-flags v2 FILE.xml\"",
            path, root->line, root->column, version);
    }
    return WEFT_OK;
}

weft_status wefti_hwloc_import_text(const char *path, const char *text,
                                    size_t text_bytes, wefti_topo *topo,
                                    wefti_claims *claims)
{
    wefti_markup *markup;
    weft_status status = wefti_markup_create(path, text, text_bytes, &markup);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_hwloc_import in = {.topo = topo, .path = path, .markup = markup};
    status = check_root(path, markup->root);
    if (status == WEFT_OK) {
        status = wefti_hwloc_list(&in);
    }
    if (status == WEFT_OK) {
        in.host = wefti_topo_add_device(topo, WEFTI_TOPO_HOST, -1, "");
        status = wefti_topo_check(topo);
    }
    if (status == WEFT_OK) {
        add_numa_nodes(&in);
        add_devices(&in);
        status = topo->device_count > WEFTI_HOST_DEVICES_MOST
                     ? wefti_error(WEFT_ERR_INVALID,
                                   "%s: more than %d devices in one host", path,
                                   WEFTI_HOST_DEVICES_MOST)
                     : wefti_hwloc_claim_links(&in);
    }
    if (status == WEFT_OK) {
        warn_absence(&in);
        status = wefti_topo_check(topo);
    }
    *claims = in.claims;
    wefti_hwloc_fini(&in);
    wefti_markup_destroy(markup);
    return status;
}

weft_status wefti_topo_read_hwloc(const char *path, const char *text,
                                  size_t text_bytes, wefti_topo **topo_out)
{
    wefti_claims claims = {0};
    wefti_topo *topo;
    weft_status status = wefti_topo_create(&topo);
    if (status != WEFT_OK) {
        return status;
    }
    snprintf(topo->source, sizeof(topo->source), "hwloc xml %s", path);
    status = wefti_hwloc_import_text(path, text, text_bytes, topo, &claims);
    if (status == WEFT_OK) {
        status = wefti_topo_finish(topo, &claims);
    }
    wefti_claims_fini(&claims);
    if (status != WEFT_OK) {
        wefti_topo_destroy(topo);
        topo = NULL;
    }
    *topo_out = topo;
    return status;
}
