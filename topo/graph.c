/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/graph.c - growing arrays of devices, links and warnings.
 */
#include "topo/graph.h"

#include "base/check.h"
#include "base/error.h"
#include "topo/markup.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A hostile file may cause a warning per line, more than a user reads. */
#define WARNINGS_MOST 1000

static const char *const kind_texts[WEFTI_TOPO_KIND_COUNT] = {
#define KIND_TEXT(name, text) text,
    WEFTI_TOPO_KIND_LIST(KIND_TEXT)
#undef KIND_TEXT
};

weft_status wefti_topo_create(wefti_topo **topo_out)
{
    *topo_out = calloc(1, sizeof(**topo_out));
    return *topo_out ? WEFT_OK
                     : wefti_error(WEFT_ERR_NO_MEMORY, "a topology graph");
}

void wefti_topo_destroy(wefti_topo *topo)
{
    if (!topo) {
        return;
    }
    wefti_markup_destroy(topo->nccl);
    free(topo->devices);
    free(topo->links);
    free(topo->warnings);
    free(topo);
}

/* Room for one more element; false when memory is out. */
static bool grow(wefti_topo *topo, void **array, int count, int *room,
                 size_t element_bytes)
{
    if (count < *room) {
        return true;
    }
    int more = *room ? 2 * *room : 32;
    void *grown = realloc(*array, (size_t)more * element_bytes);
    if (!grown) {
        topo->out_of_memory = true;
        return false;
    }
    *array = grown;
    *room = more;
    return true;
}

int wefti_topo_add_device(wefti_topo *topo, wefti_topo_kind kind, int parent,
                          const char *name)
{
    WEFTI_ASSERT((parent >= 0) == (kind != WEFTI_TOPO_HOST) ||
                 topo->out_of_memory);
    void *array = topo->devices;
    bool fits = grow(topo, &array, topo->device_count, &topo->device_room,
                     sizeof(*topo->devices));
    topo->devices = array;
    if (!fits || topo->out_of_memory) {
        return -1;
    }
    int index = topo->device_count++;
    wefti_device *device = &topo->devices[index];
    memset(device, 0, sizeof(*device));
    device->kind = kind;
    device->parent = parent;
    device->host = parent >= 0 ? topo->devices[parent].host : index;
    device->ordinal = topo->kind_counts[kind]++;
    device->os_index = -1;
    device->gpu.dev = device->gpu.rank = device->nic.dev = -1;
    device->gpu.gdr = device->nic.gdr = true;
    device->nic.port = 1;
    snprintf(device->name, sizeof(device->name), "%s", name ? name : "");
    return index;
}

int wefti_topo_add_link(wefti_topo *topo, int a, int b, wefti_link_type type,
                        double GBps, wefti_origin origin)
{
    void *array = topo->links;
    bool fits = grow(topo, &array, topo->link_count, &topo->link_room,
                     sizeof(*topo->links));
    topo->links = array;
    if (!fits || topo->out_of_memory) {
        topo->out_of_memory = true;
        return -1;
    }
    topo->links[topo->link_count] =
        (wefti_topo_link){.a = a,
                          .b = b,
                          .type = type,
                          .count = 1,
                          .GBps = GBps,
                          .nccl_GBps = GBps,
                          .origin = origin,
                          .latency_origin = WEFTI_ORIGIN_TABLE};
    return topo->link_count++;
}

void wefti_topo_warn(wefti_topo *topo, int code, const char *device,
                     const char *format, ...)
{
    wefti_topo_warning warning = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(warning.text, sizeof(warning.text), format, args);
    va_end(args);
    snprintf(warning.device, sizeof(warning.device), "%s", device);
    for (int i = 0; i < topo->warning_count; i++) {
        if (strcmp(topo->warnings[i].text, warning.text) == 0 &&
            strcmp(topo->warnings[i].device, warning.device) == 0) {
            return;
        }
    }
    void *array = topo->warnings;
    bool fits = topo->warning_count < WARNINGS_MOST &&
                grow(topo, &array, topo->warning_count, &topo->warning_room,
                     sizeof(*topo->warnings));
    topo->warnings = array;
    if (fits) {
        topo->warnings[topo->warning_count++] = warning;
    } else {
        topo->warnings_left_out++;
    }
}

void wefti_topo_unwarn(wefti_topo *topo, int code, const char *device)
{
    int kept = 0;
    for (int i = 0; i < topo->warning_count; i++) {
        if (topo->warnings[i].code != code ||
            strcmp(topo->warnings[i].device, device) != 0) {
            topo->warnings[kept++] = topo->warnings[i];
        }
    }
    topo->warning_count = kept;
}

const char *wefti_topo_id(const wefti_topo *topo, int device,
                          char text[WEFTI_TOPO_ID_BYTES])
{
    const wefti_device *d = &topo->devices[device];
    bool by_os = d->kind == WEFTI_TOPO_NUMA && d->os_index >= 0;
    if (by_os && topo->kind_counts[WEFTI_TOPO_HOST] > 1) {
        snprintf(text, WEFTI_TOPO_ID_BYTES, "host%d.numa%d",
                 topo->devices[d->host].ordinal, d->os_index);
    } else {
        snprintf(text, WEFTI_TOPO_ID_BYTES, "%s%d", kind_texts[d->kind],
                 by_os ? d->os_index : d->ordinal);
    }
    return text;
}

int wefti_topo_find(const wefti_topo *topo, wefti_topo_kind kind, int ordinal)
{
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == kind &&
            topo->devices[i].ordinal == ordinal) {
            return i;
        }
    }
    return -1;
}

int wefti_topo_find_bus(const wefti_topo *topo, int host, const char *bus)
{
    for (int i = host; i < topo->device_count; i++) {
        if (topo->devices[i].host == host && bus[0] &&
            strcmp(topo->devices[i].pci.bus, bus) == 0) {
            return i;
        }
    }
    return -1;
}

int wefti_topo_numa(const wefti_topo *topo, int device)
{
    while (device >= 0 && topo->devices[device].kind != WEFTI_TOPO_NUMA) {
        device = topo->devices[device].parent;
    }
    return device >= 0 && topo->devices[device].os_index >= 0 ? device : -1;
}

int wefti_topo_find_link(const wefti_topo *topo, int a, int b,
                         wefti_link_type type)
{
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        if (link->type == type && ((link->a == a && link->b == b) ||
                                   (link->a == b && link->b == a))) {
            return i;
        }
    }
    return -1;
}

int *wefti_topo_uplinks(const wefti_topo *topo)
{
    int *up = malloc(((size_t)topo->device_count + 1) * sizeof(*up));
    for (int i = 0; i < topo->device_count && up; i++) {
        up[i] = -1;
    }
    for (int i = 0; i < topo->link_count && up; i++) {
        const wefti_topo_link *link = &topo->links[i];
        if (link->type == WEFTI_LINK_PCI && up[link->b] < 0 &&
            topo->devices[link->b].parent == link->a) {
            up[link->b] = i;
        }
    }
    return up;
}

/* Whether the name is that of the port: its own, or with ":1" behind. */
static bool is_port(const wefti_device *d, const char *name)
{
    size_t bytes = strcspn(name, ":");
    char port[16];
    snprintf(port, sizeof(port), ":%d", d->nic.port);
    return d->kind == WEFTI_TOPO_NIC && bytes > 0 &&
           strcspn(d->name, ":") == bytes &&
           strncmp(d->name, name, bytes) == 0 &&
           (!name[bytes] || strcmp(name + bytes, port) == 0);
}

void wefti_topo_note_transport(wefti_topo *topo, const char *device,
                               const char *transport)
{
    for (int i = 0; i < topo->device_count; i++) {
        char *known = topo->devices[i].nic.transports;
        size_t used = strlen(known),
               room = sizeof(((wefti_nic *)0)->transports);
        if (is_port(&topo->devices[i], device) &&
            used + 1 + strlen(transport) < room) {
            snprintf(known + used, room - used, "%s%s", used ? "," : "",
                     transport);
        }
    }
}

bool wefti_topo_nic_usable(const wefti_topo *topo, int device)
{
    const wefti_device *d = &topo->devices[device];
    return d->kind == WEFTI_TOPO_NIC && d->nic.state != WEFTI_NIC_DOWN &&
           d->nic.kind != WEFTI_NIC_WIFI && !d->nic.driverless;
}

const char *wefti_topo_gpu_vendor(const wefti_device *gpu)
{
    return gpu->gpu.amd                                        ? "amd"
           : gpu->pci.vendor == 0 || gpu->pci.vendor == 0x10de ? "nvidia"
           : gpu->pci.vendor == 0x8086                         ? "intel"
                                                               : "other";
}

const char *wefti_link_type_text(wefti_link_type type)
{
    static const char *const texts[] = {"PORT", "NVL", "XGMI",
                                        "C2C",  "PCI", "SYS"};
    return texts[type];
}

const char *wefti_origin_text(wefti_origin origin)
{
    static const char *const texts[] = {"table", "read", "measured"};
    return texts[origin];
}

const char *wefti_nic_kind_text(wefti_nic_kind kind)
{
    static const char *const texts[] = {"infiniband", "roce",     "efa",
                                        "slingshot",  "ethernet", "wifi"};
    return texts[kind];
}

const char *wefti_nic_state_text(wefti_nic_state state)
{
    static const char *const texts[] = {"active", "down", "unknown"};
    return texts[state];
}

weft_status wefti_topo_check(const wefti_topo *topo)
{
    if (topo->out_of_memory) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a topology of %d devices",
                           topo->device_count);
    }
    for (int i = 0; i < topo->device_count; i++) {
        WEFTI_ASSERT(topo->devices[i].parent < i);
    }
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        WEFTI_ASSERT(link->a >= 0 && link->a < topo->device_count);
        WEFTI_ASSERT(link->b >= 0 && link->b < topo->device_count);
        WEFTI_ASSERT(topo->devices[link->a].host ==
                     topo->devices[link->b].host);
        (void)link;
    }
    return WEFT_OK;
}
