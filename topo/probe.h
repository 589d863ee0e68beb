/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/probe.h - what can be measured of a host in a moment: memory bandwidth,
 * the hand-over from one core to another, copies between NUMA nodes.
 *
 * Results are kept in a file whose name is the topology's hash. Writers may
 * race: each writes a file of its own and renames it. A file that is damaged,
 * or of another topology, is measured anew. What was disturbed is not kept.
 */
#ifndef TOPO_PROBE_H
#define TOPO_PROBE_H

#include "topo/graph.h"

#define WEFTI_PROBE_PAIRS_MOST 64

typedef struct wefti_probe {
    double copy_GBps;   /* one thread, memory to memory */
    double handover_us; /* a cache line to another core and back, halved; 0:
                           there is one core only, or others took the cores */
    int pair_count;     /* of NUMA nodes, by the system's numbers */
    int pairs[WEFTI_PROBE_PAIRS_MOST][2];
    double pair_GBps[WEFTI_PROBE_PAIRS_MOST];
    bool from_cache;
    bool steady; /* all of it was measured, and its rounds agree */
} wefti_probe;

/*
 * wefti_probe_run - measures (about 0.2 s), or reads what was measured before.
 *
 * folder      where the file is or will be; made if missing; NULL: no file.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM (no thread could be started). A
 *             folder that cannot be written is no error: nothing is kept.
 */
WEFT_NODISCARD weft_status wefti_probe_run(const wefti_topo *topo,
                                           const char *folder,
                                           wefti_probe *probe_out);

/* Puts what was measured into the links between NUMA nodes, if there are. */
void wefti_probe_apply(const wefti_probe *probe, wefti_topo *topo);

/* The name of the file in the folder, for that topology. */
#define WEFTI_PROBE_NAME_BYTES 48
WEFT_NODISCARD weft_status wefti_probe_name(const wefti_topo *topo,
                                            char name[WEFTI_PROBE_NAME_BYTES]);

/*
 * wefti_probe_settle - the shortest of several rounds; sorts them.
 *
 * steady      becomes false where half of them took far longer than that.
 */
double wefti_probe_settle(double *rounds, int count, bool *steady);

/* The parts of it that keep files (probe_cache.c). */
bool wefti_probe_load(const char *path, const char *name, wefti_probe *out);
void wefti_probe_store(const char *folder, const char *name,
                       const wefti_probe *probe);

#endif
