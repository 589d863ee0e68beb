/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/bare.h - what two threads on plain TCP sockets hide, and cost: the
 * measure for weft between hosts, in the same processes.
 *
 * Ranks form a ring: each sends to the next and receives from the one before.
 * One thread sends, part by part as the compute makes them, one receives; both
 * block. The receiver is woken for WEFTI_BARE_LOWAT_BYTES at a time.
 */
#ifndef OVERLAP_BARE_H
#define OVERLAP_BARE_H

#include "weft/comm.h"

#include <stddef.h>
#include <stdint.h>

enum { WEFTI_BARE_LOWAT_BYTES = 256 << 10 };

typedef struct wefti_bare wefti_bare;

/* Of a part wire_bytes are sent; from its begin again where that is more than
 * it has. */
typedef struct wefti_bare_part {
    const unsigned char *begin;
    size_t bytes; /* 0: nothing is sent of it */
    size_t wire_bytes;
} wefti_bare_part;

/* What this rank sends in a round, part by part as they are made; it receives
 * as many bytes. */
typedef struct wefti_bare_round {
    const wefti_bare_part
        *parts; /* [count], borrowed until the round is over */
    size_t count;
    size_t wire_bytes; /* of all */
} wefti_bare_round;

/* Of this rank's two threads. */
typedef struct wefti_bare_usage {
    int64_t cpu_ns;
    uint64_t received_bytes;
} wefti_bare_usage;

/*
 * wefti_bare_open - all ranks together: connections and threads.
 *
 * comm        whose ranks these are; not used after open
 * wire_bytes  the most of any round
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM (on all ranks).
 */
WEFT_NODISCARD weft_status wefti_bare_open(weft_comm *comm, size_t wire_bytes,
                                           wefti_bare **bare_out);
void wefti_bare_close(wefti_bare *bare); /* NULL is legal */

/* The threads begin a round; no part is ready yet. */
void wefti_bare_begin(wefti_bare *bare, const wefti_bare_round *round);

/* One more of its parts is, the next in their order. */
void wefti_bare_signal(wefti_bare *bare);

/*
 * Until all has been sent and received.
 *
 * Returns     OK | ERR_SYSTEM (a connection broke).
 */
WEFT_NODISCARD weft_status wefti_bare_wait(wefti_bare *bare);

/* Since open; between rounds. */
wefti_bare_usage wefti_bare_get_usage(const wefti_bare *bare);

#endif
