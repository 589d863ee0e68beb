/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/unauthenticated.c - a table of bounded size.
 *
 * Whoever has said hello properly is dropped only when there is nobody left
 * who has not: noise alone cannot crowd out a member on its way in.
 */
#include "comm/oob/unauthenticated.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum { ACCEPTED_AT_ONCE = 16, FULL_PAUSE_MS = 5 };

static const int64_t limit_ns = WEFTI_UNAUTHENTICATED_MS * INT64_C(1000000);

void wefti_unauthenticated_init(wefti_unauthenticated *set)
{
    for (int i = 0; i < WEFTI_UNAUTHENTICATED_MOST; i++) {
        set->places[i] = (wefti_unauthenticated_peer){.connection.fd = -1};
    }
}

void wefti_unauthenticated_fini(wefti_unauthenticated *set)
{
    for (int i = 0; i < WEFTI_UNAUTHENTICATED_MOST; i++) {
        wefti_oob_connection_fini(&set->places[i].connection);
    }
}

static bool goes_before(const wefti_unauthenticated_peer *a,
                        const wefti_unauthenticated_peer *b)
{
    if (a->challenged != b->challenged) {
        return !a->challenged;
    }
    return a->since_ns < b->since_ns;
}

/* Who must go for the next one; NULL if nobody is here. */
static wefti_unauthenticated_peer *first_to_go(wefti_unauthenticated *set)
{
    wefti_unauthenticated_peer *first = NULL;
    for (int i = 0; i < WEFTI_UNAUTHENTICATED_MOST; i++) {
        wefti_unauthenticated_peer *place = &set->places[i];
        if (place->connection.fd >= 0 &&
            (!first || goes_before(place, first))) {
            first = place;
        }
    }
    return first;
}

/* A free place, made free if need be. */
static wefti_unauthenticated_peer *make_room(wefti_unauthenticated *set)
{
    for (int i = 0; i < WEFTI_UNAUTHENTICATED_MOST; i++) {
        if (set->places[i].connection.fd < 0) {
            return &set->places[i];
        }
    }
    wefti_unauthenticated_peer *first = first_to_go(set);
    wefti_oob_connection_fini(&first->connection);
    return first;
}

/* This process has no descriptor left for who knocks: one inside gives its. */
static void give_descriptor(wefti_unauthenticated *set)
{
    wefti_unauthenticated_peer *first = first_to_go(set);
    if (first) {
        wefti_oob_connection_fini(&first->connection);
    } else {
        (void)poll(NULL, 0, FULL_PAUSE_MS);
    }
}

void wefti_unauthenticated_accept(wefti_unauthenticated *set, int listen_fd,
                                  bool local)
{
    const int on = 1;
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE) {
                give_descriptor(set);
            }
            return;
        }
        if (!local) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        }
        wefti_unauthenticated_peer *place = make_room(set);
        *place = (wefti_unauthenticated_peer){.since_ns = wefti_clock_ns()};
        if (wefti_oob_connection_init(&place->connection, fd,
                                      WEFTI_OOB_CLIENT_MOST) != WEFT_OK) {
            return; /* no memory: it is dropped, and may come again */
        }
    }
}

void wefti_unauthenticated_expire(wefti_unauthenticated *set, int64_t now_ns)
{
    for (int i = 0; i < WEFTI_UNAUTHENTICATED_MOST; i++) {
        wefti_unauthenticated_peer *place = &set->places[i];
        if (place->connection.fd >= 0 && now_ns >= place->since_ns + limit_ns) {
            wefti_oob_connection_fini(&place->connection);
        }
    }
}

int64_t wefti_unauthenticated_next_ns(const wefti_unauthenticated *set)
{
    int64_t next_ns = INT64_MAX;
    for (int i = 0; i < WEFTI_UNAUTHENTICATED_MOST; i++) {
        const wefti_unauthenticated_peer *place = &set->places[i];
        if (place->connection.fd >= 0 && place->since_ns + limit_ns < next_ns) {
            next_ns = place->since_ns + limit_ns;
        }
    }
    return next_ns;
}
