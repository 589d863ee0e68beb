/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/bootstrap/message.h - the messages of a meeting, as bytes and back.
 *
 *     | body_bytes, 4 | kind, 1 | body ............. | MAC, 32: sealed kinds |
 *
 * body_bytes counts what follows the kind, MAC included. Every kind has a
 * least and a most size, checked before anything is stored; numbers are
 * little-endian; a message with a field out of range, or a byte too many, is
 * no message. HELLO and CHALLENGE begin alike in all versions for ever, so
 * that two versions can tell each other who they are.
 *
 * The MAC is session.h's business: encode leaves room for it, decode steps
 * over it.
 */
#ifndef COMM_BOOTSTRAP_MESSAGE_H
#define COMM_BOOTSTRAP_MESSAGE_H

#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFTI_BOOTSTRAP_RANKS_MOST = 1024,
    WEFTI_MESSAGE_HEADER_BYTES = 5,
    WEFTI_MESSAGE_MAC_BYTES = 32,
    WEFTI_MESSAGE_TEXT_MOST = 400,    /* characters */
    WEFTI_MESSAGE_REASON_MOST = 320,  /* of a member's own verdict */
    WEFTI_MESSAGE_CLIENT_MOST = 1024, /* bytes of any frame to the server */
    WEFTI_MESSAGE_FRAME_MOST = 8704,  /* bytes of any frame */
    WEFTI_NONCE_BYTES = 32,
    WEFTI_TOKEN_BYTES = 32,
    WEFTI_SOCKET_NAME_BYTES = 16,
    WEFTI_BOX_BYTES = 24 + 16 + WEFTI_JOB_KEY_BYTES,
    WEFTI_NOTE_BYTES = 480
};

/*
 * C: to the server, S: to a member; sealed ones end in a MAC.
 * HELLO C, CHALLENGE S  versions and nonces
 * JOIN C                sealed: who I am, rank 0's tuning
 * REFUSAL S             the secret is wrong: nothing else is said
 * ACCEPTED S            sealed: you are a member, wait
 * NOTICE S              sealed: a text worth a warning, such as who is missing
 * WELCOME S             sealed: all are here; where the memory can be fetched
 * CLAIM                 over a leader's unix socket: rank and token
 * HANDED                back: token, and the descriptor
 * CARD C, S             sealed: how I, or a rank of another domain, is reached
 * REPORT C              sealed: I have it all, or what is missing
 * VERDICT S             sealed: the end, good or bad, the same for all
 * VERDICT C             sealed: I cannot take part, in my own words; at most
 *                       WEFTI_MESSAGE_REASON_MOST characters
 * NOTE                  sealed: between ranks that have met, after a HELLO and
 *                       a CHALLENGE of their own; comm/control/note.h says
 *                       what is in it
 */
typedef enum wefti_message_kind {
    WEFTI_MESSAGE_HELLO = 1,
    WEFTI_MESSAGE_CHALLENGE,
    WEFTI_MESSAGE_JOIN,
    WEFTI_MESSAGE_REFUSAL,
    WEFTI_MESSAGE_ACCEPTED,
    WEFTI_MESSAGE_NOTICE,
    WEFTI_MESSAGE_WELCOME,
    WEFTI_MESSAGE_CLAIM,
    WEFTI_MESSAGE_HANDED,
    WEFTI_MESSAGE_CARD,
    WEFTI_MESSAGE_REPORT,
    WEFTI_MESSAGE_VERDICT,
    WEFTI_MESSAGE_NOTE,
    WEFTI_MESSAGE_KIND_END
} wefti_message_kind;

typedef struct wefti_version {
    uint16_t major, minor, patch;
} wefti_version;

typedef struct wefti_message_hello { /* CHALLENGE too */
    wefti_version version;
    unsigned char nonce[WEFTI_NONCE_BYTES]; /* zero if version is not ours */
} wefti_message_hello;

typedef struct wefti_message_join {
    uint32_t rank;   /* 0 .. 1 048 575 */
    uint32_t nranks; /* 1 .. 1 048 576; whether they fit is the server's say */
    uint32_t pid;    /* 1 .. 2^31 - 1 */
    uint32_t warn_ms;
    uint32_t timeout_ms; /* from now */
    unsigned char tuning[WEFTI_TUNING_BYTES];
    wefti_place place;
    unsigned char socket_name[WEFTI_SOCKET_NAME_BYTES];
} wefti_message_join;

typedef struct wefti_message_welcome {
    uint32_t nranks; /* 1 .. WEFTI_BOOTSTRAP_RANKS_MOST */
    uint32_t pids[WEFTI_BOOTSTRAP_RANKS_MOST];
    /* The lowest rank of the same domain, and of the same host. */
    uint16_t domains[WEFTI_BOOTSTRAP_RANKS_MOST];
    uint16_t hosts[WEFTI_BOOTSTRAP_RANKS_MOST];
    unsigned char tuning[WEFTI_TUNING_BYTES];
    unsigned char socket_name[WEFTI_SOCKET_NAME_BYTES]; /* the leader's */
    unsigned char box[WEFTI_BOX_BYTES]; /* the job key, encrypted */
} wefti_message_welcome;

typedef struct wefti_message_claim { /* HANDED too */
    uint32_t rank;
    unsigned char token[WEFTI_TOKEN_BYTES];
} wefti_message_claim;

typedef enum wefti_outcome {
    WEFTI_OUTCOME_COMPLETE = 0,
    WEFTI_OUTCOME_ELSEWHERE, /* the unix socket cannot be reached */
    WEFTI_OUTCOME_GONE,      /* the subject's process has ended */
    WEFTI_OUTCOME_SYSTEM,    /* error_number says why */
    WEFTI_OUTCOME_REFUSED,   /* the subject may not have the memory */
    WEFTI_OUTCOME_END
} wefti_outcome;

typedef struct wefti_message_report {
    wefti_outcome outcome;
    uint32_t subject;      /* a rank; 0 where there is none */
    uint32_t error_number; /* errno, 0 .. 4095 */
} wefti_message_report;

typedef struct wefti_message_card {
    uint32_t round;
    uint32_t rank; /* whose */
    uint32_t used_bytes;
    unsigned char bytes[WEFTI_CARD_BYTES];
} wefti_message_card;

typedef struct wefti_message_note {
    uint32_t used_bytes;
    unsigned char bytes[WEFTI_NOTE_BYTES];
} wefti_message_note;

typedef struct wefti_message_verdict { /* NOTICE too, with status OK */
    /* OK, ERR_INVALID, _SYSTEM, _BOOTSTRAP, _TIMEOUT, _NO_MEMORY,
     * _UNSUPPORTED; others travel as _SYSTEM */
    weft_status status;
    char text[WEFTI_MESSAGE_TEXT_MOST + 1]; /* printable ASCII */
} wefti_message_verdict;

typedef struct wefti_message {
    wefti_message_kind kind;
    union {
        wefti_message_hello hello;
        wefti_message_join join;
        wefti_message_welcome welcome;
        wefti_message_claim claim;
        wefti_message_card card;
        wefti_message_report report;
        wefti_message_verdict verdict;
        wefti_message_note note;
    } as;
} wefti_message;

/* A set of kinds, for those who accept only some. */
#define WEFTI_KIND_BIT(kind) (1u << (kind))

/*
 * wefti_message_encode - frame of message; MAC bytes zero.
 *
 * Characters of texts that are not printable ASCII become '?'; longer texts
 * are cut.
 *
 * Returns     bytes written, at most WEFTI_MESSAGE_FRAME_MOST.
 */
size_t wefti_message_encode(const wefti_message *message,
                            unsigned char frame[WEFTI_MESSAGE_FRAME_MOST]);

/*
 * wefti_message_measure - how long the frame is that begins here.
 *
 * allowed   set of WEFTI_KIND_BIT
 *
 * Returns     bytes of the frame, which may be more than have_bytes | 0: more
 *             bytes are needed to say | -1: no frame of an allowed kind and
 *             size begins here.
 */
long wefti_message_measure(const unsigned char *bytes, size_t have_bytes,
                           unsigned allowed);

/* True and the message if frame is one whole, valid message. */
bool wefti_message_decode(const unsigned char *frame, size_t frame_bytes,
                          wefti_message *message_out);

wefti_version wefti_version_own(void);
bool wefti_version_is_own(wefti_version version);

#endif
