/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/server.h - what brings the ranks together: a thread
 * that sees a job from its first connection to the verdict.
 */
#ifndef COMM_OOB_SERVER_H
#define COMM_OOB_SERVER_H

#include "comm/oob/server_state.h"

typedef struct wefti_server wefti_server;

/*
 * wefti_server_start - begin to serve.
 *
 * server_out   NULL: nothing waits for it, it frees itself when it has ended.
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
