/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port.h - a rank's port to the network, as a module provides it.
 *
 * The module is a shared object of its own, opened only when ranks cannot share
 * memory, so that a job on one host never loads a network library. It uses
 * nothing of libweft; this table is all that the two know of each other.
 *
 * All calls of one port are made by one thread at a time. What a port sends to
 * one peer arrives in the order of sending on one rail; on several, perhaps
 * not.
 */
#ifndef COMM_NET_PORT_H
#define COMM_NET_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFTI_PORT_VERSION = 8,
    WEFTI_PORT_ADDRESS_BYTES = 600,
    WEFTI_PORT_HEADER_BYTES = 128,
    WEFTI_PORT_PROOF_BYTES = 32
};

#define WEFTI_PORT_SYMBOL "wefti_port_load"
#define WEFTI_PORT_TABLE  "wefti_port_module"

typedef struct wefti_port wefti_port;
typedef struct wefti_port_table wefti_port_table;

/* Where the bytes of a message lie. */
typedef enum wefti_port_memory {
    WEFTI_PORT_MEMORY_HOST,
    WEFTI_PORT_MEMORY_CUDA
} wefti_port_memory;

/*
 * transports   as the network library names them, such as tcp
 * devices      between commas, such as eth0,eth1
 * rails        how many devices one message may use
 * rail_numbers of each: those of two ranks lead to each other if they have the
 *              same number, which is not 0, and the first two in any case.
 *              Copied; NULL: a library that finds out by itself
 * rank, npeers this one is rank; peers are 0 .. npeers - 1
 * proof        what only ranks of the job can show to each other; copied
 * place        where the data of a message that is on its way belong, if they
 *              have such a place, else NULL; asked before each time some of
 *              them are received, as it may have gone. A port that cannot
 *              receive there need not ask.
 * arrived      a message; header and data are valid during the call. data lies
 *              in its place if it was received there.
 * lost         a peer cannot be reached any more; called once per peer
 * unreached    a rail that is used does not lead to a peer: others do
 * silent       a rail carries nothing any more to a peer, which is lost next
 */
typedef struct wefti_port_config {
    const char *transports;
    const char *devices;
    int rails;
    const uint32_t *rail_numbers; /* [rails] */
    int rank, npeers;
    const unsigned char *proof; /* [WEFTI_PORT_PROOF_BYTES] */
    void *context;
    void *(*place)(void *context, const void *header, size_t header_bytes,
                   size_t data_bytes);
    void (*arrived)(void *context, const void *header, size_t header_bytes,
                    const void *data, size_t data_bytes);
    void (*lost)(void *context, int peer, const char *why);
    void (*unreached)(void *context, int peer, const char *device,
                      const char *why);
    void (*silent)(void *context, int peer, const char *device);
} wefti_port_config;

enum { WEFTI_PORT_RAILS_MOST = 4 };

/* What a byte takes over each rail, 0: it is not used; and the rail of small
 * messages. */
typedef struct wefti_port_rails {
    int64_t byte_ps[WEFTI_PORT_RAILS_MOST];
    int small;
} wefti_port_rails;

/* COMES: it is being connected. */
typedef enum wefti_port_reach {
    WEFTI_PORT_REACH_COMES,
    WEFTI_PORT_REACH_UP,
    WEFTI_PORT_REACH_NOT
} wefti_port_reach;

/* lent: NULL, or counts the messages whose data the port may still read. */
typedef struct wefti_port_message {
    int peer;
    const void *header; /* copied; at most WEFTI_PORT_HEADER_BYTES */
    size_t header_bytes;
    const void *data; /* borrowed until it has been sent */
    size_t data_bytes;
    wefti_port_memory memory;
    bool urgent; /* goes before what has not begun, where a port can */
    bool last;   /* without data: the peer gets it after all before it */
    size_t *lent;
} wefti_port_message;

/*
 * What a rank knows of what is to come from a peer.
 *
 * messages, bytes  nothing is of use before so many, headers included, have
 *                  come; 0: anything may be
 * blocked          but to send more it needs the peer's word, any message
 */
typedef struct wefti_port_expected {
    size_t messages, bytes;
    bool blocked;
} wefti_port_expected;

/*
 * One way to send: a transport on a device, as the network library names them.
 * network: it leads to other hosts. Texts are borrowed during the call.
 */
typedef void wefti_port_found(void *context, const char *transport,
                              const char *device, bool network);

/* How much what the module says matters. */
typedef enum wefti_port_tone {
    WEFTI_PORT_TONE_FATAL, /* the network library ends the process */
    WEFTI_PORT_TONE_WARNING,
    WEFTI_PORT_TONE_DETAIL
} wefti_port_tone;

typedef void wefti_port_say(wefti_port_tone tone, const char *text);

/*
 * log_to     where the network library's own warnings go; the module's, once.
 * open       0, or -1 with the reason in why_out.
 * address    how others reach this port; 0: it does not fit.
 * connect    borrows address; the connection is made by the first send. 0, or
 *            -1 with the reason in why_out.
 * use        which rails, from now on; the first, until it is called. NULL:
 *            the library spreads messages as it likes.
 * reach      whether a rail leads to a peer; begins to connect. NULL: as use.
 * send       never blocks; to a lost peer it does nothing.
 * give_back  copies the data of the messages that *lent counts, which are the
 *            caller's again; a peer for whose there is no memory is lost. NULL:
 *            the port counts no messages.
 * hold       true: messages may be kept back, to go out together with the
 *            next hold(false).
 * progress   whether anything moved.
 * expect     of a peer: event_fd may stay silent until that has come, where
 *            it is blocked as long as there is enough to send. NULL: the port
 *            cannot wait for more than a byte.
 * hurry      forgets what was expected, event_fd tells of each byte that has
 *            come; whether it would not have told of some. NULL with expect.
 * arm        true: event_fd becomes readable with the next news; false: there
 *            is news already.
 * unsent     messages not yet handed to the network; queued: those to a peer,
 *            or all where it is not known.
 * close      sends what is left for at most linger_ms, then drops it.
 * list       what could be used here; needs no port.
 */
struct wefti_port_table {
    int version;
    const char *name;
    void (*log_to)(wefti_port_say *say);
    int (*open)(const wefti_port_config *config, wefti_port **port_out,
                char *why_out, size_t why_bytes);
    size_t (*address)(wefti_port *port,
                      unsigned char address_out[WEFTI_PORT_ADDRESS_BYTES]);
    int (*connect)(wefti_port *port, int peer, const unsigned char *address,
                   size_t address_bytes, char *why_out, size_t why_bytes);
    void (*use)(wefti_port *port, const wefti_port_rails *rails);
    wefti_port_reach (*reach)(wefti_port *port, int peer, int rail);
    void (*send)(wefti_port *port, const wefti_port_message *message);
    void (*give_back)(wefti_port *port, const size_t *lent);
    void (*hold)(wefti_port *port, bool on);
    bool (*progress)(wefti_port *port);
    void (*expect)(wefti_port *port, int peer,
                   const wefti_port_expected *expected);
    bool (*hurry)(wefti_port *port);
    bool (*arm)(wefti_port *port);
    int (*event_fd)(wefti_port *port);
    size_t (*unsent)(wefti_port *port);
    size_t (*queued)(wefti_port *port, int peer);
    void (*close)(wefti_port *port, int linger_ms);
    void (*list)(wefti_port_found *found, void *context);
};

/* What the module offers: its table, or NULL with the reason in why_out. */
typedef const wefti_port_table *wefti_port_loader(char *why_out,
                                                  size_t why_bytes);

#endif
