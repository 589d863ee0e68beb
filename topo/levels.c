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

/* Which host each place is on; GPUs and rails follow. */
static void list_hosts(const wefti_paths *paths, int cpu_places, int *hosts)
{
    int at = 0;
    for (int host = 0; host < paths->host_count; host++) {
        int gpus = paths->hosts[host].gpu_count;
        for (int i = 0; i < (gpus > 0 ? gpus : cpu_places); i++) {
            hosts[at++] = host;
        }
    }
}

static void fill_places(const wefti_paths *paths, wefti_levels *levels)
{
    for (int i = 0, turn = 0; i < levels->place_count; i++) {
        const wefti_host_paths *host = &paths->hosts[levels->hosts[i]];
        bool same = i > 0 && levels->hosts[i - 1] == levels->hosts[i];
        turn = same ? turn + 1 : 0;
        levels->gpus[i] = levels->rails[i] = -1;
        if (host->gpu_count > 0) {
            levels->gpus[i] = host->first_gpu + turn % host->gpu_count;
            levels->rails[i] = wefti_paths_nic_of(paths, levels->gpus[i]);
        }
    }
}

/* ---- partitions -----------------------------------------------------------
 */

typedef bool joins(const wefti_paths *, const wefti_levels *, int, int);

/* The place of its clique's other hosts that it is together with by NVLink; -1:
 * none so far. leaders: of each clique the first place that reaches others. */
static int find_leader(const wefti_paths *paths, const wefti_levels *levels,
                       int place, int *leaders)
{
    int *leader = &leaders[paths->host_cliques[levels->hosts[place]]];
    if (levels->gpus[place] < 0 ||
        !wefti_paths_leaves_host(paths, levels->gpus[place])) {
        return -1;
    }
    if (*leader < 0) {
        *leader = place;
        return -1;
    }
    return *leader;
}

/* Numbers domains by their first place; join says which places of one host are
 * together. leaders NULL: places of different hosts never are. */
static int part(const wefti_paths *paths, const wefti_levels *levels,
                joins *join, int *leaders, int *domains)
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
        int leader = leaders ? find_leader(paths, levels, i, leaders) : -1;
        if (domains[i] < 0 && leader >= 0 && leader != i) {
            domains[i] = domains[leader];
        }
        domains[i] = domains[i] < 0 ? count++ : domains[i];
    }
    return count;
}

static joins by_nvlink;

static int part_by(const wefti_paths *paths, const wefti_levels *levels,
                   joins *join, int *leaders, int *domains)
{
    for (int i = 0; i < paths->clique_count; i++) {
        leaders[i] = -1;
    }
    return part(paths, levels, join, join == by_nvlink ? leaders : NULL,
                domains);
}

static bool by_nvlink(const wefti_paths *paths, const wefti_levels *levels,
                      int a, int b)
{
    return levels->gpus[a] >= 0 && levels->gpus[b] >= 0 &&
           wefti_path_gpu_gpu(paths, levels->gpus[a], levels->gpus[b]).type <=
               WEFTI_PATH_XGB;
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

static weft_status add_level(const wefti_paths *paths, wefti_levels *levels,
                             const char *name, joins *join)
{
    int n = levels->place_count, count = n > 0 ? 1 : 0;
    int *domains = calloc((size_t)n + 1, sizeof(int));
    int *leaders = calloc((size_t)paths->clique_count + 1, sizeof(int));
    if (!domains || !leaders) {
        free(domains);
        free(leaders);
        return wefti_error(WEFT_ERR_NO_MEMORY, "levels of %d places", n);
    }
    if (join) {
        count = part_by(paths, levels, join, leaders, domains);
    }
    free(leaders);
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

/* The least bandwidth of two neighbours whose innermost common level it is. */
static void find_rates(const wefti_paths *paths, wefti_levels *levels)
{
    for (int level = 0; level < levels->level_count; level++) {
        levels->GBps[level] = 0;
        for (int i = 1; i < levels->place_count; i++) {
            int a = levels->gpus[i - 1], b = levels->gpus[i];
            if (a < 0 || b < 0 ||
                wefti_levels_common(levels, i - 1, i) != level) {
                continue;
            }
            double GBps = wefti_path_gpu_gpu(paths, a, b).GBps;
            levels->GBps[level] = levels->GBps[level] > 0
                                      ? fmin(levels->GBps[level], GBps)
                                      : GBps;
        }
    }
}

static weft_status levels_open(int place_count, wefti_levels **levels_out)
{
    wefti_levels *levels = calloc(1, sizeof(*levels));
    if (!levels) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "levels");
    }
    size_t room = (size_t)place_count + 1;
    levels->place_count = place_count;
    levels->gpus = calloc(room, sizeof(int));
    levels->hosts = calloc(room, sizeof(int));
    levels->rails = calloc(room, sizeof(int));
    if (!levels->gpus || !levels->hosts || !levels->rails) {
        wefti_levels_destroy(levels);
        return wefti_error(WEFT_ERR_NO_MEMORY, "%zu places", room);
    }
    *levels_out = levels;
    return WEFT_OK;
}

/* All that follows from the hosts; ends levels where that fails. */
static weft_status levels_fill(const wefti_paths *paths, wefti_levels *levels,
                               wefti_levels **levels_out)
{
    int n = levels->place_count;
    fill_places(paths, levels);
    weft_status status = add_level(paths, levels, "nvlink", by_nvlink);
    if (status == WEFT_OK) {
        status = add_level(paths, levels, "numa", by_numa);
    }
    if (status == WEFT_OK) {
        status = add_level(paths, levels, "host", by_host);
    }
    if (status == WEFT_OK && n > 0 && levels->hosts[n - 1] > levels->hosts[0]) {
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

weft_status wefti_levels_create(const wefti_paths *paths, int cpu_places,
                                wefti_levels **levels_out)
{
    wefti_levels *levels;
    if (cpu_places < 1 || cpu_places > 1 << 16) {
        return wefti_error(WEFT_ERR_INVALID,
                           "cpu_places %d: allowed is 1 to %d", cpu_places,
                           1 << 16);
    }
    weft_status status = levels_open(count_places(paths, cpu_places), &levels);
    if (status != WEFT_OK) {
        return status;
    }
    list_hosts(paths, cpu_places, levels->hosts);
    return levels_fill(paths, levels, levels_out);
}

weft_status wefti_levels_create_of(const wefti_paths *paths, const int *hosts,
                                   int place_count, wefti_levels **levels_out)
{
    wefti_levels *levels;
    for (int i = 0; i < place_count; i++) {
        if (hosts[i] < (i > 0 ? hosts[i - 1] : 0) ||
            hosts[i] >= paths->host_count) {
            return wefti_error(WEFT_ERR_INVALID,
                               "place %d on host %d: allowed is from the host "
                               "of the place before to %d",
                               i, hosts[i], paths->host_count - 1);
        }
    }
    weft_status status = levels_open(place_count, &levels);
    if (status != WEFT_OK) {
        return status;
    }
    memcpy(levels->hosts, hosts, (size_t)place_count * sizeof(*hosts));
    return levels_fill(paths, levels, levels_out);
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

int wefti_levels_common(const wefti_levels *levels, int a, int b)
{
    int level = 0;
    while (level + 1 < levels->level_count &&
           levels->domains[level][a] != levels->domains[level][b]) {
        level++;
    }
    return level;
}
