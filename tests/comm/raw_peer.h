/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/raw_peer.h - a peer at a rendezvous that sends what the test
 * wants: blocking sockets with a time limit.
 */
#ifndef TESTS_COMM_RAW_PEER_H
#define TESTS_COMM_RAW_PEER_H

#include "comm/oob/session.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { RAW_LIMIT_S = 20 };

typedef struct raw_peer {
    int fd;
    wefti_oob_message_hello hello, challenge;
    wefti_oob_session session;
    wefti_oob_message message; /* the last one received */
} raw_peer;

static inline void raw_require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* Where an id says: see comm/oob/unique_id.c. */
static inline int raw_id_port(const weft_unique_id *id)
{
    return id->bytes[47] << 8 | id->bytes[48];
}

static inline wefti_secret raw_id_secret(const weft_unique_id *id)
{
    wefti_secret secret;
    wefti_secret_init(&secret, id->bytes + 14, 32);
    return secret;
}

/* A connection to a loopback port, or -1. */
static inline int raw_connect(int port)
{
    const struct timeval limit = {.tv_sec = RAW_LIMIT_S};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    raw_require(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline void raw_send(int fd, const void *bytes, size_t count)
{
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
    (void)sent; /* a dropped peer learns it when it reads */
}

/* Encoded, and sealed if session is not NULL. */
static inline void raw_say(int fd, wefti_oob_session *session,
                           const wefti_oob_message *message)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    size_t bytes = wefti_oob_message_encode(message, frame);
    if (session) {
        wefti_oob_session_seal(session, frame, bytes);
    }
    raw_send(fd, frame, bytes);
}

static inline bool raw_read(int fd, unsigned char *bytes, size_t count)
{
    for (size_t have = 0; have < count;) {
        ssize_t got = recv(fd, bytes + have, count - have, 0);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
    }
    return true;
}

/* The next message; with session it must be sealed. False: no more. */
static inline bool raw_hear(int fd, wefti_oob_session *session,
                            wefti_oob_message *message_out)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    if (!raw_read(fd, frame, WEFTI_OOB_HEADER_BYTES)) {
        return false;
    }
    long bytes = wefti_oob_message_measure(frame, WEFTI_OOB_HEADER_BYTES, ~0u);
    raw_require(bytes > 0);
    if (!raw_read(fd, frame + WEFTI_OOB_HEADER_BYTES,
                  (size_t)bytes - WEFTI_OOB_HEADER_BYTES)) {
        return false;
    }
    raw_require(!session ||
                wefti_oob_session_verify(session, frame, (size_t)bytes));
    raw_require(wefti_oob_message_decode(frame, (size_t)bytes, message_out));
    return true;
}

/* HELLO and CHALLENGE; false if the server drops us. */
static inline bool raw_greet(raw_peer *peer, int port,
                             const wefti_secret *secret)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_HELLO};
    message.as.hello.version = wefti_version_own();
    randombytes_buf(message.as.hello.nonce, WEFTI_NONCE_BYTES);
    peer->hello = message.as.hello;
    peer->fd = raw_connect(port);
    if (peer->fd < 0) {
        return false;
    }
    raw_say(peer->fd, NULL, &message);
    if (!raw_hear(peer->fd, NULL, &peer->message)) {
        return false;
    }
    raw_require(peer->message.kind == WEFTI_OOB_CHALLENGE);
    peer->challenge = peer->message.as.hello;
    wefti_oob_session_init(&peer->session, WEFTI_SIDE_CLIENT, secret,
                           &peer->hello, &peer->challenge);
    return true;
}

static inline wefti_oob_message raw_join_message(uint32_t rank, uint32_t nranks)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_JOIN};
    message.as.join.rank = rank;
    message.as.join.nranks = nranks;
    message.as.join.pid = (uint32_t)getpid();
    message.as.join.warn_ms = 10000;
    message.as.join.timeout_ms = RAW_LIMIT_S * 1000;
    memset(message.as.join.tuning, 0xa0 + (int)rank % 16, WEFTI_TUNING_BYTES);
    raw_require(wefti_place_find((int)rank, &message.as.join.place) == WEFT_OK);
    return message;
}

/* Greets, joins, and receives the answer into peer->message. */
static inline void raw_join(raw_peer *peer, const weft_unique_id *id,
                            uint32_t rank, uint32_t nranks)
{
    wefti_secret secret = raw_id_secret(id);
    const wefti_oob_message join = raw_join_message(rank, nranks);
    raw_require(raw_greet(peer, raw_id_port(id), &secret));
    raw_say(peer->fd, &peer->session, &join);
    raw_require(raw_hear(peer->fd, &peer->session, &peer->message));
}

#endif
