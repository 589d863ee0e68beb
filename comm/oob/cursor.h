/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/cursor.h - walks a byte buffer that has an end: numbers are
 * little-endian, nothing is read or written past the end, and one flag is set
 * if anything would have been.
 */
#ifndef COMM_OOB_CURSOR_H
#define COMM_OOB_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct wefti_oob_reader {
    const unsigned char *at;
    size_t left_bytes;
    bool bad; /* asked for more than there was; what was read since is zero */
} wefti_oob_reader;

typedef struct wefti_oob_writer {
    unsigned char *at;
    size_t left_bytes;
    bool bad; /* no room; nothing was written since */
} wefti_oob_writer;

static inline void wefti_oob_reader_bytes(wefti_oob_reader *reader, void *out,
                                          size_t bytes)
{
    if (reader->bad || bytes > reader->left_bytes) {
        reader->bad = true;
        memset(out, 0, bytes);
        return;
    }
    memcpy(out, reader->at, bytes);
    reader->at += bytes;
    reader->left_bytes -= bytes;
}

/* A number of 1, 2 or 4 bytes. */
static inline uint32_t wefti_oob_reader_number(wefti_oob_reader *reader,
                                               size_t bytes)
{
    unsigned char raw[4] = {0};
    wefti_oob_reader_bytes(reader, raw, bytes);
    return (uint32_t)raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 |
           (uint32_t)raw[3] << 24;
}

static inline void wefti_oob_writer_bytes(wefti_oob_writer *writer,
                                          const void *from, size_t bytes)
{
    if (writer->bad || bytes > writer->left_bytes) {
        writer->bad = true;
        return;
    }
    memcpy(writer->at, from, bytes);
    writer->at += bytes;
    writer->left_bytes -= bytes;
}

static inline void wefti_oob_writer_number(wefti_oob_writer *writer,
                                           uint32_t value, size_t bytes)
{
    const unsigned char raw[4] = {
        (unsigned char)value, (unsigned char)(value >> 8),
        (unsigned char)(value >> 16), (unsigned char)(value >> 24)};
    wefti_oob_writer_bytes(writer, raw, bytes);
}

#endif
