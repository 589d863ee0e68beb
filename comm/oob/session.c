/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/session.c - derivation, seals and the box, all libsodium's.
 */
#include "comm/oob/session.h"

#include "base/check.h"

#include <sodium.h>

_Static_assert(WEFTI_OOB_MAC_BYTES == crypto_auth_BYTES, "MAC");
_Static_assert(WEFTI_BOX_BYTES == crypto_secretbox_NONCEBYTES +
                                      crypto_secretbox_MACBYTES +
                                      WEFTI_JOB_KEY_BYTES,
               "box");

enum { KEY_CLIENT = 1, KEY_SERVER, KEY_BOX };

static void hash_hello(crypto_generichash_state *state,
                       wefti_oob_message_kind kind,
                       const wefti_oob_message_hello *hello)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    const wefti_oob_message message = {.kind = kind, .as.hello = *hello};
    size_t frame_bytes = wefti_oob_message_encode(&message, frame);
    crypto_generichash_update(state, frame, frame_bytes);
}

void wefti_oob_session_init(wefti_oob_session *session, wefti_side side,
                            const wefti_secret *secret,
                            const wefti_oob_message_hello *hello,
                            const wefti_oob_message_hello *challenge)
{
    static const char context[crypto_kdf_CONTEXTBYTES + 1] = "weftmeet";
    unsigned char root[crypto_kdf_KEYBYTES];
    crypto_generichash_state state;
    crypto_generichash_init(&state, secret->key, sizeof(secret->key),
                            sizeof(root));
    hash_hello(&state, WEFTI_OOB_HELLO, hello);
    hash_hello(&state, WEFTI_OOB_CHALLENGE, challenge);
    crypto_generichash_final(&state, root, sizeof(root));

    bool client = side == WEFTI_SIDE_CLIENT;
    crypto_kdf_derive_from_key(
        client ? session->send_key : session->receive_key,
        sizeof(session->send_key), KEY_CLIENT, context, root);
    crypto_kdf_derive_from_key(
        client ? session->receive_key : session->send_key,
        sizeof(session->send_key), KEY_SERVER, context, root);
    crypto_kdf_derive_from_key(session->box_key, sizeof(session->box_key),
                               KEY_BOX, context, root);
    session->sent_count = 0;
    session->received_count = 0;
    sodium_memzero(root, sizeof(root));
    sodium_memzero(&state, sizeof(state));
}

void wefti_oob_session_fini(wefti_oob_session *session)
{
    sodium_memzero(session, sizeof(*session));
}

static void compute_mac(const unsigned char *key, uint64_t count,
                        const unsigned char *frame, size_t frame_bytes,
                        unsigned char mac_out[WEFTI_OOB_MAC_BYTES])
{
    WEFTI_ASSERT(frame_bytes >= WEFTI_OOB_HEADER_BYTES + WEFTI_OOB_MAC_BYTES);
    unsigned char counter[8];
    for (int i = 0; i < 8; i++) {
        counter[i] = (unsigned char)(count >> (8 * i));
    }
    crypto_auth_hmacsha512256_state state;
    crypto_auth_hmacsha512256_init(&state, key, 32);
    crypto_auth_hmacsha512256_update(&state, counter, sizeof(counter));
    crypto_auth_hmacsha512256_update(&state, frame,
                                     frame_bytes - WEFTI_OOB_MAC_BYTES);
    crypto_auth_hmacsha512256_final(&state, mac_out);
    sodium_memzero(&state, sizeof(state));
}

void wefti_oob_session_seal(wefti_oob_session *session, unsigned char *frame,
                            size_t frame_bytes)
{
    compute_mac(session->send_key, session->sent_count++, frame, frame_bytes,
                frame + frame_bytes - WEFTI_OOB_MAC_BYTES);
}

bool wefti_oob_session_verify(wefti_oob_session *session,
                              const unsigned char *frame, size_t frame_bytes)
{
    unsigned char mac[WEFTI_OOB_MAC_BYTES];
    compute_mac(session->receive_key, session->received_count, frame,
                frame_bytes, mac);
    if (sodium_memcmp(mac, frame + frame_bytes - sizeof(mac), sizeof(mac)) !=
        0) {
        return false;
    }
    session->received_count++;
    return true;
}

void wefti_oob_session_box(const wefti_oob_session *session,
                           const unsigned char job_key[WEFTI_JOB_KEY_BYTES],
                           unsigned char box_out[WEFTI_BOX_BYTES])
{
    randombytes_buf(box_out, crypto_secretbox_NONCEBYTES);
    crypto_secretbox_easy(box_out + crypto_secretbox_NONCEBYTES, job_key,
                          WEFTI_JOB_KEY_BYTES, box_out, session->box_key);
}

bool wefti_oob_session_unbox(const wefti_oob_session *session,
                             const unsigned char box[WEFTI_BOX_BYTES],
                             unsigned char job_key_out[WEFTI_JOB_KEY_BYTES])
{
    return crypto_secretbox_open_easy(
               job_key_out, box + crypto_secretbox_NONCEBYTES,
               WEFTI_BOX_BYTES - crypto_secretbox_NONCEBYTES, box,
               session->box_key) == 0;
}
