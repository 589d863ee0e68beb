/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/binding.c - shares CPUs out, node by node.
 *
 * Each rank is first given a node: its device's, else the one with the most
 * CPUs a rank. Where time is short, each node keeps its share of CPUs, one
 * thread a core first. A node's cores, or its CPUs where it has more ranks than
 * cores, are then cut into as many runs of neighbours as it has ranks, sizes
 * differing by one at most.
 */
#include "topo/binding.h"

#include "base/check.h"
#include "base/error.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_MOST 1024

/* CPUs of one node that may be used, and the ranks that want them. */
typedef struct node {
    int device; /* -1: whatever no node names */
    wefti_cpus cpus;
    int cpu_count, rank_count;
    int keep; /* CPUs that time is granted for */
} node;

/* ---- the plan -------------------------------------------------------------
 */

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
        wefti_cpus_intersect(&n->cpus, &rest);
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

/* ---- cores ----------------------------------------------------------------
 */

/* A node's CPUs, core by core. */
typedef struct cpu_list {
    int count, core_count;
    int cpus[WEFTI_CPUS_MOST];
    int cores[WEFTI_CPUS_MOST];   /* of each, counted from 0 up */
    int threads[WEFTI_CPUS_MOST]; /* its number within the core */
} cpu_list;

/* In order of each core's lowest CPU. */
static void list_cpus(const wefti_cpus *set, const wefti_allowance *allowed,
                      cpu_list *list)
{
    list->count = list->core_count = 0;
    for (int cpu = 0; cpu < WEFTI_CPUS_MOST; cpu++) {
        int core = allowed->core_of[cpu];
        bool first = wefti_cpus_has(set, cpu);
        for (int i = 0; i < list->count && first; i++) {
            first = list->cpus[i] != cpu; /* its core has been listed */
        }
        for (int other = cpu, thread = 0; first && other < WEFTI_CPUS_MOST;
             other++) {
            if (wefti_cpus_has(set, other) &&
                (other == cpu ||
                 (core > 0 && allowed->core_of[other] == core))) {
                list->cpus[list->count] = other;
                list->cores[list->count] = list->core_count;
                list->threads[list->count++] = thread++;
            }
        }
        list->core_count += first;
    }
}

/* Leaves the node as many CPUs, all cores' first threads before any second. */
static void trim(node *n, const wefti_allowance *allowed, cpu_list *list)
{
    int keep = n->keep;
    if (n->cpu_count <= keep) {
        return;
    }
    list_cpus(&n->cpus, allowed, list);
    memset(&n->cpus, 0, sizeof(n->cpus));
    n->cpu_count = 0;
    for (int thread = 0; n->cpu_count < keep; thread++) {
        for (int i = 0; i < list->count && n->cpu_count < keep; i++) {
            if (list->threads[i] == thread) {
                wefti_cpus_add(&n->cpus, list->cpus[i]);
                n->cpu_count++;
            }
        }
    }
}

/* Each node's part of the quota is that of its ranks, one CPU at least; a node
 * that got that one beyond the quota takes it from the node that has most. */
static void share_quota(node *nodes, int count, int rank_count, int quota)
{
    int64_t before = 0;
    for (int i = 0; i < count; i++) {
        int64_t after = before + nodes[i].rank_count;
        nodes[i].keep =
            (int)(quota * after / rank_count - quota * before / rank_count);
        before = after;
    }
    for (int i = 0; i < count; i++) {
        if (nodes[i].rank_count > 0 && nodes[i].keep == 0) {
            int most = 0;
            for (int j = 1; j < count; j++) {
                most = nodes[j].keep > nodes[most].keep ? j : most;
            }
            nodes[most].keep -= nodes[most].keep > 1;
            nodes[i].keep = 1;
        }
    }
}

/* Rank number `at` of a node gets its run of neighbours. */
static void share(const wefti_topo *topo, const node *n, int at,
                  const cpu_list *list, wefti_bound *out)
{
    WEFTI_ASSERT(n->rank_count > 0);
    bool by_core = n->rank_count <= list->core_count;
    int64_t units = by_core ? list->core_count : n->cpu_count;
    int begin = (int)(units * at / n->rank_count);
    int end = (int)(units * (at + 1) / n->rank_count);
    *out = (wefti_bound){
        .numa = n->device < 0 ? -1 : topo->devices[n->device].os_index,
        .shared = n->rank_count > n->cpu_count};
    end = end > begin ? end : begin + 1; /* more ranks than CPUs */
    for (int i = 0; i < list->count; i++) {
        int unit = by_core ? list->cores[i] : i;
        if (unit >= begin && unit < end) {
            wefti_cpus_add(&out->cpus, list->cpus[i]);
            out->cpu_count++;
        }
    }
}

/* ---- the plan -------------------------------------------------------------
 */

/* Whether ranks of the host would use it, as a GPU or as a port. */
static bool serves(const wefti_topo *topo, int device, int host, bool as_gpu)
{
    const wefti_device *d = &topo->devices[device];
    if (d->host != host) {
        return false;
    }
    return as_gpu ? d->kind == WEFTI_TOPO_GPU
                  : wefti_topo_nic_usable(topo, device) &&
                        d->nic.kind != WEFTI_NIC_ETHERNET;
}

/* The next one after `before` in the ring of those that serve; -1: none. */
static int next_server(const wefti_topo *topo, int before, int host,
                       bool as_gpu)
{
    for (int i = 1; i <= topo->device_count; i++) {
        int device = (before + i) % topo->device_count;
        if (serves(topo, device, host, as_gpu)) {
            return device;
        }
    }
    return -1;
}

void wefti_binding_devices(const wefti_topo *topo, int rank_count,
                           int *devices_out)
{
    int host = wefti_topo_find(topo, WEFTI_TOPO_HOST, 0);
    bool gpus = next_server(topo, 0, host, true) >= 0;
    for (int rank = 0, at = topo->device_count - 1; rank < rank_count; rank++) {
        devices_out[rank] = next_server(topo, at, host, gpus);
        at = devices_out[rank] >= 0 ? devices_out[rank] : at;
    }
}

/* Where each rank sits: those with a place first. */
static void choose_nodes(const wefti_topo *topo, const int *devices,
                         int rank_count, node *nodes, int count, int *chosen)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int rank = 0; rank < rank_count; rank++) {
            int numa =
                devices[rank] >= 0 ? wefti_topo_numa(topo, devices[rank]) : -1;
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
}

weft_status wefti_binding_plan(const wefti_topo *topo, const int *devices,
                               int rank_count, const wefti_allowance *allowed,
                               wefti_bound *bounds_out)
{
    int cpu_count = wefti_cpus_count(&allowed->cpus);
    if (rank_count < 1 || cpu_count == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "binding %d ranks to %d CPUs: allowed is at least "
                           "one of each",
                           rank_count, cpu_count);
    }
    node *nodes = calloc(NODES_MOST, sizeof(*nodes));
    int *chosen = calloc((size_t)rank_count, sizeof(*chosen));
    cpu_list *list = calloc(1, sizeof(*list));
    weft_status status = WEFT_OK;
    if (!nodes || !chosen || !list) {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "binding %d ranks", rank_count);
    } else {
        int count = list_nodes(topo, &allowed->cpus, nodes);
        choose_nodes(topo, devices, rank_count, nodes, count, chosen);
        share_quota(nodes, count, rank_count, allowed->quota);
        for (int i = 0; i < count; i++) {
            if (allowed->quota > 0) {
                trim(&nodes[i], allowed, list);
            }
            list_cpus(&nodes[i].cpus, allowed, list);
            for (int rank = 0, turn = 0; rank < rank_count; rank++) {
                if (chosen[rank] == i) {
                    share(topo, &nodes[i], turn++, list, &bounds_out[rank]);
                }
            }
        }
    }
    free(nodes);
    free(chosen);
    free(list);
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
