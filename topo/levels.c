/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/levels.c - partitions by what can reach what.
 */
#include "topo/levels.h"

#include "base/check.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ---------------------------------------------------------------
 */

static int count_places(const wefti_paths *paths, int cpu_places)
{
    int count = 0;
    for (int host = 0; host < paths->host_count; host++) {
        int gpus = paths->hosts[host].gpu_count;
        count += gpus > 0 ? gpus : cpu_places;
    }
    return count;
}

static void fill_places(const wefti_paths *paths, int cpu_places,
                        wefti_levels *levels)
{
    int at = 0;
    for (int host = 0; host < paths->host_count; host++) {
        const wefti_host_paths *h = &paths->hosts[host];
        int count = h->gpu_count > 0 ? h->gpu_count : cpu_places;
        for (int i = 0; i < count; i++, at++) {
            levels->hosts[at] = host;
            levels->gpus[at] = h->gpu_count > 0 ? h->first_gpu + i : -1;
            levels->rails[at] =
                h->gpu_count > 0 ? wefti_paths_nic_of(paths, h->first_gpu + i)
                                 : -1;
        }
    }
}

/* ---- partitions -----------------------------------------------------------
 */

/* Numbers domains by their first place; join says who is together. Only
 * places of one host are asked for. */
static int part(const wefti_paths *paths, const wefti_levels *levels,
                bool (*join)(const wefti_paths *, const wefti_levels *, int,
                             int),
                int *domains)
{
    int count = 0, n = levels->place_count;
    for (int i = 0; i < n; i++) {
        domains[i] = -1;
        for (int j = i - 1; j >= 0 && levels->hosts[j] == levels->hosts[i];
             j--) {
            if (join(paths, levels, j, i)) {
                domains[i] = domains[j];
            }
        }
        domains[i] = domains[i] < 0 ? count++ : domains[i];
    }
    return count;
}

static bool by_nvlink(const wefti_paths *paths, const wefti_levels *levels,
                      int a, int b)
{
    return levels->gpus[a] >= 0 && levels->gpus[b] >= 0 &&
           wefti_path_gpu_gpu(paths, levels->gpus[a], levels->gpus[b]).type <=
               WEFTI_PATH_NVB;
}

static int numa_of(const wefti_paths *paths, const wefti_levels *levels, int a)
{
    return levels->gpus[a] < 0
               ? -1
               : wefti_topo_numa(paths->topo, paths->gpus[levels->gpus[a]]);
}

static bool by_numa(const wefti_paths *paths, const wefti_levels *levels, int a,
                    int b)
{
    int numa = numa_of(paths, levels, a);
    return numa >= 0 && numa == numa_of(paths, levels, b);
}

static bool by_host(const wefti_paths *paths, const wefti_levels *levels, int a,
                    int b)
{
    (void)paths;
    return levels->hosts[a] == levels->hosts[b];
}

/* Whether each domain of inner lies in one of outer. */
static bool is_nested(const int *inner, const int *outer, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = i - 1; j >= 0 && j >= i - 256; j--) {
            if (inner[i] == inner[j] && outer[i] != outer[j]) {
                return false;
            }
        }
    }
    return true;
}

static weft_status
add_level(const wefti_paths *paths, wefti_levels *levels, const char *name,
          bool (*join)(const wefti_paths *, const wefti_levels *, int, int))
{
    int n = levels->place_count, count = n > 0 ? 1 : 0;
    int *domains = calloc((size_t)n + 1, sizeof(int));
    if (!domains) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "levels of %d places", n);
    }
    if (join) {
        count = part(paths, levels, join, domains);
    }
    int at = levels->level_count;
    int below = n; /* domains of the level inside */
    for (int i = 0; i < n && at > 0; i++) {
        below = i == 0 ? 1
                       : (levels->domains[at - 1][i] >= below
                              ? levels->domains[at - 1][i] + 1
                              : below);
    }
    bool fits = count < below &&
                (at == 0 || is_nested(levels->domains[at - 1], domains, n));
    if (!fits) {
        free(domains);
        return WEFT_OK;
    }
    levels->domains[at] = domains;
    levels->names[at] = name;
    levels->level_count++;
    return WEFT_OK;
}

/* The least bandwidth of two neighbours that meet at the level. */
static void find_rates(const wefti_paths *paths, wefti_levels *levels)
{
    for (int level = 0; level < levels->level_count; level++) {
        levels->GBps[level] = 0;
        for (int i = 1; i < levels->place_count; i++) {
            int a = levels->gpus[i - 1], b = levels->gpus[i];
            if (a < 0 || b < 0 ||
                wefti_levels_meet(levels, i - 1, i) != level) {
                continue;
            }
            double GBps = wefti_path_gpu_gpu(paths, a, b).GBps;
            levels->GBps[level] = levels->GBps[level] > 0
                                      ? fmin(levels->GBps[level], GBps)
                                      : GBps;
        }
    }
}

weft_status wefti_levels_create(const wefti_paths *paths, int cpu_places,
                                wefti_levels **levels_out)
{
    if (cpu_places < 1 || cpu_places > 1 << 16) {
        return wefti_error(WEFT_ERR_INVALID,
                           "cpu_places %d: allowed is 1 to %d", cpu_places,
                           1 << 16);
    }
    wefti_levels *levels = calloc(1, sizeof(*levels));
    if (!levels) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "levels");
    }
    levels->place_count = count_places(paths, cpu_places);
    size_t room = (size_t)levels->place_count + 1;
    levels->gpus = calloc(room, sizeof(int));
    levels->hosts = calloc(room, sizeof(int));
    levels->rails = calloc(room, sizeof(int));
    weft_status status = WEFT_OK;
    if (!levels->gpus || !levels->hosts || !levels->rails) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "%zu places", room);
    } else {
        fill_places(paths, cpu_places, levels);
        status = add_level(paths, levels, "nvlink", by_nvlink);
    }
    if (status == WEFT_OK) {
        status = add_level(paths, levels, "numa", by_numa);
    }
    if (status == WEFT_OK) {
        status = add_level(paths, levels, "host", by_host);
    }
    if (status == WEFT_OK && paths->host_count > 1) {
        status = add_level(paths, levels, "network", NULL);
    }
    if (status != WEFT_OK) {
        wefti_levels_destroy(levels);
        levels = NULL;
    } else {
        find_rates(paths, levels);
    }
    *levels_out = levels;
    return status;
}

void wefti_levels_destroy(wefti_levels *levels)
{
    if (!levels) {
        return;
    }
    for (int i = 0; i < WEFTI_LEVELS_MOST; i++) {
        free(levels->domains[i]);
    }
    free(levels->gpus);
    free(levels->hosts);
    free(levels->rails);
    free(levels);
}

int wefti_levels_meet(const wefti_levels *levels, int a, int b)
{
    int level = 0;
    while (level + 1 < levels->level_count &&
           levels->domains[level][a] != levels->domains[level][b]) {
        level++;
    }
    return level;
}
