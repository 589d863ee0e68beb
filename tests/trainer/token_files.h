/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/token_files.h - files of token ids as docs/data.md has them,
 * written by code of its own.
 */
#ifndef TESTS_TRAINER_TOKEN_FILES_H
#define TESTS_TRAINER_TOKEN_FILES_H

#include <sodium.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TOKEN_HEADER_BYTES = 64 };

static inline void put_little(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

/* The digest of what stands behind the header. */
static inline void seal_tokens(uint8_t *image, size_t image_bytes)
{
    crypto_generichash(image + 32, 32, image + TOKEN_HEADER_BYTES,
                       image_bytes - TOKEN_HEADER_BYTES, NULL, 0);
}

/* Into image, which has room; its bytes. */
static inline size_t make_tokens(uint8_t *image, const uint32_t *ids,
                                 size_t count, size_t id_bytes, uint64_t vocab)
{
    memcpy(image, "wefttoks", 8);
    put_little(image + 8, 1, 4);
    put_little(image + 12, id_bytes, 4);
    put_little(image + 16, count, 8);
    put_little(image + 24, vocab, 8);
    for (size_t i = 0; i < count; i++) {
        put_little(image + TOKEN_HEADER_BYTES + i * id_bytes, ids[i], id_bytes);
    }
    seal_tokens(image, TOKEN_HEADER_BYTES + count * id_bytes);
    return TOKEN_HEADER_BYTES + count * id_bytes;
}

#endif
