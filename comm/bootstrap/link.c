/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/link.c - buffers of one connection.
 */
#include "comm/bootstrap/link.h"

#include "base/check.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

weft_status wefti_link_init(wefti_link *link, int fd, size_t in_room_bytes)
{
    *link = (wefti_link){.fd = fd, .in_room_bytes = in_room_bytes};
    int flags = fcntl(fd, F_GETFL);
    (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    link->out_room_bytes = WEFTI_MESSAGE_FRAME_MOST;
    link->in = malloc(in_room_bytes);
    link->out = malloc(link->out_room_bytes);
    if (!link->in || !link->out) {
        wefti_link_fini(link);
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for messages of the meeting: %zu bytes",
                           in_room_bytes + WEFTI_MESSAGE_FRAME_MOST);
    }
    return WEFT_OK;
}

void wefti_link_fini(wefti_link *link)
{
    if (link->fd >= 0) {
        close(link->fd);
    }
    free(link->in);
    free(link->out);
    *link = (wefti_link){.fd = -1};
}

static void discard_taken(wefti_link *link)
{
    if (link->in_taken_bytes > 0) {
        link->in_bytes -= link->in_taken_bytes;
        memmove(link->in, link->in + link->in_taken_bytes, link->in_bytes);
        link->in_taken_bytes = 0;
    }
}

void wefti_link_receive(wefti_link *link)
{
    discard_taken(link);
    if (link->in_bytes == link->in_room_bytes || link->ended) {
        return;
    }
    ssize_t got = recv(link->fd, link->in + link->in_bytes,
                       link->in_room_bytes - link->in_bytes, 0);
    if (got > 0) {
        link->in_bytes += (size_t)got;
    } else if (got == 0 ||
               (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        link->ended = true;
        link->failure = got < 0 ? errno : 0;
    }
}

wefti_arrival wefti_link_next(wefti_link *link, unsigned allowed,
                              const unsigned char **frame_out,
                              size_t *frame_bytes_out)
{
    discard_taken(link);
    long frame_bytes = wefti_message_measure(link->in, link->in_bytes, allowed);
    if (frame_bytes < 0 || (size_t)frame_bytes > link->in_room_bytes) {
        return WEFTI_ARRIVAL_BAD;
    }
    if (frame_bytes == 0 || (size_t)frame_bytes > link->in_bytes) {
        return link->ended ? WEFTI_ARRIVAL_ENDED : WEFTI_ARRIVAL_NONE;
    }
    link->in_taken_bytes = (size_t)frame_bytes;
    *frame_out = link->in;
    *frame_bytes_out = (size_t)frame_bytes;
    return WEFTI_ARRIVAL_FRAME;
}

weft_status wefti_link_post(wefti_link *link, wefti_session *session,
                            const wefti_message *message)
{
    unsigned char frame[WEFTI_MESSAGE_FRAME_MOST];
    size_t frame_bytes = wefti_message_encode(message, frame);
    if (link->out_room_bytes - link->out_bytes < frame_bytes) {
        const size_t room = link->out_bytes + WEFTI_MESSAGE_FRAME_MOST;
        unsigned char *out = realloc(link->out, room);
        if (!out) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "no memory for messages of the meeting: %zu "
                               "bytes",
                               room);
        }
        link->out = out;
        link->out_room_bytes = room;
    }
    if (session) { /* which counts what it seals: only what is sent */
        wefti_session_seal(session, frame, frame_bytes);
    }
    memcpy(link->out + link->out_bytes, frame, frame_bytes);
    link->out_bytes += frame_bytes;
    wefti_link_flush(link);
    return WEFT_OK;
}

void wefti_link_flush(wefti_link *link)
{
    while (wefti_link_has_output(link)) {
        ssize_t sent = send(link->fd, link->out + link->out_sent_bytes,
                            link->out_bytes - link->out_sent_bytes,
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
        link->out_sent_bytes += (size_t)sent;
        link->sent_bytes += (uint64_t)sent;
    }
    link->out_bytes = 0;
    link->out_sent_bytes = 0;
}

bool wefti_link_has_output(const wefti_link *link)
{
    return link->out_sent_bytes < link->out_bytes;
}
