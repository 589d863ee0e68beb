/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/connection.h - one connection of a bootstrap: frames in, frames out,
 * never blocking.
 */
#ifndef COMM_OOB_CONNECTION_H
#define COMM_OOB_CONNECTION_H

#include "comm/oob/session.h"

/* fd -1: no connection. Owns fd and buffers. */
typedef struct wefti_oob_connection {
    int fd;
    unsigned char *in;
    size_t in_bytes, in_room_bytes;
    size_t in_taken_bytes; /* of a frame that next has handed out */
    unsigned char *out;    /* room for any one frame, from the beginning */
    size_t out_room_bytes, out_bytes, out_sent_bytes;
    bool ended;          /* the peer has closed, or the connection broke */
    uint64_t sent_bytes; /* in all */
    int failure;         /* errno of what broke it; 0: it was closed */
} wefti_oob_connection;

typedef enum wefti_oob_arrival {
    WEFTI_OOB_ARRIVAL_NONE,  /* not yet a whole frame */
    WEFTI_OOB_ARRIVAL_FRAME, /* one frame */
    WEFTI_OOB_ARRIVAL_BAD, /* what came is no allowed frame: drop the connection
                            */
    WEFTI_OOB_ARRIVAL_ENDED /* nothing more will come */
} wefti_oob_arrival;

/*
 * wefti_oob_connection_init - takes fd (made non-blocking here).
 *
 * in_room_bytes   the longest frame that may come.
 *
 * Returns     OK | ERR_NO_MEMORY (fd is closed).
 */
WEFT_NODISCARD weft_status wefti_oob_connection_init(
    wefti_oob_connection *connection, int fd, size_t in_room_bytes);
void wefti_oob_connection_fini(
    wefti_oob_connection *connection); /* closes; twice is legal */

/* Read what has come. Call when fd is readable. */
void wefti_oob_connection_receive(wefti_oob_connection *connection);

/*
 * wefti_oob_connection_next - the next frame of those that have come.
 *
 * frame_out   valid until the next call on connection.
 */
wefti_oob_arrival wefti_oob_connection_next(wefti_oob_connection *connection,
                                            unsigned allowed,
                                            const unsigned char **frame_out,
                                            size_t *frame_bytes_out);

/*
 * wefti_oob_connection_post - encode, seal if session is not NULL, queue, and
 * send what the connection takes now.
 *
 * Returns     OK (also when the peer is gone: receive tells) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_oob_connection_post(
    wefti_oob_connection *connection, wefti_oob_session *session,
    const wefti_oob_message *message);

/* Send more of what is queued. Call when fd is writable. */
void wefti_oob_connection_flush(wefti_oob_connection *connection);
bool wefti_oob_connection_has_output(const wefti_oob_connection *connection);

#endif
