/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/connection.h - one connection of a job: how it comes to be, how
 * its peer is authenticated, messages in and out. Nothing here blocks, but for
 * one wait.
 *
 *   client                          server
 *     |---- HELLO --------------------->|
 *     |<--- CHALLENGE ------------------|   both have derived the keys
 *     |<--- messages, sealed ---------->|   that open is proof of the secret
 */
#ifndef COMM_OOB_CONNECTION_H
#define COMM_OOB_CONNECTION_H

#include "comm/oob/endpoint.h"
#include "comm/oob/session.h"

typedef enum wefti_oob_stage {
    WEFTI_OOB_STAGE_CONNECTING, /* a client's, until the network has answered */
    WEFTI_OOB_STAGE_GREETING,   /* HELLO and CHALLENGE are on their way */
    WEFTI_OOB_STAGE_OPEN        /* any other message */
} wefti_oob_stage;

/*
 * fd -1: there is no connection. Owns fd, buffers and what was passed.
 *
 * secret      borrowed; NULL: a unix socket, without greeting and seals
 * since_ns    when it was begun
 */
typedef struct wefti_oob_connection {
    int fd;
    wefti_oob_stage stage;
    wefti_side side;
    const wefti_secret *secret;
    wefti_oob_message_hello hello; /* a client's */
    wefti_oob_session session;
    int64_t since_ns;
    unsigned char *in;
    size_t in_bytes, in_room_bytes;
    unsigned char *out; /* room for any one frame, from the beginning */
    size_t out_room_bytes, out_bytes, out_sent_bytes;
    bool ended;              /* the peer has closed, or the connection broke */
    uint64_t sent_bytes;     /* in all */
    int failure;             /* errno of what broke it; 0: it was closed */
    const char *failed_call; /* which set it */
    bool passed;             /* a client's: a descriptor has come, passed_fd */
    int passed_fd;
} wefti_oob_connection;

typedef enum wefti_oob_arrival {
    WEFTI_OOB_ARRIVAL_NONE,     /* not yet a whole message */
    WEFTI_OOB_ARRIVAL_READY,    /* a client's keys stand: it sends first */
    WEFTI_OOB_ARRIVAL_MESSAGE,  /* one, from the holder of the keys if sealed */
    WEFTI_OOB_ARRIVAL_VERSION,  /* the peer's, as.hello.version, is another */
    WEFTI_OOB_ARRIVAL_UNPROVEN, /* a wrong seal */
    WEFTI_OOB_ARRIVAL_BAD,      /* what came is no allowed message */
    WEFTI_OOB_ARRIVAL_ENDED     /* nothing more will come */
} wefti_oob_arrival;

/*
 * wefti_oob_connection_open - begin to connect, as the client. What fails then
 * shows as fd -1 and failure, at once or later.
 *
 * in_room_bytes   the longest frame that may come.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_oob_connection_open(
    wefti_oob_connection *connection, const wefti_endpoint *endpoint,
    const wefti_secret *secret, size_t in_room_bytes);

/*
 * wefti_oob_connection_wait - until it is connected, or deadline_ns (then
 * failure is ETIMEDOUT), or until cancel_fd, if not -1, is readable
 * (ECANCELED).
 *
 * Returns     whether it is.
 */
bool wefti_oob_connection_wait(wefti_oob_connection *connection,
                               int64_t deadline_ns, int cancel_fd);

/*
 * wefti_oob_connection_accept - take fd, as the server. It does not block.
 *
 * Returns     OK | ERR_NO_MEMORY (fd is closed).
 */
WEFT_NODISCARD weft_status wefti_oob_connection_accept(
    wefti_oob_connection *connection, int fd, const wefti_secret *secret);
void wefti_oob_connection_fini(
    wefti_oob_connection *connection); /* closes; twice is legal */

/* What to poll fd for; what to do with the events that poll returned. */
short wefti_oob_connection_events(const wefti_oob_connection *connection);
void wefti_oob_connection_serve(wefti_oob_connection *connection,
                                short revents);

/* Read what has come, for next; or to no use, so that fd can be closed. */
void wefti_oob_connection_receive(wefti_oob_connection *connection);
void wefti_oob_connection_drain(wefti_oob_connection *connection);

/*
 * wefti_oob_connection_next - the next message of those that have come.
 *
 * allowed   set of WEFTI_KIND_BIT: what may come once it is OPEN
 */
wefti_oob_arrival wefti_oob_connection_next(wefti_oob_connection *connection,
                                            unsigned allowed,
                                            wefti_oob_message *message_out);

/*
 * wefti_oob_connection_post - encode, seal what is sealed, queue, and send what
 * the connection takes now.
 *
 * Returns     OK (also when the peer is gone: next reports it) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_oob_connection_post(
    wefti_oob_connection *connection, const wefti_oob_message *message);

/* wefti_oob_connection_queue - as post, and to be sent with flush. */
WEFT_NODISCARD weft_status wefti_oob_connection_queue(
    wefti_oob_connection *connection, const wefti_oob_message *message);

/*
 * wefti_oob_connection_pass - message with a descriptor, over a unix socket on
 * which nothing is queued.
 *
 * Returns     whether the kernel took it.
 */
bool wefti_oob_connection_pass(wefti_oob_connection *connection,
                               const wefti_oob_message *message, int passed_fd);

/* Send more of what is queued. */
void wefti_oob_connection_flush(wefti_oob_connection *connection);
bool wefti_oob_connection_has_output(const wefti_oob_connection *connection);

#endif
