/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/cursor.h - walks the fields of a message, to write them into bytes
 * or to read them from there: one walk serves both ways. Numbers are
 * little-endian, nothing is read or written past the end, and one flag is set
 * if anything would have been.
 */
#ifndef COMM_OOB_CURSOR_H
#define COMM_OOB_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * to    the next byte that is written; the fields are only read. NULL: it reads
 * from  the next byte that is read
 * bad   there was less room, or were fewer bytes, than asked for; what was read
 *       since is zero
 */
typedef struct wefti_oob_cursor {
    unsigned char *to;
    const unsigned char *from;
    size_t left_bytes;
    bool bad;
} wefti_oob_cursor;

static inline void wefti_oob_cursor_bytes(wefti_oob_cursor *cursor, void *field,
                                          size_t bytes)
{
    if (cursor->bad || bytes > cursor->left_bytes) {
        cursor->bad = true;
        if (!cursor->to) {
            memset(field, 0, bytes);
        }
        return;
    }
    if (cursor->to) {
        memcpy(cursor->to, field, bytes);
        cursor->to += bytes;
    } else {
        memcpy(field, cursor->from, bytes);
        cursor->from += bytes;
    }
    cursor->left_bytes -= bytes;
}

/* Of 1, 2 or 4 bytes. */
static inline void wefti_oob_cursor_number(wefti_oob_cursor *cursor,
                                           uint32_t *field, size_t bytes)
{
    unsigned char raw[4] = {0};
    for (size_t i = 0; i < bytes && cursor->to; i++) {
        raw[i] = (unsigned char)(*field >> (8 * i));
    }
    wefti_oob_cursor_bytes(cursor, raw, bytes);
    if (!cursor->to) {
        *field = (uint32_t)raw[0] | (uint32_t)raw[1] << 8 |
                 (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24;
    }
}

static inline void wefti_oob_cursor_short(wefti_oob_cursor *cursor,
                                          uint16_t *field)
{
    uint32_t number = cursor->to ? *field : 0;
    wefti_oob_cursor_number(cursor, &number, 2);
    if (!cursor->to) {
        *field = (uint16_t)number;
    }
}

static inline void wefti_oob_cursor_long(wefti_oob_cursor *cursor,
                                         uint64_t *field)
{
    uint32_t low = cursor->to ? (uint32_t)*field : 0;
    uint32_t high = cursor->to ? (uint32_t)(*field >> 32) : 0;
    wefti_oob_cursor_number(cursor, &low, 4);
    wefti_oob_cursor_number(cursor, &high, 4);
    if (!cursor->to) {
        *field = low | (uint64_t)high << 32;
    }
}

static inline bool wefti_oob_is_printable(char character)
{
    return character >= ' ' && character <= '~';
}

/*
 * Its length, and printable ASCII: of what is written other characters become
 * '?', and those after `most` are left out; text has room for so many and a
 * zero. False: what is read is no such text.
 */
static inline bool wefti_oob_cursor_text(wefti_oob_cursor *cursor, char *text,
                                         size_t most)
{
    uint32_t characters = cursor->to ? (uint32_t)strnlen(text, most) : 0;
    wefti_oob_cursor_number(cursor, &characters, 2);
    if (characters > most) {
        return false;
    }
    for (uint32_t i = 0; i < characters; i++) {
        char one =
            cursor->to && wefti_oob_is_printable(text[i]) ? text[i] : '?';
        wefti_oob_cursor_bytes(cursor, &one, 1);
        if (!cursor->to) {
            text[i] = one;
        }
        if (!wefti_oob_is_printable(one)) {
            return false;
        }
    }
    if (!cursor->to) {
        text[characters] = '\0';
    }
    return true;
}

#endif
