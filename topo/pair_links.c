/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/pair_links.c - links of each GPU as a list: first[gpu] .. first[gpu + 1]
 * are its neighbours.
 */
#include "topo/pair_links.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct neighbour {
    int gpu; /* ordinal; -1: a switch */
    int count;
} neighbour;

struct wefti_pair_links {
    const wefti_paths *paths;
    int *first;
    neighbour *list;
};

static bool joins(const wefti_topo *topo, const wefti_topo_link *link, int end)
{
    return (link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI) &&
           topo->devices[end].kind == WEFTI_TOPO_GPU;
}

static int ordinal_of(const wefti_topo *topo, int device)
{
    const wefti_device *d = &topo->devices[device];
    return d->kind == WEFTI_TOPO_GPU        ? d->ordinal
           : d->kind == WEFTI_TOPO_NVSWITCH ? -1
                                            : -2; /* a processor */
}

/* Counts ends (list NULL), or fills them in, first[] moving to the ends. */
static void walk(const wefti_topo *topo, int *first, neighbour *list)
{
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        const int ends[2] = {link->a, link->b};
        for (int side = 0; side < 2; side++) {
            if (!joins(topo, link, ends[side])) {
                continue;
            }
            int gpu = topo->devices[ends[side]].ordinal;
            if (list) {
                list[first[gpu]++] =
                    (neighbour){ordinal_of(topo, ends[1 - side]), link->count};
            } else {
                first[gpu + 1]++;
            }
        }
    }
}

weft_status wefti_pair_links_create(const wefti_paths *paths,
                                    wefti_pair_links **out)
{
    size_t room = (size_t)paths->gpu_count + 2;
    wefti_pair_links *links = calloc(1, sizeof(*links));
    if (links) {
        links->paths = paths;
        links->first = calloc(room, sizeof(int));
        links->list =
            calloc(2 * (size_t)paths->topo->link_count + 1, sizeof(neighbour));
    }
    if (!links || !links->first || !links->list) {
        wefti_pair_links_destroy(links);
        return wefti_error(WEFT_ERR_NO_MEMORY, "links of %d GPUs",
                           paths->gpu_count);
    }
    walk(paths->topo, links->first, NULL);
    for (int i = 0; i < paths->gpu_count; i++) {
        links->first[i + 1] += links->first[i];
    }
    walk(paths->topo, links->first, links->list);
    for (int i = paths->gpu_count; i > 0; i--) { /* back to the beginnings */
        links->first[i] = links->first[i - 1];
    }
    links->first[0] = 0;
    *out = links;
    return WEFT_OK;
}

void wefti_pair_links_destroy(wefti_pair_links *links)
{
    if (links) {
        free(links->first);
        free(links->list);
        free(links);
    }
}

/* To that neighbour, or -1 for all its switches. */
static int count_to(const wefti_pair_links *links, int gpu, int to)
{
    int count = 0;
    for (int i = links->first[gpu]; i < links->first[gpu + 1]; i++) {
        count += links->list[i].gpu == to ? links->list[i].count : 0;
    }
    return count;
}

/* Links that work between two GPUs, by ordinals: those that join them, else
 * the fewer of those that each has to switches; 0: none, or no number. */
static int count_links(const wefti_pair_links *links, int a, int b)
{
    int direct = count_to(links, a, b);
    if (a == b || direct > 0) {
        return a == b ? 0 : direct;
    }
    int x = count_to(links, a, -1), y = count_to(links, b, -1);
    return x < y ? x : y;
}

const char *wefti_pair_links_text(const wefti_pair_links *links, int a, int b,
                                  char text[WEFTI_PAIR_TEXT_BYTES])
{
    const wefti_paths *paths = links->paths;
    wefti_path_type type = wefti_path_gpu_gpu(paths, a, b).type;
    int count = count_links(links, a, b);
    if (a == b) {
        return "X";
    }
    if (type != WEFTI_PATH_NVL) {
        return wefti_path_type_text(type);
    }
    if (paths->topo->devices[paths->gpus[a]].gpu.amd) {
        return "XGMI";
    }
    snprintf(text, WEFTI_PAIR_TEXT_BYTES, count > 0 ? "NV%d" : "NVL", count);
    return text;
}
