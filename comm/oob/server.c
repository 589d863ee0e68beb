/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/server.c - the thread and its poll loop. Nothing here blocks
 * but poll.
 */
#include "comm/oob/server.h"

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/event.h"
#include "base/thread.h"
#include "comm/oob/server_state.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    POLL_STOP,
    POLL_LAUNCHER,
    POLL_MEMBERS, /* and behind them the listener's */
    POLL_MOST = POLL_MEMBERS + WEFTI_JOB_RANKS_MOST + WEFTI_OOB_LISTENER_POLLED,
    FAREWELL_MS = 500
};

struct wefti_server {
    wefti_server_state state;
    pthread_t thread;
    bool detached;
    int stop_fd; /* an event: the home rank has left; -1 if detached */
    struct pollfd polled[POLL_MOST];
};

/* Fills polled; poll skips descriptors that are -1. Returns how many. */
static nfds_t watch(wefti_server *server)
{
    const wefti_server_state *state = &server->state;
    struct pollfd *polled = server->polled;
    const nfds_t members_end = POLL_MEMBERS + (nfds_t)state->roster.nranks;
    polled[POLL_STOP] =
        (struct pollfd){.fd = server->stop_fd, .events = POLLIN};
    polled[POLL_LAUNCHER] = (struct pollfd){
        .fd = wefti_server_state_is_gathering(state) ? state->config.launcher_fd
                                                     : -1,
        .events = POLLIN};
    for (int rank = 0; rank < state->roster.nranks; rank++) {
        const wefti_oob_connection *connection =
            &state->roster.seats[rank].connection;
        polled[POLL_MEMBERS + rank] =
            (struct pollfd){.fd = connection->fd,
                            .events = wefti_oob_connection_events(connection)};
    }
    return members_end +
           wefti_oob_listener_watch(&state->listener, polled + members_end);
}

/* count: of what was polled; ranks: how many members there were then. */
static void serve_polled(wefti_server *server, nfds_t count, int ranks)
{
    wefti_server_state *state = &server->state;
    const struct pollfd *polled = server->polled;
    const nfds_t members_end = POLL_MEMBERS + (nfds_t)ranks;
    if (polled[POLL_STOP].revents) {
        uint64_t stops;
        ssize_t taken = read(server->stop_fd, &stops, sizeof(stops));
        (void)taken; /* a late rank is still sent why it failed */
        wefti_server_state_conclude(state, WEFT_ERR_BOOTSTRAP,
                                    "rank %d left during bootstrap",
                                    state->config.home_rank);
        if (state->config.stays) {
            wefti_server_state_end(state);
        }
    }
    for (int rank = 0; rank < ranks && state->phase != WEFTI_PHASE_ENDED;
         rank++) {
        const struct pollfd *news = &polled[POLL_MEMBERS + rank];
        wefti_oob_connection *connection =
            &state->roster.seats[rank].connection;
        if (news->fd >= 0 && news->fd == connection->fd && news->revents) {
            wefti_oob_connection_serve(connection, news->revents);
            if (news->revents & ~POLLOUT) {
                wefti_server_state_read_member(state, rank);
            }
        }
    }
    wefti_oob_listener_serve(&state->listener, polled + members_end,
                             count - members_end, wefti_server_state_read_peer,
                             state);
    if (polled[POLL_LAUNCHER].revents) {
        wefti_server_state_read_launcher(state);
    }
}

/*
 * Each member gets the verdict before its connection closes. After a failure
 * members may still be sending, and a connection that closes on unread bytes
 * takes the verdict with it: so read until they have closed, for a while.
 */
static void farewell(wefti_server *server)
{
    wefti_server_state *state = &server->state;
    const bool good = state->verdict == WEFT_OK;
    const int64_t until_ns = wefti_clock_ns() + FAREWELL_MS * INT64_C(1000000);
    bool waiting = true;
    while (waiting && wefti_clock_ns() < until_ns) {
        waiting = false;
        for (int rank = 0; rank < state->roster.nranks; rank++) {
            wefti_oob_connection *connection =
                &state->roster.seats[rank].connection;
            if (connection->fd < 0) {
                continue;
            }
            wefti_oob_connection_flush(connection);
            if (!wefti_oob_connection_has_output(connection)) {
                (void)shutdown(connection->fd, SHUT_WR);
                wefti_oob_connection_drain(connection);
                if (good || connection->ended) {
                    wefti_oob_connection_fini(connection);
                    continue;
                }
            }
            waiting = true;
        }
        if (waiting) {
            (void)poll(server->polled, watch(server),
                       wefti_clock_poll_ms(until_ns));
        }
    }
}

static void destroy(wefti_server *server)
{
    wefti_server_state_fini(&server->state);
    if (server->stop_fd >= 0) {
        close(server->stop_fd);
    }
    free(server);
}

static void *serve(void *argument)
{
    wefti_server *server = argument;
    wefti_server_state *state = &server->state;
    while (state->phase != WEFTI_PHASE_ENDED) {
        const int polled_ranks = state->roster.nranks;
        const nfds_t count = watch(server);
        const int news =
            poll(server->polled, count,
                 wefti_clock_poll_ms(wefti_server_state_next_ns(state)));
        if (news > 0) {
            serve_polled(server, count, polled_ranks);
        } else if (news < 0 && errno == EINVAL) { /* and so for ever */
            wefti_server_state_conclude(
                state, WEFT_ERR_SYSTEM,
                "%s: the limit on open files "
                "(RLIMIT_NOFILE, ulimit -n) is too low to "
                "watch %d ranks",
                state->config.endpoint.name, polled_ranks);
        }
        wefti_server_state_check_time(state, wefti_clock_ns());
        wefti_server_state_advance(state);
    }
    farewell(server);
    if (server->detached) {
        destroy(server);
    }
    return NULL;
}

/* poll refuses more places than there may be descriptors. */
static weft_status check_places(int nranks)
{
    return wefti_descriptors_check("serving a job", nranks,
                                   POLL_MEMBERS + WEFTI_OOB_LISTENER_POLLED +
                                       (unsigned long long)nranks);
}

weft_status wefti_server_start(const wefti_server_config *config,
                               wefti_server **server_out)
{
    wefti_server *server = calloc(1, sizeof(*server));
    if (!server) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the rendezvous: %zu bytes",
                           sizeof(*server));
    }
    server->detached = !server_out;
    server->stop_fd = -1;
    weft_status status = wefti_server_state_init(&server->state, config);
    if (status == WEFT_OK) {
        status = check_places(config->nranks);
    }
    if (status != WEFT_OK) {
        goto err_destroy;
    }
    if (server_out) {
        server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (server->stop_fd < 0) {
            status = wefti_error_system("event of the rendezvous (eventfd)");
            goto err_destroy;
        }
    }
    /* A detached server may be gone, and freed, before this returns. */
    if (wefti_thread_start(serve, server,
                           server_out ? &server->thread : NULL) != 0) {
        status =
            wefti_error_system("thread of the rendezvous (pthread_create)");
        goto err_destroy;
    }
    if (server_out) { /* else it may be gone already */
        *server_out = server;
    }
    return WEFT_OK;

err_destroy:
    server->state.listener.fd = -1; /* still the caller's */
    destroy(server);
    return status;
}

void wefti_server_stop(wefti_server *server)
{
    wefti_event_ring(server->stop_fd);
    (void)pthread_join(server->thread, NULL);
    destroy(server);
}
