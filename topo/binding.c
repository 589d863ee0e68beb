/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/binding.c - shares CPUs out, node by node.
 *
 * Each rank is first given a node: its device's, else the one with the most
 * CPUs a rank. A node's CPUs are then cut into as many runs of neighbours as
 * it has ranks, sizes differing by one at most.
 */
#include "topo/binding.h"

#include "base/error.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_MOST 1024

/* CPUs of one node that may be used, and who wants them. */
typedef struct node {
    int device; /* -1: whatever no node names */
    wefti_cpus cpus;
    int cpu_count, rank_count;
} node;

int wefti_cpus_count(const wefti_cpus *set)
{
    int count = 0;
    for (size_t i = 0; i < sizeof(set->words) / sizeof(set->words[0]); i++) {
        count += __builtin_popcountll(set->words[i]);
    }
    return count;
}

void wefti_cpus_read(const char *affinity, wefti_cpus *set)
{
    int words = 1;
    memset(set, 0, sizeof(*set));
    if (!affinity[0]) {
        return;
    }
    for (const char *c = affinity; *c; c++) {
        words += *c == ',';
    }
    while (words-- > 0) {
        uint64_t bits = strtoul(affinity, NULL, 16) & 0xffffffff;
        if (words < WEFTI_CPUS_MOST / 32) {
            set->words[words / 2] |= bits << 32 * (words % 2);
        }
        const char *comma = strchr(affinity, ',');
        affinity = comma ? comma + 1 : "0";
    }
}

weft_status wefti_cpus_allowed(wefti_cpus *set)
{
    size_t bytes = CPU_ALLOC_SIZE(WEFTI_CPUS_MOST);
    cpu_set_t *mask = CPU_ALLOC(WEFTI_CPUS_MOST);
    if (!mask) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a set of CPUs");
    }
    weft_status status = WEFT_OK;
    memset(set, 0, sizeof(*set));
    CPU_ZERO_S(bytes, mask);
    if (sched_getaffinity(0, bytes, mask) != 0) {
        status = wefti_error_system("sched_getaffinity");
    }
    for (size_t cpu = 0; cpu < WEFTI_CPUS_MOST && status == WEFT_OK; cpu++) {
        if (CPU_ISSET_S(cpu, bytes, mask)) {
            set->words[cpu / 64] |= (uint64_t)1 << cpu % 64;
        }
    }
    CPU_FREE(mask);
    return status;
}

/* ---- the plan -------------------------------------------------------------
 */

static void intersect(wefti_cpus *set, const wefti_cpus *with)
{
    for (size_t i = 0; i < sizeof(set->words) / sizeof(set->words[0]); i++) {
        set->words[i] &= with->words[i];
    }
}

/* Nodes of the host with CPUs that may be used; the last holds the rest. */
static int list_nodes(const wefti_topo *topo, const wefti_cpus *allowed,
                      node *nodes)
{
    wefti_cpus rest = *allowed;
    int count = 0;
    for (int i = 0; i < topo->device_count && count < NODES_MOST - 1; i++) {
        const wefti_device *d = &topo->devices[i];
        if (d->kind != WEFTI_TOPO_NUMA || d->os_index < 0 ||
            topo->devices[d->host].ordinal != 0) {
            continue;
        }
        node *n = &nodes[count];
        *n = (node){.device = i};
        wefti_cpus_read(d->cpu.affinity, &n->cpus);
        intersect(&n->cpus, &rest);
        n->cpu_count = wefti_cpus_count(&n->cpus);
        for (size_t w = 0; w < sizeof(rest.words) / sizeof(rest.words[0]);
             w++) {
            rest.words[w] &= ~n->cpus.words[w];
        }
        count += n->cpu_count > 0;
    }
    nodes[count] = (node){.device = -1, .cpus = rest};
    nodes[count].cpu_count = wefti_cpus_count(&rest);
    return count + (nodes[count].cpu_count > 0);
}

/* Where a rank without a place finds the most CPUs for itself. */
static int emptiest(const node *nodes, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        if ((int64_t)nodes[i].cpu_count * (nodes[best].rank_count + 1) >
            (int64_t)nodes[best].cpu_count * (nodes[i].rank_count + 1)) {
            best = i;
        }
    }
    return best;
}

/* Rank number `at` of a node gets its run of neighbours. */
static void share(const wefti_topo *topo, const node *n, int at,
                  wefti_bound *out)
{
    int begin = (int)((int64_t)n->cpu_count * at / n->rank_count);
    int end = (int)((int64_t)n->cpu_count * (at + 1) / n->rank_count);
    *out = (wefti_bound){
        .numa = n->device < 0 ? -1 : topo->devices[n->device].os_index,
        .shared = n->rank_count > n->cpu_count};
    end = end > begin ? end : begin + 1; /* more ranks than CPUs */
    for (int cpu = 0, seen = 0; cpu < WEFTI_CPUS_MOST; cpu++) {
        if (wefti_cpus_has(&n->cpus, cpu)) {
            if (seen >= begin && seen < end) {
                out->cpus.words[cpu / 64] |= (uint64_t)1 << cpu % 64;
                out->cpu_count++;
            }
            seen++;
        }
    }
}

weft_status wefti_binding_plan(const wefti_topo *topo, const int *devices,
                               int rank_count, const wefti_cpus *allowed,
                               wefti_bound *bounds_out)
{
    if (rank_count < 1 || wefti_cpus_count(allowed) == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "binding %d ranks to %d CPUs: allowed is at least "
                           "one of each",
                           rank_count, wefti_cpus_count(allowed));
    }
    node *nodes = calloc(NODES_MOST, sizeof(*nodes));
    int *chosen = calloc((size_t)rank_count, sizeof(*chosen));
    int *turn = calloc(NODES_MOST, sizeof(*turn));
    weft_status status = WEFT_OK;
    if (!nodes || !chosen || !turn) {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "binding %d ranks", rank_count);
    } else {
        int count = list_nodes(topo, allowed, nodes);
        for (int pass = 0; pass < 2; pass++) { /* those with a place first */
            for (int rank = 0; rank < rank_count; rank++) {
                int numa = devices[rank] >= 0
                               ? wefti_topo_numa(topo, devices[rank])
                               : -1;
                int at = -1;
                for (int i = 0; i < count && numa >= 0; i++) {
                    at = nodes[i].device == numa ? i : at;
                }
                if ((at >= 0) == (pass == 0)) {
                    chosen[rank] = at >= 0 ? at : emptiest(nodes, count);
                    nodes[chosen[rank]].rank_count++;
                }
            }
        }
        for (int rank = 0; rank < rank_count; rank++) {
            share(topo, &nodes[chosen[rank]], turn[chosen[rank]]++,
                  &bounds_out[rank]);
        }
    }
    free(nodes);
    free(chosen);
    free(turn);
    return status;
}

/* ---- applying it ----------------------------------------------------------
 */

/* "Prefer this node": the number of the policy in the kernel's interface. */
#define MEMORY_PREFERRED 1

static weft_status prefer_memory(int numa)
{
    unsigned long mask[NODES_MOST / (8 * sizeof(unsigned long))] = {0};
    size_t bits = 8 * sizeof(unsigned long);
    if (numa < 0 || numa >= NODES_MOST) {
        return WEFT_OK;
    }
    mask[(size_t)numa / bits] = 1ul << (size_t)numa % bits;
    if (syscall(SYS_set_mempolicy, MEMORY_PREFERRED, mask,
                (unsigned long)NODES_MOST) != 0 &&
        errno != ENOSYS && errno != EPERM && errno != EINVAL) {
        return wefti_error_system("set_mempolicy to node %d", numa);
    }
    return WEFT_OK;
}

weft_status wefti_binding_apply(const wefti_bound *bound)
{
    size_t bytes = CPU_ALLOC_SIZE(WEFTI_CPUS_MOST);
    cpu_set_t *mask = CPU_ALLOC(WEFTI_CPUS_MOST);
    if (!mask) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a set of CPUs");
    }
    CPU_ZERO_S(bytes, mask);
    for (size_t cpu = 0; cpu < WEFTI_CPUS_MOST; cpu++) {
        if (wefti_cpus_has(&bound->cpus, (int)cpu)) {
            CPU_SET_S(cpu, bytes, mask);
        }
    }
    weft_status status = WEFT_OK;
    if (sched_setaffinity(0, bytes, mask) != 0) {
        status = wefti_error_system("sched_setaffinity to %d CPUs",
                                    bound->cpu_count);
    }
    CPU_FREE(mask);
    return status == WEFT_OK ? prefer_memory(bound->numa) : status;
}
