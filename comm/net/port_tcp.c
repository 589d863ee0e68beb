/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_tcp.c - one connection per pair of ranks, made by the first of
 * them that has something to send.
 *
 *   connects                               listens
 *   HELLO {rank, proof} ----------------->  of this job, and no better one?
 *   messages <----------------- WELCOME     then this is the pair's connection
 *
 * Nothing but the greeting is sent before WELCOME, so none is lost where both
 * connect at once: the attempt of the lower rank stays, that of the higher is
 * answered ELSEWHERE. Nothing is read behind a greeting without proof; the
 * oldest unproven connection goes when all places are taken, and where that was
 * a rank's, the rank tries again.
 *
 * event_fd is an epoll set of all sockets, level-triggered.
 */
#include "comm/net/port_tcp.h"

#include "base/clock.h"
#include "comm/net/interface.h"
#include "comm/net/tcp_socket.h"
#include "comm/net/tcp_stream.h"
#include "comm/net/tcp_unproven.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ATTEMPTS = 8, /* to connect, where the other end closes at once */
    NEWS_MOST = 64,
    LISTENER = -1 /* in an event's place of a peer */
};

enum { WELCOME = 'w', ELSEWHERE = 'e' }; /* answers */

/*
 * NONE      nothing was sent
 * CONNECTS  the kernel does
 * GREETS    HELLO is sent, or being sent; the answer is awaited
 * AWAITED   the other rank connects
 */
typedef enum peer_state {
    NONE,
    CONNECTS,
    GREETS,
    AWAITED,
    UP,
    LOST
} peer_state;

typedef struct peer {
    peer_state state;
    int attempts;
    const unsigned char *address;
    wefti_tcp_stream stream;
    uint32_t watched; /* events asked of the epoll set */
    bool dirty;       /* in the port's list: has something to flush */
    struct peer *next_dirty;
} peer;

struct wefti_port {
    wefti_port_config config;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
    wefti_tcp_address own;
    int listen_fd, epoll_fd;
    peer *peers; /* [npeers] */
    peer *dirty;
    bool held; /* what is dirty stays so */
    size_t unsent;
    wefti_tcp_unproven unproven;
};

/* ---- the epoll set ---------------------------------------------------------
 * An event's word: a peer, LISTENER, or below it an unproven connection.
 */

static int64_t word_of_unproven(int index)
{
    return (int64_t)LISTENER - 1 - index;
}

static bool watch(wefti_port *port, int fd, int64_t word, uint32_t events,
                  bool known)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)word};
    return epoll_ctl(port->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
                     &event) == 0;
}

static void watch_peer(wefti_port *port, peer *self, uint32_t events)
{
    if (self->watched != events &&
        watch(port, self->stream.fd, self - port->peers, events,
              self->watched != 0)) {
        self->watched = events;
    }
}

/* ---- peers -----------------------------------------------------------------
 */

/* Closes the socket; what is queued stays. */
static void hang_up(peer *self)
{
    if (self->stream.fd >= 0) {
        close(self->stream.fd);
        self->stream.fd = -1;
    }
    self->watched = 0;
}

static void lose(wefti_port *port, peer *self, const char *why)
{
    if (self->state != LOST) {
        self->state = LOST;
        port->unsent -= self->stream.unsent;
        wefti_tcp_stream_fini(&self->stream);
        self->watched = 0;
        port->config.lost(port->config.context, (int)(self - port->peers), why);
    }
}

static void mark_dirty(wefti_port *port, peer *self)
{
    if (!self->dirty) {
        self->dirty = true;
        self->next_dirty = port->dirty;
        port->dirty = self;
    }
}

static void watch_stream(wefti_port *port, peer *self)
{
    const bool room = self->stream.full || self->stream.drains;
    watch_peer(port, self, EPOLLIN | (room ? EPOLLOUT : 0));
}

/* Sends what the kernel takes, and asks to be told when it takes more. */
static bool flush(wefti_port *port, peer *self)
{
    const size_t before = self->stream.unsent;
    wefti_tcp_result result = wefti_tcp_stream_flush(&self->stream);
    if (result == WEFTI_TCP_BROKEN) {
        lose(port, self, strerror(errno));
        return true;
    }
    port->unsent -= before - self->stream.unsent;
    watch_stream(port, self);
    return result == WEFTI_TCP_MOVED;
}

static void be_up(wefti_port *port, peer *self)
{
    self->state = UP;
    watch_peer(port, self, EPOLLIN);
    mark_dirty(port, self);
}

/* What this host refuses may be short for a moment only: again, a few times. */
static void begin_connect(wefti_port *port, peer *self)
{
    wefti_tcp_address to;
    memcpy(&to, self->address, sizeof(to));
    do {
        self->stream.fd = wefti_tcp_socket_connect(&port->own, &to);
    } while (self->stream.fd < 0 && self->attempts++ < ATTEMPTS);
    if (self->stream.fd < 0) {
        lose(port, self, strerror(errno));
        return;
    }
    self->attempts++;
    self->state = CONNECTS;
    watch_peer(port, self, EPOLLOUT);
}

/* The other end hung up before it answered: once more, or that was all. */
static void retry(wefti_port *port, peer *self, const char *why)
{
    if (self->attempts >= ATTEMPTS) {
        lose(port, self, why);
        return;
    }
    hang_up(self);
    begin_connect(port, self);
}

static void greet(wefti_port *port, peer *self)
{
    int error = 0;
    socklen_t bytes = sizeof(error);
    wefti_tcp_hello say = {.magic = WEFTI_TCP_MAGIC,
                           .rank = (uint32_t)port->config.rank};
    memcpy(say.proof, port->proof, sizeof(say.proof));
    (void)getsockopt(self->stream.fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error) {
        lose(port, self, strerror(error));
        return;
    }
    /* The first bytes of a connection: there is room. */
    if (send(self->stream.fd, &say, sizeof(say), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(say)) {
        retry(port, self, "it takes no greeting");
        return;
    }
    self->state = GREETS;
    watch_peer(port, self, EPOLLIN);
}

static void read_answer(wefti_port *port, peer *self)
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
        self->state = AWAITED;
    } else {
        retry(port, self, got < 0 ? strerror(errno) : "it hangs up");
    }
}

static bool handle_peer(wefti_port *port, peer *self, uint32_t events)
{
    switch (self->state) {
    case CONNECTS:
        greet(port, self);
        return true;
    case GREETS:
        read_answer(port, self);
        return true;
    case UP:
        break;
    case NONE:
    case AWAITED:
    case LOST:
        return false; /* of a socket closed since */
    }
    bool moved = false;
    if (events & EPOLLOUT) {
        moved = flush(port, self);
    }
    if (self->state == UP && events & ~(uint32_t)EPOLLOUT) {
        wefti_tcp_result result = wefti_tcp_stream_read(&self->stream);
        if (result == WEFTI_TCP_BROKEN) {
            lose(port, self, strerror(errno));
        }
        moved |= result != WEFTI_TCP_NOTHING;
    }
    return moved;
}

/* ---- connections that arrive -----------------------------------------------
 */

static bool accept_next(wefti_port *port)
{
    const int index =
        wefti_tcp_unproven_accept(&port->unproven, port->listen_fd);
    if (index >= 0 && !watch(port, port->unproven.list[index].fd,
                             word_of_unproven(index), EPOLLIN, false)) {
        wefti_tcp_unproven_close(&port->unproven, index);
    }
    return index >= 0;
}

/* A rank of the job has shown itself: its connection, unless ours is better. */
static void adopt(wefti_port *port, int index, int rank)
{
    peer *self = &port->peers[rank];
    const bool ours = self->state == CONNECTS || self->state == GREETS;
    const bool better = ours && port->config.rank < rank;
    const bool fits = self->state != UP && self->state != LOST && !better;
    const unsigned char say = fits ? WELCOME : ELSEWHERE;
    const int fd = port->unproven.list[index].fd;
    if (send(fd, &say, 1, MSG_NOSIGNAL) != 1 || !fits) {
        wefti_tcp_unproven_close(&port->unproven, index);
        return;
    }
    hang_up(self);
    self->stream.fd = wefti_tcp_unproven_take(&port->unproven, index);
    self->watched = EPOLLIN; /* as unproven; now as a peer */
    if (!watch(port, self->stream.fd, rank, EPOLLIN, true)) {
        lose(port, self, strerror(errno));
        return;
    }
    be_up(port, self);
}

static void read_greeting(wefti_port *port, int index)
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
    if (known) {
        adopt(port, index, (int)hello->rank);
    } else {
        wefti_tcp_unproven_close(&port->unproven, index);
    }
}

/* ---- the table -------------------------------------------------------------
 */

static void log_to(wefti_port_say *say)
{
    (void)say; /* lost has the text of what happens */
}

static void tear(wefti_port *port)
{
    for (int i = 0; i < port->config.npeers; i++) {
        wefti_tcp_stream_fini(&port->peers[i].stream);
    }
    wefti_tcp_unproven_fini(&port->unproven);
    if (port->listen_fd >= 0) {
        close(port->listen_fd);
    }
    if (port->epoll_fd >= 0) {
        close(port->epoll_fd);
    }
    sodium_memzero(port->proof, sizeof(port->proof));
    free(port->peers);
    free(port);
}

/* NULL, or which call was refused. */
static const char *begin_to_listen(wefti_port *port)
{
    const char *refused = wefti_tcp_socket_listen(port->config.devices,
                                                  &port->listen_fd, &port->own);
    if (refused) {
        return refused;
    }
    port->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (port->epoll_fd < 0) {
        return "epoll_create1";
    }
    return watch(port, port->listen_fd, LISTENER, EPOLLIN, false) ? NULL
                                                                  : "epoll_ctl";
}

static int open_port(const wefti_port_config *config, wefti_port **port_out,
                     char *why_out, size_t why_bytes)
{
    wefti_port *port = calloc(1, sizeof(*port));
    peer *peers = calloc((size_t)config->npeers, sizeof(*peers));
    if (!port || !peers) {
        free(port);
        free(peers);
        snprintf(why_out, why_bytes, "no memory for %d peers", config->npeers);
        return -1;
    }
    port->config = *config;
    port->peers = peers;
    port->listen_fd = port->epoll_fd = -1;
    memcpy(port->proof, config->proof, sizeof(port->proof));
    for (int i = 0; i < config->npeers; i++) {
        wefti_tcp_stream_init(&peers[i].stream, &port->config);
    }
    wefti_tcp_unproven_init(&port->unproven);
    const char *refused = begin_to_listen(port);
    if (refused) {
        snprintf(why_out, why_bytes, "tcp on %s: %s (%s)", config->devices,
                 strerror(errno), refused);
        tear(port);
        return -1;
    }
    *port_out = port;
    return 0;
}

static size_t get_address(wefti_port *port,
                          unsigned char address_out[WEFTI_PORT_ADDRESS_BYTES])
{
    memcpy(address_out, &port->own, sizeof(port->own));
    return sizeof(port->own);
}

static int connect_peer(wefti_port *port, int peer_index,
                        const unsigned char *address, size_t address_bytes,
                        char *why_out, size_t why_bytes)
{
    wefti_tcp_address there = {0};
    if (address_bytes == sizeof(there)) {
        memcpy(&there, address, sizeof(there));
    }
    if (there.magic != WEFTI_TCP_MAGIC) {
        snprintf(why_out, why_bytes,
                 "it uses another network library, as one does on several "
                 "interfaces: name as many in WEFT_NET_INTERFACE on all ranks");
        return -1;
    }
    port->peers[peer_index].address = address;
    if (!wefti_tcp_stream_reserve(&port->peers[peer_index].stream)) {
        snprintf(why_out, why_bytes, "no memory for its messages");
        return -1;
    }
    return 0;
}

static bool flush_all(wefti_port *port)
{
    bool moved = false;
    while (port->dirty) {
        peer *self = port->dirty;
        port->dirty = self->next_dirty;
        self->dirty = false;
        if (self->state == UP) {
            moved |= flush(port, self);
        }
    }
    return moved;
}

static void send_message(wefti_port *port, const wefti_port_message *message)
{
    peer *to = &port->peers[message->peer];
    if (to->state == LOST) {
        return;
    }
    if (message->memory != WEFTI_PORT_MEMORY_HOST ||
        !wefti_tcp_stream_put(&to->stream, message)) {
        lose(port, to, "a message could not be queued");
        return;
    }
    port->unsent++;
    if (to->state == NONE) {
        begin_connect(port, to);
    } else if (to->state == UP && !to->stream.full) {
        mark_dirty(port, to);
        if (!port->held) {
            (void)flush_all(port);
        }
    }
}

static void hold(wefti_port *port, bool on)
{
    port->held = on;
    if (!on) {
        (void)flush_all(port);
    }
}

static bool progress(wefti_port *port)
{
    struct epoll_event news[NEWS_MOST];
    bool moved = flush_all(port);
    int count = epoll_wait(port->epoll_fd, news, NEWS_MOST, 0);
    for (int i = 0; i < count; i++) {
        const int64_t word = (int64_t)news[i].data.u64;
        if (word >= 0) {
            moved |= handle_peer(port, &port->peers[word], news[i].events);
        } else if (word == LISTENER) {
            moved |= accept_next(port);
        } else {
            read_greeting(port, (int)(LISTENER - 1 - word));
            moved = true;
        }
    }
    return flush_all(port) || moved;
}

static void expect(wefti_port *port, int peer_index,
                   const wefti_port_expected *expected)
{
    peer *self = &port->peers[peer_index];
    if (self->state == UP) {
        wefti_tcp_stream_expect(&self->stream, expected);
        watch_stream(port, self);
    }
}

static bool hurry(wefti_port *port)
{
    bool hid = false;
    for (int i = 0; i < port->config.npeers; i++) {
        if (port->peers[i].state == UP) {
            hid |= wefti_tcp_stream_hurry(&port->peers[i].stream);
            watch_stream(port, &port->peers[i]);
        }
    }
    return hid;
}

static bool arm(wefti_port *port)
{
    struct pollfd news = {.fd = port->epoll_fd, .events = POLLIN};
    return !flush_all(port) && poll(&news, 1, 0) == 0;
}

static int get_event_fd(wefti_port *port)
{
    return port->epoll_fd;
}

static size_t count_unsent(wefti_port *port)
{
    return port->unsent;
}

static size_t count_queued(wefti_port *port, int peer_index)
{
    return port->peers[peer_index].stream.unsent;
}

static void close_port(wefti_port *port, int linger_ms)
{
    const int64_t until_ns = wefti_clock_ns() + linger_ms * INT64_C(1000000);
    while (port->unsent > 0 && wefti_clock_ns() < until_ns) {
        struct pollfd news = {.fd = port->epoll_fd, .events = POLLIN};
        if (!progress(port)) {
            (void)poll(&news, 1, 1);
        }
    }
    tear(port);
}

static void list(wefti_port_found *found, void *context)
{
    wefti_interface all[WEFTI_INTERFACES_MOST];
    int count = 0;
    if (wefti_interface_list(all, &count) == WEFT_OK) {
        for (int i = 0; i < count; i++) {
            found(context, "tcp", all[i].name, !all[i].loopback);
        }
    }
}

const wefti_port_table wefti_port_tcp = {
    .version = WEFTI_PORT_VERSION,
    .name = "tcp",
    .log_to = log_to,
    .open = open_port,
    .address = get_address,
    .connect = connect_peer,
    .send = send_message,
    .hold = hold,
    .progress = progress,
    .expect = expect,
    .hurry = hurry,
    .arm = arm,
    .event_fd = get_event_fd,
    .unsent = count_unsent,
    .queued = count_queued,
    .close = close_port,
    .list = list,
};
