/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_unproven.h - connections of peers that have not yet shown that
 * they are of the job. A rank that is slow between connecting and its greeting
 * loses nothing: such a connection stays until others need its place.
 */
#ifndef COMM_NET_TCP_UNPROVEN_H
#define COMM_NET_TCP_UNPROVEN_H

#include "comm/net/port.h"

enum { WEFTI_TCP_UNPROVEN_MOST = 64 };

/* What a rank sends first. rail: its number; 0: the first. */
typedef struct wefti_tcp_hello {
    uint32_t magic;
    uint32_t rank, rail;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
} wefti_tcp_hello;

/* fd -1: a free place; number: in the order of coming */
typedef struct wefti_tcp_unproven_peer {
    int fd;
    uint64_t number;
    size_t got_bytes;
    wefti_tcp_hello hello;
} wefti_tcp_unproven_peer;

typedef struct wefti_tcp_unproven {
    wefti_tcp_unproven_peer list[WEFTI_TCP_UNPROVEN_MOST];
    uint64_t seen;
} wefti_tcp_unproven;

void wefti_tcp_unproven_init(wefti_tcp_unproven *unproven);
void wefti_tcp_unproven_fini(wefti_tcp_unproven *unproven);

/* Accepts the next one, in place of the oldest if all are taken; its place, or
 * -1: there is none. */
int wefti_tcp_unproven_accept(wefti_tcp_unproven *unproven, int listen_fd);

/* Its greeting, once it is whole; NULL: not yet, or it has gone. */
const wefti_tcp_hello *wefti_tcp_unproven_read(wefti_tcp_unproven *unproven,
                                               int index);

/* Its socket, which is the caller's now. */
int wefti_tcp_unproven_take(wefti_tcp_unproven *unproven, int index);
void wefti_tcp_unproven_close(wefti_tcp_unproven *unproven, int index);

#endif
