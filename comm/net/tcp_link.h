/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/tcp_link.h - the connections of weft's own TCP port: at most one for
 * each peer and rail, made by the first of the two that wants it.
 *
 *   connects                               listens
 *   HELLO {rank, rail, proof} ----------->  of this job, and no better one?
 *   messages <----------------- WELCOME     then this is the pair's connection
 *
 * Nothing but the greeting is sent before WELCOME, so none is lost where both
 * connect at once: the attempt of the lower rank stays, that of the higher is
 * answered ELSEWHERE. Nothing is read behind a greeting without proof; the
 * oldest unproven connection goes when all places are taken, and where that was
 * a rank's, the rank tries again.
 *
 * A peer that cannot be reached over the first rail is lost, and so is one to
 * which a connection breaks. Over another rail that never was up, nothing has
 * been sent: it is only not used to that peer.
 *
 * event_fd is an epoll set of all sockets, level-triggered.
 */
#ifndef COMM_NET_TCP_LINK_H
#define COMM_NET_TCP_LINK_H

#include "comm/net/rails.h"
#include "comm/net/tcp_socket.h"
#include "comm/net/tcp_stream.h"
#include "comm/net/tcp_unproven.h"

/*
 * NONE      nothing was sent
 * CONNECTS  the kernel does
 * GREETS    HELLO is sent, or being sent; the answer is awaited
 * AWAITED   the other rank connects
 * CLOSED    ended by the peer, or never up: nothing is sent here
 */
typedef enum wefti_tcp_link_state {
    WEFTI_TCP_LINK_NONE,
    WEFTI_TCP_LINK_CONNECTS,
    WEFTI_TCP_LINK_GREETS,
    WEFTI_TCP_LINK_AWAITED,
    WEFTI_TCP_LINK_UP,
    WEFTI_TCP_LINK_CLOSED
} wefti_tcp_link_state;

typedef struct wefti_tcp_link {
    wefti_tcp_link_state state;
    int peer, rail;
    int attempts;
    wefti_tcp_stream stream;
    uint32_t watched; /* events asked of the epoll set */
    bool dirty;       /* in the port's list: has something to flush */
    struct wefti_tcp_link *next_dirty;
} wefti_tcp_link;

/*
 * addresses  of the peer's rails; borrowed
 * numbered   how many messages with a number have gone to it
 * ended_ns   when it closed one of its links, or spoke since; 0: none is
 */
typedef struct wefti_tcp_peer {
    bool lost;
    const unsigned char *addresses;
    int address_count;
    uint64_t numbered;
    int64_t ended_ns;
    wefti_tcp_link *links[WEFTI_RAILS_MOST]; /* NULL: never wanted */
    wefti_tcp_pieces pieces;
} wefti_tcp_peer;

/* One of this rank's; byte_ps 0: it is not used. */
typedef struct wefti_tcp_rail {
    char name[16];
    wefti_tcp_address own;
    int listen_fd;
    int64_t byte_ps;
} wefti_tcp_rail;

/* A port. small: the rail of small messages; looked_ns: when rails were;
 * ending: a peer has closed a link. */
typedef struct wefti_tcp_links {
    wefti_port_config config;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
    int rail_count, small;
    wefti_tcp_rail rails[WEFTI_RAILS_MOST];
    int epoll_fd;
    wefti_tcp_peer *peers; /* [npeers] */
    wefti_tcp_link *dirty;
    wefti_tcp_link *expecting; /* the last that was told what to expect */
    bool held;                 /* what is dirty stays so */
    bool ending;
    size_t unsent;
    int64_t looked_ns;
    wefti_tcp_unproven unproven;
} wefti_tcp_links;

/* The peer's link over that rail, made if there is none; NULL: no memory. */
wefti_tcp_link *wefti_tcp_link_get(wefti_tcp_links *port, int peer, int rail);

/* Begins to connect, if nothing has been done yet. */
void wefti_tcp_link_want(wefti_tcp_links *port, wefti_tcp_link *link);

/* The peer cannot be reached any more. */
void wefti_tcp_peer_lose(wefti_tcp_links *port, int peer, const char *why);

/* It has something to send. */
void wefti_tcp_link_mark(wefti_tcp_links *port, wefti_tcp_link *link);

/* Sends what the kernel takes of what is marked; whether anything moved. */
bool wefti_tcp_links_flush(wefti_tcp_links *port);

/* What the epoll set says of a socket; whether anything moved. */
bool wefti_tcp_links_handle(wefti_tcp_links *port, int64_t word,
                            uint32_t events);

/* As give_back of comm/net/port.h. */
void wefti_tcp_links_give_back(wefti_tcp_links *port, const size_t *lent);

/*
 * As expect and hurry of comm/net/port.h. Over several rails nothing is
 * expected: which of them will carry how much of it, only the sender knows.
 */
void wefti_tcp_links_expect(wefti_tcp_links *port, int peer,
                            const wefti_port_expected *expected);
bool wefti_tcp_links_hurry(wefti_tcp_links *port);

/* Reads what the epoll set does not tell of yet, where that is much. */
bool wefti_tcp_links_read_hidden(wefti_tcp_links *port);

/* Watches the rail's listening socket; false with errno. */
bool wefti_tcp_links_listen(wefti_tcp_links *port, int rail);

/* Now and then: a peer to which a rail carries nothing any more is lost, and
 * one that has closed a rail and not the others. Over the first rail silence is
 * found out as without others. */
void wefti_tcp_links_look(wefti_tcp_links *port);

#endif
