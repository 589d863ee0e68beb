/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/stranger.c - a table of bounded size.
 *
 * Whoever has said hello properly is dropped only when there is nobody left
 * who has not: noise alone cannot crowd out a member on its way in.
 */
#include "comm/bootstrap/stranger.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum { ACCEPTED_AT_ONCE = 16, FULL_PAUSE_MS = 5 };

static const int64_t stranger_ns = WEFTI_STRANGER_MS * INT64_C(1000000);

void wefti_strangers_init(wefti_strangers *strangers)
{
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        strangers->places[i] = (wefti_stranger){.link.fd = -1};
    }
}

void wefti_strangers_fini(wefti_strangers *strangers)
{
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        wefti_link_fini(&strangers->places[i].link);
    }
}

static bool goes_before(const wefti_stranger *a, const wefti_stranger *b)
{
    if (a->challenged != b->challenged) {
        return !a->challenged;
    }
    return a->since_ns < b->since_ns;
}

/* Who must go for the next one; NULL if nobody is here. */
static wefti_stranger *first_to_go(wefti_strangers *strangers)
{
    wefti_stranger *first = NULL;
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        wefti_stranger *place = &strangers->places[i];
        if (place->link.fd >= 0 && (!first || goes_before(place, first))) {
            first = place;
        }
    }
    return first;
}

/* A free place, made free if need be. */
static wefti_stranger *make_room(wefti_strangers *strangers)
{
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        if (strangers->places[i].link.fd < 0) {
            return &strangers->places[i];
        }
    }
    wefti_stranger *first = first_to_go(strangers);
    wefti_link_fini(&first->link);
    return first;
}

/* This process has no descriptor left for who knocks: one inside gives its. */
static void give_descriptor(wefti_strangers *strangers)
{
    wefti_stranger *first = first_to_go(strangers);
    if (first) {
        wefti_link_fini(&first->link);
    } else {
        (void)poll(NULL, 0, FULL_PAUSE_MS);
    }
}

void wefti_strangers_accept(wefti_strangers *strangers, int listen_fd,
                            bool local)
{
    const int on = 1;
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) {
                give_descriptor(strangers);
            }
            return;
        }
        if (!local) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        }
        wefti_stranger *place = make_room(strangers);
        *place = (wefti_stranger){.since_ns = wefti_clock_ns()};
        if (wefti_link_init(&place->link, fd, WEFTI_MESSAGE_CLIENT_MOST) !=
            WEFT_OK) {
            return; /* no memory: it is dropped, and may come again */
        }
    }
}

void wefti_strangers_expire(wefti_strangers *strangers, int64_t now_ns)
{
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        wefti_stranger *place = &strangers->places[i];
        if (place->link.fd >= 0 && now_ns >= place->since_ns + stranger_ns) {
            wefti_link_fini(&place->link);
        }
    }
}

int64_t wefti_strangers_next_ns(const wefti_strangers *strangers)
{
    int64_t next_ns = INT64_MAX;
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        const wefti_stranger *place = &strangers->places[i];
        if (place->link.fd >= 0 && place->since_ns + stranger_ns < next_ns) {
            next_ns = place->since_ns + stranger_ns;
        }
    }
    return next_ns;
}
