/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/tokens.c - headers are read byte by byte, ids from the map.
 */
#include "trainer/data/tokens.h"

#include "base/error.h"
#include "base/printable.h"
#include "trainer/data/skipped.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "ids are read from the map as they lie there");

#define MAGIC "wefttoks"
enum {
    VERSION = 1,
    VERSION_SWAPPED = 1 << 24,
    AT_VERSION = 8,
    AT_ID_BYTES = 12,
    AT_COUNT = 16,
    AT_VOCAB = 24,
    AT_DIGEST = 32
};

typedef struct opening {
    wefti_token_set *tokens;
    uint64_t vocab;
    wefti_skipped skipped;
} opening;

static uint64_t read_little(const uint8_t *at, size_t byte_count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < byte_count; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

/* What stands before the counts. */
static weft_status check_kind(const char *path, const uint8_t *bytes,
                              size_t byte_count)
{
    const size_t magic_bytes = sizeof(MAGIC) - 1;
    if (byte_count < magic_bytes || memcmp(bytes, MAGIC, magic_bytes) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: byte 0: not a file of token ids; allowed is "
                           "one that begins with " MAGIC " (docs/data.md)",
                           path);
    }
    if (byte_count < WEFTI_TOKENS_HEADER_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: byte %zu: the file ends inside its header; "
                           "allowed is one of %d bytes and ids after it",
                           path, byte_count, WEFTI_TOKENS_HEADER_BYTES);
    }
    uint64_t version = read_little(bytes + AT_VERSION, 4);
    uint64_t id_bytes = read_little(bytes + AT_ID_BYTES, 4);
    if (version != VERSION) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s: byte %d: version %" PRIu64 "%s; allowed is %d, "
            "little-endian",
            path, AT_VERSION, version,
            version == VERSION_SWAPPED ? ", written big-endian" : "", VERSION);
    }
    if (id_bytes != 2 && id_bytes != 4) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: byte %d: ids of %" PRIu64 " bytes; allowed is "
                           "2 or 4",
                           path, AT_ID_BYTES, id_bytes);
    }
    return WEFT_OK;
}

/* The counts against the file's length, the model and each other. */
static weft_status check_counts(const char *path, const uint8_t *bytes,
                                size_t byte_count, uint64_t vocab,
                                wefti_tokens_header *header_out)
{
    size_t id_bytes = (size_t)read_little(bytes + AT_ID_BYTES, 4);
    uint64_t count = read_little(bytes + AT_COUNT, 8);
    uint64_t own_vocab = read_little(bytes + AT_VOCAB, 8);
    size_t left_bytes = byte_count - WEFTI_TOKENS_HEADER_BYTES;
    if (count == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: byte %d: no ids; allowed is at least 1", path,
                           AT_COUNT);
    }
    if (left_bytes % id_bytes != 0 || count != left_bytes / id_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: byte %d: %" PRIu64 " ids of %zu bytes, but %zu "
                           "bytes after the header: the file is cut off, or "
                           "more follows",
                           path, AT_COUNT, count, id_bytes, left_bytes);
    }
    if (own_vocab == 0 || own_vocab > vocab) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: byte %d: a vocabulary of %" PRIu64
                           "; allowed is 1..%" PRIu64 ", model.vocab",
                           path, AT_VOCAB, own_vocab, vocab);
    }
    header_out->id_bytes = id_bytes;
    header_out->count = (size_t)count;
    header_out->vocab = own_vocab;
    return WEFT_OK;
}

static int32_t read_id(const uint8_t *ids, size_t id_bytes, size_t index)
{
    uint16_t two;
    uint32_t four;
    if (id_bytes == 2) {
        memcpy(&two, ids + 2 * index, sizeof(two));
        return two;
    }
    memcpy(&four, ids + 4 * index, sizeof(four));
    return (int32_t)four;
}

/* The first id that is not below the vocabulary; count: none. */
static size_t find_foreign(const uint8_t *ids,
                           const wefti_tokens_header *header)
{
    size_t i = 0;
    while (i < header->count &&
           (uint32_t)read_id(ids, header->id_bytes, i) < header->vocab) {
        i++;
    }
    return i;
}

weft_status wefti_tokens_check(const char *path, const uint8_t *bytes,
                               size_t byte_count, uint64_t vocab,
                               wefti_tokens_header *header_out)
{
    weft_status status = check_kind(path, bytes, byte_count);
    if (status == WEFT_OK) {
        status = check_counts(path, bytes, byte_count, vocab, header_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const uint8_t *ids = bytes + WEFTI_TOKENS_HEADER_BYTES;
    size_t foreign = find_foreign(ids, header_out);
    if (foreign < header_out->count) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s: byte %zu: token %zu is %" PRIu32 "; allowed is below %" PRIu64
            ", the file's vocabulary",
            path, WEFTI_TOKENS_HEADER_BYTES + foreign * header_out->id_bytes,
            foreign, (uint32_t)read_id(ids, header_out->id_bytes, foreign),
            header_out->vocab);
    }
    crypto_generichash(header_out->digest, sizeof(header_out->digest), ids,
                       byte_count - WEFTI_TOKENS_HEADER_BYTES, NULL, 0);
    if (memcmp(header_out->digest, bytes + AT_DIGEST,
               sizeof(header_out->digest)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: byte %d: the BLAKE2b-256 of the ids is "
                           "another; allowed are the ids that were written",
                           path, AT_DIGEST);
    }
    return WEFT_OK;
}

static weft_status skip(opening *job, wefti_skipped_reason reason,
                        const char *path, const char *why)
{
    char raw[WEFTI_WALK_LINE_BYTES];
    char line[WEFTI_WALK_LINE_BYTES];
    snprintf(raw, sizeof(raw), "skipped %s: %s", path, why);
    job->tokens->files_skipped++;
    return wefti_skipped_add(
        &job->skipped, reason, path,
        wefti_printable(raw, strlen(raw), line, sizeof(line)));
}

static bool is_taken(const wefti_token_set *tokens, const uint8_t *digest)
{
    for (size_t i = 0; i < tokens->file_count; i++) {
        if (memcmp(tokens->files[i].header.digest, digest,
                   WEFTI_TOKENS_DIGEST_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes over the map. */
static weft_status add(wefti_token_set *tokens, const char *path,
                       const wefti_tokens_file *file)
{
    size_t count = tokens->file_count;
    wefti_tokens_file *wider =
        realloc(tokens->files, (count + 1) * sizeof(*wider));
    if (wider == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", path);
    }
    tokens->files = wider;
    wider[count] = *file;
    wider[count].first = tokens->count;
    tokens->count += file->header.count;
    tokens->file_count++;
    return WEFT_OK;
}

static weft_status judge(opening *job, const char *path,
                         wefti_tokens_file *file, bool *kept_out)
{
    weft_status status = wefti_tokens_check(path, file->map, file->map_bytes,
                                            job->vocab, &file->header);
    if (status == WEFT_OK && is_taken(job->tokens, file->header.digest)) {
        return skip(job, WEFTI_SKIPPED_SAME_IDS, path,
                    "the same ids as another");
    }
    if (status == WEFT_OK) {
        status = add(job->tokens, path, file);
        *kept_out = status == WEFT_OK;
    }
    return status;
}

static weft_status take_file(void *context, const wefti_walk_file *found)
{
    opening *job = context;
    const size_t length = strlen(found->path);
    const size_t ending = sizeof(WEFTI_TOKENS_ENDING) - 1;
    bool kept = false;
    if (!found->named &&
        (length < ending ||
         strcmp(found->path + length - ending, WEFTI_TOKENS_ENDING) != 0)) {
        return skip(job, WEFTI_SKIPPED_NOT_TOKENS, found->path,
                    "its name does not end in " WEFTI_TOKENS_ENDING);
    }
    if (found->bytes == 0) { /* which cannot be mapped */
        return check_kind(found->path, (const uint8_t *)"", 0);
    }
    void *map = mmap(NULL, found->bytes, PROT_READ, MAP_PRIVATE, found->fd, 0);
    if (map == MAP_FAILED) {
        return wefti_error_system("%s: cannot be mapped", found->path);
    }
    wefti_tokens_file file = {.map = map, .map_bytes = found->bytes};
    weft_status status = judge(job, found->path, &file, &kept);
    if (!kept) {
        munmap(map, found->bytes);
    }
    return status;
}

weft_status wefti_token_set_open(wefti_token_set *tokens,
                                 const char *const *paths, size_t path_count,
                                 uint64_t vocab, wefti_corpus_note *note,
                                 void *note_context)
{
    opening job = {.tokens = tokens, .vocab = vocab};
    const wefti_walk walk = {take_file, &job, note, note_context};
    *tokens = (wefti_token_set){0};
    if (sodium_init() < 0) {
        return wefti_error(WEFT_ERR_SYSTEM, "libsodium: no random numbers");
    }
    weft_status status = wefti_walk_paths(&walk, paths, path_count);
    wefti_skipped_report(&job.skipped, note, note_context);
    wefti_skipped_fini(&job.skipped);
    if (status != WEFT_OK) {
        wefti_token_set_fini(tokens);
    }
    return status;
}

void wefti_token_set_fini(wefti_token_set *tokens)
{
    for (size_t i = 0; i < tokens->file_count; i++) {
        munmap((void *)tokens->files[i].map, tokens->files[i].map_bytes);
    }
    free(tokens->files);
    *tokens = (wefti_token_set){0};
}

/* The file that id number at lies in. */
static const wefti_tokens_file *find_file(const wefti_token_set *tokens,
                                          size_t at)
{
    size_t low = 0, high = tokens->file_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (tokens->files[middle].first <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &tokens->files[low];
}

void wefti_token_set_read(const wefti_token_set *tokens, size_t first,
                          size_t count, int32_t *ids_out)
{
    const wefti_tokens_file *file = find_file(tokens, first);
    size_t index = first - file->first;
    for (size_t i = 0; i < count; i++, index++) {
        if (index == file->header.count) { /* none is without ids */
            file++;
            index = 0;
        }
        ids_out[i] = read_id(file->map + WEFTI_TOKENS_HEADER_BYTES,
                             file->header.id_bytes, index);
    }
}
