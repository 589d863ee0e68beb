/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_stand_in.h - who serves the meeting once rank 0's process has ended:
 * the other ranks would look for it until their time limit.
 */
#ifndef PERF_RUN_STAND_IN_H
#define PERF_RUN_STAND_IN_H

#include "comm/oob/endpoint.h"
#include "comm/oob/secret.h"
#include "comm/oob/server.h"

/* endpoint, secret: of the job's meeting; server: NULL while rank 0 runs. */
typedef struct run_stand_in {
    wefti_endpoint endpoint;
    wefti_secret secret;
    wefti_server *server;
} run_stand_in;

/*
 * run_stand_in_start - tell whoever comes that rank 0 has ended, and how, which
 * is in the pipe ended_fd, until run_stand_in_fini. Called in rank 0's network.
 *
 * Returns     OK | what wefti_endpoint_listen or wefti_server_start return: a
 *             process that rank 0 has left behind may serve there.
 */
WEFT_NODISCARD weft_status run_stand_in_start(run_stand_in *self, int nranks,
                                              int ended_fd);

void run_stand_in_fini(run_stand_in *self);

#endif
