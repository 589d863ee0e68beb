/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_tcp.c - the port's table over its links (comm/net/tcp_link.h):
 * which rails a message takes. Small ones all take one rail, so they keep their
 * order; a large one is cut over all that are up (comm/net/rails.h).
 */
#include "comm/net/port_tcp.h"

#include "base/clock.h"
#include "comm/net/interface.h"
#include "comm/net/tcp_link.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NEWS_MOST = 64 };

struct wefti_port {
    wefti_tcp_links links;
};

/* ---- the table -------------------------------------------------------------
 */

static void log_to(wefti_port_say *say)
{
    (void)say; /* lost has the text of what happens */
}

static void tear_peer(wefti_tcp_peer *peer)
{
    for (int rail = 0; rail < WEFTI_RAILS_MOST; rail++) {
        if (peer->links[rail]) {
            wefti_tcp_stream_fini(&peer->links[rail]->stream);
            free(peer->links[rail]);
        }
    }
    wefti_tcp_pieces_fini(&peer->pieces);
}

static void tear(wefti_tcp_links *port)
{
    for (int i = 0; i < port->config.npeers; i++) {
        tear_peer(&port->peers[i]);
    }
    wefti_tcp_unproven_fini(&port->unproven);
    for (int rail = 0; rail < port->rail_count; rail++) {
        if (port->rails[rail].listen_fd >= 0) {
            close(port->rails[rail].listen_fd);
        }
    }
    if (port->epoll_fd >= 0) {
        close(port->epoll_fd);
    }
    sodium_memzero(port->proof, sizeof(port->proof));
    free(port->peers);
}

/* NULL, or which call was refused. */
static const char *begin_to_listen(wefti_tcp_links *port, wefti_tcp_rail *rail)
{
    const uint32_t number = rail->own.rail;
    const char *refused =
        wefti_tcp_socket_listen(rail->name, &rail->listen_fd, &rail->own);
    rail->own.rail = number;
    if (refused) {
        return refused;
    }
    return wefti_tcp_links_listen(port, (int)(rail - port->rails))
               ? NULL
               : "epoll_ctl";
}

/* The devices between the commas, as far as there are rails. */
static void name_rails(wefti_tcp_links *port)
{
    const wefti_port_config *config = &port->config;
    const char *at = config->devices;
    port->rail_count =
        config->rails < WEFTI_RAILS_MOST ? config->rails : WEFTI_RAILS_MOST;
    for (int i = 0; i < port->rail_count; i++) {
        wefti_tcp_rail *rail = &port->rails[i];
        const size_t length = strcspn(at, ",");
        *rail = (wefti_tcp_rail){
            .listen_fd = -1,
            .own.rail = config->rail_numbers ? config->rail_numbers[i] : 0,
            .byte_ps = i == 0};
        snprintf(rail->name, sizeof(rail->name), "%.*s", (int)length, at);
        at += length;
        at += *at == ',';
    }
}

static int open_port(const wefti_port_config *config, wefti_port **port_out,
                     char *why_out, size_t why_bytes)
{
    wefti_port *self = calloc(1, sizeof(*self));
    wefti_tcp_peer *peers = calloc((size_t)config->npeers, sizeof(*peers));
    if (!self || !peers) {
        free(self);
        free(peers);
        snprintf(why_out, why_bytes, "no memory for %d peers", config->npeers);
        return -1;
    }
    wefti_tcp_links *port = &self->links;
    port->config = *config;
    port->peers = peers;
    memcpy(port->proof, config->proof, sizeof(port->proof));
    wefti_tcp_unproven_init(&port->unproven);
    name_rails(port);
    port->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    const char *refused = port->epoll_fd < 0 ? "epoll_create1" : NULL;
    for (int i = 0; i < port->rail_count && !refused; i++) {
        refused = begin_to_listen(port, &port->rails[i]);
    }
    if (refused) {
        snprintf(why_out, why_bytes, "tcp on %s: %s (%s)", config->devices,
                 strerror(errno), refused);
        tear(port);
        free(self);
        return -1;
    }
    *port_out = self;
    return 0;
}

static size_t get_address(wefti_port *self,
                          unsigned char address_out[WEFTI_PORT_ADDRESS_BYTES])
{
    wefti_tcp_links *port = &self->links;
    for (int i = 0; i < port->rail_count; i++) {
        memcpy(address_out + (size_t)i * sizeof(port->rails[i].own),
               &port->rails[i].own, sizeof(port->rails[i].own));
    }
    return (size_t)port->rail_count * sizeof(port->rails[0].own);
}

static int connect_peer(wefti_port *self, int peer_index,
                        const unsigned char *address, size_t address_bytes,
                        char *why_out, size_t why_bytes)
{
    wefti_tcp_links *port = &self->links;
    wefti_tcp_peer *peer = &port->peers[peer_index];
    wefti_tcp_address there = {0};
    if (address_bytes > 0 && address_bytes % sizeof(there) == 0) {
        memcpy(&there, address, sizeof(there));
    }
    if (there.magic != WEFTI_TCP_MAGIC) {
        snprintf(why_out, why_bytes,
                 "it uses another network library: give WEFT_NET_TRANSPORT the "
                 "same value on all ranks");
        return -1;
    }
    peer->addresses = address;
    peer->address_count = (int)(address_bytes / sizeof(there));
    wefti_tcp_link *link = wefti_tcp_link_get(port, peer_index, 0);
    if (!link || !wefti_tcp_stream_reserve(&link->stream)) {
        snprintf(why_out, why_bytes, "no memory for its messages");
        return -1;
    }
    return 0;
}

static void use_rails(wefti_port *self, const wefti_port_rails *rails)
{
    wefti_tcp_links *port = &self->links;
    for (int i = 0; i < port->rail_count; i++) {
        port->rails[i].byte_ps = rails->byte_ps[i];
    }
    port->small = rails->small;
}

static bool is_up(const wefti_tcp_links *port, int peer, int rail)
{
    const wefti_tcp_link *link = port->peers[peer].links[rail];
    return link && link->state == WEFTI_TCP_LINK_UP;
}

static wefti_port_reach reach(wefti_tcp_links *port, int peer, int rail)
{
    wefti_tcp_link *link =
        port->peers[peer].lost ? NULL : wefti_tcp_link_get(port, peer, rail);
    if (!link) {
        return WEFTI_PORT_REACH_NOT;
    }
    wefti_tcp_link_want(port, link);
    return link->state == WEFTI_TCP_LINK_UP       ? WEFTI_PORT_REACH_UP
           : link->state == WEFTI_TCP_LINK_CLOSED ? WEFTI_PORT_REACH_NOT
                                                  : WEFTI_PORT_REACH_COMES;
}

static wefti_port_reach reach_peer(wefti_port *self, int peer, int rail)
{
    return reach(&self->links, peer, rail);
}

/* What is to be sent over a link before a new message, as far as the kernel
 * has it too. What is urgent waits only for the latter. */
static size_t count_waiting(const wefti_tcp_link *link, bool urgent)
{
    int sent = 0;
    if (ioctl(link->stream.fd, SIOCOUTQ, &sent) != 0 || sent < 0) {
        sent = 0;
    }
    return (size_t)sent + (urgent ? 0 : link->stream.unsent_bytes);
}

/* How the rails stand that a large message may take. Those that are not up yet
 * are asked for. */
static void list_loads(wefti_tcp_links *port, const wefti_port_message *message,
                       wefti_rail_load loads_out[WEFTI_RAILS_MOST])
{
    bool any = false;
    memset(loads_out, 0, WEFTI_RAILS_MOST * sizeof(*loads_out));
    for (int i = 0; i < port->rail_count; i++) {
        if (port->rails[i].byte_ps > 0 && i > 0) {
            (void)reach(port, message->peer, i);
        }
        if (port->rails[i].byte_ps > 0 && is_up(port, message->peer, i)) {
            loads_out[i] = (wefti_rail_load){
                port->rails[i].byte_ps,
                count_waiting(port->peers[message->peer].links[i],
                              message->urgent)};
            any = true;
        }
    }
    if (!any) {
        loads_out[0] = (wefti_rail_load){1, 0};
    }
}

/* Bytes of the message for each rail; how many get some, or that are it. */
static int choose_rails(wefti_tcp_links *port,
                        const wefti_port_message *message,
                        size_t pieces_out[WEFTI_RAILS_MOST], int *only_out)
{
    *only_out = 0;
    if (port->rail_count == 1) {
        return 1;
    }
    if (message->last || message->data_bytes <= WEFTI_RAIL_WHOLE_BYTES) {
        if (!message->last && is_up(port, message->peer, port->small)) {
            *only_out = port->small;
        }
        return 1;
    }
    wefti_rail_load loads[WEFTI_RAILS_MOST];
    list_loads(port, message, loads);
    const int count = wefti_rails_cut(message->data_bytes, loads, pieces_out);
    while (count == 1 && pieces_out[*only_out] == 0) {
        ++*only_out;
    }
    return count;
}

/* False: no memory. */
static bool put(wefti_tcp_links *port, const wefti_port_message *message,
                int rail, const wefti_tcp_part *part)
{
    wefti_tcp_link *link = wefti_tcp_link_get(port, message->peer, rail);
    if (link && link->state == WEFTI_TCP_LINK_CLOSED) {
        return true; /* the peer has left, and reads nothing */
    }
    if (!link || !wefti_tcp_stream_put(&link->stream, message, part)) {
        return false;
    }
    port->unsent++;
    if (link->state == WEFTI_TCP_LINK_UP && !link->stream.full) {
        wefti_tcp_link_mark(port, link);
    }
    wefti_tcp_link_want(port, link);
    return true;
}

static bool put_pieces(wefti_tcp_links *port, const wefti_port_message *message)
{
    size_t pieces[WEFTI_RAILS_MOST];
    int only;
    wefti_tcp_peer *to = &port->peers[message->peer];
    if (choose_rails(port, message, pieces, &only) == 1) {
        wefti_tcp_part part = {.bytes = message->data_bytes};
        part.number = message->last ? to->numbered : only ? ++to->numbered : 0;
        return put(port, message, only, &part);
    }
    wefti_tcp_part part = {.number = ++to->numbered};
    for (int rail = 0; rail < port->rail_count; rail++) {
        part.bytes = pieces[rail];
        if (part.bytes > 0 && !put(port, message, rail, &part)) {
            return false;
        }
        part.begin += part.bytes;
    }
    return true;
}

static void send_message(wefti_port *self, const wefti_port_message *message)
{
    wefti_tcp_links *port = &self->links;
    if (port->peers[message->peer].lost) {
        return;
    }
    if (message->memory != WEFTI_PORT_MEMORY_HOST ||
        !put_pieces(port, message)) {
        wefti_tcp_peer_lose(port, message->peer,
                            "a message could not be queued");
    } else if (!port->held) {
        (void)wefti_tcp_links_flush(port);
    }
}

static void give_back(wefti_port *self, const size_t *lent)
{
    wefti_tcp_links_give_back(&self->links, lent);
}

static void hold(wefti_port *self, bool on)
{
    wefti_tcp_links *port = &self->links;
    port->held = on;
    if (!on) {
        (void)wefti_tcp_links_flush(port);
    }
}

static bool progress(wefti_port *self)
{
    wefti_tcp_links *port = &self->links;
    struct epoll_event news[NEWS_MOST];
    bool moved = wefti_tcp_links_flush(port);
    int count = epoll_wait(port->epoll_fd, news, NEWS_MOST, 0);
    for (int i = 0; i < count; i++) {
        moved |= wefti_tcp_links_handle(port, (int64_t)news[i].data.u64,
                                        news[i].events);
    }
    moved |= wefti_tcp_links_read_hidden(port);
    if (port->rail_count > 1) {
        wefti_tcp_links_look(port);
    }
    return wefti_tcp_links_flush(port) || moved;
}

static void expect(wefti_port *self, int peer,
                   const wefti_port_expected *expected)
{
    wefti_tcp_links_expect(&self->links, peer, expected);
}

static bool hurry(wefti_port *self)
{
    return wefti_tcp_links_hurry(&self->links);
}

static bool arm(wefti_port *self)
{
    wefti_tcp_links *port = &self->links;
    struct pollfd news = {.fd = port->epoll_fd, .events = POLLIN};
    return !wefti_tcp_links_flush(port) && poll(&news, 1, 0) == 0;
}

static int get_event_fd(wefti_port *self)
{
    wefti_tcp_links *port = &self->links;
    return port->epoll_fd;
}

static size_t count_unsent(wefti_port *self)
{
    wefti_tcp_links *port = &self->links;
    return port->unsent;
}

static size_t count_queued(wefti_port *self, int peer)
{
    wefti_tcp_links *port = &self->links;
    size_t queued = 0;
    for (int rail = 0; rail < port->rail_count; rail++) {
        const wefti_tcp_link *link = port->peers[peer].links[rail];
        queued += link ? link->stream.unsent : 0;
    }
    return queued;
}

static void close_port(wefti_port *self, int linger_ms)
{
    wefti_tcp_links *port = &self->links;
    const int64_t until_ns = wefti_clock_ns() + linger_ms * INT64_C(1000000);
    while (port->unsent > 0 && wefti_clock_ns() < until_ns) {
        struct pollfd news = {.fd = port->epoll_fd, .events = POLLIN};
        if (!progress(self)) {
            (void)poll(&news, 1, 1);
        }
    }
    tear(port);
    free(self);
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
    .use = use_rails,
    .reach = reach_peer,
    .send = send_message,
    .give_back = give_back,
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
