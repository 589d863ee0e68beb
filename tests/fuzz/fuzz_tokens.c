/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/fuzz_tokens.c - any bytes as a file of token ids.
 *
 * What is accepted must be safe to read: as many ids as fill the file, each
 * below the vocabulary. So that inputs get past the digest, each is tried
 * again with the right one.
 */
#include "trainer/data/tokens.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 50000, AT_DIGEST = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(int good)
{
    if (!good) {
        abort();
    }
}

static void try_one(const uint8_t *data, size_t data_bytes)
{
    wefti_tokens_header header;
    if (wefti_tokens_check("input", data, data_bytes, VOCAB, &header) !=
        WEFT_OK) {
        require(strncmp(weft_error_text(), "input: byte ", 12) == 0);
        return;
    }
    wefti_tokens_file file = {
        .header = header, .map = data, .map_bytes = data_bytes};
    const wefti_token_set tokens = {
        .files = &file, .file_count = 1, .count = header.count};
    require(header.count > 0 && header.vocab <= VOCAB);
    require(data_bytes ==
            WEFTI_TOKENS_HEADER_BYTES + header.count * header.id_bytes);
    for (size_t i = 0; i < header.count; i++) {
        int32_t id = -1;
        wefti_token_set_read(&tokens, i, 1, &id);
        require(id >= 0 && (uint64_t)id < header.vocab);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    try_one(data, data_bytes);
    if (data_bytes > WEFTI_TOKENS_HEADER_BYTES) {
        uint8_t *sealed = malloc(data_bytes);
        require(sealed != NULL);
        memcpy(sealed, data, data_bytes);
        crypto_generichash(sealed + AT_DIGEST, WEFTI_TOKENS_DIGEST_BYTES,
                           sealed + WEFTI_TOKENS_HEADER_BYTES,
                           data_bytes - WEFTI_TOKENS_HEADER_BYTES, NULL, 0);
        try_one(sealed, data_bytes);
        free(sealed);
    }
    return 0;
}
