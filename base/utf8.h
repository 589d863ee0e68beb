/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/utf8.h - which bytes are UTF-8 (RFC 3629: shortest forms only, no
 * surrogates, nothing above U+10FFFF).
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/*
 * wefti_utf8_step - bytes of the character that text begins with, 1..4; 0 if
 * its first bytes are no character or bytes_left ends inside one.
 */
size_t wefti_utf8_step(const unsigned char *text, size_t bytes_left);

/* Offset of the first byte that is not UTF-8; text_bytes where all of it is. */
size_t wefti_utf8_check(const void *text, size_t text_bytes);

#endif
