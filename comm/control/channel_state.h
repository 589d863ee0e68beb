/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel_state.h - the channel's inside, for its own files.
 *
 * What callers tell goes through the inbox, under the lock; everything else
 * belongs to the thread. The thread takes the engine's lock to look at
 * communicators, and never while it holds its own.
 */
#ifndef COMM_CONTROL_CHANNEL_STATE_H
#define COMM_CONTROL_CHANNEL_STATE_H

#include "comm/control/channel.h"

#include <poll.h>

/*
 * A note on its way to any one of ranks, asked in turn.
 *
 * at         whom it is being told; count: nobody was left
 * since_ns   since when
 * said       on the contact with him as it stands
 * culprit    of the job, of the fault that the note tells; -1: of none
 */
typedef struct wefti_errand {
    struct wefti_errand *next;
    wefti_note note;
    int64_t until_ns, since_ns;
    bool said;
    int culprit;
    int at, count;
    int ranks[]; /* of the job */
} wefti_errand;

/* What each pollfd belongs to. */
typedef enum wefti_polled_kind {
    WEFTI_POLLED_WAKE,
    WEFTI_POLLED_CONTACT,
    WEFTI_POLLED_PROCESS
} wefti_polled_kind;

typedef struct wefti_polled {
    wefti_polled_kind kind;
    int index;
} wefti_polled;

struct wefti_control {
    wefti_engine *engine;
    wefti_contact_self self;
    int *domains;                                    /* [nranks] */
    unsigned char (*addresses)[WEFTI_ADDRESS_BYTES]; /* [nranks] */
    int wake_fd;
    pthread_t thread;
    bool started;
    _Atomic bool active;  /* stored after what activate sets; loaded first */
    _Atomic bool closing; /* stored before wake_fd is rung */
    /* Of the world's header, in this domain's memory. A fate goes once from
     * NONE to what it is, by compare-and-swap. */
    _Atomic uint8_t *fates;

    pthread_mutex_t lock;
    wefti_errand *inbox, **inbox_end;

    /* The thread's. */
    wefti_oob_listener listener;
    wefti_contact *contacts; /* [contact_count] */
    int contact_count;
    int64_t *lost_ns; /* [nranks] since when contacts end; 0: the last opened */
    bool *watched;    /* [nranks] its pidfd has not fired yet */
    wefti_errand *errands;
    uint32_t serial;
    int64_t began_ns, closing_ns;
    struct pollfd *polled; /* [polled_room], then the listener's */
    wefti_polled *polled_as;
    int polled_count, polled_room;
    nfds_t listener_polled;
};

/* Runs until closing; argument is the control. */
void *wefti_control_run(void *argument);

/* An open contact with rank, else any; NULL: none. */
wefti_contact *wefti_control_find_contact(wefti_control *control, int rank);

/* Begins to call rank, unless there is no place or address. */
void wefti_control_call(wefti_control *control, int rank, int64_t at_ns);

/* The connection to rank has ended: what was said on it is said again. */
void wefti_errands_lost(wefti_control *control, int rank);

/* Whether each note lies with the kernel of its rank, read or not, or need not
 * come to it any more. */
bool wefti_errands_may_end(wefti_control *control);

/* Pushes all errands. Returns when to do so again; INT64_MAX: with news. */
int64_t wefti_errands_advance(wefti_control *control, int64_t now_ns);

/* A HEARD has come. */
void wefti_errands_heard(wefti_control *control, const wefti_note *heard);

/* Those of the inbox become the thread's. */
void wefti_errands_take(wefti_control *control, int64_t now_ns);

/* What another rank says; the answer, if any, goes out on the contact. */
void wefti_control_hear(wefti_control *control, wefti_contact *contact,
                        const wefti_note *note);

#endif
