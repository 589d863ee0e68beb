/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/cliques.c - hosts by the NVLink domain of their GPUs.
 *
 * A host is in a domain if one of its GPUs is and none is in another: a GPU
 * whose links are all dead does not take its tray out of the rack.
 */
#include "topo/cliques.h"

#include "base/error.h"

#include <stdlib.h>

static uint64_t domain_of(const wefti_paths *paths, int host)
{
    const wefti_host_paths *h = &paths->hosts[host];
    uint64_t domain = 0;
    for (int i = 0; i < h->gpu_count; i++) {
        int device = paths->gpus[h->first_gpu + i];
        uint64_t own = paths->topo->devices[device].gpu.domain;
        if (own != 0 && domain != 0 && own != domain) {
            return 0;
        }
        domain = own != 0 ? own : domain;
    }
    return domain;
}

/* Hosts by domain, then by ordinal; host alone where there is none. */
typedef struct keyed {
    uint64_t domain;
    int host;
} keyed;

static int compare(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return x->domain != y->domain ? (x->domain < y->domain ? -1 : 1)
                                  : x->host - y->host;
}

/* The first host of each host's clique. */
static weft_status find_firsts(const wefti_paths *paths, int *firsts)
{
    size_t hosts = (size_t)paths->host_count;
    keyed *list = calloc(hosts + 1, sizeof(*list));
    if (!list) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "cliques of %zu hosts", hosts);
    }
    for (int i = 0; i < paths->host_count; i++) {
        list[i] = (keyed){domain_of(paths, i), i};
    }
    qsort(list, hosts, sizeof(*list), compare);
    for (int i = 0; i < paths->host_count; i++) {
        bool joins = i > 0 && list[i].domain != 0 &&
                     list[i].domain == list[i - 1].domain;
        firsts[list[i].host] = joins ? firsts[list[i - 1].host] : list[i].host;
    }
    free(list);
    return WEFT_OK;
}

/* Appends a host to the clique that is being listed. */
static void add_host(wefti_paths *paths, wefti_clique *clique, int host)
{
    const wefti_host_paths *h = &paths->hosts[host];
    paths->clique_hosts[clique->first_host + clique->host_count++] = host;
    for (int i = 0; i < h->gpu_count; i++) {
        paths->clique_gpus[clique->first_gpu + clique->gpu_count++] =
            h->first_gpu + i;
    }
    for (int i = 0; i < h->nic_count; i++) {
        paths->clique_nics[clique->first_nic + clique->nic_count++] =
            h->first_nic + i;
    }
}

/* firsts becomes the number of each host's clique. */
static void list_cliques(wefti_paths *paths, int *firsts)
{
    wefti_clique next = {0};
    for (int i = 0; i < paths->host_count; i++) {
        if (firsts[i] == i) {
            paths->host_cliques[i] = paths->clique_count++;
        } else {
            paths->host_cliques[i] = paths->host_cliques[firsts[i]];
        }
        paths->cliques[paths->host_cliques[i]].host_count++;
        paths->cliques[paths->host_cliques[i]].gpu_count +=
            paths->hosts[i].gpu_count;
        paths->cliques[paths->host_cliques[i]].nic_count +=
            paths->hosts[i].nic_count;
    }
    for (int i = 0; i < paths->clique_count; i++) {
        wefti_clique counted = paths->cliques[i];
        paths->cliques[i] = next;
        next.first_host += counted.host_count;
        next.first_gpu += counted.gpu_count;
        next.first_nic += counted.nic_count;
    }
    for (int i = 0; i < paths->host_count; i++) {
        add_host(paths, &paths->cliques[paths->host_cliques[i]], i);
    }
}

weft_status wefti_cliques_init(wefti_paths *paths)
{
    size_t hosts = (size_t)paths->host_count + 1;
    paths->cliques = calloc(hosts, sizeof(*paths->cliques));
    paths->host_cliques = calloc(hosts, sizeof(int));
    paths->clique_hosts = calloc(hosts, sizeof(int));
    paths->clique_gpus = calloc((size_t)paths->gpu_count + 1, sizeof(int));
    paths->clique_nics = calloc((size_t)paths->nic_count + 1, sizeof(int));
    int *firsts = calloc(hosts, sizeof(int));
    weft_status status =
        !paths->cliques || !paths->host_cliques || !paths->clique_hosts ||
                !paths->clique_gpus || !paths->clique_nics || !firsts
            ? wefti_error(WEFT_ERR_NO_MEMORY, "cliques of %zu hosts", hosts)
            : find_firsts(paths, firsts);
    if (status == WEFT_OK) {
        list_cliques(paths, firsts);
    }
    free(firsts);
    return status;
}

void wefti_cliques_fini(wefti_paths *paths)
{
    free(paths->cliques);
    free(paths->host_cliques);
    free(paths->clique_hosts);
    free(paths->clique_gpus);
    free(paths->clique_nics);
}
