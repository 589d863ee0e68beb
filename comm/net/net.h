/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/net.h - a rank's end of the network: one port for all its
 * communicators, and what is known of each other rank of the job that shares
 * no memory with this one.
 *
 * The engine's lock guards it, but where a call says otherwise.
 */
#ifndef COMM_NET_NET_H
#define COMM_NET_NET_H

#include "comm/core/core.h"
#include "comm/net/ended.h"
#include "comm/net/interface.h"
#include "comm/net/net_watch.h"
#include "comm/net/port.h"
#include "comm/net/reach.h"
#include "comm/net/wire.h"
#include "comm/oob/client.h"

/*
 * address    how it is reached; borrowed by the port
 * spoken     something went to it or came from it
 * farewell   it has said BYE: when it is lost, it has not died
 * ended      both: it has left all communicators, and all it sent has come;
 *            stored behind lost_ns, loaded without the lock
 * skew_ns    the least (our clock at arrival - its clock at sending), of this
 *            period and of the one before: clocks drift apart
 * heard_ns   its last message; lost_ns, told_ns: when its connection was lost,
 *            when the control channel's word of its end was first looked at.
 *            Read without the lock, relaxed: each stands for itself.
 * cut        "does not answer over eth1": why it was lost; is_cut, which says
 *            that it is, is stored with release and loaded with acquire
 */
typedef struct wefti_net_peer {
    unsigned char *address;
    bool lost, spoken, farewell;
    _Atomic bool ended;
    int64_t skew_ns[2];
    int64_t skew_since_ns;
    _Atomic int64_t heard_ns, lost_ns, told_ns;
    _Atomic bool is_cut;
    char cut[80];
} wefti_net_peer;

/* An interface that messages are spread over; byte_ps 0: not measured. */
typedef struct wefti_net_rail {
    char name[WEFTI_INTERFACE_NAME_BYTES];
    int64_t byte_ps;
} wefti_net_rail;

/*
 * What is done once messages have been sent, such as giving back the memory
 * that they lie in.
 *
 * done    called under the lock, with context, which may hold this struct
 * unsent  counts these messages, where the port does (wefti_net_lends)
 * peers   else: [peer_count] ranks of the job to which something is queued,
 *         be it these messages or others; the net's to change
 */
typedef struct wefti_net_sent {
    struct wefti_net_sent *next;
    void (*done)(void *context);
    void *context;
    size_t unsent;
    int *peers;
    int peer_count;
} wefti_net_sent;

struct wefti_net {
    const wefti_port_table *library; /* what lists transports */
    const wefti_port_table *table;   /* the port's */
    wefti_port *port;                /* NULL until it is opened */
    wefti_engine *engine;
    int rank, nranks;
    uint64_t key;          /* of the job */
    wefti_net_peer *peers; /* [nranks] */
    wefti_net_watch *watch;
    wefti_ended_comm *ended; /* communicators */
    bool asked;              /* one of those */
    bool closing;            /* nobody is answered any more */
    bool news;               /* a message came */
    bool strange;            /* a foreign one has been warned about */
    bool hurried; /* bytes had come that were not to be looked at yet */
    uint64_t late_messages; /* that were found only so */
    uint64_t sent_messages;
    uint64_t sent_bytes, received_bytes; /* payload */
    wefti_reach *reach;                  /* while infos are traded */
    wefti_interface_use use;
    int rail_count; /* once the ranks have agreed */
    wefti_net_rail rails[WEFTI_PORT_RAILS_MOST];
    wefti_net_sent *awaiting; /* what waits for messages to have been sent */
};

/*
 * wefti_net_join - in two rounds of infos with the ranks of other domains:
 * addresses to try, then the port's address. It makes the engine's net, which
 * is the engine's from then on.
 *
 * Returns     OK | ERR_UNSUPPORTED (no module) | ERR_SYSTEM | ERR_NO_MEMORY |
 *             ERR_INVALID | as wefti_client_exchange.
 */
WEFT_NODISCARD weft_status wefti_net_join(wefti_engine *engine,
                                          const wefti_membership *membership,
                                          wefti_client *client);

/* What the port calls; context is the net. */
void *wefti_net_place(void *context, const void *header, size_t header_bytes,
                      size_t data_bytes);
void wefti_net_arrived(void *context, const void *header, size_t header_bytes,
                       const void *data, size_t data_bytes);
void wefti_net_lost(void *context, int peer, const char *why);
void wefti_net_unreached(void *context, int peer, const char *device,
                         const char *why);
void wefti_net_silent(void *context, int peer, const char *device);

/*
 * wefti_net_start - the ranks have met: news may come, which a thread tells
 * attend(the engine), until that returns false.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_net_start(wefti_net *net,
                                           bool (*attend)(void *engine));

/* The infos are traded: no rank looks for us any more. */
void wefti_net_settle(wefti_net *net);

/* Says farewell and waits a moment for that of others. NULL is legal. */
void wefti_net_close(wefti_net *net);

/* What goes with a header. data: borrowed until it has been sent; lent, if not
 * NULL, counts the messages of which it has not. urgent: compute waits for it
 * soon. */
typedef struct wefti_net_load {
    const void *data;
    size_t bytes;
    bool urgent;
    size_t *lent;
} wefti_net_load;

/* To rank peer of the job; load NULL: a header alone. */
void wefti_net_send(wefti_net *net, int peer, const wefti_wire *wire,
                    const wefti_net_load *load);

/*
 * wefti_net_lends - whether the network can count what it borrows.
 *
 * wefti_net_give_back - what *lent counts is borrowed no more, sent or not.
 */
bool wefti_net_lends(const wefti_net *net);
void wefti_net_give_back(wefti_net *net, const size_t *lent);

/* Whether anything moved. Messages that came have been applied. */
bool wefti_net_progress(wefti_net *net);

/*
 * wefti_net_drain - progress while it moves, within reason: a fault that has
 * come counts before what came earlier is looked at, as it does in memory.
 */
bool wefti_net_drain(wefti_net *net);

/* What is sent from now on goes out together, with hold(false). */
void wefti_net_hold(wefti_net *net, bool on);

/* Whether messages to a rank wait in the port to be handed to the network. */
bool wefti_net_has_queued(const wefti_net *net, int peer);

/* Releases that peers wait for, and what else is due: of all communicators. */
void wefti_net_tell_released(wefti_net *net);

/*
 * wefti_net_when_sent - has sent->done called once its messages have been sent,
 * by whatever drives the network, or when it closes. Does not wait. Returns
 * whether it will be: false, they have been.
 */
bool wefti_net_when_sent(wefti_net *net, wefti_net_sent *sent);

/* No thread may drive the engine for a while: the watcher does, with the next
 * news, among which is that more of what was sent fits into a connection; at
 * once, if there is such, or none has driven for long, else after a moment. */
void wefti_net_leave(wefti_net *net, bool long_idle);

/*
 * wefti_net_expect - what a rank of the job has yet to send, headers not
 * counted: news of it may wait until then.
 *
 * wefti_net_hurry - forgets what was expected: all that has come is news.
 */
void wefti_net_expect(wefti_net *net, int peer, wefti_port_expected expected);
void wefti_net_hurry(wefti_net *net);

/* Whether the engine's bell will ring with the next news; false: there is
 * some already. */
bool wefti_net_arm(wefti_net *net);

/* Whether rank peer of the job cannot be reached any more. Threads: any. */
bool wefti_net_is_lost(wefti_net *net, int peer);

/* Whether rank peer of the job has ended well, and when; 0: it has not.
 * Threads: any. */
int64_t wefti_net_get_end_ns(wefti_net *net, int peer);

/* How a rail to it was lost; NULL: none was. Threads: any. */
const char *wefti_net_get_cut(const wefti_net *net, int peer);

/* A line for the flight record; empty if net is NULL. */
void wefti_net_text(const wefti_net *net, char *text_out, size_t text_bytes);

#endif
