/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/server.h - the one who brings the ranks together: a thread
 * that sees a job from its first connection to the verdict.
 */
#ifndef COMM_OOB_SERVER_H
#define COMM_OOB_SERVER_H

#include "comm/oob/endpoint.h"
#include "comm/oob/secret.h"

typedef struct wefti_server wefti_server;

/*
 * listen_fd    taken, unless start fails
 * nranks       0: as the first member says
 * home_rank    whose lines the server logs; -1: nobody's
 * launcher_fd  where weft-run tells of ended ranks, borrowed; -1: it does not
 * timeout_ms   the bootstrap fails then, whatever its members' limits are
 * stays        a verdict from before all have come is told until then, not only
 *              to those who come within a second, or until wefti_server_stop
 */
typedef struct wefti_server_config {
    int listen_fd;
    wefti_endpoint endpoint;
    wefti_secret secret;
    int nranks;
    int home_rank;
    int launcher_fd;
    int64_t timeout_ms;
    bool stays;
} wefti_server_config;

/*
 * wefti_server_start - begin to serve.
 *
 * server_out   NULL: nobody waits for it, it frees itself when it has ended.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_server_start(const wefti_server_config *config,
                                              wefti_server **server_out);

/*
 * wefti_server_stop - wait for the end and free. A bootstrap still under way
 * fails: the home rank has left it.
 */
void wefti_server_stop(wefti_server *server);

#endif
