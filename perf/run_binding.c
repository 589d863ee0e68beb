/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_binding.c - the topology layer's plan, for processes.
 */
#include "perf/run_binding.h"

#include "base/error.h"
#include "topo/topo.h"

#include <stdlib.h>

/* Adds one more rank's part. */
static void join(wefti_bound *all, const wefti_bound *one)
{
    for (int cpu = 0; cpu < WEFTI_CPUS_MOST; cpu++) {
        if (wefti_cpus_has(&one->cpus, cpu)) {
            wefti_cpus_add(&all->cpus, cpu);
        }
    }
    all->cpu_count = wefti_cpus_count(&all->cpus);
    all->numa = all->numa == one->numa ? all->numa : -1;
    all->shared |= one->shared;
}

weft_status run_binding_plan(int nranks, int ranks_per_process,
                             wefti_bound *bounds_out)
{
    wefti_topo *topo = NULL;
    wefti_allowance allowed;
    int *devices = calloc((size_t)nranks, sizeof(*devices));
    wefti_bound *bounds = calloc((size_t)nranks, sizeof(*bounds));
    weft_status status =
        devices && bounds
            ? wefti_topo_open_live(NULL, &topo)
            : wefti_error(WEFT_ERR_NO_MEMORY, "binding %d ranks", nranks);
    if (status == WEFT_OK) {
        status = wefti_allowance_read("/proc", "/sys", &allowed);
    }
    if (status == WEFT_OK) {
        wefti_binding_devices(topo, nranks, devices);
        status = wefti_binding_plan(topo, devices, nranks, &allowed, bounds);
    }
    for (int rank = 0; rank < nranks && status == WEFT_OK; rank++) {
        wefti_bound *process = &bounds_out[rank / ranks_per_process];
        if (rank % ranks_per_process == 0) {
            *process = bounds[rank];
        } else {
            join(process, &bounds[rank]);
        }
    }
    wefti_topo_destroy(topo);
    free(devices);
    free(bounds);
    return status;
}
