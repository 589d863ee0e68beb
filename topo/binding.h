/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/binding.h - which CPUs each rank of a host may run on: those near its
 * GPU or NIC, shared fairly, within what the process may use.
 *
 * What may be used is what the kernel says, and no more CPUs than the time
 * that its control groups grant the process.
 */
#ifndef TOPO_BINDING_H
#define TOPO_BINDING_H

#include "topo/cpus.h"
#include "topo/graph.h"

typedef struct wefti_bound {
    wefti_cpus cpus;
    int cpu_count;
    int numa;    /* the node whose memory is near, by the system's number; -1 */
    bool shared; /* more ranks than CPUs: others run there too */
} wefti_bound;

/*
 * wefti_binding_devices - what each rank of this host would use: the GPUs in
 * turn, without any the ports of RDMA cards, without those nothing.
 */
void wefti_binding_devices(const wefti_topo *topo, int rank_count,
                           int *devices_out);

/*
 * wefti_binding_plan - pure: one answer per rank of this host.
 *
 * devices     GPU or NIC of each rank, device of topo; -1: none.
 * allowed     not empty.
 * bounds_out  [rank_count]. CPUs of different ranks are disjoint unless
 *             there are fewer CPUs than ranks, cores too unless there are
 *             fewer cores; a rank whose device's place is unknown gets of what
 *             is left. With a quota no more CPUs are given out than it is
 *             worth, or one for each node with ranks.
 *
 * Returns     OK | ERR_INVALID (no rank, no CPU).
 */
WEFT_NODISCARD weft_status wefti_binding_plan(const wefti_topo *topo,
                                              const int *devices,
                                              int rank_count,
                                              const wefti_allowance *allowed,
                                              wefti_bound *bounds_out);

/*
 * wefti_binding_apply - the calling thread, and what it starts later, runs on
 * those CPUs; its memory comes from that node where there is room.
 *
 * Returns     OK | ERR_SYSTEM; a kernel without NUMA memory policies is OK.
 */
WEFT_NODISCARD weft_status wefti_binding_apply(const wefti_bound *bound);

#endif
