/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_visitors.h - connections that have not yet shown that they are
 * of the job. A rank that is slow between connecting and its greeting loses
 * nothing: a visitor stays until others need its place.
 */
#ifndef COMM_NET_TCP_VISITORS_H
#define COMM_NET_TCP_VISITORS_H

#include "comm/net/port.h"

enum { WEFTI_TCP_VISITORS = 64, WEFTI_TCP_MAGIC = 0x77656674 };

/* What a rank says first. */
typedef struct wefti_tcp_hello {
    uint32_t magic;
    uint32_t rank;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
} wefti_tcp_hello;

/* fd -1: a free place; number: in the order of coming */
typedef struct wefti_tcp_visitor {
    int fd;
    uint64_t number;
    size_t got_bytes;
    wefti_tcp_hello said;
} wefti_tcp_visitor;

typedef struct wefti_tcp_visitors {
    wefti_tcp_visitor list[WEFTI_TCP_VISITORS];
    uint64_t seen;
} wefti_tcp_visitors;

void wefti_tcp_visitors_init(wefti_tcp_visitors *visitors);
void wefti_tcp_visitors_fini(wefti_tcp_visitors *visitors);

/* Lets the next one in, in place of the oldest if all are taken; its place, or
 * -1: nobody is there. */
int wefti_tcp_visitors_accept(wefti_tcp_visitors *visitors, int listen_fd);

/* What it has said, once it is whole; NULL: not yet, or it has gone. */
const wefti_tcp_hello *wefti_tcp_visitors_hear(wefti_tcp_visitors *visitors,
                                               int index);

/* Its socket, which is the caller's now. */
int wefti_tcp_visitors_take(wefti_tcp_visitors *visitors, int index);
void wefti_tcp_visitors_dismiss(wefti_tcp_visitors *visitors, int index);

#endif
