/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/giver.h - the lowest rank of a domain, handing the domain's
 * memory to its other ranks while it waits for the verdict itself.
 */
#ifndef COMM_BOOTSTRAP_GIVER_H
#define COMM_BOOTSTRAP_GIVER_H

#include "comm/bootstrap/stranger.h"

#include <poll.h>

enum { WEFTI_GIVER_POLLED = 1 + WEFTI_STRANGERS_MOST };

/*
 * memory_fd   borrowed; -1: nothing is handed out, connections wait
 * refused     the first rank that may not have it; -1: none
 */
typedef struct wefti_giver {
    int unix_fd;
    int memory_fd;
    int rank, nranks;
    int refused;
    const unsigned char *job_key;
    uint32_t *pids;    /* [nranks] */
    uint16_t *domains; /* [nranks] */
    wefti_strangers strangers;
} wefti_giver;

/*
 * wefti_giver_open - listen, under a random name.
 *
 * Returns     OK | ERR_SYSTEM; fini is legal after both.
 */
WEFT_NODISCARD weft_status wefti_giver_open(
    wefti_giver *giver, unsigned char name_out[WEFTI_SOCKET_NAME_BYTES]);
void wefti_giver_close(wefti_giver *giver); /* twice is legal */

/*
 * wefti_giver_start - make the domain's memory, and hand it out from now on.
 *
 * job_key         borrowed until close
 * memory_fd_out   the caller's, close-on-exec; borrowed until close
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
wefti_giver_start(wefti_giver *giver, int rank,
                  const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
                  const wefti_message_welcome *welcome, int *memory_fd_out);

/* What to poll for, and what to do with what came. Neither blocks. */
void wefti_giver_watch(const wefti_giver *giver,
                       struct pollfd polled_out[WEFTI_GIVER_POLLED]);
void wefti_giver_attend(wefti_giver *giver,
                        const struct pollfd polled[WEFTI_GIVER_POLLED]);

#endif
