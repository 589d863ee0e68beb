/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/corpus.c - reads what is text, takes each text once.
 *
 * A file is read straight behind the text so far; if it turns out to be no
 * text, or one seen before, the end of the text is simply not moved. "Seen
 * before" is decided by a BLAKE2b-256 digest of the bytes, which also finds
 * hard links and copies.
 */
#include "trainer/data/corpus.h"

#include "base/error.h"
#include "base/utf8.h"
#include "trainer/data/skipped.h"
#include "trainer/data/walk.h"

#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIGEST_BYTES 32

/* A text taken: what it is, and where it was found first. */
typedef struct origin {
    uint8_t digest[DIGEST_BYTES];
    char *path; /* NULL: a free slot */
} origin;

typedef struct reading {
    wefti_corpus *corpus;
    origin *origins; /* open addressing by the digest's first bytes */
    size_t origin_room;
    wefti_skipped skipped;
    bool any; /* bytes, not text */
} reading;

/* One file is left out, and reported with its like at the end. */
__attribute__((format(printf, 4, 5))) static weft_status
skip(reading *job, wefti_skipped_reason reason, const char *path,
     const char *format, ...)
{
    char line[WEFTI_WALK_LINE_BYTES];
    va_list args;
    va_start(args, format);
    wefti_walk_line(line, format, args);
    va_end(args);
    job->corpus->files_skipped++;
    return wefti_skipped_add(&job->skipped, reason, path, line);
}

static weft_status no_memory(const char *what)
{
    return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", what);
}

/* The slot of digest, or the free one where it belongs. */
static origin *find_origin(origin *origins, size_t room, const uint8_t *digest)
{
    size_t at;
    memcpy(&at, digest, sizeof(at));
    at &= room - 1;
    while (origins[at].path != NULL &&
           memcmp(origins[at].digest, digest, DIGEST_BYTES) != 0) {
        at = (at + 1) & (room - 1);
    }
    return &origins[at];
}

static weft_status make_origin_room(reading *job)
{
    size_t taken = job->corpus->files_taken;
    if (job->origin_room > 0 && taken < job->origin_room / 2) {
        return WEFT_OK;
    }
    size_t room = job->origin_room == 0 ? 64 : 2 * job->origin_room;
    origin *wider = calloc(room, sizeof(*wider));
    if (wider == NULL) {
        return no_memory("list of files");
    }
    for (size_t i = 0; i < job->origin_room; i++) {
        if (job->origins[i].path != NULL) {
            *find_origin(wider, room, job->origins[i].digest) = job->origins[i];
        }
    }
    free(job->origins);
    job->origins = wider;
    job->origin_room = room;
    return WEFT_OK;
}

static weft_status make_text_room(wefti_corpus *corpus, size_t more_bytes)
{
    size_t need = corpus->text_bytes + more_bytes;
    if (need < more_bytes || need > SIZE_MAX / 2) {
        return no_memory("text");
    }
    if (need <= corpus->room_bytes) {
        return WEFT_OK;
    }
    size_t room = need + need / 2;
    uint8_t *wider = realloc(corpus->text, room);
    if (wider == NULL) {
        return no_memory("text");
    }
    corpus->text = wider;
    corpus->room_bytes = room;
    return WEFT_OK;
}

/* Reads fd to its end, gap_bytes behind the text; does not move its end. */
static weft_status read_behind(wefti_corpus *corpus, int fd, const char *path,
                               size_t gap_bytes, size_t expected_bytes,
                               size_t *bytes_out)
{
    size_t bytes = 0;
    for (;;) {
        /* One byte more than expected, so that the end is seen at once. */
        size_t want =
            bytes < expected_bytes ? expected_bytes + 1 - bytes : 4096;
        weft_status status = make_text_room(corpus, gap_bytes + bytes + want);
        if (status != WEFT_OK) {
            return status;
        }
        uint8_t *end = corpus->text + corpus->text_bytes + gap_bytes + bytes;
        ssize_t got = read(fd, end, want);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return wefti_error_system("%s: cannot be read", path);
        }
        if (got == 0) {
            *bytes_out = bytes;
            return WEFT_OK;
        }
        bytes += (size_t)got;
    }
}

/* Takes the bytes just read behind the text, or says why not. */
static weft_status judge(reading *job, const char *path, size_t gap_bytes,
                         size_t bytes)
{
    wefti_corpus *corpus = job->corpus;
    const uint8_t *fresh = corpus->text + corpus->text_bytes + gap_bytes;
    const uint8_t *nul = memchr(fresh, 0, bytes);
    size_t text = nul ? (size_t)(nul - fresh) : bytes;
    size_t good = job->any ? bytes : wefti_utf8_check(fresh, text);
    uint8_t digest[DIGEST_BYTES];
    if (good < bytes) {
        return skip(job, WEFTI_SKIPPED_NOT_TEXT, path,
                    "skipped %s: not UTF-8 text (byte %zu is 0x%02x)", path,
                    good, fresh[good]);
    }
    if (bytes == 0) {
        return skip(job, WEFTI_SKIPPED_EMPTY, path, "skipped %s: empty", path);
    }
    weft_status status = make_origin_room(job);
    if (status != WEFT_OK) {
        return status;
    }
    crypto_generichash(digest, sizeof(digest), fresh, bytes, NULL, 0);
    origin *place = find_origin(job->origins, job->origin_room, digest);
    if (place->path != NULL) {
        return skip(job, WEFTI_SKIPPED_SAME_TEXT, path,
                    "skipped %s: the same text as %s", path, place->path);
    }
    place->path = strdup(path);
    if (place->path == NULL) {
        return no_memory(path);
    }
    memcpy(place->digest, digest, sizeof(digest));
    memset(corpus->text + corpus->text_bytes, WEFTI_CORPUS_SEPARATOR,
           gap_bytes);
    corpus->text_bytes += gap_bytes + bytes;
    corpus->files_taken++;
    return WEFT_OK;
}

/* A file, named or found alike. */
static weft_status take_file(void *context, const wefti_walk_file *file)
{
    reading *job = context;
    size_t gap_bytes = job->corpus->files_taken > 0 ? 1 : 0;
    size_t bytes = 0;
    weft_status status = read_behind(job->corpus, file->fd, file->path,
                                     gap_bytes, file->bytes, &bytes);
    return status == WEFT_OK ? judge(job, file->path, gap_bytes, bytes)
                             : status;
}

weft_status wefti_corpus_read(wefti_corpus *corpus, const char *const *paths,
                              size_t path_count, bool any,
                              wefti_corpus_note *note, void *note_context)
{
    reading job = {.corpus = corpus, .any = any};
    const wefti_walk walk = {take_file, &job, note, note_context};
    *corpus = (wefti_corpus){0};
    if (sodium_init() < 0) {
        return wefti_error(WEFT_ERR_SYSTEM, "libsodium: no random numbers");
    }
    weft_status status = wefti_walk_paths(&walk, paths, path_count);
    wefti_skipped_report(&job.skipped, note, note_context);
    wefti_skipped_fini(&job.skipped);
    for (size_t i = 0; i < job.origin_room; i++) {
        free(job.origins[i].path);
    }
    free(job.origins);
    if (status != WEFT_OK) {
        wefti_corpus_fini(corpus);
    }
    return status;
}

void wefti_corpus_fini(wefti_corpus *corpus)
{
    free(corpus->text);
    *corpus = (wefti_corpus){0};
}
