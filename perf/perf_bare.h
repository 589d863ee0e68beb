/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_bare.h - what two threads on plain TCP sockets hide: the measure
 * for weft between hosts, in the same processes and the same rounds.
 *
 * Ranks form a ring: each sends to the next and receives from the one before.
 * One thread sends, part by part as the compute makes them, one receives; both
 * block. The receiver is woken for WEFTI_PERF_BARE_LOWAT_BYTES at a time.
 */
#ifndef PERF_PERF_BARE_H
#define PERF_PERF_BARE_H

#include "perf/perf_parts.h"

enum { WEFTI_PERF_BARE_LOWAT_BYTES = 256 << 10 };

typedef struct wefti_perf_bare wefti_perf_bare;

/* What this rank sends in a round, part by part as they are made; it receives
 * as many bytes. */
typedef struct wefti_perf_bare_round {
    const unsigned char *send; /* both borrowed until the round is over */
    const wefti_perf_parts *parts;
    size_t elem_bytes;
} wefti_perf_bare_round;

/* Of this rank's two threads. */
typedef struct wefti_perf_bare_usage {
    int64_t cpu_ns;
    uint64_t received_bytes;
} wefti_perf_bare_usage;

/*
 * wefti_perf_bare_open - all ranks together: connections and threads.
 *
 * wire_bytes  the most of any round
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM (on all ranks).
 */
WEFT_NODISCARD weft_status wefti_perf_bare_open(wefti_perf_rank *self,
                                                size_t wire_bytes,
                                                wefti_perf_bare **bare_out);
void wefti_perf_bare_close(wefti_perf_bare *bare); /* NULL is legal */

/* The threads begin a round; no part is ready yet. */
void wefti_perf_bare_begin(wefti_perf_bare *bare,
                           const wefti_perf_bare_round *round);

/* One more of its parts is, the next in their order. */
void wefti_perf_bare_signal(wefti_perf_bare *bare);

/*
 * Until all has been sent and received.
 *
 * Returns     OK | ERR_SYSTEM (a connection broke).
 */
WEFT_NODISCARD weft_status wefti_perf_bare_wait(wefti_perf_bare *bare);

/* Since open; between rounds. */
wefti_perf_bare_usage wefti_perf_bare_get_usage(const wefti_perf_bare *bare);

#endif
