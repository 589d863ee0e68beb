/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/binding.h - which CPUs each rank of a host may run on: those near its
 * GPU or NIC, shared fairly, within what the process may use.
 *
 * What may be used is what the kernel says (cpuset, taskset, container). A
 * control group's CPU quota is not looked at.
 */
#ifndef TOPO_BINDING_H
#define TOPO_BINDING_H

#include "topo/graph.h"

#define WEFTI_CPUS_MOST 2048

/* Bit c % 64 of word c / 64: CPU c. */
typedef struct wefti_cpus {
    uint64_t words[WEFTI_CPUS_MOST / 64];
} wefti_cpus;

typedef struct wefti_bound {
    wefti_cpus cpus;
    int cpu_count;
    int numa;    /* the node whose memory is near, by the system's number; -1 */
    bool shared; /* more ranks than CPUs: others run there too */
} wefti_bound;

static inline bool wefti_cpus_has(const wefti_cpus *set, int cpu)
{
    return set->words[cpu / 64] >> cpu % 64 & 1;
}

int wefti_cpus_count(const wefti_cpus *set);

/* "0000ffff,ffffffff" (a NUMA node's affinity) to a set; empty where it is no
 * such text. */
void wefti_cpus_read(const char *affinity, wefti_cpus *set);

/* CPUs that the calling thread may use. Returns OK | ERR_SYSTEM. */
WEFT_NODISCARD weft_status wefti_cpus_allowed(wefti_cpus *set);

/*
 * wefti_binding_plan - pure: one answer per rank of this host.
 *
 * devices     GPU or NIC of each rank, device of topo; -1: none.
 * allowed     not empty.
 * bounds_out  [rank_count]. CPUs of different ranks are disjoint unless
 *             there are fewer CPUs than ranks; a rank whose device's place is
 *             unknown gets of what is left.
 *
 * Returns     OK | ERR_INVALID (no rank, no CPU).
 */
WEFT_NODISCARD weft_status wefti_binding_plan(const wefti_topo *topo,
                                              const int *devices,
                                              int rank_count,
                                              const wefti_cpus *allowed,
                                              wefti_bound *bounds_out);

/*
 * wefti_binding_apply - the calling thread, and what it starts later, runs on
 * those CPUs; its memory comes from that node where there is room.
 *
 * Returns     OK | ERR_SYSTEM; a kernel without NUMA memory policies is OK.
 */
WEFT_NODISCARD weft_status wefti_binding_apply(const wefti_bound *bound);

#endif
