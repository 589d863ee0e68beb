/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/cpus.h - sets of CPUs, and which of them this process may use: by the
 * kernel's mask (cpuset, taskset, container) and by the time that its control
 * groups grant it.
 */
#ifndef TOPO_CPUS_H
#define TOPO_CPUS_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFTI_CPUS_MOST 2048

/* Bit c % 64 of word c / 64: CPU c. */
typedef struct wefti_cpus {
    uint64_t words[WEFTI_CPUS_MOST / 64];
} wefti_cpus;

/*
 * quota     how many CPUs' worth of time there is, rounded up; 0: no limit
 * core_of   1 + the lowest CPU of the same core; 0: a core of its own
 */
typedef struct wefti_allowance {
    wefti_cpus cpus;
    int quota;
    uint16_t core_of[WEFTI_CPUS_MOST];
} wefti_allowance;

static inline bool wefti_cpus_has(const wefti_cpus *set, int cpu)
{
    return set->words[cpu / 64] >> cpu % 64 & 1;
}

static inline void wefti_cpus_add(wefti_cpus *set, int cpu)
{
    set->words[cpu / 64] |= (uint64_t)1 << cpu % 64;
}

int wefti_cpus_count(const wefti_cpus *set);

/* Leaves in set what with has too. */
void wefti_cpus_intersect(wefti_cpus *set, const wefti_cpus *with);

/* "0000ffff,ffffffff" (a NUMA node's affinity) to a set; empty where it is no
 * such text. */
void wefti_cpus_read(const char *affinity, wefti_cpus *set);

/*
 * wefti_cpus_text - as taskset takes them: "0-3,8"; with strides also "0-126:2"
 * for every second one. What does not fit is left out, and "..." says so.
 */
void wefti_cpus_text(const wefti_cpus *set, bool strides, char *text,
                     size_t text_bytes);

/* CPUs that the calling thread may use. Returns OK | ERR_SYSTEM. */
WEFT_NODISCARD weft_status wefti_cpus_allowed(wefti_cpus *set);

/*
 * wefti_allowance_read - of the calling thread.
 *
 * proc, sysfs   "/proc", "/sys"; tests set other folders. What cannot be read
 *               there is no limit.
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_allowance_read(const char *proc,
                                                const char *sysfs,
                                                wefti_allowance *allowance_out);

#endif
