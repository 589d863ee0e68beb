/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/levels.h - nested partitions of the places where ranks can be: by which
 * links places reach each other, the fastest first.
 *
 *     nvlink    GPUs joined by NVLink or XGMI, of all hosts of an NVLink domain
 *     numa      one NUMA node; left out where it would cut an NVLink clique
 *     host      shared memory
 *     network   all places
 *
 * A level that parts nothing its neighbour does not is left out. Places are
 * the GPUs; a host without GPUs counts as many places as the caller states.
 */
#ifndef TOPO_LEVELS_H
#define TOPO_LEVELS_H

#include "topo/paths.h"

#define WEFTI_LEVELS_MOST 4

typedef struct wefti_levels {
    int place_count, level_count;
    const char *names[WEFTI_LEVELS_MOST];
    double GBps[WEFTI_LEVELS_MOST];  /* least of pairs that it joins */
    int *domains[WEFTI_LEVELS_MOST]; /* [place_count] numbers from 0 up */
    int *gpus;  /* GPU of each place, by ordinal; -1: a CPU */
    int *hosts; /* host of each place, by ordinal */
    int *rails; /* NIC of each place, by ordinal; -1 none */
} wefti_levels;

/*
 * wefti_levels_create - of all hosts of the graph.
 *
 * cpu_places  places on each host that has no GPU, at least 1.
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_levels_create(const wefti_paths *paths,
                                               int cpu_places,
                                               wefti_levels **levels_out);

/*
 * wefti_levels_create_of - of a job that runs: place i is on hosts[i], which
 * never falls. A host's places have its GPUs in turn.
 *
 * Returns     OK | ERR_INVALID (a host that is not there, or a lower one after
 *             a higher) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_levels_create_of(const wefti_paths *paths,
                                                  const int *hosts,
                                                  int place_count,
                                                  wefti_levels **levels_out);
void wefti_levels_destroy(wefti_levels *levels); /* takes NULL */

/* The innermost level in which both are together. */
int wefti_levels_common(const wefti_levels *levels, int a, int b);

#endif
