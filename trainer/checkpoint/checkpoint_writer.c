/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_writer.c - one rank's file, section by section.
 *
 * The header's room is left empty until all the rest is written, so that a
 * file cut short has no header at all.
 */
#include "base/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct wefti_checkpoint_writer {
    int fd;
    wefti_checkpoint_header header;
    wefti_checkpoint_extent extent; /* table_offset: end of the sections */
    wefti_checkpoint_entry *entries;
    size_t entry_room;
    char path[WEFTI_CHECKPOINT_PATH_BYTES];
};

/* Appends all of value to the file. */
static weft_status write_all(const wefti_checkpoint_writer *writer,
                             const void *value, size_t bytes)
{
    const char *at = value;
    while (bytes > 0) {
        ssize_t done = write(writer->fd, at, bytes);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return wefti_error_system("%s: cannot be written", writer->path);
        }
        at += done;
        bytes -= (size_t)done;
    }
    return WEFT_OK;
}

weft_status wefti_checkpoint_writer_open(const char *dir,
                                         const wefti_checkpoint_header *header,
                                         wefti_checkpoint_writer **writer_out)
{
    static const uint8_t no_header[WEFTI_CHECKPOINT_HEADER_BYTES];
    wefti_checkpoint_writer *writer = calloc(1, sizeof(*writer));
    *writer_out = NULL;
    if (writer == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory", dir);
    }
    writer->header = *header;
    writer->extent.table_offset = WEFTI_CHECKPOINT_HEADER_BYTES;
    writer->fd = -1;
    weft_status status =
        wefti_checkpoint_path(dir, header, WEFTI_CHECKPOINT_NEW, writer->path);
    if (status == WEFT_OK) {
        writer->fd =
            open(writer->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        status = writer->fd < 0
                     ? wefti_error_system("%s: cannot be made", writer->path)
                     : write_all(writer, no_header, sizeof(no_header));
    }
    if (status != WEFT_OK) {
        wefti_checkpoint_writer_abort(writer);
        return status;
    }
    *writer_out = writer;
    return WEFT_OK;
}

/* Room for one more entry, within the limit of sections. */
static weft_status make_entry_room(wefti_checkpoint_writer *writer)
{
    size_t count = (size_t)writer->extent.section_count;
    if (count == WEFTI_CHECKPOINT_SECTIONS_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "%s: more than %zu sections",
                           writer->path, count);
    }
    if (count < writer->entry_room) {
        return WEFT_OK;
    }
    size_t room = writer->entry_room == 0 ? 16 : 2 * writer->entry_room;
    wefti_checkpoint_entry *wider =
        realloc(writer->entries, room * sizeof(*wider));
    if (wider == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory",
                           writer->path);
    }
    writer->entries = wider;
    writer->entry_room = room;
    return WEFT_OK;
}

/* A new name of proper form. */
static weft_status check_name(const wefti_checkpoint_writer *writer,
                              const char *name)
{
    if (!wefti_checkpoint_name_check(name)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "section \"%.80s\": allowed is a name of 1..%d "
                           "printable characters",
                           name, WEFTI_CHECKPOINT_NAME_BYTES - 1);
    }
    for (size_t i = 0; i < writer->extent.section_count; i++) {
        if (strcmp(writer->entries[i].name, name) == 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "section \"%s\": added already", name);
        }
    }
    return WEFT_OK;
}

weft_status wefti_checkpoint_writer_add(wefti_checkpoint_writer *writer,
                                        const char *name, weft_dtype dtype,
                                        const void *value, size_t elems)
{
    size_t elem_bytes = weft_dtype_bytes(dtype);
    if (elem_bytes == 0 || elems > SIZE_MAX / 2 / elem_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "section \"%s\": %zu elements of type %d", name,
                           elems, (int)dtype);
    }
    weft_status status = check_name(writer, name);
    if (status == WEFT_OK) {
        status = make_entry_room(writer);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_checkpoint_entry *entry =
        &writer->entries[writer->extent.section_count];
    *entry = (wefti_checkpoint_entry){.dtype = dtype,
                                      .offset = writer->extent.table_offset,
                                      .bytes = elems * elem_bytes};
    strcpy(entry->name, name); /* its length was checked */
    wefti_checkpoint_checksum(value, (size_t)entry->bytes, entry->checksum);
    status = write_all(writer, value, (size_t)entry->bytes);
    if (status == WEFT_OK) {
        writer->extent.section_count++;
        writer->extent.table_offset += entry->bytes;
    }
    return status;
}

/* Appends the table of sections, and completes what the header says. */
static weft_status write_table(wefti_checkpoint_writer *writer)
{
    wefti_checkpoint_extent *extent = &writer->extent;
    size_t count = (size_t)extent->section_count;
    size_t bytes = count * WEFTI_CHECKPOINT_ENTRY_BYTES;
    uint8_t *table = calloc(bytes + 1, 1);
    if (table == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: out of memory",
                           writer->path);
    }
    for (size_t i = 0; i < count; i++) {
        wefti_checkpoint_entry_pack(&writer->entries[i],
                                    table + i * WEFTI_CHECKPOINT_ENTRY_BYTES);
    }
    extent->file_bytes = extent->table_offset + bytes;
    wefti_checkpoint_checksum(table, bytes, extent->table_checksum);
    weft_status status = write_all(writer, table, bytes);
    free(table);
    return status;
}

static weft_status write_header(const wefti_checkpoint_writer *writer)
{
    uint8_t bytes[WEFTI_CHECKPOINT_HEADER_BYTES];
    wefti_checkpoint_header_pack(&writer->header, &writer->extent, bytes);
    if (pwrite(writer->fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return wefti_error_system("%s: header cannot be written", writer->path);
    }
    return WEFT_OK;
}

weft_status wefti_checkpoint_writer_close(wefti_checkpoint_writer *writer)
{
    weft_status status = write_table(writer);
    if (status == WEFT_OK) {
        status = write_header(writer);
    }
    if (status == WEFT_OK && fsync(writer->fd) != 0) {
        status = wefti_error_system("%s: cannot be made durable", writer->path);
    }
    wefti_checkpoint_writer_abort(writer);
    return status;
}

void wefti_checkpoint_writer_abort(wefti_checkpoint_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->fd >= 0) {
        close(writer->fd);
    }
    free(writer->entries);
    free(writer);
}
