/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/server.c - the thread and its poll loop. Nothing here blocks
 * but poll.
 */
#include "comm/bootstrap/server.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/bootstrap/meeting.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    POLL_STOP,
    POLL_LISTEN,
    POLL_LAUNCHER,
    POLL_STRANGERS,
    POLL_MEMBERS = POLL_STRANGERS + WEFTI_STRANGERS_MOST,
    POLL_MOST = POLL_MEMBERS + WEFTI_BOOTSTRAP_RANKS_MOST,
    FAREWELL_MS = 500
};

struct wefti_server {
    wefti_meeting meeting;
    pthread_t thread;
    bool detached;
    int stop_fd; /* an event: the home rank has left; -1 if detached */
    struct pollfd polled[POLL_MOST];
};

static struct pollfd watch_link(const wefti_link *link)
{
    short events = wefti_link_has_output(link) ? POLLIN | POLLOUT : POLLIN;
    return (struct pollfd){.fd = link->fd, .events = events};
}

/* Fills polled; poll skips descriptors that are -1. Returns how many. */
static nfds_t watch(wefti_server *server)
{
    wefti_meeting *meeting = &server->meeting;
    struct pollfd *polled = server->polled;
    polled[POLL_STOP] =
        (struct pollfd){.fd = server->stop_fd, .events = POLLIN};
    polled[POLL_LISTEN] =
        (struct pollfd){.fd = meeting->config.listen_fd, .events = POLLIN};
    polled[POLL_LAUNCHER] = (struct pollfd){
        .fd = wefti_meeting_is_gathering(meeting) ? meeting->config.launcher_fd
                                                  : -1,
        .events = POLLIN};
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        polled[POLL_STRANGERS + i] =
            watch_link(&meeting->strangers.places[i].link);
    }
    for (int rank = 0; rank < meeting->roster.nranks; rank++) {
        polled[POLL_MEMBERS + rank] =
            watch_link(&meeting->roster.seats[rank].link);
    }
    return (nfds_t)(POLL_MEMBERS + meeting->roster.nranks);
}

/* One link's news; true if it has something to read. */
static bool attend_link(wefti_link *link, const struct pollfd *news)
{
    if (link->fd < 0 || news->fd != link->fd) {
        return false;
    }
    if (news->revents & POLLOUT) {
        wefti_link_flush(link);
    }
    return news->revents & ~POLLOUT;
}

/* polled_ranks: how many members there were when poll was asked. */
static void attend(wefti_server *server, int polled_ranks)
{
    wefti_meeting *meeting = &server->meeting;
    const struct pollfd *polled = server->polled;
    if (polled[POLL_STOP].revents) {
        uint64_t count;
        ssize_t taken = read(server->stop_fd, &count, sizeof(count));
        (void)taken; /* whoever comes late is still told why it failed */
        wefti_meeting_conclude(meeting, WEFT_ERR_BOOTSTRAP,
                               "rank %d left during bootstrap",
                               meeting->config.home_rank);
        if (meeting->config.stays) {
            wefti_meeting_end(meeting);
        }
    }
    for (int rank = 0;
         rank < polled_ranks && meeting->phase != WEFTI_PHASE_ENDED; rank++) {
        if (attend_link(&meeting->roster.seats[rank].link,
                        &polled[POLL_MEMBERS + rank])) {
            wefti_meeting_hear_member(meeting, rank);
        }
    }
    for (int i = 0; i < WEFTI_STRANGERS_MOST; i++) {
        if (attend_link(&meeting->strangers.places[i].link,
                        &polled[POLL_STRANGERS + i])) {
            wefti_meeting_hear_stranger(meeting, &meeting->strangers.places[i]);
        }
    }
    if (polled[POLL_LAUNCHER].revents) {
        wefti_meeting_hear_launcher(meeting);
    }
    if (polled[POLL_LISTEN].revents && meeting->config.listen_fd >= 0) {
        wefti_strangers_accept(&meeting->strangers, meeting->config.listen_fd,
                               false);
    }
}

static int wait_ms(int64_t until_ns)
{
    int64_t left_ns = until_ns - wefti_clock_ns();
    if (left_ns <= 0) {
        return 0;
    }
    return left_ns > 3600 * INT64_C(1000000000) ? 3600000
                                                : (int)(left_ns / 1000000) + 1;
}

/*
 * Everybody gets the verdict before its connection closes. After a failure
 * members may still be sending, and a connection that closes on unread bytes
 * takes the verdict with it: so read until they have closed, for a while.
 */
static void farewell(wefti_server *server)
{
    wefti_meeting *meeting = &server->meeting;
    const bool good = meeting->verdict == WEFT_OK;
    const int64_t until_ns = wefti_clock_ns() + FAREWELL_MS * INT64_C(1000000);
    bool waiting = true;
    while (waiting && wefti_clock_ns() < until_ns) {
        waiting = false;
        for (int rank = 0; rank < meeting->roster.nranks; rank++) {
            wefti_link *link = &meeting->roster.seats[rank].link;
            if (link->fd < 0) {
                continue;
            }
            wefti_link_flush(link);
            if (!wefti_link_has_output(link)) {
                (void)shutdown(link->fd, SHUT_WR);
                link->in_bytes = 0;
                link->in_taken_bytes = 0;
                wefti_link_receive(link);
                if (good || link->ended) {
                    wefti_link_fini(link);
                    continue;
                }
            }
            waiting = true;
        }
        if (waiting) {
            (void)poll(server->polled, watch(server), wait_ms(until_ns));
        }
    }
}

static void destroy(wefti_server *server)
{
    wefti_meeting_fini(&server->meeting);
    if (server->stop_fd >= 0) {
        close(server->stop_fd);
    }
    free(server);
}

static void *serve(void *argument)
{
    wefti_server *server = argument;
    wefti_meeting *meeting = &server->meeting;
    while (meeting->phase != WEFTI_PHASE_ENDED) {
        const int polled_ranks = meeting->roster.nranks;
        const int news = poll(server->polled, watch(server),
                              wait_ms(wefti_meeting_next_ns(meeting)));
        if (news > 0) {
            attend(server, polled_ranks);
        } else if (news < 0 && errno == EINVAL) { /* and so for ever */
            wefti_meeting_conclude(meeting, WEFT_ERR_SYSTEM,
                                   "%s: the limit on open files "
                                   "(RLIMIT_NOFILE, ulimit -n) is too low to "
                                   "watch %d ranks",
                                   meeting->config.endpoint.name, polled_ranks);
        }
        wefti_meeting_check_time(meeting, wefti_clock_ns());
        wefti_meeting_advance(meeting);
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
    const rlim_t needed = (rlim_t)POLL_MEMBERS + (rlim_t)nranks;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
        return wefti_error(WEFT_ERR_SYSTEM,
                           "the limit on open files (RLIMIT_NOFILE, ulimit -n) "
                           "is %llu; a meeting of %d ranks needs %llu",
                           (unsigned long long)limit.rlim_cur, nranks,
                           (unsigned long long)needed);
    }
    return WEFT_OK;
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
    weft_status status = wefti_meeting_init(&server->meeting, config);
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
    server->meeting.config.listen_fd = -1; /* still the caller's */
    destroy(server);
    return status;
}

void wefti_server_stop(wefti_server *server)
{
    const uint64_t one = 1;
    /* Its only failure is a full counter, and then it is set as well. */
    ssize_t written = write(server->stop_fd, &one, sizeof(one));
    (void)written;
    (void)pthread_join(server->thread, NULL);
    destroy(server);
}
