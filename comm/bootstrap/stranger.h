/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/stranger.h - connections that have not shown who they are:
 * few, for a short time, and the oldest makes room for the next.
 */
#ifndef COMM_BOOTSTRAP_STRANGER_H
#define COMM_BOOTSTRAP_STRANGER_H

#include "comm/bootstrap/link.h"

enum { WEFTI_STRANGERS_MOST = 64, WEFTI_STRANGER_MS = 2000 };

/* link.fd -1: the place is free. */
typedef struct wefti_stranger {
    wefti_link link;
    int64_t since_ns;
    bool challenged;
    wefti_message_hello hello, challenge;
} wefti_stranger;

typedef struct wefti_strangers {
    wefti_stranger places[WEFTI_STRANGERS_MOST];
} wefti_strangers;

void wefti_strangers_init(wefti_strangers *strangers);
void wefti_strangers_fini(wefti_strangers *strangers); /* drops all */

/*
 * wefti_strangers_accept - take those who wait at the listening socket, some
 * at a time, so that those inside are served between. local: it is a unix
 * socket.
 */
void wefti_strangers_accept(wefti_strangers *strangers, int listen_fd,
                            bool local);

/* Drop those who have been here too long. */
void wefti_strangers_expire(wefti_strangers *strangers, int64_t now_ns);

/* When the next one will have been; INT64_MAX if there are none. */
int64_t wefti_strangers_next_ns(const wefti_strangers *strangers);

#endif
