/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/contact.h - one authenticated connection to a rank of another
 * domain, from the first packet to its end. Nothing here blocks.
 *
 *   who calls                         who listens (an unauthenticated peer
 * until then)
 *     |---- HELLO ----------------------->|
 *     |<--- CHALLENGE --------------------|
 *     |---- NOTE present, sealed -------->|  now it is a contact
 *     |<--- NOTE present, sealed ---------|
 *     |<--- notes ----------------------->|
 */
#ifndef COMM_CONTROL_CONTACT_H
#define COMM_CONTROL_CONTACT_H

#include "comm/control/note.h"
#include "comm/oob/listener.h"

typedef enum wefti_contact_state {
    WEFTI_CONTACT_NONE,    /* the place is free */
    WEFTI_CONTACT_CALLING, /* until the keys stand; connection.fd -1: to be
                              tried again */
    WEFTI_CONTACT_PROVING, /* PRESENT sent */
    WEFTI_CONTACT_OPEN
} wefti_contact_state;

/*
 * to             where the peer listens (wefti_endpoint_pack)
 * since_ns       when the calling began
 * unheard_ns     since when the peer's kernel has owed an acknowledgement and
 *                given none; 0: it owes none. It has acknowledged so far
 *                acked_bytes
 * leaving        the peer has said BYE
 */
typedef struct wefti_contact {
    wefti_contact_state state;
    int peer;
    unsigned char to[WEFTI_ADDRESS_BYTES];
    wefti_oob_connection connection;
    int64_t since_ns, retry_ns, unheard_ns;
    uint64_t acked_bytes;
    bool leaving;
} wefti_contact;

/* What came of looking at a contact. */
typedef enum wefti_contact_news {
    WEFTI_CONTACT_QUIET,   /* nothing more for now */
    WEFTI_CONTACT_READY,   /* it is OPEN now; look again */
    WEFTI_CONTACT_SAID,    /* a note; look again */
    WEFTI_CONTACT_LOST,    /* closed or reset: is the process still there? */
    WEFTI_CONTACT_REFUSED, /* nobody listens there: the process is gone */
    WEFTI_CONTACT_SILENT   /* its host has not answered within the limit */
} wefti_contact_news;

/* Who this rank is, for proofs. */
typedef struct wefti_contact_self {
    int rank, nranks;
    wefti_secret secret;
    int64_t silent_ns; /* a host that takes longer is cut off */
} wefti_contact_self;

/* Begins to call peer, from at_ns on; look tells what comes of it. */
void wefti_contact_call(wefti_contact *contact, int peer,
                        const unsigned char to[WEFTI_ADDRESS_BYTES],
                        const wefti_contact_self *self, int64_t at_ns,
                        int64_t now_ns);

/*
 * wefti_contact_admit - a peer of the listener has something to read. Once it
 * has proved which rank it is, it becomes a contact, in free_place, which is
 * OPEN then; NULL: there is no room.
 *
 * Returns     whether it did.
 */
bool wefti_contact_admit(wefti_contact *free_place, wefti_oob_connection *peer,
                         const wefti_contact_self *self);

/* The next piece of news; note_out with SAID. */
wefti_contact_news wefti_contact_look(wefti_contact *contact,
                                      const wefti_contact_self *self,
                                      int64_t now_ns, wefti_note *note_out);

/* To an OPEN one; what cannot be sent shows at the next look. */
void wefti_contact_say(wefti_contact *contact, const wefti_note *note);

/* When to look again although nothing has come; INT64_MAX: never. */
int64_t wefti_contact_next_ns(const wefti_contact *contact,
                              const wefti_contact_self *self, int64_t now_ns);

void wefti_contact_close(wefti_contact *contact); /* twice is legal */

#endif
