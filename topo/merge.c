/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/merge.c - several hosts as one cluster: devices, links and warnings of
 * a part are appended, ordinals go on counting.
 */
#include "topo/topo.h"

#include "base/error.h"
#include "topo/number.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- warnings -------------------------------------------------------------
 */

/* How ids of one host's graph are called in the cluster. */
typedef struct renaming {
    const wefti_topo *part;
    int device_count;                  /* of them its own come first */
    int before[WEFTI_TOPO_KIND_COUNT]; /* devices that come before its own */
    int host; /* its only host; -1: one of one, or its texts name hosts */
} renaming;

static const char *const texts[] = {
#define KIND_TEXT(name, text) text,
    WEFTI_TOPO_KIND_LIST(KIND_TEXT)
#undef KIND_TEXT
};

/* The kind that an id begins with; WEFTI_TOPO_KIND_COUNT: it is no id. */
static wefti_topo_kind kind_of(const char *word, size_t letters)
{
    int kind = 0;
    while (kind < WEFTI_TOPO_KIND_COUNT &&
           (strlen(texts[kind]) != letters ||
            strncmp(word, texts[kind], letters) != 0)) {
        kind++;
    }
    return (wefti_topo_kind)kind;
}

static bool is_os_index(const renaming *r, int number)
{
    for (int i = 0; i < r->device_count; i++) {
        if (r->part->devices[i].kind == WEFTI_TOPO_NUMA &&
            r->part->devices[i].os_index == number) {
            return true;
        }
    }
    return false;
}

/* The id at the start of a text, as the cluster has it; how many bytes of the
 * text it is, 0: none stands there. */
static size_t rename_id(const renaming *r, const char *text,
                        char id[WEFTI_TOPO_ID_BYTES])
{
    size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    wefti_topo_kind kind = kind_of(text, letters);
    const char *at = text + letters;
    uint64_t number;
    if (kind == WEFTI_TOPO_KIND_COUNT ||
        !wefti_number_read(&at, 10, (uint64_t)(INT_MAX - r->before[kind]),
                           &number) ||
        isalnum((unsigned char)*at) || *at == '_') {
        return 0;
    }
    if (kind == WEFTI_TOPO_NUMA && is_os_index(r, (int)number)) {
        snprintf(id, WEFTI_TOPO_ID_BYTES, "numa%d", (int)number);
        if (r->host >= 0) {
            snprintf(id, WEFTI_TOPO_ID_BYTES, "host%d.numa%d", r->host,
                     (int)number);
        }
    } else {
        snprintf(id, WEFTI_TOPO_ID_BYTES, "%.8s%d", texts[kind],
                 (int)number + r->before[kind]);
    }
    return (size_t)(at - text);
}

/* What a warning is about: an id comes first, or nothing that is of one host
 * for all to see. */
static void rename_device(const renaming *r, const char *from, char to[80])
{
    char id[WEFTI_TOPO_ID_BYTES];
    size_t bytes = rename_id(r, from, id);
    if (bytes > 0) {
        snprintf(to, 80, "%s%.56s", id, from + bytes);
    } else if (r->host >= 0) {
        snprintf(to, 80, "host%d %.63s", r->host, from);
    } else {
        snprintf(to, 80, "%s", from);
    }
}

/* Each word that is an id. */
static void rename_text(const renaming *r, const char *from, char to[256])
{
    size_t used = 0;
    for (bool begins = true; *from && used < 255; begins = *from++ == ' ') {
        char id[WEFTI_TOPO_ID_BYTES];
        size_t bytes = begins ? rename_id(r, from, id) : 0;
        if (bytes > 0) {
            int more = snprintf(to + used, 256 - used, "%s", id);
            used += (size_t)more < 256 - used ? (size_t)more : 255 - used;
            from += bytes - 1;
        } else {
            to[used++] = *from;
        }
    }
    to[used] = '\0';
}

static void rename_warning(const renaming *r, wefti_topo_warning *warning)
{
    const wefti_topo_warning old = *warning;
    rename_device(r, old.device, warning->device);
    rename_text(r, old.text, warning->text);
}

/* Where a second host is added, texts about the first get its id. */
static void name_first_host(wefti_topo *cluster, int device_count)
{
    const renaming first = {
        .part = cluster, .device_count = device_count, .host = 0};
    for (int i = 0; i < cluster->warning_count; i++) {
        rename_warning(&first, &cluster->warnings[i]);
    }
}

static void warn_again(wefti_topo *cluster, int device_count,
                       const wefti_topo *part, const int *before)
{
    bool joins = before[WEFTI_TOPO_HOST] > 0;
    bool single = part->kind_counts[WEFTI_TOPO_HOST] == 1;
    renaming r = {.part = part,
                  .device_count = part->device_count,
                  .host = joins && single ? before[WEFTI_TOPO_HOST] : -1};
    memcpy(r.before, before, sizeof(r.before));
    if (before[WEFTI_TOPO_HOST] == 1) {
        name_first_host(cluster, device_count);
    }
    for (int i = 0; i < part->warning_count; i++) {
        wefti_topo_warning warning = part->warnings[i];
        rename_warning(&r, &warning);
        wefti_topo_warn(cluster, warning.code, warning.device, "%s",
                        warning.text);
    }
    cluster->warnings_left_out += part->warnings_left_out;
}

/* ---- the graph ------------------------------------------------------------
 */

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
        wefti_topo_link link = part->links[i];
        int index = wefti_topo_add_link(cluster, base + link.a, base + link.b,
                                        link.type, link.GBps, link.origin);
        if (index < 0) {
            return wefti_topo_check(cluster);
        }
        link.a += base;
        link.b += base;
        cluster->links[index] = link;
    }
    warn_again(cluster, base, part, before);
    cluster->switch_chips += part->switch_chips;
    cluster->links_unknown |= part->links_unknown;
    cluster->is_template |= part->is_template;
    return wefti_topo_check(cluster);
}
