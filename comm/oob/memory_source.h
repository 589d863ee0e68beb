/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/memory_source.h - the lowest rank of a domain, handing the domain's
 * memory to its other ranks while it waits for the verdict itself.
 */
#ifndef COMM_OOB_MEMORY_SOURCE_H
#define COMM_OOB_MEMORY_SOURCE_H

#include "comm/oob/listener.h"

/*
 * memory_fd   borrowed; -1: nothing is handed out, connections wait
 * refused     the first rank that may not have it; -1: none
 */
typedef struct wefti_memory_source {
    int memory_fd;
    int rank, nranks;
    int refused;
    const unsigned char *job_key;
    uint32_t *pids;    /* [nranks] */
    uint16_t *domains; /* [nranks] */
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
 * job_key         borrowed until close
 * memory_fd_out   the caller's, close-on-exec; borrowed until close
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_memory_source_start(
    wefti_memory_source *memory_source, int rank,
    const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
    const wefti_oob_message_welcome *welcome, int *memory_fd_out);

/* What to poll for (returns how many), and what to do with what came. Neither
 * blocks. */
nfds_t
wefti_memory_source_watch(const wefti_memory_source *memory_source,
                          struct pollfd polled_out[WEFTI_OOB_LISTENER_POLLED]);
void wefti_memory_source_serve(wefti_memory_source *memory_source,
                               const struct pollfd *polled, nfds_t count);

#endif
