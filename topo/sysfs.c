/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/sysfs.c - reads /sys/class/infiniband, /sys/class/net and
 * /sys/bus/pci/devices, one line a file.
 */
#include "topo/sysfs.h"

#include "base/check.h"
#include "topo/number.h"
#include "topo/rates.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 128

/* The first line of a file; false if there is none. */
static bool read_line(char line[LINE_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool read_line(char line[LINE_BYTES], const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    FILE *file = bytes < (int)sizeof(path) ? fopen(path, "r") : NULL;
    line[0] = '\0';
    if (!file) {
        return false;
    }
    bool read = fgets(line, LINE_BYTES, file) != NULL;
    line[strcspn(line, "\n")] = '\0';
    return fclose(file) == 0 && read;
}

/* ---- PCI links ------------------------------------------------------------
 */

/* What one end of a link can do ("max") or does ("current"); false where it
 * does not say. */
static bool read_end(const char *folder, const char *which, int *gen_out,
                     int *width_out)
{
    char line[LINE_BYTES];
    if (!read_line(line, "%s/%s_link_speed", folder, which) ||
        wefti_rate_pci_parse(line, gen_out) == WEFTI_SPEED_UNKNOWN ||
        !read_line(line, "%s/%s_link_width", folder, which)) {
        return false;
    }
    *width_out = wefti_number_get(line, 0);
    return *width_out > 0 && *width_out <= 32;
}

/* The folder that holds a device's is its port's. */
static const char *name_above(const char *folder, char bus[24])
{
    const char *end = strrchr(folder, '/'), *begin = end;
    while (begin > folder && begin[-1] != '/') {
        begin--;
    }
    snprintf(bus, 24, "%.*s", (int)(end - begin), begin);
    return bus;
}

static void apply_pci(wefti_topo *topo, const char *root, int device)
{
    wefti_device *d = &topo->devices[device];
    char folder[PATH_MAX], real[PATH_MAX], above[PATH_MAX + 8];
    char bus[24];
    int gen, width, up_gen, up_width;
    int link = wefti_topo_find_link(topo, d->parent, device, WEFTI_LINK_PCI);
    snprintf(folder, sizeof(folder), "%s/bus/pci/devices/%s", root, d->pci.bus);
    if (link < 0 || !realpath(folder, real) ||
        !read_end(real, "max", &gen, &width)) {
        return;
    }
    d->pci.max_gen = gen;
    d->pci.max_width = width;
    if (!read_end(real, "current", &d->pci.now_gen, &d->pci.now_width)) {
        d->pci.now_gen = d->pci.now_width = 0;
    }
    snprintf(above, sizeof(above), "%s/..", real);
    if (read_end(above, "max", &up_gen, &up_width) &&
        !wefti_port_doubt(topo, name_above(real, bus),
                          wefti_rate_pci(up_gen, up_width).GBps,
                          wefti_rate_pci(gen, width).GBps)) {
        gen = up_gen < gen ? up_gen : gen;
        width = up_width < width ? up_width : width;
    }
    wefti_rate rate = wefti_rate_pci(gen, width);
    d->pci.gen = gen;
    d->pci.width = width;
    topo->links[link].GBps = rate.GBps;
    topo->links[link].nccl_GBps = rate.nccl_GBps;
    topo->links[link].count = width;
    topo->links[link].origin = WEFTI_ORIGIN_READ;
    topo->links[link].assumed = false;
}

/* ---- ports ----------------------------------------------------------------
 */

static void set_rate(wefti_topo *topo, int nic, double gbps)
{
    wefti_device *d = &topo->devices[nic];
    int link = wefti_topo_find_link(topo, d->parent, nic, WEFTI_LINK_PORT);
    d->nic.gbps = gbps;
    d->nic.gbps_origin = WEFTI_ORIGIN_READ;
    d->nic.gbps_assumed = false;
    if (link >= 0) {
        topo->links[link].GBps = topo->links[link].nccl_GBps = gbps / 8;
        topo->links[link].origin = WEFTI_ORIGIN_READ;
    }
    /* What was inferred before is no news any more. */
    char label[64];
    wefti_topo_label(topo, nic, label);
    wefti_topo_unwarn(topo, 17, label);
}

/* The port of that device, which hwloc may not have shown. */
static int port_at(wefti_topo *topo, const char *root, const char *name,
                   int port)
{
    char folder[PATH_MAX], real[PATH_MAX], bus[24];
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        size_t bytes = strcspn(d->name, ":");
        if (d->kind == WEFTI_TOPO_NIC && strlen(name) == bytes &&
            strncmp(d->name, name, bytes) == 0 && d->nic.port == port) {
            return i;
        }
    }
    snprintf(folder, sizeof(folder), "%s/class/infiniband/%s/device", root,
             name);
    const char *slash = realpath(folder, real) ? strrchr(real, '/') : NULL;
    if (!slash) {
        return -1;
    }
    wefti_bus_normalise(slash + 1, bus);
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_CARD &&
            strcmp(topo->devices[i].pci.bus, bus) == 0) {
            int nic = wefti_topo_add_device(topo, WEFTI_TOPO_NIC, i, name);
            if (nic >= 0) {
                topo->devices[nic].pci = topo->devices[i].pci;
                topo->devices[nic].nic.port = port;
                topo->devices[nic].nic.state = WEFTI_NIC_UNKNOWN;
                wefti_topo_add_link(topo, i, nic, WEFTI_LINK_PORT, 1.25,
                                    WEFTI_ORIGIN_TABLE);
            }
            return nic;
        }
    }
    wefti_topo_warn(topo, 16, name,
                    "its PCI device (%s) is not to be seen: left out", bus);
    return -1;
}

static void apply_port(wefti_topo *topo, const char *root, const char *name,
                       int port)
{
    char line[LINE_BYTES];
    int nic = port_at(topo, root, name, port);
    if (nic < 0) {
        return;
    }
    wefti_device *d = &topo->devices[nic];
    if (read_line(line, "%s/class/infiniband/%s/ports/%d/state", root, name,
                  port)) {
        const char *at = line; /* "4: ACTIVE" */
        int state = 0;
        d->nic.state = wefti_number_read_int(&at, &state) && state == 4
                           ? WEFTI_NIC_ACTIVE
                           : WEFTI_NIC_DOWN;
    }
    if (read_line(line, "%s/class/infiniband/%s/ports/%d/link_layer", root,
                  name, port) &&
        d->nic.kind != WEFTI_NIC_EFA) {
        d->nic.kind = strcmp(line, "InfiniBand") == 0 ? WEFTI_NIC_INFINIBAND
                      : strcmp(line, "Ethernet") == 0 ? WEFTI_NIC_ROCE
                                                      : d->nic.kind;
    }
    if (read_line(line, "%s/class/infiniband/%s/sys_image_guid", root, name)) {
        d->nic.card_guid = 0;
        for (const char *c = line; *c; c++) {
            char digit[2] = {*c, '\0'};
            if (*c != ':') {
                d->nic.card_guid =
                    d->nic.card_guid << 4 | strtoull(digit, NULL, 16);
            }
        }
    }
    double gbps = 0;
    if (read_line(line, "%s/class/infiniband/%s/ports/%d/rate", root, name,
                  port) &&
        (gbps = strtod(line, NULL)) > 0) {
        set_rate(topo, nic, gbps);
    }
}

static void apply_infiniband(wefti_topo *topo, const char *root)
{
    char folder[PATH_MAX], ports[PATH_MAX + 300];
    snprintf(folder, sizeof(folder), "%s/class/infiniband", root);
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        snprintf(ports, sizeof(ports), "%s/%s/ports", folder, name);
        for (int port = 1; name[0] != '.' && port <= 16; port++) {
            char one[PATH_MAX + 320];
            snprintf(one, sizeof(one), "%s/%d", ports, port);
            if (access(one, F_OK) == 0) {
                apply_port(topo, root, name, port);
            }
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

/* A radio has one of these folders, by its driver's age. */
static bool is_wifi(const char *root, const char *name)
{
    static const char *const signs[] = {"phy80211", "wireless"};
    bool found = false;
    for (size_t i = 0; i < WEFTI_COUNT_OF(signs); i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%.1000s/class/net/%.64s/%s", root, name,
                 signs[i]);
        found |= access(path, F_OK) == 0;
    }
    return found;
}

static void apply_interface(wefti_topo *topo, const char *root, int nic)
{
    char line[LINE_BYTES];
    wefti_device *d = &topo->devices[nic];
    if (d->name[0] && is_wifi(root, d->name)) {
        d->nic.kind = WEFTI_NIC_WIFI;
    }
    if (read_line(line, "%s/class/net/%s/operstate", root, d->name)) {
        d->nic.state = strcmp(line, "up") == 0     ? WEFTI_NIC_ACTIVE
                       : strcmp(line, "down") == 0 ? WEFTI_NIC_DOWN
                                                   : d->nic.state;
    }
    double mbps = 0;
    if (read_line(line, "%s/class/net/%s/speed", root, d->name) &&
        (mbps = strtod(line, NULL)) > 0) {
        set_rate(topo, nic, mbps / 1000);
    }
}

void wefti_sysfs_apply(wefti_topo *topo, const char *root)
{
    for (int i = 0; i < topo->device_count; i++) {
        wefti_topo_kind kind = topo->devices[i].kind;
        if (topo->devices[i].pci.bus[0] && kind != WEFTI_TOPO_NIC) {
            apply_pci(topo, root, i);
        }
    }
    apply_infiniband(topo, root);
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_NIC &&
            (topo->devices[i].nic.kind == WEFTI_NIC_ETHERNET ||
             topo->devices[i].nic.kind == WEFTI_NIC_WIFI)) {
            apply_interface(topo, root, i);
        }
    }
}
