/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_reader.c - one rank's file, trusted no further
 * than its checksums reach.
 */
#include "base/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How much of a section is read at a time where it is not kept. */
#define PIECE_BYTES ((size_t)1 << 20)

struct wefti_checkpoint_reader {
    int fd;
    wefti_checkpoint_header header;
    wefti_checkpoint_extent extent;
    wefti_checkpoint_entry *entries;
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
};

static weft_status read_at(const wefti_checkpoint_reader *reader, void *value,
                           size_t bytes, uint64_t offset)
{
    char *at = value;
    while (bytes > 0) {
        ssize_t got = pread(reader->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return wefti_error_system("%s: cannot be read", reader->path);
        }
        if (got == 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: became shorter while it was read",
                               reader->path);
        }
        at += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return WEFT_OK;
}

static weft_status read_header(wefti_checkpoint_reader *reader)
{
    uint8_t bytes[WEFTI_CHECKPOINT_HEADER_BYTES];
    struct stat what;
    if (fstat(reader->fd, &what) != 0) {
        return wefti_error_system("%s", reader->path);
    }
    if (!S_ISREG(what.st_mode) || what.st_size < (off_t)sizeof(bytes)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: header: the file is shorter than one, cut "
                           "short or never finished",
                           reader->path);
    }
    weft_status status = read_at(reader, bytes, sizeof(bytes), 0);
    if (status != WEFT_OK) {
        return status;
    }
    return wefti_checkpoint_header_unpack(reader->path, bytes,
                                          (uint64_t)what.st_size,
                                          &reader->header, &reader->extent);
}

/* Allocates what the header states, which the file's size has confirmed. */
static weft_status read_table(wefti_checkpoint_reader *reader)
{
    size_t count = (size_t)reader->extent.section_count;
    size_t bytes = count * WEFTI_CHECKPOINT_ENTRY_BYTES;
    uint8_t *table = malloc(bytes + 1);
    reader->entries = calloc(count + 1, sizeof(*reader->entries));
    weft_status status = WEFT_OK;
    if (table == NULL || reader->entries == NULL) {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", reader->path);
    }
    if (status == WEFT_OK) {
        status = read_at(reader, table, bytes, reader->extent.table_offset);
    }
    if (status == WEFT_OK) {
        status = wefti_checkpoint_table_unpack(
            reader->path, table, &reader->extent, reader->entries);
    }
    free(table);
    return status;
}

/* Whether the file is the one asked for, of this run's model and data. */
static weft_status check_header(const wefti_checkpoint_reader *reader,
                                const wefti_checkpoint_header *expect)
{
    const wefti_checkpoint_header *header = &reader->header;
    if (header->nranks != expect->nranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: was written by %" PRIu32
                           " ranks, this run has %" PRIu32
                           "; allowed is the same number, or "
                           "train.elastic: true",
                           reader->path, header->nranks, expect->nranks);
    }
    if (header->step != expect->step || header->rank != expect->rank) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: is of step %" PRIu64 " and rank %" PRIu32
                           ", not what its name says",
                           reader->path, header->step, header->rank);
    }
    if (header->origin.run != expect->origin.run ||
        header->origin.session != expect->origin.session) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s: was written by run %016" PRIx64 ", session %016" PRIx64
            ", but DONE beside it by run %016" PRIx64 ", session %016" PRIx64
            ": the step has been put together from both",
            reader->path, header->origin.run, header->origin.session,
            expect->origin.run, expect->origin.session);
    }
    if (memcmp(header->config_digest, expect->config_digest,
               sizeof(expect->config_digest)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: was written with another model or data "
                           "settings (model.*, data.seed, "
                           "data.validation_fraction)",
                           reader->path);
    }
    if (memcmp(header->data_hash, expect->data_hash,
               sizeof(expect->data_hash)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: was written from another text (data.paths, "
                           "or the files have changed)",
                           reader->path);
    }
    return WEFT_OK;
}

weft_status wefti_checkpoint_reader_open(const char *dir,
                                         const wefti_checkpoint_header *expect,
                                         wefti_checkpoint_reader **reader_out)
{
    wefti_checkpoint_reader *reader = calloc(1, sizeof(*reader));
    *reader_out = NULL;
    if (reader == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", dir);
    }
    reader->fd = -1;
    weft_status status = wefti_checkpoint_path(
        dir, expect, WEFTI_CHECKPOINT_SAVED, reader->path);
    if (status == WEFT_OK) {
        reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        status = reader->fd < 0
                     ? wefti_error_system("%s: no state of rank %" PRIu32,
                                          reader->path, expect->rank)
                     : read_header(reader);
    }
    if (status == WEFT_OK) {
        status = check_header(reader, expect);
    }
    if (status == WEFT_OK) {
        status = read_table(reader);
    }
    if (status != WEFT_OK) {
        wefti_checkpoint_reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return WEFT_OK;
}

static weft_status differs(const wefti_checkpoint_reader *reader,
                           const wefti_checkpoint_entry *entry)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "%s: section %s: checksum differs, corrupt",
                       reader->path, entry->name);
}

/* One section, read through piece (PIECE_BYTES) and only compared. */
static weft_status check_section(const wefti_checkpoint_reader *reader,
                                 const wefti_checkpoint_entry *entry,
                                 uint8_t *piece)
{
    crypto_generichash_state state;
    uint8_t checksum[WEFTI_CHECKPOINT_CHECKSUM_BYTES];
    crypto_generichash_init(&state, NULL, 0, sizeof(checksum));
    for (uint64_t done = 0; done < entry->bytes;) {
        uint64_t left = entry->bytes - done;
        size_t bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        weft_status status =
            read_at(reader, piece, bytes, entry->offset + done);
        if (status != WEFT_OK) {
            return status;
        }
        crypto_generichash_update(&state, piece, bytes);
        done += bytes;
    }
    crypto_generichash_final(&state, checksum, sizeof(checksum));
    return memcmp(checksum, entry->checksum, sizeof(checksum)) != 0
               ? differs(reader, entry)
               : WEFT_OK;
}

weft_status wefti_checkpoint_reader_check(wefti_checkpoint_reader *reader)
{
    weft_status status = WEFT_OK;
    uint8_t *piece = malloc(PIECE_BYTES);
    if (piece == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory",
                           reader->path);
    }
    for (size_t i = 0;
         status == WEFT_OK && i < (size_t)reader->extent.section_count; i++) {
        status = check_section(reader, &reader->entries[i], piece);
    }
    free(piece);
    return status;
}

weft_status wefti_checkpoint_reader_get(wefti_checkpoint_reader *reader,
                                        const char *name, weft_dtype dtype,
                                        void *value, size_t elems)
{
    const wefti_checkpoint_entry *entry = NULL;
    uint8_t checksum[WEFTI_CHECKPOINT_CHECKSUM_BYTES];
    for (size_t i = 0; i < (size_t)reader->extent.section_count; i++) {
        if (strcmp(reader->entries[i].name, name) == 0) {
            entry = &reader->entries[i];
        }
    }
    if (entry == NULL) {
        return wefti_error(WEFT_ERR_INVALID, "%s: no section %.64s",
                           reader->path, name);
    }
    if (entry->dtype != dtype ||
        entry->bytes / weft_dtype_bytes(entry->dtype) != elems) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s: section %s: has %" PRIu64 " elements of %s, needed are %zu of "
            "%s",
            reader->path, entry->name,
            entry->bytes / weft_dtype_bytes(entry->dtype),
            weft_dtype_text(entry->dtype), elems, weft_dtype_text(dtype));
    }
    size_t bytes = (size_t)entry->bytes;
    weft_status status = read_at(reader, value, bytes, entry->offset);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_checkpoint_checksum(value, bytes, checksum);
    return memcmp(checksum, entry->checksum, sizeof(checksum)) != 0
               ? differs(reader, entry)
               : WEFT_OK;
}

void wefti_checkpoint_reader_close(wefti_checkpoint_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    free(reader->entries);
    free(reader);
}
