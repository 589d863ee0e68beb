/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/unauthenticated.h - connections that have not shown who they are:
 * few, for a short time, and the oldest makes room for the next.
 */
#ifndef COMM_OOB_UNAUTHENTICATED_H
#define COMM_OOB_UNAUTHENTICATED_H

#include "comm/oob/connection.h"

enum { WEFTI_UNAUTHENTICATED_MOST = 64, WEFTI_UNAUTHENTICATED_MS = 2000 };

/* connection.fd -1: the place is free. */
typedef struct wefti_unauthenticated_peer {
    wefti_oob_connection connection;
    int64_t since_ns;
    bool challenged;
    wefti_oob_message_hello hello, challenge;
} wefti_unauthenticated_peer;

typedef struct wefti_unauthenticated {
    wefti_unauthenticated_peer places[WEFTI_UNAUTHENTICATED_MOST];
} wefti_unauthenticated;

void wefti_unauthenticated_init(wefti_unauthenticated *set);
void wefti_unauthenticated_fini(wefti_unauthenticated *set); /* drops all */

/*
 * wefti_unauthenticated_accept - take those who wait at the listening socket,
 * some at a time, so that those inside are served between. local: it is a unix
 * socket.
 */
void wefti_unauthenticated_accept(wefti_unauthenticated *set, int listen_fd,
                                  bool local);

/* Drop those who have been here too long. */
void wefti_unauthenticated_expire(wefti_unauthenticated *set, int64_t now_ns);

/* When the next one will have been; INT64_MAX if there are none. */
int64_t wefti_unauthenticated_next_ns(const wefti_unauthenticated *set);

#endif
