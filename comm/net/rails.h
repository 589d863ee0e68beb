/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/rails.h - how a message is cut over the rails of a host, its
 * interfaces that lead to the same peers: arithmetic, without a socket.
 *
 * Each rail gets what makes it finish with the others, after what it has to
 * send already. So a rail that turns out slower than was measured has more
 * waiting, and gets less.
 *
 *      rail 0  |waiting  |  new           |
 *      rail 1  |waiting     |  new        |      <- all end here
 */
#ifndef COMM_NET_RAILS_H
#define COMM_NET_RAILS_H

#include "comm/net/port.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFTI_RAILS_MOST = WEFTI_PORT_RAILS_MOST,
    WEFTI_RAIL_WHOLE_BYTES = 16 << 10, /* messages up to it are not cut */
    WEFTI_RAIL_PIECE_BYTES = 8 << 10   /* a rail gets as many, or nothing */
};

/* What one rail takes. byte_ps 0: it is not used. */
typedef struct wefti_rail_load {
    int64_t byte_ps;
    size_t waiting_bytes;
} wefti_rail_load;

/*
 * wefti_rails_cut - bytes of a message for each of the rails, of which at least
 * one is used; together they are the message's. Pieces but the last begin at
 * multiples of 64.
 *
 * Returns     how many rails get some.
 */
int wefti_rails_cut(size_t bytes, const wefti_rail_load rails[WEFTI_RAILS_MOST],
                    size_t pieces_out[WEFTI_RAILS_MOST]);

/* What a byte takes over all of them together; 0: none is used. */
int64_t wefti_rails_byte_ps(const int64_t byte_ps[WEFTI_RAILS_MOST]);

#endif
