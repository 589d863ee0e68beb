/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel_state.h - the channel's inside, for its own files.
 *
 * Notices are posted under the lock; everything else belongs to the thread. The
 * thread takes the engine's lock to see communicators, and never while it holds
 * its own.
 */
#ifndef COMM_CONTROL_CHANNEL_STATE_H
#define COMM_CONTROL_CHANNEL_STATE_H

#include "comm/control/channel.h"

#include <poll.h>

/*
 * A note on its way to any one of ranks, asked in turn.
 *
 * at         the rank that it goes to now; count: none was left
 * since_ns   since when
 * sent       it has been sent on that rank's probe as it stands
 * culprit    of the job, of the fault that the note names; -1: of none
 */
typedef struct wefti_notice {
    struct wefti_notice *next;
    wefti_note note;
    int64_t until_ns, since_ns;
    bool sent;
    int culprit;
    int at, count;
    int ranks[]; /* of the job */
} wefti_notice;

/* What each pollfd belongs to. */
typedef enum wefti_polled_kind {
    WEFTI_POLLED_PROBE,
    WEFTI_POLLED_PROCESS
} wefti_polled_kind;

typedef struct wefti_polled {
    wefti_polled_kind kind;
    int index;
} wefti_polled;

struct wefti_control {
    wefti_engine *engine;
    wefti_peer_probe_self self;
    int *domains;                                    /* [nranks] */
    unsigned char (*addresses)[WEFTI_ADDRESS_BYTES]; /* [nranks] */
    struct wefti_crew *crew; /* NULL: it has not started */
    uint64_t job;            /* channels of the same share no thread */
    wefti_control *next;     /* of the crew; its lock */
    bool ended;              /* that too: the thread does not look any more */
    _Atomic bool active;     /* stored after what activate sets; loaded first */
    _Atomic bool closing;    /* stored before the crew is woken */
    /* Of the world's header, in this domain's memory. A outcome goes once from
     * NONE to what it is, by compare-and-swap. */
    _Atomic uint8_t *outcomes;
    _Atomic uint16_t *ports; /* as packed; 0: not yet */

    pthread_mutex_t lock;
    wefti_notice *posted, **posted_end;

    /* The thread's. */
    wefti_oob_listener listener;
    wefti_peer_probe *probes; /* [probe_count] */
    int probe_count;
    int64_t *lost_ns;  /* [nranks] since when probes end; 0: the last opened */
    int64_t *asked_ns; /* [nranks] since when its domain is asked; 0: not */
    bool *watched;     /* [nranks] its pidfd has not fired yet */
    bool *refused;     /* [nranks] nothing listens where it did */
    bool *told;        /* [nranks] this rank's BYE has gone to it, and has not
                        * been lost with the connection */
    wefti_notice *notices;
    uint32_t serial;
    int64_t began_ns, closing_ns, farewell_ns;
    int herald; /* who tells that this rank leaves; -1: itself; it: it stays */
    wefti_control *served; /* the next that has had this turn */
    struct pollfd *polled; /* [polled_room], then the listener's; the crew's */
    wefti_polled *polled_as;
    int polled_count, polled_room;
    nfds_t listener_polled;
};

/* How many pollfds watch writes at the most. */
size_t wefti_control_room(const wefti_control *control);

/*
 * A turn is all that need not wait for poll, and lowers *next_ns to when it is
 * to come again; false: the channel is over, and needs nothing more. watch
 * writes what it waits for, and returns how many these are; serve takes what
 * poll has found there.
 */
bool wefti_control_turn(wefti_control *control, int64_t *next_ns);
nfds_t wefti_control_watch(wefti_control *control, struct pollfd *polled);
void wefti_control_serve(wefti_control *control);

/* An open probe with rank, else any; NULL: none. */
wefti_peer_probe *wefti_control_find_probe(wefti_control *control, int rank);

/* Begins to connect to rank, unless there is no place or address. */
void wefti_control_connect(wefti_control *control, int rank, int64_t at_ns);

/* The connection to rank has ended: what was sent on it is sent again. */
void wefti_notices_lost(wefti_control *control, int rank);

/* Whether each note lies with the kernel of its rank, read or not, or need not
 * come to it any more. */
bool wefti_notices_may_end(wefti_control *control);

/* Pushes all notices. Returns when to do so again; INT64_MAX: with news. */
int64_t wefti_notices_advance(wefti_control *control, int64_t now_ns);

/* An ACK has arrived. */
void wefti_notices_acknowledge(wefti_control *control, const wefti_note *ack);

/* Those that were posted become the thread's. */
void wefti_notices_take(wefti_control *control, int64_t now_ns);

/* What another rank has sent; the answer, if any, goes out on the probe. */
void wefti_control_receive(wefti_control *control, wefti_peer_probe *probe,
                           const wefti_note *note);

#endif
