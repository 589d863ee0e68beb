/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_socket.h - TCP sockets of one interface: they listen and connect
 * from its address alone. None blocks; none waits to fill a packet.
 */
#ifndef COMM_NET_TCP_SOCKET_H
#define COMM_NET_TCP_SOCKET_H

#include <stdint.h>

/* How others reach a listening socket; in the network's byte order. rail: its
 * number, the caller's. */
typedef struct wefti_tcp_address {
    uint32_t magic;
    uint32_t address;
    uint32_t rail;
    uint16_t port;
} wefti_tcp_address;

enum { WEFTI_TCP_MAGIC = 0x77656675 };

/*
 * wefti_tcp_socket_listen - on the interface's address, at a port that the
 * kernel gives.
 *
 * fd_out      the caller's, also after a failure, unless it is -1
 *
 * Returns     NULL, or the call that was refused, with errno.
 */
const char *wefti_tcp_socket_listen(const char *interface_name, int *fd_out,
                                    wefti_tcp_address *address_out);

/* Begins to connect from one address to another; -1 with errno. */
int wefti_tcp_socket_connect(const wefti_tcp_address *from,
                             const wefti_tcp_address *to);

/* The next connection of a listening socket; -1: there is none. */
int wefti_tcp_socket_accept(int listen_fd);

#endif
