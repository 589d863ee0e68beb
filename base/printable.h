/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/printable.h - text of unknown origin, safe for a terminal and a log: one
 * line of valid UTF-8 without control characters.
 */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stddef.h>

/*
 * wefti_printable - copies text; each byte of a control character (C0, DEL,
 * C1), of a mark that turns text round or ends a line (U+061C, U+200E, U+200F,
 * U+2028 to U+202E, U+2066 to U+2069), and each byte that is not UTF-8 becomes
 * \xNN. Printable text, backslashes included, is copied as it is, so applying
 * it twice changes nothing.
 *
 * text        [text_bytes], may contain NUL; borrowed during the call.
 * out         [out_bytes], from 1; always ends with NUL. What does not fit is
 *             cut before a character or an escape, never inside.
 *
 * Returns     out.
 * Threads     any.  Blocks: no.  Allocates: no.
 */
char *wefti_printable(const void *text, size_t text_bytes, char *out,
                      size_t out_bytes);

#endif
