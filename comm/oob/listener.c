/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/listener.c - a table of bounded size.
 *
 * A peer that has greeted properly is dropped only when there is none left that
 * has not: noise alone cannot crowd out a member on its way in.
 */
#include "comm/oob/listener.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTED_AT_ONCE = 16, FULL_PAUSE_MS = 5 };

static const int64_t limit_ns = WEFTI_OOB_UNPROVEN_MS * INT64_C(1000000);

void wefti_oob_listener_init(wefti_oob_listener *listener, int fd,
                             const wefti_secret *secret)
{
    listener->fd = fd;
    listener->secret = secret;
    for (int i = 0; i < WEFTI_OOB_UNPROVEN_MOST; i++) {
        listener->peers[i] = (wefti_oob_connection){.fd = -1};
    }
}

void wefti_oob_listener_close(wefti_oob_listener *listener)
{
    if (listener->fd >= 0) {
        (void)shutdown(listener->fd, SHUT_RDWR);
        close(listener->fd);
        listener->fd = -1;
    }
    for (int i = 0; i < WEFTI_OOB_UNPROVEN_MOST; i++) {
        wefti_oob_connection_fini(&listener->peers[i]);
    }
}

static bool goes_before(const wefti_oob_connection *a,
                        const wefti_oob_connection *b)
{
    if (a->stage != b->stage) {
        return a->stage < b->stage;
    }
    return a->since_ns < b->since_ns;
}

/* The one that must go for the next; NULL if there is none. */
static wefti_oob_connection *first_to_go(wefti_oob_listener *listener)
{
    wefti_oob_connection *first = NULL;
    for (int i = 0; i < WEFTI_OOB_UNPROVEN_MOST; i++) {
        wefti_oob_connection *peer = &listener->peers[i];
        if (peer->fd >= 0 && (!first || goes_before(peer, first))) {
            first = peer;
        }
    }
    return first;
}

/* A free place, made free if need be. */
static wefti_oob_connection *make_room(wefti_oob_listener *listener)
{
    for (int i = 0; i < WEFTI_OOB_UNPROVEN_MOST; i++) {
        if (listener->peers[i].fd < 0) {
            return &listener->peers[i];
        }
    }
    wefti_oob_connection *first = first_to_go(listener);
    wefti_oob_connection_fini(first);
    return first;
}

/* This process has no descriptor left for a new peer: an accepted one is
 * closed. */
static void free_descriptor(wefti_oob_listener *listener)
{
    wefti_oob_connection *first = first_to_go(listener);
    if (first) {
        wefti_oob_connection_fini(first);
    } else {
        (void)poll(NULL, 0, FULL_PAUSE_MS);
    }
}

static void accept_some(wefti_oob_listener *listener)
{
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        int fd =
            accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) {
                free_descriptor(listener);
            }
            return;
        }
        if (wefti_oob_connection_accept(make_room(listener), fd,
                                        listener->secret) != WEFT_OK) {
            return; /* no memory: it is dropped, and may come again */
        }
    }
}

nfds_t
wefti_oob_listener_watch(const wefti_oob_listener *listener,
                         struct pollfd polled_out[WEFTI_OOB_LISTENER_POLLED])
{
    nfds_t count = 0;
    for (int i = 0; i < WEFTI_OOB_UNPROVEN_MOST; i++) {
        const wefti_oob_connection *peer = &listener->peers[i];
        if (peer->fd >= 0) {
            polled_out[count++] = (struct pollfd){
                .fd = peer->fd, .events = wefti_oob_connection_events(peer)};
        }
    }
    if (listener->fd >= 0) {
        polled_out[count++] =
            (struct pollfd){.fd = listener->fd, .events = POLLIN};
    }
    return count;
}

static wefti_oob_connection *find_peer(wefti_oob_listener *listener, int fd)
{
    int i = 0;
    while (i < WEFTI_OOB_UNPROVEN_MOST && listener->peers[i].fd != fd) {
        i++;
    }
    return i < WEFTI_OOB_UNPROVEN_MOST ? &listener->peers[i] : NULL;
}

void wefti_oob_listener_serve(
    wefti_oob_listener *listener, const struct pollfd *polled, nfds_t count,
    void (*read)(void *context, wefti_oob_connection *peer), void *context)
{
    for (nfds_t i = 0; i < count; i++) {
        wefti_oob_connection *peer = find_peer(listener, polled[i].fd);
        if (peer && polled[i].revents) {
            wefti_oob_connection_serve(peer, polled[i].revents);
            if (polled[i].revents & ~POLLOUT) {
                read(context, peer);
            }
        } else if (polled[i].fd == listener->fd && polled[i].revents) {
            accept_some(listener);
        }
    }
    wefti_oob_listener_expire(listener, wefti_clock_ns());
}

void wefti_oob_listener_expire(wefti_oob_listener *listener, int64_t now_ns)
{
    for (int i = 0; i < WEFTI_OOB_UNPROVEN_MOST; i++) {
        wefti_oob_connection *peer = &listener->peers[i];
        if (peer->fd >= 0 && now_ns >= peer->since_ns + limit_ns) {
            wefti_oob_connection_fini(peer);
        }
    }
}

int64_t wefti_oob_listener_next_ns(const wefti_oob_listener *listener)
{
    int64_t next_ns = INT64_MAX;
    for (int i = 0; i < WEFTI_OOB_UNPROVEN_MOST; i++) {
        const wefti_oob_connection *peer = &listener->peers[i];
        if (peer->fd >= 0 && peer->since_ns + limit_ns < next_ns) {
            next_ns = peer->since_ns + limit_ns;
        }
    }
    return next_ns;
}
