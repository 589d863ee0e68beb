/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/error.h - set the text that weft_error_text() returns.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "weft/status.h"

/*
 * wefti_error - keep a text for this thread and hand the status through:
 * return wefti_error(WEFT_ERR_INVALID, "root %d: allowed is 0..%d", ...);
 * Arguments may include weft_error_text(), to put something before it.
 *
 * Threads     any.  Blocks: no.  Allocates: no (cut at 511 bytes).
 */
weft_status wefti_error(weft_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * wefti_error_system - the same for a failed system call: appends errno's text
 * and returns WEFT_ERR_SYSTEM (ENOMEM: WEFT_ERR_NO_MEMORY).
 */
weft_status wefti_error_system(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* An analyser that sees one file at a time must know that an error comes back
 * as an error, or it follows paths that cannot be. */
#if defined(__clang_analyzer__) && !defined(WEFTI_ERROR_IS_DEFINED_HERE)
#define wefti_error(status, ...)                                               \
    ((void)wefti_error(status, __VA_ARGS__), status)
#define wefti_error_system(...)                                                \
    ((void)wefti_error_system(__VA_ARGS__), WEFT_ERR_SYSTEM)
#endif

#endif
