/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/utf8.c - checks UTF-8 one character at a time.
 */
#include "base/utf8.h"

#include "base/check.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*
 * RFC 3629 section 4, one row per form of the first byte: how many bytes
 * follow, and what the second may be (all later ones are 80..BF).
 */
static const struct form {
    unsigned char first_least, first_most, second_least, second_most, bytes;
} forms[] = {
    {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2},
    {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
    {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4},
    {0xF4, 0xF4, 0x80, 0x8F, 4},
};

static bool fits(const struct form *form, const unsigned char *text)
{
    if (form->bytes == 1) {
        return true;
    }
    if (text[1] < form->second_least || text[1] > form->second_most) {
        return false;
    }
    for (size_t i = 2; i < form->bytes; i++) {
        if (text[i] < 0x80 || text[i] > 0xBF) {
            return false;
        }
    }
    return true;
}

size_t wefti_utf8_step(const unsigned char *text, size_t bytes_left)
{
    if (bytes_left == 0) {
        return 0;
    }
    for (size_t i = 0; i < WEFTI_COUNT_OF(forms); i++) {
        const struct form *form = &forms[i];
        if (text[0] >= form->first_least && text[0] <= form->first_most) {
            bool whole = form->bytes <= bytes_left && fits(form, text);
            return whole ? form->bytes : 0;
        }
    }
    return 0;
}

/* Bytes at the front of text that are ASCII, eight at a time. */
static size_t skip_ascii(const unsigned char *text, size_t text_bytes)
{
    size_t at = 0;
    while (text_bytes - at >= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, text + at, sizeof(word));
        if ((word & UINT64_C(0x8080808080808080)) != 0) {
            break;
        }
        at += sizeof(word);
    }
    return at;
}

size_t wefti_utf8_check(const void *text, size_t text_bytes)
{
    const unsigned char *bytes = text;
    size_t at = 0;
    while (at < text_bytes) {
        at += skip_ascii(bytes + at, text_bytes - at);
        if (at == text_bytes) {
            break;
        }
        size_t step = wefti_utf8_step(bytes + at, text_bytes - at);
        if (step == 0) {
            break;
        }
        at += step;
    }
    return at;
}
