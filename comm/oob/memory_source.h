/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/memory_source.h - the lowest rank of a domain, handing the domain's
 * memory to its other ranks while it waits for the verdict itself.
 */
#ifndef COMM_OOB_MEMORY_SOURCE_H
#define COMM_OOB_MEMORY_SOURCE_H

#include "comm/oob/listener.h"
#include "comm/oob/membership.h"

/*
 * memory_fd   borrowed; -1: nothing is handed out, connections wait
 * refused     the first rank that may not have it; -1: none
 */
typedef struct wefti_memory_source {
    int memory_fd;
    int refused;
    const wefti_membership *members; /* NULL: nothing is handed out yet */
    wefti_oob_listener listener;
} wefti_memory_source;

/*
 * wefti_memory_source_open - listen, under a random name.
 *
 * Returns     OK | ERR_SYSTEM; fini is legal after both.
 */
WEFT_NODISCARD weft_status
wefti_memory_source_open(wefti_memory_source *memory_source,
                         unsigned char name_out[WEFTI_SOCKET_NAME_BYTES]);
void wefti_memory_source_close(
    wefti_memory_source *memory_source); /* twice is legal */

/*
 * wefti_memory_source_start - make the domain's memory, and hand it out from
 * now on.
 *
 * members   borrowed until close: its key and members are known; gets the
 *           memory_fd
 *
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_memory_source_start(
    wefti_memory_source *memory_source, wefti_membership *members);

/* What to poll for (returns how many), and what to do with what came. Neither
 * blocks. */
nfds_t
wefti_memory_source_watch(const wefti_memory_source *memory_source,
                          struct pollfd polled_out[WEFTI_OOB_LISTENER_POLLED]);
void wefti_memory_source_serve(wefti_memory_source *memory_source,
                               const struct pollfd *polled, nfds_t count);

#endif
