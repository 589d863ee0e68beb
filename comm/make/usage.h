/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/usage.h - what a rank's own threads have cost so far: the progress
 * thread and, between hosts, the one that watches the network.
 */
#ifndef COMM_MAKE_USAGE_H
#define COMM_MAKE_USAGE_H

#include "weft/comm.h"

#include <stdint.h>

struct wefti_engine;

/*
 * wakeups   how often one of them returned from a sleep: on a bell, on the
 *           network's descriptor, for a while. Each may interrupt the thread
 *           that computes on that core.
 * cpu_ns    CPU time of these threads
 */
typedef struct wefti_usage {
    uint64_t wakeups;
    int64_t cpu_ns;
} wefti_usage;

/* net, driver: of the threads that watch its network, and drive it, and perhaps
 * those of other engines. net_of, of: which threads these are; NULL: none.
 * signals: of the program's threads that carried operations on when they
 * signalled. */
typedef struct wefti_engine_usage {
    wefti_usage net, driver, signals;
    const void *net_of, *of;
} wefti_engine_usage;

/* The engine that drives comm, which has its own usage; it lives as long. */
const struct wefti_engine *wefti_comm_get_engine(const weft_comm *comm);

/* Since the engine was made. Threads: any.  Blocks: no. */
wefti_engine_usage wefti_engine_get_usage(const struct wefti_engine *engine);

#endif
