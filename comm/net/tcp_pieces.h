/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_pieces.h - messages of one peer that come in pieces over several
 * connections, and when all of such a message is there.
 *
 * A sender numbers what it cuts, and what goes whole over another rail than the
 * first; so what it sends last can wait for all of these to have come.
 */
#ifndef COMM_NET_TCP_PIECES_H
#define COMM_NET_TCP_PIECES_H

#include "comm/net/port.h"

/*
 * A message of which got_bytes of bytes have come.
 *
 * number     the sender's; 0: it comes over one connection, and is that's own
 * placed     it has a place; dropped: it had one, which has gone
 * spill      for data that have no other place
 */
typedef struct wefti_tcp_whole {
    struct wefti_tcp_whole *next;
    uint64_t number;
    size_t bytes, got_bytes;
    bool placed, dropped;
    unsigned char *spill;
    size_t spill_bytes;
} wefti_tcp_whole;

/*
 * done       how many numbered messages have come
 * last       one that comes after `after` of them, and waits
 */
typedef struct wefti_tcp_pieces {
    wefti_tcp_whole *under_way, *free;
    size_t count; /* under way */
    uint64_t done, after;
    bool last_waits;
    size_t last_bytes;
    unsigned char last[WEFTI_PORT_HEADER_BYTES];
} wefti_tcp_pieces;

void wefti_tcp_pieces_fini(wefti_tcp_pieces *pieces);

/* The message with that number; NULL: none can have it (errno EPROTO), or no
 * memory. */
wefti_tcp_whole *wefti_tcp_pieces_find(wefti_tcp_pieces *pieces,
                                       uint64_t number, size_t bytes);

/* All of it has come, and has been delivered. */
void wefti_tcp_pieces_end(wefti_tcp_pieces *pieces, wefti_tcp_whole *whole,
                          const wefti_port_config *config);

/* A header that is delivered once so many have come: now, or by the last. */
void wefti_tcp_pieces_await(wefti_tcp_pieces *pieces, uint64_t number,
                            const unsigned char *header, size_t header_bytes,
                            const wefti_port_config *config);

#endif
