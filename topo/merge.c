/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/merge.c - several hosts as one cluster: devices, links and warnings of
 * a part are appended, ordinals go on counting.
 */
#include "topo/topo.h"

#include "base/error.h"
#include "topo/number.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* "gpu3 0000:.." in a warning's device, with its ordinal in the cluster. */
static void warn_again(wefti_topo *cluster, const wefti_topo *part,
                       const wefti_topo_warning *warning, const int *before)
{
    char device[64];
    size_t letters = strspn(warning->device, "abcdefghijklmnopqrstuvwxyz");
    snprintf(device, sizeof(device), "%s", warning->device);
    for (int kind = 0; kind < WEFTI_TOPO_KIND_COUNT; kind++) {
        const char *rest = warning->device + letters;
        int at = wefti_topo_find(part, kind, 0);
        uint64_t ordinal;
        char id[WEFTI_TOPO_ID_BYTES];
        if (at < 0 || before[kind] == 0) {
            continue;
        }
        wefti_topo_id(part, at, id);
        if (strlen(id) == letters + 1 &&
            strncmp(id, warning->device, letters) == 0 &&
            wefti_number_read(&rest, 10, (uint64_t)(INT_MAX - before[kind]),
                              &ordinal)) {
            snprintf(device, sizeof(device), "%.*s%d%s", (int)letters,
                     warning->device, (int)ordinal + before[kind], rest);
        }
    }
    wefti_topo_warn(cluster, warning->code, device, "%s", warning->text);
}

weft_status wefti_topo_merge(wefti_topo *cluster, const wefti_topo *part)
{
    int base = cluster->device_count;
    int before[WEFTI_TOPO_KIND_COUNT];
    memcpy(before, cluster->kind_counts, sizeof(before));
    for (int i = 0; i < part->device_count; i++) {
        const wefti_device *from = &part->devices[i];
        int parent = from->parent >= 0 ? base + from->parent : -1;
        int index =
            wefti_topo_add_device(cluster, from->kind, parent, from->name);
        if (index < 0) {
            return wefti_topo_check(cluster);
        }
        wefti_device *to = &cluster->devices[index];
        int host = to->host, ordinal = to->ordinal;
        *to = *from;
        to->parent = parent;
        to->host = host;
        to->ordinal = ordinal;
    }
    for (int i = 0; i < part->link_count; i++) {
        wefti_link link = part->links[i];
        int index = wefti_topo_add_link(cluster, base + link.a, base + link.b,
                                        link.type, link.GBps, link.origin);
        if (index < 0) {
            return wefti_topo_check(cluster);
        }
        link.a += base;
        link.b += base;
        cluster->links[index] = link;
    }
    for (int i = 0; i < part->warning_count; i++) {
        warn_again(cluster, part, &part->warnings[i], before);
    }
    cluster->switch_chips += part->switch_chips;
    cluster->links_unknown |= part->links_unknown;
    cluster->is_template |= part->is_template;
    return wefti_topo_check(cluster);
}
