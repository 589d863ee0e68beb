/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_link.c - connecting, greeting, accepting, and what a socket
 * says.
 */
#include "comm/net/tcp_link.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ATTEMPTS = 8,        /* to connect, where the other end closes at once */
    LISTENER = -1,       /* in an event's place of a link; next rail: -2 */
    LOOK_NS = 500000000, /* between two looks at the rails */
    UNANSWERED_MOST = 6  /* times that bytes are sent again: 13 s or so */
};

/* How long a peer that has closed one rail may say nothing over the others
 * before they are taken for closed too. */
#define END_NS INT64_C(5000000000)

enum { WELCOME = 'w', ELSEWHERE = 'e' }; /* answers */

/* ---- the epoll set ---------------------------------------------------------
 * An event's word: a link, or below 0 a listening socket, and below these an
 * unproven connection.
 */

static int64_t word_of_link(const wefti_tcp_link *link)
{
    return (int64_t)link->peer * WEFTI_RAILS_MOST + link->rail;
}

static int64_t word_of_unproven(int index)
{
    return (int64_t)LISTENER - WEFTI_RAILS_MOST - index;
}

static bool watch(wefti_tcp_links *port, int fd, int64_t word, uint32_t events,
                  bool known)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)word};
    return epoll_ctl(port->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
                     &event) == 0;
}

static void watch_link(wefti_tcp_links *port, wefti_tcp_link *self,
                       uint32_t events)
{
    if (self->watched != events &&
        watch(port, self->stream.fd, word_of_link(self), events,
              self->watched != 0)) {
        self->watched = events;
    }
}

bool wefti_tcp_links_listen(wefti_tcp_links *port, int rail)
{
    return watch(port, port->rails[rail].listen_fd, (int64_t)LISTENER - rail,
                 EPOLLIN, false);
}

/* ---- links -----------------------------------------------------------------
 */

wefti_tcp_link *wefti_tcp_link_get(wefti_tcp_links *port, int peer, int rail)
{
    wefti_tcp_peer *to = &port->peers[peer];
    wefti_tcp_link *link = to->links[rail];
    if (!link && (link = calloc(1, sizeof(*link)))) {
        wefti_tcp_stream_init(&link->stream, &port->config, &to->pieces);
        link->peer = peer;
        link->rail = rail;
        to->links[rail] = link;
    }
    return link;
}

/* Closes the socket; what is queued stays. */
static void hang_up(wefti_tcp_link *self)
{
    if (self->stream.fd >= 0) {
        close(self->stream.fd);
        self->stream.fd = -1;
    }
    self->watched = 0;
}

/* What is queued is dropped. */
static void close_link(wefti_tcp_links *port, wefti_tcp_link *self)
{
    self->state = WEFTI_TCP_LINK_CLOSED;
    port->unsent -= self->stream.unsent;
    wefti_tcp_stream_fini(&self->stream);
    self->watched = 0;
}

void wefti_tcp_peer_lose(wefti_tcp_links *port, int peer, const char *why)
{
    wefti_tcp_peer *self = &port->peers[peer];
    if (self->lost) {
        return;
    }
    self->lost = true;
    for (int rail = 0; rail < WEFTI_RAILS_MOST; rail++) {
        if (self->links[rail]) {
            close_link(port, self->links[rail]);
        }
    }
    port->config.lost(port->config.context, peer, why);
}

/* With the rail's name, where there are several. */
static void lose(wefti_tcp_links *port, const wefti_tcp_link *self,
                 const char *why)
{
    char text[160];
    snprintf(text, sizeof(text), "%s: %s", port->rails[self->rail].name, why);
    wefti_tcp_peer_lose(port, self->peer, port->rail_count > 1 ? text : why);
}

/* It has never been up. */
static void give_up(wefti_tcp_links *port, wefti_tcp_link *self,
                    const char *why)
{
    if (self->rail == 0) {
        lose(port, self, why);
        return;
    }
    hang_up(self);
    self->state = WEFTI_TCP_LINK_CLOSED;
    port->config.unreached(port->config.context, self->peer,
                           port->rails[self->rail].name, why);
}

void wefti_tcp_link_mark(wefti_tcp_links *port, wefti_tcp_link *link)
{
    if (!link->dirty) {
        link->dirty = true;
        link->next_dirty = port->dirty;
        port->dirty = link;
    }
}

static void watch_stream(wefti_tcp_links *port, wefti_tcp_link *self)
{
    const bool room = self->stream.full || self->stream.drains;
    watch_link(port, self, EPOLLIN | (room ? EPOLLOUT : 0));
}

/* Sends what the kernel takes, and asks to be told when it takes more. */
static bool flush(wefti_tcp_links *port, wefti_tcp_link *self)
{
    const size_t before = self->stream.unsent;
    wefti_tcp_result result = wefti_tcp_stream_flush(&self->stream);
    port->unsent -= before - self->stream.unsent;
    watch_stream(port, self);
    return result == WEFTI_TCP_MOVED;
}

bool wefti_tcp_links_flush(wefti_tcp_links *port)
{
    bool moved = false;
    while (port->dirty) {
        wefti_tcp_link *self = port->dirty;
        port->dirty = self->next_dirty;
        self->dirty = false;
        if (self->state == WEFTI_TCP_LINK_UP) {
            moved |= flush(port, self);
        }
    }
    return moved;
}

static void be_up(wefti_tcp_links *port, wefti_tcp_link *self)
{
    self->state = WEFTI_TCP_LINK_UP;
    watch_link(port, self, EPOLLIN);
    wefti_tcp_link_mark(port, self);
}

/* The peer's end of a rail; false: it has none there. */
static bool find_address(const wefti_tcp_links *port,
                         const wefti_tcp_link *self, wefti_tcp_address *to_out)
{
    const wefti_tcp_peer *peer = &port->peers[self->peer];
    const uint32_t rail = port->rails[self->rail].own.rail;
    for (int i = 0; i < peer->address_count; i++) {
        memcpy(to_out, peer->addresses + (size_t)i * sizeof(*to_out),
               sizeof(*to_out));
        /* The first of each leads to the other's first. */
        if (self->rail == 0 || (i > 0 && to_out->rail == rail)) {
            return true;
        }
    }
    return false;
}

/* What this host refuses may be short for a moment only: again, a few times. */
static void begin_connect(wefti_tcp_links *port, wefti_tcp_link *self)
{
    wefti_tcp_address to;
    if (!find_address(port, self, &to)) {
        give_up(port, self, "it has none");
        return;
    }
    do {
        self->stream.fd =
            wefti_tcp_socket_connect(&port->rails[self->rail].own, &to);
    } while (self->stream.fd < 0 && self->attempts++ < ATTEMPTS);
    if (self->stream.fd < 0) {
        give_up(port, self, strerror(errno));
        return;
    }
    self->attempts++;
    self->state = WEFTI_TCP_LINK_CONNECTS;
    watch_link(port, self, EPOLLOUT);
}

void wefti_tcp_link_want(wefti_tcp_links *port, wefti_tcp_link *link)
{
    if (link->state == WEFTI_TCP_LINK_NONE) {
        begin_connect(port, link);
    }
}

/* The other end hung up before it answered: once more, or that was all. */
static void retry(wefti_tcp_links *port, wefti_tcp_link *self, const char *why)
{
    if (self->attempts >= ATTEMPTS) {
        give_up(port, self, why);
        return;
    }
    hang_up(self);
    begin_connect(port, self);
}

static void greet(wefti_tcp_links *port, wefti_tcp_link *self)
{
    int error = 0;
    socklen_t bytes = sizeof(error);
    wefti_tcp_hello say = {
        .magic = WEFTI_TCP_MAGIC,
        .rank = (uint32_t)port->config.rank,
        .rail = self->rail == 0 ? 0 : port->rails[self->rail].own.rail};
    memcpy(say.proof, port->proof, sizeof(say.proof));
    (void)getsockopt(self->stream.fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error) {
        give_up(port, self, strerror(error));
        return;
    }
    /* The first bytes of a connection: there is room. */
    if (send(self->stream.fd, &say, sizeof(say), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(say)) {
        retry(port, self, "it takes no greeting");
        return;
    }
    self->state = WEFTI_TCP_LINK_GREETS;
    watch_link(port, self, EPOLLIN);
}

static void read_answer(wefti_tcp_links *port, wefti_tcp_link *self)
{
    unsigned char answer;
    ssize_t got = recv(self->stream.fd, &answer, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got == 1 && answer == WELCOME) {
        be_up(port, self);
    } else if (got == 1 && answer == ELSEWHERE) {
        hang_up(self);
        self->state = WEFTI_TCP_LINK_AWAITED;
    } else {
        retry(port, self, got < 0 ? strerror(errno) : "it hangs up");
    }
}

/*
 * The peer has closed this one, and closes the others: it reads nothing any
 * more, and what comes over them counts. So it is if it had not read all, when
 * its kernel cuts the connection off instead of ending it.
 */
static void end(wefti_tcp_links *port, wefti_tcp_link *self, int why)
{
    wefti_tcp_peer *peer = &port->peers[self->peer];
    bool up = false;
    close_link(port, self);
    for (int rail = 0; rail < WEFTI_RAILS_MOST; rail++) {
        up |=
            peer->links[rail] && peer->links[rail]->state == WEFTI_TCP_LINK_UP;
    }
    if (!up) {
        lose(port, self, strerror(why));
    } else if (peer->ended_ns == 0) {
        peer->ended_ns = wefti_clock_ns();
        port->ending = true;
    }
}

/* The peer is lost; what has come over its other rails counts. */
static void lose_when_read(wefti_tcp_links *port, wefti_tcp_link *self, int why)
{
    for (int rail = 0; rail < WEFTI_RAILS_MOST; rail++) {
        wefti_tcp_link *link = port->peers[self->peer].links[rail];
        while (link && link != self && link->state == WEFTI_TCP_LINK_UP &&
               wefti_tcp_stream_read(&link->stream) == WEFTI_TCP_MOVED) {
        }
    }
    lose(port, self, strerror(why));
}

/* There is nothing more to read. */
static void stop_reading(wefti_tcp_links *port, wefti_tcp_link *self,
                         wefti_tcp_result result)
{
    const int why = result == WEFTI_TCP_ENDED ? ECONNRESET : errno;
    if (result == WEFTI_TCP_ENDED || why == ECONNRESET || why == EPIPE) {
        end(port, self, why);
    } else {
        lose_when_read(port, self, why);
    }
}

/* A peer that has closed a rail is not done with the others. */
static void hear(wefti_tcp_links *port, const wefti_tcp_link *self)
{
    wefti_tcp_peer *peer = &port->peers[self->peer];
    if (peer->ended_ns != 0) {
        peer->ended_ns = wefti_clock_ns();
    }
}

static bool handle_link(wefti_tcp_links *port, wefti_tcp_link *self,
                        uint32_t events)
{
    switch (self->state) {
    case WEFTI_TCP_LINK_CONNECTS:
        greet(port, self);
        return true;
    case WEFTI_TCP_LINK_GREETS:
        read_answer(port, self);
        return true;
    case WEFTI_TCP_LINK_UP:
        break;
    case WEFTI_TCP_LINK_NONE:
    case WEFTI_TCP_LINK_AWAITED:
    case WEFTI_TCP_LINK_CLOSED:
        return false; /* of a socket closed since */
    }
    bool moved = false;
    if (events & EPOLLOUT) {
        moved = flush(port, self);
    }
    if (self->state == WEFTI_TCP_LINK_UP && events & ~(uint32_t)EPOLLOUT) {
        wefti_tcp_result result = wefti_tcp_stream_read(&self->stream);
        if (result == WEFTI_TCP_BROKEN || result == WEFTI_TCP_ENDED) {
            stop_reading(port, self, result);
        } else if (result == WEFTI_TCP_MOVED) {
            hear(port, self);
        }
        moved |= result != WEFTI_TCP_NOTHING;
    }
    return moved;
}

/* ---- connections that arrive -----------------------------------------------
 */

static bool accept_next(wefti_tcp_links *port, int rail)
{
    const int index =
        wefti_tcp_unproven_accept(&port->unproven, port->rails[rail].listen_fd);
    if (index >= 0 && !watch(port, port->unproven.list[index].fd,
                             word_of_unproven(index), EPOLLIN, false)) {
        wefti_tcp_unproven_close(&port->unproven, index);
    }
    return index >= 0;
}

/* A rank of the job has shown itself: its connection, unless ours is better. */
static void adopt(wefti_tcp_links *port, int index, wefti_tcp_link *self)
{
    const bool ours = self->state == WEFTI_TCP_LINK_CONNECTS ||
                      self->state == WEFTI_TCP_LINK_GREETS;
    const bool better = ours && port->config.rank < self->peer;
    const bool fits = self->state != WEFTI_TCP_LINK_UP &&
                      self->state != WEFTI_TCP_LINK_CLOSED && !better;
    const unsigned char say = fits ? WELCOME : ELSEWHERE;
    const int fd = port->unproven.list[index].fd;
    if (send(fd, &say, 1, MSG_NOSIGNAL) != 1 || !fits) {
        wefti_tcp_unproven_close(&port->unproven, index);
        return;
    }
    hang_up(self);
    self->stream.fd = wefti_tcp_unproven_take(&port->unproven, index);
    self->watched = EPOLLIN; /* as unproven; now as a link */
    if (!watch(port, self->stream.fd, word_of_link(self), EPOLLIN, true)) {
        lose(port, self, strerror(errno));
        return;
    }
    be_up(port, self);
}

/* Of the rail that the other end means; -1: this rank has none such. */
static int find_rail(const wefti_tcp_links *port, uint32_t rail)
{
    for (int i = 1; rail && i < port->rail_count; i++) {
        if (port->rails[i].own.rail == rail) {
            return i;
        }
    }
    return rail ? -1 : 0;
}

static void read_greeting(wefti_tcp_links *port, int index)
{
    const wefti_tcp_hello *hello =
        wefti_tcp_unproven_read(&port->unproven, index);
    if (!hello) {
        return;
    }
    const bool known =
        hello->magic == WEFTI_TCP_MAGIC &&
        hello->rank < (uint32_t)port->config.npeers &&
        (int)hello->rank != port->config.rank &&
        sodium_memcmp(hello->proof, port->proof, sizeof(hello->proof)) == 0;
    const int rail = known ? find_rail(port, hello->rail) : -1;
    wefti_tcp_link *link =
        rail < 0 ? NULL : wefti_tcp_link_get(port, (int)hello->rank, rail);
    if (link && !port->peers[link->peer].lost) {
        adopt(port, index, link);
    } else {
        wefti_tcp_unproven_close(&port->unproven, index);
    }
}

bool wefti_tcp_links_handle(wefti_tcp_links *port, int64_t word,
                            uint32_t events)
{
    if (word >= 0) {
        wefti_tcp_link *link =
            port->peers[word / WEFTI_RAILS_MOST].links[word % WEFTI_RAILS_MOST];
        return handle_link(port, link, events);
    }
    if (word > (int64_t)LISTENER - WEFTI_RAILS_MOST) {
        return accept_next(port, (int)(LISTENER - word));
    }
    read_greeting(port, (int)(LISTENER - WEFTI_RAILS_MOST - word));
    return true;
}

void wefti_tcp_links_give_back(wefti_tcp_links *port, const size_t *lent)
{
    for (int i = 0; i < port->config.npeers * port->rail_count; i++) {
        wefti_tcp_link *link =
            port->peers[i / port->rail_count].links[i % port->rail_count];
        if (link && !wefti_tcp_stream_give_back(&link->stream, lent)) {
            lose(port, link, "no memory to keep what is to be sent");
        }
    }
}

/* ---- what is expected ------------------------------------------------------
 */

void wefti_tcp_links_expect(wefti_tcp_links *port, int peer,
                            const wefti_port_expected *expected)
{
    wefti_tcp_link *link = port->peers[peer].links[0];
    if (port->rail_count == 1 && link && link->state == WEFTI_TCP_LINK_UP) {
        wefti_tcp_stream_expect(&link->stream, expected);
        watch_stream(port, link);
        port->expecting = link;
    }
}

bool wefti_tcp_links_read_hidden(wefti_tcp_links *port)
{
    wefti_tcp_link *link = port->expecting;
    return link && link->state == WEFTI_TCP_LINK_UP &&
           wefti_tcp_stream_hides_much(&link->stream) &&
           handle_link(port, link, EPOLLIN);
}

bool wefti_tcp_links_hurry(wefti_tcp_links *port)
{
    bool hid = false;
    for (int i = 0; i < port->config.npeers * port->rail_count; i++) {
        wefti_tcp_link *link =
            port->peers[i / port->rail_count].links[i % port->rail_count];
        if (link && link->state == WEFTI_TCP_LINK_UP) {
            hid |= wefti_tcp_stream_hurry(&link->stream);
            watch_stream(port, link);
        }
    }
    return hid;
}

/* ---- rails that fall silent ------------------------------------------------
 */

/*
 * The other host says nothing to bytes that were sent again and again, or to
 * the kernel's asking whether bytes may come: which it does where none are
 * under way, since the window is closed, or this host's own end is down and
 * none could leave. A rank that is stopped is not taken for that: its kernel
 * answers, if only that it has no room.
 */
static bool is_silent(const wefti_tcp_link *link)
{
    struct tcp_info info = {.tcpi_retransmits = 0};
    socklen_t bytes = sizeof(info);
    return getsockopt(link->stream.fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) ==
               0 &&
           (info.tcpi_retransmits >= UNANSWERED_MOST ||
            info.tcpi_probes >= UNANSWERED_MOST);
}

/* Rails of a peer that has closed another of them, and not these. */
static bool ends_late(const wefti_tcp_links *port, int peer, int64_t now_ns)
{
    const int64_t ended_ns = port->peers[peer].ended_ns;
    return ended_ns != 0 && now_ns - ended_ns > END_NS;
}

static void look_at(wefti_tcp_links *port, wefti_tcp_link *link, int64_t now_ns)
{
    if (link->rail > 0 && is_silent(link)) {
        port->config.silent(port->config.context, link->peer,
                            port->rails[link->rail].name);
        lose(port, link, "nothing is answered any more");
    } else if (ends_late(port, link->peer, now_ns)) {
        while (wefti_tcp_stream_read(&link->stream) == WEFTI_TCP_MOVED) {
        }
        lose_when_read(port, link, ECONNRESET);
    }
}

void wefti_tcp_links_look(wefti_tcp_links *port)
{
    bool used = port->ending;
    for (int rail = 1; rail < port->rail_count; rail++) {
        used |= port->rails[rail].byte_ps > 0;
    }
    const int64_t now_ns = used ? wefti_clock_ns() : 0;
    if (!used || now_ns - port->looked_ns < LOOK_NS) {
        return;
    }
    port->looked_ns = now_ns;
    for (int peer = 0; peer < port->config.npeers; peer++) {
        for (int rail = 0; rail < port->rail_count; rail++) {
            wefti_tcp_link *link = port->peers[peer].links[rail];
            if (link && link->state == WEFTI_TCP_LINK_UP) {
                look_at(port, link, now_ns);
            }
        }
    }
}
