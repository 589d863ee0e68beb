/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/stall.h - a wait for peers that is no operation of theirs: the
 * same limits and the same care as comm/watch/diagnosis.h has for those.
 */
#ifndef COMM_WATCH_STALL_H
#define COMM_WATCH_STALL_H

#include "weft/comm.h"

#include <stdbool.h>

/* All zero: not begun. */
typedef struct wefti_stall {
    int64_t since_ns, checked_ns;
    int suspect; /* peer + 1, seen dead or gone at the last look */
    bool warned;
} wefti_stall;

/*
 * wefti_stall_look - called each time there was no news.
 *
 * peer       who is waited for; WEFTI_ALL_PEERS: any of the others.
 * describe   writes what is waited for, and how far it is: once for a warning,
 *            once for a fault.
 */
void wefti_stall_look(weft_comm *comm, wefti_stall *stall, int peer,
                      void (*describe)(const void *context, char *text_out,
                                       size_t text_bytes),
                      const void *context);

#endif
