/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/tokens.h - files of token ids (docs/data.md), read by memory
 * map: one run of ids, the files in order, nothing between them.
 *
 *   0  "wefttoks" | 8 version 1 | 12 bytes of an id, 2 or 4 |
 *   16 how many ids | 24 vocabulary: every id is below it |
 *   32 BLAKE2b-256 of the ids | 64 the ids      all little-endian
 *
 * A file that is taken is whole: every id has been looked at. It must not
 * change while it is open.
 */
#ifndef TRAINER_DATA_TOKENS_H
#define TRAINER_DATA_TOKENS_H

#include "trainer/data/walk.h"
#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

enum { WEFTI_TOKENS_HEADER_BYTES = 64, WEFTI_TOKENS_DIGEST_BYTES = 32 };

/* In folders, files of other names are passed over. */
#define WEFTI_TOKENS_ENDING ".tokens"

/* What a file says of itself, once it has been found true. */
typedef struct wefti_tokens_header {
    size_t id_bytes; /* 2 or 4 */
    size_t count;    /* at least 1 */
    uint64_t vocab;
    uint8_t digest[WEFTI_TOKENS_DIGEST_BYTES];
} wefti_tokens_header;

/*
 * wefti_tokens_check - whether bytes [byte_count] are a whole file of ids for
 * a model of vocab.
 *
 * path       only named.
 *
 * Returns    OK | ERR_INVALID: "path: byte 8: ..." says what is wrong where,
 *            and what is allowed.
 */
WEFT_NODISCARD weft_status wefti_tokens_check(const char *path,
                                              const uint8_t *bytes,
                                              size_t byte_count, uint64_t vocab,
                                              wefti_tokens_header *header_out);

/* A file: its place among all ids, and its bytes. */
typedef struct wefti_tokens_file {
    wefti_tokens_header header;
    size_t first;
    const uint8_t *map;
    size_t map_bytes;
} wefti_tokens_file;

typedef struct wefti_token_set {
    wefti_tokens_file *files;
    size_t file_count;
    size_t files_skipped; /* of another name in a folder, or taken already */
    size_t count;         /* of all ids */
} wefti_token_set;

/*
 * wefti_token_set_open - all files that paths name. A file given as a path may
 * have any name. note: NULL: no notes.
 *
 * Returns     OK (there may be no file) | ERR_SYSTEM | ERR_INVALID |
 *             ERR_NO_MEMORY. After an error tokens is empty.
 */
WEFT_NODISCARD weft_status wefti_token_set_open(
    wefti_token_set *tokens, const char *const *paths, size_t path_count,
    uint64_t vocab, wefti_corpus_note *note, void *note_context);
void wefti_token_set_fini(wefti_token_set *tokens);

/* Ids first .. first + count - 1, all of which there are. Threads: any. */
void wefti_token_set_read(const wefti_token_set *tokens, size_t first,
                          size_t count, int32_t *ids_out);

#endif
