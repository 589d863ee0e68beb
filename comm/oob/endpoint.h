/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/endpoint.h - where ranks connect: an address that one listens on
 * and the others connect to.
 */
#ifndef COMM_OOB_ENDPOINT_H
#define COMM_OOB_ENDPOINT_H

#include "comm/oob/limits.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * what       what it is: the rendezvous
 * text       as people write it, such as 127.0.0.1:5555
 * name       what messages call it: "the rendezvous at 127.0.0.1:5555 (rank 0)"
 * patient    no process may listen there yet
 */
typedef struct wefti_endpoint {
    struct sockaddr_storage address;
    socklen_t address_bytes;
    const char *what;
    char text[80];
    char name[128];
    bool patient;
} wefti_endpoint;

/*
 * wefti_endpoint_parse - from host:port or [host]:port; rank 0 listens there.
 *
 * source    what to call text in messages, such as WEFT_RENDEZVOUS
 *
 * Returns     OK | ERR_INVALID (form, port, unknown host, or an address that
 *             means all interfaces).  Blocks: while a host name is looked up.
 */
WEFT_NODISCARD weft_status wefti_endpoint_parse(const char *source,
                                                const char *text,
                                                wefti_endpoint *endpoint_out);

/* An IPv4 address in network order, here; what: for messages. port 0: any. */
void wefti_endpoint_v4(const char *what, uint32_t address, uint16_t port,
                       wefti_endpoint *endpoint_out);

/* A loopback address, IPv4; port 0: any. */
void wefti_endpoint_loopback(uint16_t port, wefti_endpoint *endpoint_out);

/* A unix socket without a file, which exists only inside one network namespace
 * of one host. */
void wefti_endpoint_unix(const unsigned char name[WEFTI_SOCKET_NAME_BYTES],
                         wefti_endpoint *endpoint_out);

/*
 * wefti_endpoint_host - an address of this machine, port 0: any.
 *
 * Returns     OK | ERR_INVALID (unknown, or all interfaces).
 */
WEFT_NODISCARD weft_status wefti_endpoint_host(const char *source,
                                               const char *host,
                                               wefti_endpoint *endpoint_out);

enum { WEFTI_ADDRESS_BYTES = 19 }; /* of an endpoint packed */

/*
 * wefti_endpoint_pack, _unpack - the address as bytes: 4 or 6, the port, the
 * address in network order, zeros.
 *
 * Returns     unpack: false if bytes are no endpoint.
 */
void wefti_endpoint_pack(const wefti_endpoint *endpoint,
                         unsigned char bytes_out[WEFTI_ADDRESS_BYTES]);
bool wefti_endpoint_unpack(const unsigned char bytes[WEFTI_ADDRESS_BYTES],
                           wefti_endpoint *endpoint_out);

bool wefti_endpoint_is_loopback(const wefti_endpoint *endpoint);

/*
 * wefti_endpoint_listen - a listening socket, close-on-exec. Port 0 becomes the
 * one that was given.
 *
 * Returns     OK | ERR_SYSTEM: errno says why (EADDRINUSE: the port is taken).
 */
WEFT_NODISCARD weft_status wefti_endpoint_listen(wefti_endpoint *endpoint,
                                                 int *fd_out);

/* Whether fd is a socket that listens there. */
bool wefti_endpoint_is_listened_by(const wefti_endpoint *endpoint, int fd);

#endif
