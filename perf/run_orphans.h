/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_orphans.h - what ranks leave behind: processes that they started
 * and did not wait for.
 *
 * weft-run adopts them (the kernel gives the orphans of a subreaper's
 * descendants to it), and ends them when the last rank has ended.
 */
#ifndef PERF_RUN_ORPHANS_H
#define PERF_RUN_ORPHANS_H

#include "weft/status.h"

#include <stddef.h>
#include <sys/types.h>

/* Children that weft-run had before it started a job: not its business. */
typedef struct run_strangers {
    pid_t *pids;
    size_t count;
} run_strangers;

/*
 * run_orphans_adopt - from now on orphans become weft-run's children.
 *
 * Returns     OK | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status run_orphans_adopt(run_strangers *strangers_out);

/*
 * run_orphans_end - SIGTERM, after a grace SIGKILL, to all children but the
 * strangers, until none is left.
 *
 * Blocks      for some seconds at most.
 */
void run_orphans_end(const run_strangers *strangers);

void run_orphans_fini(run_strangers *strangers);

#endif
