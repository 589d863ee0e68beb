/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/printable.c - escapes what a terminal would interpret.
 */
#include "base/printable.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

enum { ESCAPE_CHARS = 4 }; /* \xNN */

/* C0 and DEL in one byte; C1 is U+0080..U+009F, two bytes of UTF-8. */
static bool is_control(const unsigned char *text, size_t step)
{
    return step == 1 ? text[0] < 0x20 || text[0] == 0x7F
                     : step == 2 && text[0] == 0xC2 && text[1] < 0xA0;
}

/* U+2028..U+202E end a line or turn what follows round, as do U+061C, U+200E,
 * U+200F and U+2066..U+2069: shown text would not be the text that is there. */
static bool is_layout(const unsigned char *text, size_t step)
{
    bool mark = step == 2 && text[0] == 0xD8 && text[1] == 0x9C;
    if (step != 3 || text[0] != 0xE2) {
        return mark;
    }
    unsigned char last = text[2];
    return text[1] == 0x80
               ? last == 0x8E || last == 0x8F || (last >= 0xA8 && last <= 0xAE)
               : text[1] == 0x81 && last >= 0xA6 && last <= 0xA9;
}

static void put_escape(unsigned char byte, char *out)
{
    static const char digits[] = "0123456789abcdef";
    out[0] = '\\';
    out[1] = 'x';
    out[2] = digits[byte >> 4];
    out[3] = digits[byte & 15];
}

char *wefti_printable(const void *text, size_t text_bytes, char *out,
                      size_t out_bytes)
{
    const unsigned char *bytes = text;
    size_t used = 0, at = 0;
    while (at < text_bytes) {
        size_t step = wefti_utf8_step(bytes + at, text_bytes - at);
        bool escape = step == 0 || is_control(bytes + at, step) ||
                      is_layout(bytes + at, step);
        size_t taken = escape ? 1 : step; /* its other bytes come next */
        size_t chars = escape ? ESCAPE_CHARS : step;
        if (used + chars >= out_bytes) {
            break;
        }
        if (escape) {
            put_escape(bytes[at], out + used);
        } else {
            memcpy(out + used, bytes + at, step);
        }
        used += chars;
        at += taken;
    }
    out[used] = '\0';
    return out;
}
