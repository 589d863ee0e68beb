/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/corpus.c - walks folders, reads what is text, takes each text
 * once.
 *
 * A file is read straight behind the text so far; if it turns out to be no
 * text, or one seen before, the end of the text is simply not moved. "Seen
 * before" is decided by a BLAKE2b-256 digest of the bytes, which also finds
 * hard links and copies.
 */
#include "trainer/data/corpus.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "trainer/data/skipped.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGEST_BYTES 32

/* A text taken: what it is, and where it was found first. */
typedef struct origin {
    uint8_t digest[DIGEST_BYTES];
    char *path; /* NULL: a free slot */
} origin;

typedef struct walk {
    wefti_corpus *corpus;
    wefti_corpus_note *note;
    void *note_context;
    origin *origins; /* open addressing by the digest's first bytes */
    size_t origin_room;
    wefti_skipped skipped;
} walk;

enum { LINE_BYTES = 2048 };

/* Names in it may hold any byte: what is reported can go to a terminal. */
__attribute__((format(printf, 2, 0))) static void
put_line(char line_out[LINE_BYTES], const char *format, va_list args)
{
    char raw[LINE_BYTES];
    vsnprintf(raw, sizeof(raw), format, args);
    wefti_printable(raw, strlen(raw), line_out, LINE_BYTES);
}

__attribute__((format(printf, 2, 3))) static void
report(const walk *walker, const char *format, ...)
{
    char line[LINE_BYTES];
    if (walker->note == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    put_line(line, format, args);
    va_end(args);
    walker->note(walker->note_context, line);
}

/* One file is left out, and reported with its like at the end. */
__attribute__((format(printf, 4, 5))) static weft_status
skip(walk *walker, wefti_skipped_reason reason, const char *path,
     const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    put_line(line, format, args);
    va_end(args);
    walker->corpus->files_skipped++;
    return wefti_skipped_add(&walker->skipped, reason, path, line);
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

static weft_status make_origin_room(walk *walker)
{
    size_t taken = walker->corpus->files_taken;
    if (walker->origin_room > 0 && taken < walker->origin_room / 2) {
        return WEFT_OK;
    }
    size_t room = walker->origin_room == 0 ? 64 : 2 * walker->origin_room;
    origin *wider = calloc(room, sizeof(*wider));
    if (wider == NULL) {
        return no_memory("list of files");
    }
    for (size_t i = 0; i < walker->origin_room; i++) {
        if (walker->origins[i].path != NULL) {
            *find_origin(wider, room, walker->origins[i].digest) =
                walker->origins[i];
        }
    }
    free(walker->origins);
    walker->origins = wider;
    walker->origin_room = room;
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
static weft_status judge(walk *walker, const char *path, size_t gap_bytes,
                         size_t bytes)
{
    wefti_corpus *corpus = walker->corpus;
    const uint8_t *fresh = corpus->text + corpus->text_bytes + gap_bytes;
    const uint8_t *nul = memchr(fresh, 0, bytes);
    size_t good = wefti_utf8_check(fresh, nul ? (size_t)(nul - fresh) : bytes);
    uint8_t digest[DIGEST_BYTES];
    if (good < bytes) {
        return skip(walker, WEFTI_SKIPPED_NOT_TEXT, path,
                    "skipped %s: not UTF-8 text (byte %zu is 0x%02x)", path,
                    good, fresh[good]);
    }
    if (bytes == 0) {
        return skip(walker, WEFTI_SKIPPED_EMPTY, path, "skipped %s: empty",
                    path);
    }
    weft_status status = make_origin_room(walker);
    if (status != WEFT_OK) {
        return status;
    }
    crypto_generichash(digest, sizeof(digest), fresh, bytes, NULL, 0);
    origin *place = find_origin(walker->origins, walker->origin_room, digest);
    if (place->path != NULL) {
        return skip(walker, WEFTI_SKIPPED_SAME_TEXT, path,
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

/* Takes the file, and closes fd. */
static weft_status take_file(walk *walker, int fd, const char *path,
                             off_t expected_bytes)
{
    size_t gap_bytes = walker->corpus->files_taken > 0 ? 1 : 0;
    size_t bytes = 0;
    weft_status status =
        read_behind(walker->corpus, fd, path, gap_bytes,
                    expected_bytes > 0 ? (size_t)expected_bytes : 0, &bytes);
    close(fd);
    return status == WEFT_OK ? judge(walker, path, gap_bytes, bytes) : status;
}

static weft_status take_folder(walk *walker, int fd, const char *path,
                               int depth);

/* Takes an entry of a folder by what it is; the rest is passed over. */
static weft_status take_entry(walk *walker, int folder_fd, const char *folder,
                              const char *name, int depth, size_t *links)
{
    struct stat what;
    if (fstatat(folder_fd, name, &what, AT_SYMLINK_NOFOLLOW) != 0) {
        return wefti_error_system("%s/%s", folder, name);
    }
    *links += S_ISLNK(what.st_mode) ? 1 : 0;
    if (!S_ISREG(what.st_mode) && !S_ISDIR(what.st_mode)) {
        if (!S_ISLNK(what.st_mode)) { /* links are reported together */
            report(walker, "skipped %s/%s: neither a file nor a folder", folder,
                   name);
        }
        return WEFT_OK;
    }
    int fd =
        openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return wefti_error_system("%s/%s: cannot be opened", folder, name);
    }
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        close(fd);
        return no_memory(name);
    }
    weft_status status = S_ISDIR(what.st_mode)
                             ? take_folder(walker, fd, path, depth + 1)
                             : take_file(walker, fd, path, what.st_size);
    free(path);
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All names of an open folder but . and .., in byte order. */
static weft_status list_names(DIR *folder, const char *path, char ***names_out,
                              size_t *count_out)
{
    char **names = NULL;
    size_t count = 0;
    size_t room = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (count == room) {
            room = room == 0 ? 64 : 2 * room;
            char **wider = realloc(names, room * sizeof(*names));
            if (wider == NULL) {
                errno = ENOMEM;
                break;
            }
            names = wider;
        }
        names[count] = strdup(entry->d_name);
        if (names[count] == NULL) {
            break;
        }
        count++;
    }
    *names_out = names;
    *count_out = count;
    if (errno != 0) {
        return wefti_error_system("%s: cannot be listed", path);
    }
    if (count > 0) {
        qsort(names, count, sizeof(*names), by_bytes);
    }
    return WEFT_OK;
}

/* Takes all of a folder, and closes fd. */
static weft_status take_folder(walk *walker, int fd, const char *path,
                               int depth)
{
    char **names = NULL;
    size_t count = 0;
    size_t links = 0;
    if (depth > WEFTI_CORPUS_FOLDER_DEPTH_MOST) {
        close(fd);
        return wefti_error(WEFT_ERR_INVALID, "%s: folders nest deeper than %d",
                           path, WEFTI_CORPUS_FOLDER_DEPTH_MOST);
    }
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        weft_status status = wefti_error_system("%s: cannot be listed", path);
        close(fd);
        return status;
    }
    weft_status status = list_names(folder, path, &names, &count);
    for (size_t i = 0; i < count; i++) {
        if (status == WEFT_OK) {
            status = take_entry(walker, fd, path, names[i], depth, &links);
        }
        free(names[i]);
    }
    free(names);
    closedir(folder);
    if (links > 0) {
        report(walker, "skipped %zu links in %s: links are not followed", links,
               path);
    }
    return status;
}

static weft_status take_path(walk *walker, const char *path)
{
    struct stat what;
    /* Not to wait for a writer, should path be a FIFO. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &what) != 0) {
        weft_status status = wefti_error_system("%s", path);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    if (S_ISDIR(what.st_mode)) {
        return take_folder(walker, fd, path, 0);
    }
    if (S_ISREG(what.st_mode)) {
        return take_file(walker, fd, path, what.st_size);
    }
    close(fd);
    return wefti_error(WEFT_ERR_INVALID, "%s: neither a file nor a folder",
                       path);
}

weft_status wefti_corpus_read(wefti_corpus *corpus, const char *const *paths,
                              size_t path_count, wefti_corpus_note *note,
                              void *note_context)
{
    walk walker = {
        .corpus = corpus, .note = note, .note_context = note_context};
    weft_status status = WEFT_OK;
    *corpus = (wefti_corpus){0};
    if (sodium_init() < 0) {
        return wefti_error(WEFT_ERR_SYSTEM, "libsodium: no random numbers");
    }
    for (size_t i = 0; status == WEFT_OK && i < path_count; i++) {
        status = take_path(&walker, paths[i]);
    }
    wefti_skipped_report(&walker.skipped, note, note_context);
    wefti_skipped_fini(&walker.skipped);
    for (size_t i = 0; i < walker.origin_room; i++) {
        free(walker.origins[i].path);
    }
    free(walker.origins);
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
