/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/peer_probe.h - one authenticated connection to a rank of another
 * domain, from the first packet to its end. Nothing here blocks.
 *
 *   the client                        the listener
 *     |---- HELLO ----------------------->|
 *     |<--- CHALLENGE --------------------|
 *     |---- NOTE present, sealed -------->|  now it is authenticated
 *     |<--- NOTE present, sealed ---------|
 *     |<--- notes ----------------------->|
 */
#ifndef COMM_CONTROL_PEER_PROBE_H
#define COMM_CONTROL_PEER_PROBE_H

#include "comm/control/note.h"
#include "comm/oob/listener.h"

typedef enum wefti_peer_probe_state {
    WEFTI_PEER_NONE,       /* the place is free */
    WEFTI_PEER_CONNECTING, /* until the keys stand; connection.fd -1: to be
                              tried again */
    WEFTI_PEER_PROVING,    /* PRESENT sent */
    WEFTI_PEER_OPEN
} wefti_peer_probe_state;

/*
 * to             where the peer listens (wefti_endpoint_pack)
 * since_ns       since when it is tried to connect
 * unacked_ns     since when the peer's kernel has owed an acknowledgement and
 *                given none; 0: it owes none. It has acknowledged so far
 *                acked_bytes
 * leaving        the peer has sent BYE
 * told           BYE has been sent to it
 */
typedef struct wefti_peer_probe {
    wefti_peer_probe_state state;
    int peer;
    unsigned char to[WEFTI_ADDRESS_BYTES];
    wefti_oob_connection connection;
    int64_t since_ns, retry_ns, unacked_ns;
    uint64_t acked_bytes;
    bool leaving, told;
} wefti_peer_probe;

/* What wefti_peer_probe_next finds. */
typedef enum wefti_peer_probe_news {
    WEFTI_PEER_QUIET,   /* nothing more for now */
    WEFTI_PEER_READY,   /* it is OPEN now; go on */
    WEFTI_PEER_NOTE,    /* a note; go on */
    WEFTI_PEER_LOST,    /* closed or reset: is the process still there? */
    WEFTI_PEER_REFUSED, /* nothing listens there: the process is gone */
    WEFTI_PEER_SILENT   /* its host has not answered within the limit */
} wefti_peer_probe_news;

/* Which rank this is, for proofs. */
typedef struct wefti_peer_probe_self {
    int rank, nranks;
    wefti_secret secret;
    int64_t silent_ns; /* a host that takes longer is cut off */
} wefti_peer_probe_self;

/* Begins to connect to peer, from at_ns on; next finds what comes of it. */
void wefti_peer_probe_open(wefti_peer_probe *probe, int peer,
                           const unsigned char to[WEFTI_ADDRESS_BYTES],
                           const wefti_peer_probe_self *self, int64_t at_ns,
                           int64_t now_ns);

/*
 * wefti_peer_probe_accept - a peer of the listener has something to read. Once
 * it has proved which rank it is, it becomes a probe, in free_place, which is
 * OPEN then; NULL: there is no room.
 *
 * Returns     whether it did.
 */
bool wefti_peer_probe_accept(wefti_peer_probe *free_place,
                             wefti_oob_connection *peer,
                             const wefti_peer_probe_self *self);

/* The next event; note_out with NOTE. */
wefti_peer_probe_news wefti_peer_probe_next(wefti_peer_probe *probe,
                                            const wefti_peer_probe_self *self,
                                            int64_t now_ns,
                                            wefti_note *note_out);

/* To an OPEN one; what cannot be sent shows at the next check. */
void wefti_peer_probe_send(wefti_peer_probe *probe, const wefti_note *note);

/* When to check again although nothing has come; INT64_MAX: never. */
int64_t wefti_peer_probe_next_ns(const wefti_peer_probe *probe,
                                 const wefti_peer_probe_self *self,
                                 int64_t now_ns);

void wefti_peer_probe_close(wefti_peer_probe *probe); /* twice is legal */

#endif
