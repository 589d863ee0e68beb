/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/note.h - what ranks of different domains exchange over the
 * control channel, as bytes and back.
 *
 *     | kind, 1 | serial, 4 | the kind's fields |
 *
 * A note travels sealed inside a NOTE message (comm/oob/message.h).
 * Every kind has one size, but for the text of a FAULT; a field out of range,
 * or a byte too many, and it is no note.
 */
#ifndef COMM_CONTROL_NOTE_H
#define COMM_CONTROL_NOTE_H

#include "comm/fabric/shared.h"
#include "comm/oob/message.h"

/*
 * PRESENT   rank: the sender; the first of each side
 * ACK       serial of what arrived; known: the receiver could use it
 * PING      asks for the RANK_OUTCOMEs, and an acknowledgement
 * RANK_OUTCOME  rank, outcome: a rank of the sender's domain has ended
 * FAULT     comm, status, rank (-1: no rank), op_number, completed, text
 * BALLOT    comm, ballot, vote: comm/make/ballot.h
 * BYE       the sender ends well; after the RANK_OUTCOMEs, and the last from it
 */
typedef enum wefti_note_kind {
    WEFTI_NOTE_PRESENT = 1,
    WEFTI_NOTE_ACK,
    WEFTI_NOTE_PING,
    WEFTI_NOTE_RANK_OUTCOME,
    WEFTI_NOTE_FAULT,
    WEFTI_NOTE_BALLOT,
    WEFTI_NOTE_BYE,
    WEFTI_NOTE_KIND_END
} wefti_note_kind;

/* Which cell of a communicator a vote is for; comm/make/ballot.h. */
typedef struct wefti_ballot_place {
    uint32_t round, question, turn;
    uint32_t domain; /* its lowest rank in the communicator */
} wefti_ballot_place;

typedef struct wefti_note {
    wefti_note_kind kind;
    uint32_t serial;
    uint64_t comm;
    int32_t rank;
    uint32_t outcome;
    bool known;
    int32_t status;
    uint64_t op_number, completed;
    char text[256];
    wefti_ballot_place place;
    wefti_vote vote;
} wefti_note;

void wefti_note_encode(const wefti_note *note, wefti_oob_message *message_out);

/* True and the note if message holds one. */
bool wefti_note_decode(const wefti_oob_message *message, wefti_note *note_out);

#endif
