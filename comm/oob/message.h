/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/message.h - the messages of a bootstrap, as bytes and back.
 *
 *     | body_bytes, 4 | kind, 1 | body ............. | MAC, 32: sealed kinds |
 *
 * body_bytes counts what follows the kind, MAC included. Every kind has a
 * least and a most size, checked before anything is stored; numbers are
 * little-endian; a message with a field out of range, or a byte too many, is
 * no message. HELLO and CHALLENGE begin alike in all versions for ever, so
 * that two versions can name themselves to each other.
 *
 * The MAC is session.h's business: encode leaves room for it, decode steps
 * over it.
 */
#ifndef COMM_OOB_MESSAGE_H
#define COMM_OOB_MESSAGE_H

#include "comm/oob/cursor.h"
#include "comm/oob/limits.h"
#include "comm/oob/place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFTI_OOB_HEADER_BYTES = 5,
    WEFTI_OOB_MAC_BYTES = 32,
    WEFTI_OOB_TEXT_MOST = 400,    /* characters */
    WEFTI_OOB_REASON_MOST = 320,  /* of a member's own verdict */
    WEFTI_OOB_CLIENT_MOST = 1024, /* bytes of any frame to the server */
    WEFTI_OOB_FRAME_MOST = 12800, /* bytes of any frame */
    WEFTI_NONCE_BYTES = 32,
    WEFTI_TOKEN_BYTES = 32,
    WEFTI_BOX_BYTES = 24 + 16 + WEFTI_JOB_KEY_BYTES,
    WEFTI_WELCOME_RANKS = 1024, /* that one message lists */
    WEFTI_NOTE_BYTES = 576
};

/*
 * C: to the server, S: to a member; sealed ones end in a MAC.
 * HELLO C, CHALLENGE S  versions and nonces
 * JOIN C                sealed: which rank this is, rank 0's tuning
 * REFUSAL S             the secret is wrong: nothing else is sent
 * ACCEPTED S            sealed: you are a member, wait
 * NOTICE S              sealed: a text worth a warning, such as which ranks are
 *                       missing
 * WELCOME S             sealed: all are here; the members, in as many messages
 *                       as that takes, and where the memory can be fetched
 * CLAIM                 over a leader's unix socket: rank and token
 * HANDED                back: token, and the descriptor
 * INFO C, S             sealed: how I, or a rank of another domain, is reached
 * REPORT C              sealed: the member has it all, or what is missing
 * VERDICT S             sealed: the end, good or bad, the same for all
 * VERDICT C             sealed: the member cannot take part, with its reason;
 *                       at most WEFTI_OOB_REASON_MOST characters
 * NOTE                  sealed: between ranks that have joined, after a HELLO
 * and a CHALLENGE of their own; comm/control/note.h says what is in it
 */
typedef enum wefti_oob_message_kind {
    WEFTI_OOB_HELLO = 1,
    WEFTI_OOB_CHALLENGE,
    WEFTI_OOB_JOIN,
    WEFTI_OOB_REFUSAL,
    WEFTI_OOB_ACCEPTED,
    WEFTI_OOB_NOTICE,
    WEFTI_OOB_WELCOME,
    WEFTI_OOB_CLAIM,
    WEFTI_OOB_HANDED,
    WEFTI_OOB_INFO,
    WEFTI_OOB_REPORT,
    WEFTI_OOB_VERDICT,
    WEFTI_OOB_NOTE,
    WEFTI_OOB_KIND_END
} wefti_oob_message_kind;

typedef struct wefti_version {
    uint16_t major, minor, patch;
} wefti_version;

typedef struct wefti_oob_message_hello { /* CHALLENGE too */
    wefti_version version;
    unsigned char nonce[WEFTI_NONCE_BYTES]; /* zero if version is not ours */
} wefti_oob_message_hello;

typedef struct wefti_oob_message_join {
    uint32_t rank;   /* 0 .. 1 048 575 */
    uint32_t nranks; /* 1 .. 1 048 576; the server decides whether they fit */
    uint32_t pid;    /* 1 .. 2^31 - 1 */
    uint32_t warn_ms;
    uint32_t timeout_ms; /* from now */
    unsigned char tuning[WEFTI_TUNING_BYTES];
    wefti_place place;
    unsigned char socket_name[WEFTI_SOCKET_NAME_BYTES];
} wefti_oob_message_join;

/* Lists ranks from first on; only those differ in the messages of a member. */
typedef struct wefti_oob_message_welcome {
    uint32_t nranks; /* 1 .. WEFTI_JOB_RANKS_MOST */
    uint32_t first;  /* a multiple of WEFTI_WELCOME_RANKS, below nranks */
    uint32_t pids[WEFTI_WELCOME_RANKS];
    /* The lowest rank of the same domain, of the same host, and of the same
     * group on each level inside the domain. */
    uint16_t domains[WEFTI_WELCOME_RANKS];
    uint16_t hosts[WEFTI_WELCOME_RANKS];
    uint16_t inner[WEFTI_WELCOME_RANKS][WEFTI_PLACE_LEVELS];
    unsigned char tuning[WEFTI_TUNING_BYTES];
    unsigned char socket_name[WEFTI_SOCKET_NAME_BYTES]; /* the leader's */
    unsigned char box[WEFTI_BOX_BYTES]; /* the job key, encrypted */
} wefti_oob_message_welcome;

/* How many ranks the message lists. */
static inline uint32_t
wefti_welcome_count(const wefti_oob_message_welcome *welcome)
{
    const uint32_t left = welcome->nranks - welcome->first;
    return left < WEFTI_WELCOME_RANKS ? left : WEFTI_WELCOME_RANKS;
}

typedef struct wefti_oob_message_claim { /* HANDED too */
    uint32_t rank;
    unsigned char token[WEFTI_TOKEN_BYTES];
} wefti_oob_message_claim;

typedef enum wefti_outcome {
    WEFTI_OUTCOME_COMPLETE = 0,
    WEFTI_OUTCOME_UNREACHABLE, /* the unix socket cannot be reached */
    WEFTI_OUTCOME_GONE,        /* the subject's process has ended */
    WEFTI_OUTCOME_SYSTEM,      /* error_number says why */
    WEFTI_OUTCOME_REFUSED,     /* the subject may not have the memory */
    WEFTI_OUTCOME_END
} wefti_outcome;

typedef struct wefti_oob_message_report {
    wefti_outcome outcome;
    uint32_t subject;      /* a rank; 0 where there is none */
    uint32_t error_number; /* errno, 0 .. 4095 */
} wefti_oob_message_report;

typedef struct wefti_oob_message_info {
    uint32_t round;
    uint32_t rank; /* whose */
    uint32_t used_bytes;
    unsigned char bytes[WEFTI_INFO_BYTES];
} wefti_oob_message_info;

typedef struct wefti_oob_message_note {
    uint32_t used_bytes;
    unsigned char bytes[WEFTI_NOTE_BYTES];
} wefti_oob_message_note;

typedef struct wefti_oob_message_verdict { /* NOTICE too, with status OK */
    /* OK, ERR_INVALID, _SYSTEM, _BOOTSTRAP, _TIMEOUT, _NO_MEMORY,
     * _UNSUPPORTED; others travel as _SYSTEM */
    weft_status status;
    char text[WEFTI_OOB_TEXT_MOST + 1]; /* printable ASCII */
} wefti_oob_message_verdict;

typedef struct wefti_oob_message {
    wefti_oob_message_kind kind;
    union {
        wefti_oob_message_hello hello;
        wefti_oob_message_join join;
        wefti_oob_message_welcome welcome;
        wefti_oob_message_claim claim;
        wefti_oob_message_info info;
        wefti_oob_message_report report;
        wefti_oob_message_verdict verdict;
        wefti_oob_message_note note;
    } as;
} wefti_oob_message;

/* A set of kinds, for readers that accept only some. */
#define WEFTI_KIND_BIT(kind) (1u << (kind))

/*
 * wefti_oob_message_encode - frame of message; MAC bytes zero.
 *
 * Characters of texts that are not printable ASCII become '?'; longer texts
 * are cut.
 *
 * Returns     bytes written, at most WEFTI_OOB_FRAME_MOST.
 */
size_t wefti_oob_message_encode(const wefti_oob_message *message,
                                unsigned char frame[WEFTI_OOB_FRAME_MOST]);

/*
 * wefti_oob_message_measure - how long the frame is that begins here.
 *
 * allowed   set of WEFTI_KIND_BIT
 *
 * Returns     bytes of the frame, which may be more than have_bytes | 0: more
 *             bytes are needed to say | -1: no frame of an allowed kind and
 *             size begins here.
 */
long wefti_oob_message_measure(const unsigned char *bytes, size_t have_bytes,
                               unsigned allowed);

/* Whether a frame that has been measured ends in a MAC. */
bool wefti_oob_message_is_sealed(const unsigned char *frame);

/* True and the message if frame is one whole, valid message. */
bool wefti_oob_message_decode(const unsigned char *frame, size_t frame_bytes,
                              wefti_oob_message *message_out);

wefti_version wefti_version_own(void);
void wefti_version_walk(wefti_oob_cursor *cursor, wefti_version *version);
bool wefti_version_is_own(wefti_version version);

#endif
