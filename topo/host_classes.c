/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/host_classes.c - hosts compared device by device and link by link.
 *
 * What distinguishes two good hosts without being a difference (GUIDs, ranks)
 * is ignored. Devices of a host lie together, and so do its links, so both are
 * compared in order.
 */
#include "topo/host_classes.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct comparison {
    const wefti_paths *paths;
    int *first_link, *link_count; /* by host */
} comparison;

static bool are_pci_equal(const wefti_pci *a, const wefti_pci *b)
{
    return strcmp(a->bus, b->bus) == 0 && a->vendor == b->vendor &&
           a->device == b->device && a->gen == b->gen && a->width == b->width &&
           a->now_gen == b->now_gen && a->now_width == b->now_width;
}

static bool are_cpus_equal(const wefti_cpu *a, const wefti_cpu *b)
{
    return strcmp(a->arch, b->arch) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->vendor, b->vendor) == 0 && a->family == b->family &&
           a->model == b->model && a->cores == b->cores &&
           a->memory_bytes == b->memory_bytes &&
           strcmp(a->affinity, b->affinity) == 0;
}

static bool are_nics_equal(const wefti_nic *a, const wefti_nic *b)
{
    return a->kind == b->kind && a->state == b->state && a->gbps == b->gbps &&
           a->gbps_assumed == b->gbps_assumed && a->limited == b->limited &&
           a->driverless == b->driverless && a->port == b->port &&
           a->gdr == b->gdr;
}

static bool are_devices_equal(const wefti_device *a, const wefti_device *b)
{
    return a->kind == b->kind && a->os_index == b->os_index &&
           strcmp(a->name, b->name) == 0 && are_pci_equal(&a->pci, &b->pci) &&
           are_cpus_equal(&a->cpu, &b->cpu) && a->gpu.sm == b->gpu.sm &&
           a->gpu.amd == b->gpu.amd && a->gpu.dev == b->gpu.dev &&
           a->gpu.gdr == b->gpu.gdr && are_nics_equal(&a->nic, &b->nic);
}

static bool are_links_equal(const wefti_topo_link *a, const wefti_topo_link *b)
{
    return a->type == b->type && a->count == b->count && a->down == b->down &&
           a->GBps == b->GBps && a->nccl_GBps == b->nccl_GBps &&
           a->assumed == b->assumed;
}

static bool are_equal(const comparison *c, int a, int b)
{
    const wefti_topo *topo = c->paths->topo;
    const wefti_host_paths *x = &c->paths->hosts[a], *y = &c->paths->hosts[b];
    int away = y->first_device - x->first_device;
    bool equal = x->device_count == y->device_count &&
                 c->link_count[a] == c->link_count[b];
    for (int i = 1; i < x->device_count && equal; i++) { /* 0: the host */
        const wefti_device *from = &topo->devices[x->first_device + i];
        const wefti_device *to = &topo->devices[y->first_device + i];
        equal =
            from->parent + away == to->parent && are_devices_equal(from, to);
    }
    for (int i = 0; i < c->link_count[a] && equal; i++) {
        const wefti_topo_link *from = &topo->links[c->first_link[a] + i];
        const wefti_topo_link *to = &topo->links[c->first_link[b] + i];
        equal = from->a + away == to->a && from->b + away == to->b &&
                are_links_equal(from, to);
    }
    return equal;
}

static void list_links(comparison *c)
{
    const wefti_topo *topo = c->paths->topo;
    for (int i = topo->link_count - 1; i >= 0; i--) {
        int host = topo->devices[topo->devices[topo->links[i].a].host].ordinal;
        c->first_link[host] = i;
        c->link_count[host]++;
    }
}

weft_status wefti_host_classes_init(wefti_host_classes *classes,
                                    const wefti_paths *paths)
{
    size_t room = (size_t)paths->host_count + 1;
    comparison c = {paths, calloc(room, sizeof(int)),
                    calloc(room, sizeof(int))};
    *classes = (wefti_host_classes){0, calloc(room, sizeof(int)),
                                    calloc(room, sizeof(int)),
                                    calloc(room, sizeof(int))};
    bool whole = c.first_link && c.link_count && classes->of &&
                 classes->first && classes->counts;
    if (whole) {
        list_links(&c);
    }
    for (int host = 0; host < paths->host_count && whole; host++) {
        int at = 0;
        while (at < classes->count &&
               !are_equal(&c, classes->first[at], host)) {
            at++;
        }
        if (at == classes->count) {
            classes->first[classes->count++] = host;
        }
        classes->of[host] = at;
        classes->counts[at]++;
    }
    free(c.first_link);
    free(c.link_count);
    if (!whole) {
        wefti_host_classes_fini(classes);
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d hosts", paths->host_count);
    }
    return WEFT_OK;
}

void wefti_host_classes_fini(wefti_host_classes *classes)
{
    free(classes->of);
    free(classes->first);
    free(classes->counts);
    *classes = (wefti_host_classes){0};
}
