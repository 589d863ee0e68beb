/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/safetensors_file.c - safetensors files on disk.
 */
#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "trainer/exchange/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PREFIX = WEFTI_SAFETENSORS_PREFIX_BYTES };

weft_status wefti_safetensors_read_at(const wefti_safetensors_file *file,
                                      uint64_t offset, void *value_out,
                                      uint64_t bytes)
{
    char *at = value_out;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return wefti_error_system("%.200s: cannot be read", file->path);
        }
        if (got == 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%.200s: ends %" PRIu64 " bytes too early",
                               file->path, bytes);
        }
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return WEFT_OK;
}

/* file_bytes is what there is; the header's length stands first. */
static weft_status read_header(wefti_safetensors_file *file,
                               uint64_t file_bytes)
{
    uint8_t prefix[PREFIX];
    uint64_t bytes = 0;
    weft_status status = wefti_safetensors_read_at(file, 0, prefix, PREFIX);
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; i < PREFIX; i++) {
        bytes |= (uint64_t)prefix[i] << (8 * i);
    }
    if (bytes > file_bytes - PREFIX ||
        bytes > WEFTI_SAFETENSORS_HEADER_BYTES_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: not a safetensors file: a header of "
                           "%" PRIu64 " bytes in a file of %" PRIu64,
                           file->path, bytes, file_bytes);
    }
    char *header = malloc(bytes + 1);
    if (!header) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%.200s: no memory for it",
                           file->path);
    }
    status = wefti_safetensors_read_at(file, PREFIX, header, bytes);
    if (status == WEFT_OK) {
        file->start_bytes = PREFIX + bytes;
        file->data_bytes = file_bytes - file->start_bytes;
        status = wefti_safetensors_parse(file->path, header, (size_t)bytes,
                                         file->data_bytes, &file->list);
    }
    free(header);
    return status;
}

weft_status wefti_safetensors_open(const char *path,
                                   wefti_safetensors_file *file)
{
    struct stat what;
    *file = (wefti_safetensors_file){.path = path};
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file->fd < 0) {
        return wefti_error_system("%.200s", path);
    }
    weft_status status = WEFT_OK;
    if (fstat(file->fd, &what) != 0) {
        status = wefti_error_system("%.200s", path);
    } else if (!S_ISREG(what.st_mode)) {
        status =
            wefti_error(WEFT_ERR_INVALID, "%.200s: is no regular file", path);
    } else {
        status = read_header(file, (uint64_t)what.st_size);
    }
    if (status != WEFT_OK) {
        wefti_safetensors_close(file);
    }
    return status;
}

weft_status wefti_safetensors_read(const wefti_safetensors_file *file,
                                   const wefti_safetensor *item,
                                   void *value_out)
{
    return wefti_safetensors_read_at(
        file, file->start_bytes + item->start_bytes, value_out,
        item->end_bytes - item->start_bytes);
}

static void write_items(wefti_json *json, const wefti_safetensors *list)
{
    wefti_json_object_open(json, NULL);
    wefti_json_object_open(json, "__metadata__");
    wefti_json_text(json, "format", "pt");
    for (size_t i = 0; i < list->note_count; i++) {
        wefti_json_text(json, list->notes[i].key, list->notes[i].text);
    }
    wefti_json_object_close(json);
    for (size_t i = 0; i < list->count; i++) {
        const wefti_safetensor *item = &list->items[i];
        wefti_json_object_open(json, item->name);
        wefti_json_text(json, "dtype", item->dtype);
        wefti_json_array_open(json, "shape");
        for (size_t k = 0; k < item->dimensions; k++) {
            wefti_json_uint(json, NULL, item->shape[k]);
        }
        wefti_json_array_close(json);
        wefti_json_array_open(json, "data_offsets");
        wefti_json_uint(json, NULL, item->start_bytes);
        wefti_json_uint(json, NULL, item->end_bytes);
        wefti_json_array_close(json);
        wefti_json_object_close(json);
    }
    wefti_json_object_close(json);
}

/* Prefix and header, so long that the data begin at a multiple of 8 bytes. */
static weft_status pack_header(const wefti_safetensors *list, char **bytes_out,
                               size_t *count_out)
{
    char *text = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&text, &count);
    if (!out) {
        return wefti_error_system("no memory for a header");
    }
    wefti_json json;
    fprintf(out, "%*s", PREFIX, "");
    wefti_json_init(&json, out);
    write_items(&json, list);
    weft_status status = wefti_json_fini(&json);
    fprintf(out, "%*s", PREFIX, "");
    if (fclose(out) != 0 && status == WEFT_OK) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a header");
    }
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    *strrchr(text, '\n') = ' '; /* the format pads with spaces alone */
    *bytes_out = text;
    *count_out = count / PREFIX * PREFIX;
    for (size_t i = 0; i < PREFIX; i++) {
        text[i] = (char)(((uint64_t)*count_out - PREFIX) >> (8 * i));
    }
    return WEFT_OK;
}

static weft_status write_all(const wefti_safetensors_file *file,
                             const void *value, size_t bytes)
{
    const char *at = value;
    while (bytes > 0) {
        ssize_t done = write(file->fd, at, bytes);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return wefti_error_system("%.200s: cannot be written", file->path);
        }
        at += done;
        bytes -= (size_t)done;
    }
    return WEFT_OK;
}

/* Where the data of each will be: one after the other. */
static uint64_t place_items(wefti_safetensors *list)
{
    uint64_t end = 0;
    for (size_t i = 0; i < list->count; i++) {
        wefti_safetensor *item = &list->items[i];
        item->start_bytes = end;
        item->end_bytes = item->elem_bytes;
        for (size_t k = 0; k < item->dimensions; k++) {
            item->end_bytes *= item->shape[k];
        }
        item->end_bytes += end;
        end = item->end_bytes;
    }
    return end;
}

weft_status wefti_safetensors_create(const char *path, wefti_safetensors *list,
                                     wefti_safetensors_file *file)
{
    char *header = NULL;
    size_t bytes = 0;
    *file = (wefti_safetensors_file){
        .fd = -1, .path = path, .data_bytes = place_items(list)};
    weft_status status = pack_header(list, &header, &bytes);
    if (status == WEFT_OK && bytes - WEFTI_SAFETENSORS_PREFIX_BYTES >
                                 WEFTI_SAFETENSORS_HEADER_BYTES_MOST) {
        free(header);
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: %zu tensors have a header of %zu bytes: "
                           "allowed are %" PRIu64,
                           path, list->count, bytes,
                           WEFTI_SAFETENSORS_HEADER_BYTES_MOST);
    }
    if (status != WEFT_OK) {
        return status;
    }
    file->start_bytes = bytes;
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    status = file->fd < 0 ? wefti_error_system("%.200s: cannot be made", path)
                          : write_all(file, header, bytes);
    free(header);
    if (status != WEFT_OK) {
        wefti_safetensors_close(file);
    }
    return status;
}

weft_status wefti_safetensors_write(wefti_safetensors_file *file,
                                    const void *value, size_t bytes)
{
    weft_status status = write_all(file, value, bytes);
    file->done_bytes += status == WEFT_OK ? bytes : 0;
    return status;
}

weft_status wefti_safetensors_finish(const wefti_safetensors_file *file)
{
    WEFTI_ASSERT(file->done_bytes == file->data_bytes);
    return fsync(file->fd) == 0
               ? WEFT_OK
               : wefti_error_system("%.200s: cannot be made durable",
                                    file->path);
}

void wefti_safetensors_close(wefti_safetensors_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    wefti_safetensors_fini(&file->list);
    file->fd = -1;
}
