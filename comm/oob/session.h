/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/session.h - the keys of one connection, and what is done with
 * them.
 *
 *     transcript = hash(HELLO frame, CHALLENGE frame)
 *     root       = hash keyed by the secret (transcript)
 *     one key from root for each: client's seals, server's seals, the box
 *
 * Both frames carry a fresh nonce, so keys never repeat and a recorded
 * conversation is worth nothing. A seal is a MAC over a counter and the frame:
 * a message replayed, reordered or sent back fails.
 *
 * Source: libsodium's BLAKE2b (crypto_generichash, crypto_kdf), HMAC-SHA512-256
 * (crypto_auth) and XSalsa20-Poly1305 (crypto_secretbox).
 */
#ifndef COMM_OOB_SESSION_H
#define COMM_OOB_SESSION_H

#include "comm/oob/message.h"
#include "comm/oob/secret.h"

typedef struct wefti_oob_session {
    unsigned char send_key[32], receive_key[32], box_key[32];
    uint64_t sent_count, received_count;
} wefti_oob_session;

typedef enum wefti_side { WEFTI_SIDE_CLIENT, WEFTI_SIDE_SERVER } wefti_side;

void wefti_oob_session_init(wefti_oob_session *session, wefti_side side,
                            const wefti_secret *secret,
                            const wefti_oob_message_hello *hello,
                            const wefti_oob_message_hello *challenge);
void wefti_oob_session_fini(wefti_oob_session *session);

/* Fill in the MAC of an encoded frame; frames must be sent in this order. */
void wefti_oob_session_seal(wefti_oob_session *session, unsigned char *frame,
                            size_t frame_bytes);

/* Whether the peer sealed this frame, and as its next one. */
bool wefti_oob_session_verify(wefti_oob_session *session,
                              const unsigned char *frame, size_t frame_bytes);

void wefti_oob_session_box(const wefti_oob_session *session,
                           const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
                           unsigned char box_out[WEFTI_BOX_BYTES]);
bool wefti_oob_session_unbox(const wefti_oob_session *session,
                             const unsigned char box[WEFTI_BOX_BYTES],
                             unsigned char job_key_out[WEFTI_JOB_KEY_BYTES]);

#endif
