/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/connection.c - buffers of one connection.
 */
#include "comm/oob/connection.h"

#include "base/check.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

weft_status wefti_oob_connection_init(wefti_oob_connection *connection, int fd,
                                      size_t in_room_bytes)
{
    *connection =
        (wefti_oob_connection){.fd = fd, .in_room_bytes = in_room_bytes};
    int flags = fcntl(fd, F_GETFL);
    (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    connection->out_room_bytes = WEFTI_OOB_FRAME_MOST;
    connection->in = malloc(in_room_bytes);
    connection->out = malloc(connection->out_room_bytes);
    if (!connection->in || !connection->out) {
        wefti_oob_connection_fini(connection);
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for messages of the bootstrap: %zu bytes",
                           in_room_bytes + WEFTI_OOB_FRAME_MOST);
    }
    return WEFT_OK;
}

void wefti_oob_connection_fini(wefti_oob_connection *connection)
{
    if (connection->fd >= 0) {
        close(connection->fd);
    }
    free(connection->in);
    free(connection->out);
    *connection = (wefti_oob_connection){.fd = -1};
}

static void discard_taken(wefti_oob_connection *connection)
{
    if (connection->in_taken_bytes > 0) {
        connection->in_bytes -= connection->in_taken_bytes;
        memmove(connection->in, connection->in + connection->in_taken_bytes,
                connection->in_bytes);
        connection->in_taken_bytes = 0;
    }
}

void wefti_oob_connection_receive(wefti_oob_connection *connection)
{
    discard_taken(connection);
    if (connection->in_bytes == connection->in_room_bytes ||
        connection->ended) {
        return;
    }
    ssize_t got = recv(connection->fd, connection->in + connection->in_bytes,
                       connection->in_room_bytes - connection->in_bytes, 0);
    if (got > 0) {
        connection->in_bytes += (size_t)got;
    } else if (got == 0 ||
               (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        connection->ended = true;
        connection->failure = got < 0 ? errno : 0;
    }
}

wefti_oob_arrival wefti_oob_connection_next(wefti_oob_connection *connection,
                                            unsigned allowed,
                                            const unsigned char **frame_out,
                                            size_t *frame_bytes_out)
{
    discard_taken(connection);
    long frame_bytes = wefti_oob_message_measure(connection->in,
                                                 connection->in_bytes, allowed);
    if (frame_bytes < 0 || (size_t)frame_bytes > connection->in_room_bytes) {
        return WEFTI_OOB_ARRIVAL_BAD;
    }
    if (frame_bytes == 0 || (size_t)frame_bytes > connection->in_bytes) {
        return connection->ended ? WEFTI_OOB_ARRIVAL_ENDED
                                 : WEFTI_OOB_ARRIVAL_NONE;
    }
    connection->in_taken_bytes = (size_t)frame_bytes;
    *frame_out = connection->in;
    *frame_bytes_out = (size_t)frame_bytes;
    return WEFTI_OOB_ARRIVAL_FRAME;
}

weft_status wefti_oob_connection_post(wefti_oob_connection *connection,
                                      wefti_oob_session *session,
                                      const wefti_oob_message *message)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    size_t frame_bytes = wefti_oob_message_encode(message, frame);
    if (connection->out_room_bytes - connection->out_bytes < frame_bytes) {
        const size_t room = connection->out_bytes + WEFTI_OOB_FRAME_MOST;
        unsigned char *out = realloc(connection->out, room);
        if (!out) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "no memory for messages of the bootstrap: %zu "
                               "bytes",
                               room);
        }
        connection->out = out;
        connection->out_room_bytes = room;
    }
    if (session) { /* which counts what it seals: only what is sent */
        wefti_oob_session_seal(session, frame, frame_bytes);
    }
    memcpy(connection->out + connection->out_bytes, frame, frame_bytes);
    connection->out_bytes += frame_bytes;
    wefti_oob_connection_flush(connection);
    return WEFT_OK;
}

void wefti_oob_connection_flush(wefti_oob_connection *connection)
{
    while (wefti_oob_connection_has_output(connection)) {
        ssize_t sent =
            send(connection->fd, connection->out + connection->out_sent_bytes,
                 connection->out_bytes - connection->out_sent_bytes,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (sent < 0) {
            /* Gone; what it sent before may still be read. */
            break;
        }
        connection->out_sent_bytes += (size_t)sent;
        connection->sent_bytes += (uint64_t)sent;
    }
    connection->out_bytes = 0;
    connection->out_sent_bytes = 0;
}

bool wefti_oob_connection_has_output(const wefti_oob_connection *connection)
{
    return connection->out_sent_bytes < connection->out_bytes;
}
