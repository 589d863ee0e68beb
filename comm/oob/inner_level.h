/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/inner_level.h - in which group of ranks that share memory a rank is,
 * level by level: its NUMA node, or what WEFT_LEVELS says.
 */
#ifndef COMM_OOB_INNER_LEVEL_H
#define COMM_OOB_INNER_LEVEL_H

#include "weft/status.h"

#include <sched.h>
#include <stdbool.h>

/* Levels inside a host that a job's ranks tell each other of. */
enum { WEFTI_PLACE_LEVELS = 2, WEFTI_INNER_LABEL_BYTES = 64 };

/*
 * wefti_inner_levels_check - whether WEFT_LEVELS fits a job of so many ranks.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_inner_levels_check(int nranks);

/*
 * wefti_inner_level_label - a name that ranks of one group have in common; ""
 * where the level parts nothing. level: 0 is the innermost.
 */
void wefti_inner_level_label(int rank, int level,
                             char label_out[WEFTI_INNER_LABEL_BYTES]);

/* Whether that name is of the NUMA node that the rank is bound to. */
bool wefti_inner_level_is_numa(int level);

/*
 * wefti_numa_find - the NUMA node that has all those CPUs; -1: none has, or
 * the kernel does not say. sysfs: "/sys"; tests set another folder.
 */
int wefti_numa_find(const char *sysfs, const cpu_set_t *cpus);

#endif
