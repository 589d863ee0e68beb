/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/connection.c - connecting, greeting, buffers.
 */
#include "comm/oob/connection.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static weft_status init(wefti_oob_connection *connection, int fd,
                        wefti_side side, const wefti_secret *secret,
                        size_t in_room_bytes)
{
    const int on = 1;
    *connection = (wefti_oob_connection){
        .fd = fd,
        .side = side,
        .stage = secret ? WEFTI_OOB_STAGE_GREETING : WEFTI_OOB_STAGE_OPEN,
        .secret = secret,
        .since_ns = wefti_clock_ns(),
        .in_room_bytes = in_room_bytes,
        .out_room_bytes = WEFTI_OOB_FRAME_MOST};
    connection->in = malloc(in_room_bytes);
    connection->out = malloc(connection->out_room_bytes);
    if (!connection->in || !connection->out) {
        wefti_oob_connection_fini(connection);
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for messages of the bootstrap: %zu bytes",
                           in_room_bytes + WEFTI_OOB_FRAME_MOST);
    }
    if (secret) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    return WEFT_OK;
}

static void fail(wefti_oob_connection *connection, const char *call,
                 int failure)
{
    wefti_oob_connection_fini(connection);
    connection->ended = true;
    connection->failure = failure;
    connection->failed_call = call;
}

weft_status wefti_oob_connection_open(wefti_oob_connection *connection,
                                      const wefti_endpoint *endpoint,
                                      const wefti_secret *secret,
                                      size_t in_room_bytes)
{
    *connection = (wefti_oob_connection){.fd = -1};
    int fd = socket(endpoint->address.ss_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        fail(connection, "socket", errno);
        return WEFT_OK;
    }
    weft_status status =
        init(connection, fd, WEFTI_SIDE_CLIENT, secret, in_room_bytes);
    if (status != WEFT_OK) {
        return status;
    }
    connection->stage = WEFTI_OOB_STAGE_CONNECTING;
    if (connect(fd, (const struct sockaddr *)&endpoint->address,
                endpoint->address_bytes) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
        fail(connection, "connect", errno);
    }
    return WEFT_OK;
}

/*
 * A connection to a free port of this machine may be given that same port as
 * its source, and then reaches itself.
 */
static bool reached_itself(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 &&
           own_bytes == peer_bytes && memcmp(&own, &peer, own_bytes) == 0;
}

/* The network has answered: greet, or know why not. */
static void finish_connect(wefti_oob_connection *connection)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_HELLO,
                                 .as.hello.version = wefti_version_own()};
    int failure = 0;
    socklen_t failure_bytes = sizeof(failure);
    (void)getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &failure,
                     &failure_bytes);
    if (!failure && reached_itself(connection->fd)) {
        failure = ECONNREFUSED;
    }
    if (failure) {
        fail(connection, "connect", failure);
        return;
    }
    if (!connection->secret) {
        connection->stage = WEFTI_OOB_STAGE_OPEN;
        return;
    }
    randombytes_buf(message.as.hello.nonce, WEFTI_NONCE_BYTES);
    connection->hello = message.as.hello;
    connection->stage = WEFTI_OOB_STAGE_GREETING;
    if (wefti_oob_connection_post(connection, &message) != WEFT_OK) {
        fail(connection, "realloc", ENOMEM);
    }
}

bool wefti_oob_connection_wait(wefti_oob_connection *connection,
                               int64_t deadline_ns, int cancel_fd)
{
    while (connection->fd >= 0 &&
           connection->stage == WEFTI_OOB_STAGE_CONNECTING) {
        struct pollfd wait[] = {{.fd = connection->fd, .events = POLLOUT},
                                {.fd = cancel_fd, .events = POLLIN}};
        const int ready = poll(wait, 2, wefti_clock_poll_ms(deadline_ns));
        if (ready > 0 && wait[0].revents) {
            finish_connect(connection);
        } else if (ready > 0) {
            fail(connection, "connect", ECANCELED);
        } else if (ready == 0 || errno != EINTR) {
            fail(connection, "connect", ETIMEDOUT);
        }
    }
    return connection->fd >= 0;
}

weft_status wefti_oob_connection_accept(wefti_oob_connection *connection,
                                        int fd, const wefti_secret *secret)
{
    return init(connection, fd, WEFTI_SIDE_SERVER, secret,
                WEFTI_OOB_CLIENT_MOST);
}

void wefti_oob_connection_fini(wefti_oob_connection *connection)
{
    if (connection->fd >= 0) {
        close(connection->fd);
    }
    if (connection->passed) {
        close(connection->passed_fd);
    }
    free(connection->in);
    free(connection->out);
    wefti_oob_session_fini(&connection->session);
    *connection = (wefti_oob_connection){.fd = -1};
}

short wefti_oob_connection_events(const wefti_oob_connection *connection)
{
    return connection->stage == WEFTI_OOB_STAGE_CONNECTING ? POLLOUT
           : wefti_oob_connection_has_output(connection)   ? POLLIN | POLLOUT
                                                           : POLLIN;
}

void wefti_oob_connection_serve(wefti_oob_connection *connection, short revents)
{
    if (connection->stage == WEFTI_OOB_STAGE_CONNECTING) {
        if (revents) {
            finish_connect(connection);
        }
        return;
    }
    if (revents & POLLOUT) {
        wefti_oob_connection_flush(connection);
    }
    if (revents & ~POLLOUT) {
        wefti_oob_connection_receive(connection);
    }
}

/* Room for one descriptor, aligned as the kernel wants it. */
typedef union descriptor_room {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
} descriptor_room;

/* Keeps the one descriptor that a message may carry. False: the kernel has
 * dropped it, as this process has no room for it. */
static bool keep_passed(wefti_oob_connection *connection, struct msghdr *header)
{
    struct cmsghdr *control = CMSG_FIRSTHDR(header);
    if (control && control->cmsg_level == SOL_SOCKET &&
        control->cmsg_type == SCM_RIGHTS &&
        control->cmsg_len == CMSG_LEN(sizeof(int))) {
        if (connection->passed) {
            close(connection->passed_fd);
        }
        memcpy(&connection->passed_fd, CMSG_DATA(control), sizeof(int));
        connection->passed = true;
    }
    return !(header->msg_flags & MSG_CTRUNC);
}

void wefti_oob_connection_receive(wefti_oob_connection *connection)
{
    const bool may_pass =
        connection->side == WEFTI_SIDE_CLIENT && !connection->secret;
    descriptor_room room = {{0}};
    struct iovec data = {connection->in + connection->in_bytes,
                         connection->in_room_bytes - connection->in_bytes};
    struct msghdr header = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = may_pass ? room.bytes : NULL,
                            .msg_controllen = may_pass ? sizeof(room) : 0};
    if (data.iov_len == 0 || connection->ended) {
        return;
    }
    ssize_t got = recvmsg(connection->fd, &header, MSG_CMSG_CLOEXEC);
    int failure = got < 0 ? errno : 0;
    if (got > 0) {
        connection->in_bytes += (size_t)got;
        failure = may_pass && !keep_passed(connection, &header) ? EMFILE : 0;
    }
    if (got == 0 || (failure && failure != EAGAIN && failure != EWOULDBLOCK &&
                     failure != EINTR)) {
        connection->ended = true;
        connection->failure = failure;
        connection->failed_call = "recvmsg";
    }
}

void wefti_oob_connection_drain(wefti_oob_connection *connection)
{
    connection->in_bytes = 0;
    wefti_oob_connection_receive(connection);
}

/* The frame at the front, checked and decoded, is taken out. */
static wefti_oob_arrival take(wefti_oob_connection *connection,
                              unsigned allowed, wefti_oob_message *message_out)
{
    const long measured = wefti_oob_message_measure(
        connection->in, connection->in_bytes, allowed);
    const size_t frame_bytes = (size_t)measured;
    if (measured < 0 || frame_bytes > connection->in_room_bytes) {
        return WEFTI_OOB_ARRIVAL_BAD;
    }
    if (measured == 0 || frame_bytes > connection->in_bytes) {
        return connection->ended ? WEFTI_OOB_ARRIVAL_ENDED
                                 : WEFTI_OOB_ARRIVAL_NONE;
    }
    if (wefti_oob_message_is_sealed(connection->in) &&
        !wefti_oob_session_verify(&connection->session, connection->in,
                                  frame_bytes)) {
        return WEFTI_OOB_ARRIVAL_UNPROVEN;
    }
    if (!wefti_oob_message_decode(connection->in, frame_bytes, message_out)) {
        return WEFTI_OOB_ARRIVAL_BAD;
    }
    connection->in_bytes -= frame_bytes;
    memmove(connection->in, connection->in + frame_bytes, connection->in_bytes);
    return WEFTI_OOB_ARRIVAL_MESSAGE;
}

/* HELLO: answer with our version and nonce; the keys stand. */
static bool answer_hello(wefti_oob_connection *connection,
                         const wefti_oob_message_hello *hello)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_CHALLENGE,
                                 .as.hello.version = wefti_version_own()};
    randombytes_buf(message.as.hello.nonce, WEFTI_NONCE_BYTES);
    wefti_oob_session_init(&connection->session, connection->side,
                           connection->secret, hello, &message.as.hello);
    return wefti_oob_connection_post(connection, &message) == WEFT_OK;
}

wefti_oob_arrival wefti_oob_connection_next(wefti_oob_connection *connection,
                                            unsigned allowed,
                                            wefti_oob_message *message_out)
{
    const bool client = connection->side == WEFTI_SIDE_CLIENT;
    if (connection->stage == WEFTI_OOB_STAGE_OPEN) {
        return take(connection, allowed, message_out);
    }
    wefti_oob_arrival arrival =
        take(connection,
             WEFTI_KIND_BIT(client ? WEFTI_OOB_CHALLENGE : WEFTI_OOB_HELLO),
             message_out);
    if (arrival != WEFTI_OOB_ARRIVAL_MESSAGE) {
        return arrival;
    }
    const wefti_oob_message_hello *theirs = &message_out->as.hello;
    if (!client && !answer_hello(connection, theirs)) {
        return WEFTI_OOB_ARRIVAL_BAD;
    }
    if (!wefti_version_is_own(theirs->version)) {
        return WEFTI_OOB_ARRIVAL_VERSION;
    }
    connection->stage = WEFTI_OOB_STAGE_OPEN;
    if (!client) {
        return take(connection, allowed, message_out);
    }
    wefti_oob_session_init(&connection->session, connection->side,
                           connection->secret, &connection->hello, theirs);
    return WEFTI_OOB_ARRIVAL_READY;
}

weft_status wefti_oob_connection_queue(wefti_oob_connection *connection,
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
    /* It counts what it seals: only what is sent. */
    if (wefti_oob_message_is_sealed(frame)) {
        wefti_oob_session_seal(&connection->session, frame, frame_bytes);
    }
    memcpy(connection->out + connection->out_bytes, frame, frame_bytes);
    connection->out_bytes += frame_bytes;
    return WEFT_OK;
}

weft_status wefti_oob_connection_post(wefti_oob_connection *connection,
                                      const wefti_oob_message *message)
{
    weft_status status = wefti_oob_connection_queue(connection, message);
    if (status == WEFT_OK) {
        wefti_oob_connection_flush(connection);
    }
    return status;
}

bool wefti_oob_connection_pass(wefti_oob_connection *connection,
                               const wefti_oob_message *message, int passed_fd)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    struct iovec data = {frame, wefti_oob_message_encode(message, frame)};
    descriptor_room room = {{0}};
    struct msghdr header = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = room.bytes,
                            .msg_controllen = sizeof(room.bytes)};
    struct cmsghdr *control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &passed_fd, sizeof(int));
    ssize_t sent;
    do {
        sent = sendmsg(connection->fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)data.iov_len;
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
