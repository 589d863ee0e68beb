/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/listener.h - a socket that listens, and the connections that it has
 * brought whose peers are not authenticated: few, for a short time, and
 * the oldest makes room for the next.
 */
#ifndef COMM_OOB_LISTENER_H
#define COMM_OOB_LISTENER_H

#include "comm/oob/connection.h"

#include <poll.h>

enum {
    WEFTI_OOB_UNPROVEN_MOST = 64,
    WEFTI_OOB_UNPROVEN_MS = 10000,
    WEFTI_OOB_LISTENER_POLLED = 1 + WEFTI_OOB_UNPROVEN_MOST
};

/*
 * fd       -1: nothing listens any more
 * secret   borrowed; NULL: a unix socket
 * peers    fd -1: the place is free
 */
typedef struct wefti_oob_listener {
    int fd;
    const wefti_secret *secret;
    wefti_oob_connection peers[WEFTI_OOB_UNPROVEN_MOST];
} wefti_oob_listener;

/* Takes fd, which listens and does not block; -1: closed. */
void wefti_oob_listener_init(wefti_oob_listener *listener, int fd,
                             const wefti_secret *secret);

/* Drops all. A copy of fd that a forked child holds does not listen either.
 * Twice is legal. */
void wefti_oob_listener_close(wefti_oob_listener *listener);

/* What to poll for, only what is open; returns how many. */
nfds_t
wefti_oob_listener_watch(const wefti_oob_listener *listener,
                         struct pollfd polled_out[WEFTI_OOB_LISTENER_POLLED]);

/*
 * wefti_oob_listener_serve - acts on what poll returned: hands each peer that
 * has sent something to read, accepts those that wait, some at a time, so that
 * those inside are served between, and drops those that have been here too
 * long.
 *
 * read   takes messages (wefti_oob_connection_next); a peer that it wants to
 *        keep it moves out, one that it does not want it ends. It may close
 *        the listener.
 */
void wefti_oob_listener_serve(
    wefti_oob_listener *listener, const struct pollfd *polled, nfds_t count,
    void (*read)(void *context, wefti_oob_connection *peer), void *context);

/* Drop those that have been here too long. */
void wefti_oob_listener_expire(wefti_oob_listener *listener, int64_t now_ns);

/* When the next one will have been; INT64_MAX if there are none. */
int64_t wefti_oob_listener_next_ns(const wefti_oob_listener *listener);

#endif
