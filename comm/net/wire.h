/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/wire.h - what ranks of different domains tell each other, as bytes,
 * and how it changes the receiver's mirror of the sender's region.
 *
 * A message is a header of fixed size and at most one run of data. Nothing in
 * it is believed: check holds every number against what may be true now, and a
 * message that fails changes nothing. Ranks of one job are built alike, so
 * numbers travel as the machine has them; a header of another size or version
 * is no message.
 */
#ifndef COMM_NET_WIRE_H
#define COMM_NET_WIRE_H

#include "comm/fabric/shared.h"
#include "comm/net/inbound.h"

#include <stdbool.h>

enum { WEFTI_WIRE_VERSION = 9, WEFTI_WIRE_WORDS = WEFTI_WAIT_WORDS };

/*
 * The words of each kind; those behind them hold releases, or are 0:
 * ENTRY      number, count, kind, cut, stamp_ns, and of the v forms what the
 *            sender has for the receiver, or of a barrier whether it is a
 *            round's (comm/steps/meeting.h); data: the payload
 * MESSAGE    path and whether its release is awaited, sequence, ready_ns,
 *            signature; data: the staged bytes
 * COMPLETED  - (what every header says of it)
 * WAITING    the words of a wefti_wait_page
 * ENTERED    number, count, kind, cut, stamp_ns: what the sender has entered;
 *            the answer to WAITING
 * OBSERVED   -
 * LEFT       how (the last on its communicator)
 * BYE        - (the last of all; of no communicator)
 */
typedef enum wefti_wire_kind {
    WEFTI_WIRE_ENTRY = 1,
    WEFTI_WIRE_MESSAGE,
    WEFTI_WIRE_COMPLETED,
    WEFTI_WIRE_WAITING,
    WEFTI_WIRE_ENTERED,
    WEFTI_WIRE_OBSERVED,
    WEFTI_WIRE_LEFT,
    WEFTI_WIRE_BYE,
    WEFTI_WIRE_END
} wefti_wire_kind;

/*
 * key       of the job; an unauthenticated sender does not know it
 * comm      which communicator
 * from      the sender: a rank of it, or of the job if it is of none
 * before    how many messages of this sender to this receiver went before it
 *           on this communicator
 * completed what the sender has done of it, all up to this number
 * all_completed  what all ranks of hosts up to the sender's have done, so many
 *           as comm/net/rounds.h says; 0 to whom it is not told
 * sent_ns   the sender's clock
 */
typedef struct wefti_wire {
    uint64_t key;
    uint64_t comm;
    uint16_t version;
    uint16_t kind;
    uint32_t from;
    uint64_t before;
    uint64_t completed;
    uint64_t all_completed;
    int64_t sent_ns;
    uint64_t words[WEFTI_WIRE_WORDS];
} wefti_wire;

/* What the receiver knows and the message must agree with. */
typedef struct wefti_wire_view {
    const wefti_shared *shared;
    wefti_inbound *inbound;
    int rank;           /* the receiver */
    uint64_t completed; /* published by the receiver */
    const uint64_t
        *posted;           /* [op slots][channels] by the receiver, to sender */
    const uint64_t *taken; /* the same, by the receiver from the sender */
    uint64_t *awaited;     /* the same: the last whose release is awaited */
} wefti_wire_view;

/* Whether bytes hold a header of this version and a known kind. */
bool wefti_wire_decode(const void *header, size_t header_bytes,
                       wefti_wire *wire_out);

/* Whether a message of a communicator may be applied. */
bool wefti_wire_check(const wefti_wire *wire, size_t data_bytes,
                      const wefti_wire_view *view);

/* Where the data of a message that was found right belong; NULL: a message of
 * another kind, which apply copies, or no memory. */
void *wefti_wire_place(const wefti_wire *wire, size_t data_bytes,
                       const wefti_wire_view *view);

/*
 * wefti_wire_apply - write a message that was found right into the mirror of
 * its sender: data first, and last, as a release, the flag that publishes it.
 * LEFT changes no mirror; it is the caller's.
 *
 * data       may lie in its place already
 * skew_ns    what to add to the sender's clock to get the receiver's
 * now_ns     the receiver's clock
 *
 * Returns whether there was memory for its data; else nothing has changed.
 */
bool wefti_wire_apply(const wefti_wire *wire, const void *data,
                      size_t data_bytes, const wefti_wire_view *view,
                      int64_t skew_ns, int64_t now_ns);

/* The first word of a MESSAGE. */
static inline uint64_t wefti_wire_pack_path(int op_slot, int channel,
                                            bool awaited)
{
    return (uint64_t)awaited << 16 | (uint64_t)op_slot << 8 | (uint64_t)channel;
}

enum { WEFTI_WIRE_RELEASED = 1 << 15 /* so that the word is not 0 */ };

/* How many messages of a path the sender has released, as one word: the low 48
 * bits say it all, as they are less than 2^47 behind what was posted. */
static inline uint64_t wefti_wire_pack_release(int op_slot, int channel,
                                               uint64_t value)
{
    return value << 16 | WEFTI_WIRE_RELEASED |
           wefti_wire_pack_path(op_slot, channel, false);
}

/* The first word of a kind that may hold a release; WORDS: none. */
int wefti_wire_first_release(wefti_wire_kind kind);

#endif
