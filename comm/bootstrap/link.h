/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/link.h - one connection of a meeting: frames in, frames out,
 * never blocking.
 */
#ifndef COMM_BOOTSTRAP_LINK_H
#define COMM_BOOTSTRAP_LINK_H

#include "comm/bootstrap/session.h"

/* fd -1: no connection. Owns fd and buffers. */
typedef struct wefti_link {
    int fd;
    unsigned char *in;
    size_t in_bytes, in_room_bytes;
    size_t in_taken_bytes; /* of a frame that next has handed out */
    unsigned char *out;    /* room for any one frame, from the beginning */
    size_t out_room_bytes, out_bytes, out_sent_bytes;
    bool ended;          /* the peer has closed, or the connection broke */
    uint64_t sent_bytes; /* in all */
    int failure;         /* errno of what broke it; 0: it was closed */
} wefti_link;

typedef enum wefti_arrival {
    WEFTI_ARRIVAL_NONE,  /* not yet a whole frame */
    WEFTI_ARRIVAL_FRAME, /* one frame */
    WEFTI_ARRIVAL_BAD,   /* what came is no allowed frame: drop the link */
    WEFTI_ARRIVAL_ENDED  /* nothing more will come */
} wefti_arrival;

/*
 * wefti_link_init - takes fd (made non-blocking here).
 *
 * in_room_bytes   the longest frame that may come.
 *
 * Returns     OK | ERR_NO_MEMORY (fd is closed).
 */
WEFT_NODISCARD weft_status wefti_link_init(wefti_link *link, int fd,
                                           size_t in_room_bytes);
void wefti_link_fini(wefti_link *link); /* closes; twice is legal */

/* Read what has come. Call when fd is readable. */
void wefti_link_receive(wefti_link *link);

/*
 * wefti_link_next - the next frame of those that have come.
 *
 * frame_out   valid until the next call on link.
 */
wefti_arrival wefti_link_next(wefti_link *link, unsigned allowed,
                              const unsigned char **frame_out,
                              size_t *frame_bytes_out);

/*
 * wefti_link_post - encode, seal if session is not NULL, queue, and send what
 * the connection takes now.
 *
 * Returns     OK (also when the peer is gone: receive tells) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_link_post(wefti_link *link,
                                           wefti_session *session,
                                           const wefti_message *message);

/* Send more of what is queued. Call when fd is writable. */
void wefti_link_flush(wefti_link *link);
bool wefti_link_has_output(const wefti_link *link);

#endif
