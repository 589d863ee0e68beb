/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_reader.c - tensors out of a step's files, which
 * are trusted no further than their digests reach.
 */
#include "base/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_index.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>

enum {
    CHUNK_BYTES = 1 << 20, /* read and hashed at a time; whole elements */
    HELD_BYTES = 64 << 20, /* a section up to that is kept, see get_part */
    DIGEST = WEFTI_CHECKPOINT_DIGEST_BYTES
};

struct wefti_checkpoint_reader {
    wefti_checkpoint_index index;
    bool *head_known;     /* [nranks] it has been found sound */
    unsigned char *chunk; /* CHUNK_BYTES */
    unsigned char *held;  /* what section held_section has, if sound */
    const wefti_checkpoint_section *held_section;
    wefti_safetensors_file file; /* the open one; fd -1: none is */
    uint64_t file_rank;          /* whose it is */
    char folder[WEFTI_CHECKPOINT_PATH_BYTES];
    char path[WEFTI_CHECKPOINT_PATH_BYTES + WEFTI_CHECKPOINT_FILE_BYTES];
};

/* ---- the index ------------------------------------------------------------
 */

/* Opens a regular file of the step; its size. */
static weft_status open_file(wefti_checkpoint_reader *reader, const char *name,
                             off_t *bytes_out)
{
    struct stat what;
    snprintf(reader->path, sizeof(reader->path), "%s/%s", reader->folder, name);
    reader->file = (wefti_safetensors_file){.path = reader->path};
    reader->file.fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reader->file.fd < 0 || fstat(reader->file.fd, &what) != 0) {
        return wefti_error_system("%s: cannot be read", reader->path);
    }
    *bytes_out = what.st_size;
    return S_ISREG(what.st_mode)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID, "%s: is no file", reader->path);
}

/* Frees text, or the index has it. */
static weft_status take_index(wefti_checkpoint_reader *reader, char *text,
                              size_t bytes, const wefti_checkpoint_done *done)
{
    uint8_t digest[DIGEST];
    weft_status status =
        wefti_safetensors_read_at(&reader->file, 0, text, bytes);
    if (status == WEFT_OK) {
        wefti_checkpoint_digest(text, bytes, digest);
    }
    if (status == WEFT_OK && memcmp(digest, done->index_digest, DIGEST) != 0) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "%s: is not the one that DONE speaks of: "
                             "damaged, or of another step or run",
                             reader->path);
    }
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    return wefti_checkpoint_index_unpack(reader->path, text, bytes,
                                         &reader->index);
}

static weft_status check_done(const wefti_checkpoint_reader *reader,
                              const wefti_checkpoint_done *done)
{
    const wefti_checkpoint_header *header = &reader->index.header;
    return header->step == done->step && header->nranks == done->nranks &&
                   header->origin.run == done->origin.run &&
                   header->origin.session == done->origin.session
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%s/" WEFTI_CHECKPOINT_DONE
                             ": does not say of the step what its index says",
                             reader->folder);
}

static weft_status read_index(wefti_checkpoint_reader *reader,
                              const wefti_checkpoint_done *done)
{
    off_t bytes = 0;
    weft_status status = open_file(reader, WEFTI_CHECKPOINT_INDEX, &bytes);
    if (status == WEFT_OK && bytes > (off_t)WEFTI_CHECKPOINT_INDEX_BYTES_MOST) {
        status = wefti_error(WEFT_ERR_INVALID, "%s: is larger than 1 GiB",
                             reader->path);
    }
    char *text = status == WEFT_OK ? malloc((size_t)bytes + 1) : NULL;
    if (text) {
        status = take_index(reader, text, (size_t)bytes, done);
    } else if (status == WEFT_OK) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "%s: no memory for it",
                             reader->path);
    }
    wefti_safetensors_close(&reader->file);
    return status == WEFT_OK ? check_done(reader, done) : status;
}

weft_status wefti_checkpoint_reader_open(const char *dir,
                                         const wefti_checkpoint_done *done,
                                         wefti_checkpoint_reader **reader_out)
{
    wefti_checkpoint_reader *reader = calloc(1, sizeof(*reader));
    *reader_out = NULL;
    if (!reader) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", dir);
    }
    reader->file.fd = -1;
    weft_status status = wefti_checkpoint_path(
        dir, done->step, WEFTI_CHECKPOINT_SAVED, 0, "", reader->folder);
    if (status == WEFT_OK) {
        status = read_index(reader, done);
    }
    if (status == WEFT_OK) {
        reader->chunk = malloc(CHUNK_BYTES);
        reader->head_known =
            calloc(reader->index.header.nranks, sizeof(*reader->head_known));
        if (!reader->chunk || !reader->head_known) {
            status = wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", dir);
        }
    }
    if (status != WEFT_OK) {
        wefti_checkpoint_reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return WEFT_OK;
}

void wefti_checkpoint_reader_close(wefti_checkpoint_reader *reader)
{
    if (reader) {
        wefti_safetensors_close(&reader->file);
        wefti_checkpoint_index_fini(&reader->index);
        free(reader->head_known);
        free(reader->held);
        free(reader->chunk);
        free(reader);
    }
}

const wefti_checkpoint_header *
wefti_checkpoint_reader_header(const wefti_checkpoint_reader *reader)
{
    return &reader->index.header;
}

weft_status wefti_checkpoint_reader_match(const wefti_checkpoint_reader *reader,
                                          const wefti_checkpoint_header *expect)
{
    const wefti_checkpoint_header *header = &reader->index.header;
    if (memcmp(header->config_digest, expect->config_digest,
               sizeof(expect->config_digest)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: was written with another model or data "
                           "settings (model.*, data.seed, "
                           "data.document_end, data.validation_fraction)",
                           reader->folder);
    }
    return memcmp(header->data_hash, expect->data_hash,
                  sizeof(expect->data_hash)) == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%s: was written from another text (data.paths, "
                             "data.encoder_path, or the files have changed)",
                             reader->folder);
}

/* ---- files ----------------------------------------------------------------
 */

/* Of a file whose header is not the index's: another's, or damaged. */
static weft_status refuse_head(const wefti_checkpoint_reader *reader)
{
    const wefti_checkpoint_origin *here = &reader->index.header.origin;
    wefti_checkpoint_header theirs;
    wefti_safetensors_file file;
    weft_status status = wefti_safetensors_open(reader->path, &file);
    if (status == WEFT_OK) {
        status =
            wefti_checkpoint_header_find(reader->path, &file.list, &theirs);
        wefti_safetensors_close(&file);
    }
    if (status == WEFT_OK && theirs.origin.session != here->session) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: was written by run %016" PRIx64
                           ", session %016" PRIx64
                           ", but the index beside it by run %016" PRIx64
                           ", session %016" PRIx64
                           ": the step has been put together from both",
                           reader->path, theirs.origin.run,
                           theirs.origin.session, here->run, here->session);
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "%s: header: is not the one that the index speaks of: "
                       "damaged, or of another step",
                       reader->path);
}

/* Byte by byte the index's, behind its length. */
static weft_status check_head(const wefti_checkpoint_reader *reader,
                              const wefti_checkpoint_file *expect, off_t bytes)
{
    uint64_t prefix = 0; /* little endian, as this machine */
    size_t all = sizeof(prefix) + (size_t)expect->head_bytes;
    char *head = malloc(all);
    if (!head) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: no memory", reader->path);
    }
    weft_status status = WEFT_OK;
    if (bytes >= (off_t)all) {
        status = wefti_safetensors_read_at(&reader->file, 0, head, all);
        memcpy(&prefix, head, sizeof(prefix));
    }
    bool same = prefix == expect->head_bytes &&
                memcmp(head + sizeof(prefix), expect->head, prefix) == 0;
    free(head);
    if (status == WEFT_OK && !same) {
        return refuse_head(reader);
    }
    return status != WEFT_OK || bytes == (off_t)expect->bytes
               ? status
               : wefti_error(WEFT_ERR_INVALID,
                             "%s: has %lld bytes, the index says %" PRIu64
                             ": cut short or overwritten",
                             reader->path, (long long)bytes, expect->bytes);
}

/* Opens that rank's file in place of the one before. */
static weft_status turn_to(wefti_checkpoint_reader *reader, uint64_t rank)
{
    char name[WEFTI_CHECKPOINT_FILE_BYTES];
    off_t bytes = 0;
    if (reader->file.fd >= 0 && reader->file_rank == rank) {
        return WEFT_OK;
    }
    wefti_safetensors_close(&reader->file);
    wefti_checkpoint_file_name(rank, name);
    weft_status status = open_file(reader, name, &bytes);
    if (status == WEFT_OK && !reader->head_known[rank]) {
        status = check_head(reader, &reader->index.files[rank], bytes);
    }
    if (status != WEFT_OK) {
        wefti_safetensors_close(&reader->file);
        return status;
    }
    reader->file_rank = rank;
    reader->head_known[rank] = true;
    return WEFT_OK;
}

/* ---- tensors --------------------------------------------------------------
 */

/* Bytes begin .. end of a section, which go to value. */
typedef struct wanted {
    uint64_t begin, end;
    unsigned char *value; /* NULL: nowhere */
} wanted;

/* Reads bytes at .. at + bytes of a section: to their place where all of them
 * are wanted, else by way of the chunk. Returns where they are. */
static weft_status read_chunk(wefti_checkpoint_reader *reader,
                              const wefti_checkpoint_section *section,
                              const wanted *want, uint64_t at, size_t bytes,
                              const unsigned char **read_out)
{
    bool whole = want->value && want->begin <= at && at + bytes <= want->end;
    unsigned char *to =
        whole ? want->value + (at - want->begin) : reader->chunk;
    weft_status status = wefti_safetensors_read_at(
        &reader->file, section->at_bytes + at, to, bytes);
    uint64_t from = want->begin > at ? want->begin : at;
    uint64_t end = want->end < at + bytes ? want->end : at + bytes;
    if (status == WEFT_OK && want->value && !whole && from < end) {
        memcpy(want->value + (from - want->begin), to + (from - at),
               end - from);
    }
    *read_out = to;
    return status;
}

static weft_status read_section(wefti_checkpoint_reader *reader,
                                const wefti_checkpoint_section *section,
                                const wanted *want)
{
    const wefti_checkpoint_piece *piece = &section->piece;
    uint64_t all = piece->elems * weft_dtype_bytes(piece->dtype);
    crypto_generichash_state state;
    uint8_t digest[DIGEST];
    weft_status status = turn_to(reader, section->file);
    crypto_generichash_init(&state, NULL, 0, DIGEST);
    for (uint64_t at = 0; status == WEFT_OK && at < all;) {
        const unsigned char *read = NULL;
        size_t bytes =
            all - at < CHUNK_BYTES ? (size_t)(all - at) : CHUNK_BYTES;
        status = read_chunk(reader, section, want, at, bytes, &read);
        if (status == WEFT_OK) {
            crypto_generichash_update(&state, read, bytes);
        }
        at += bytes;
    }
    if (status != WEFT_OK) {
        return status;
    }
    crypto_generichash_final(&state, digest, DIGEST);
    return memcmp(digest, section->digest, DIGEST) == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%s: tensor %s, from element %" PRIu64
                             " on: digest differs, damaged",
                             reader->path, piece->name, piece->offset);
}

weft_status wefti_checkpoint_reader_check(wefti_checkpoint_reader *reader)
{
    weft_status status = WEFT_OK;
    const wanted none = {.value = NULL};
    for (uint64_t rank = 0;
         status == WEFT_OK && rank < reader->index.header.nranks; rank++) {
        status = turn_to(reader, rank); /* it may have no section */
        for (size_t i = 0; status == WEFT_OK && i < reader->index.count; i++) {
            if (reader->index.sections[i].file == rank) {
                status =
                    read_section(reader, &reader->index.sections[i], &none);
            }
        }
    }
    return status;
}

/*
 * Of a section that is read in parts, all of it is kept: a rank that has some
 * columns of a tensor asks for those of each row.
 */
static weft_status get_part(wefti_checkpoint_reader *reader,
                            const wefti_checkpoint_section *section,
                            const wanted *want)
{
    const size_t all =
        (size_t)section->piece.elems * weft_dtype_bytes(section->piece.dtype);
    if ((want->begin == 0 && want->end == all) || all > HELD_BYTES) {
        return read_section(reader, section, want);
    }
    if (reader->held_section != section) {
        unsigned char *room = realloc(reader->held, all);
        if (!room) {
            return read_section(reader, section, want);
        }
        reader->held = room;
        reader->held_section = NULL;
        const wanted whole = {0, all, room};
        weft_status status = read_section(reader, section, &whole);
        if (status != WEFT_OK) {
            return status;
        }
        reader->held_section = section;
    }
    if (want->value) {
        memcpy(want->value, reader->held + want->begin,
               (size_t)(want->end - want->begin));
    }
    return WEFT_OK;
}

/* The first section of the tensor that ends behind offset; count: none. */
static size_t find_first(const wefti_checkpoint_index *index,
                         const wefti_checkpoint_piece *piece)
{
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const wefti_checkpoint_piece *at = &index->sections[middle].piece;
        int order = strcmp(at->name, piece->name);
        if (order < 0 ||
            (order == 0 && at->offset + at->elems <= piece->offset)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static weft_status check_tensor(const wefti_checkpoint_reader *reader,
                                const wefti_checkpoint_piece *piece,
                                size_t first)
{
    const wefti_checkpoint_piece *has =
        first < reader->index.count ? &reader->index.sections[first].piece
                                    : NULL;
    if (!has || strcmp(has->name, piece->name) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s/" WEFTI_CHECKPOINT_INDEX
                           ": has no tensor %.64s with an element %" PRIu64,
                           reader->folder, piece->name, piece->offset);
    }
    return has->dtype == piece->dtype && has->rows == piece->rows &&
                   has->columns == piece->columns
               ? WEFT_OK
               : wefti_error(
                     WEFT_ERR_INVALID,
                     "%s/" WEFTI_CHECKPOINT_INDEX ": tensor %s: is %" PRIu64
                     " x %" PRIu64 " of %s, needed are %" PRIu64 " x %" PRIu64
                     " of %s",
                     reader->folder, piece->name, has->rows, has->columns,
                     weft_dtype_text(has->dtype), piece->rows, piece->columns,
                     weft_dtype_text(piece->dtype));
}

weft_status wefti_checkpoint_reader_get(wefti_checkpoint_reader *reader,
                                        const wefti_checkpoint_piece *piece,
                                        void *value)
{
    const wefti_checkpoint_index *index = &reader->index;
    uint64_t end = piece->offset + piece->elems;
    size_t elem = weft_dtype_bytes(piece->dtype);
    size_t i = find_first(index, piece);
    weft_status status = check_tensor(reader, piece, i);
    for (; status == WEFT_OK && i < index->count; i++) {
        const wefti_checkpoint_piece *has = &index->sections[i].piece;
        if (strcmp(has->name, piece->name) != 0 || has->offset >= end) {
            break;
        }
        uint64_t from =
            has->offset > piece->offset ? has->offset : piece->offset;
        uint64_t to =
            has->offset + has->elems < end ? has->offset + has->elems : end;
        unsigned char *at = value;
        wanted want = {(from - has->offset) * elem, (to - has->offset) * elem,
                       at ? at + (from - piece->offset) * elem : NULL};
        status = get_part(reader, &index->sections[i], &want);
    }
    return status;
}

bool wefti_checkpoint_reader_has(const wefti_checkpoint_reader *reader,
                                 const char *name, weft_dtype *dtype_out)
{
    wefti_checkpoint_piece piece = {.elems = 1};
    snprintf(piece.name, sizeof(piece.name), "%s", name);
    const size_t i = find_first(&reader->index, &piece);
    if (i == reader->index.count ||
        strcmp(reader->index.sections[i].piece.name, name) != 0) {
        return false;
    }
    *dtype_out = reader->index.sections[i].piece.dtype;
    return true;
}
