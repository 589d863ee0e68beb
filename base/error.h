/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/error.h - set the text that weft_error_text() returns.
 *
 * The two calls are macros over functions that only keep the text, so that
 * compilers and analysers, which see one file at a time, know that an error
 * comes back as an error.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "weft/status.h"

/*
 * wefti_error(status, format, ...) - keep a text for this thread and hand the
 * status through:
 * return wefti_error(WEFT_ERR_INVALID, "root %d: allowed is 0..%d", ...);
 * Arguments may include weft_error_text(), to put something before it. Control
 * characters and bytes that are not UTF-8 are kept as \xNN (base/printable.h).
 *
 * Threads     any.  Blocks: no.  Allocates: no (cut at 511 bytes).
 */
#define wefti_error(status, ...)                                               \
    (wefti_error_keep(__VA_ARGS__), wefti_error_same(status))

/*
 * wefti_error_system(format, ...) - the same for a failed system call: appends
 * errno's text and returns WEFT_ERR_SYSTEM (ENOMEM: WEFT_ERR_NO_MEMORY).
 */
#define wefti_error_system(...)                                                \
    wefti_error_of_system(wefti_error_keep_system(__VA_ARGS__))

void wefti_error_keep(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
weft_status wefti_error_keep_system(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static inline weft_status wefti_error_same(weft_status status)
{
    return status;
}

static inline weft_status wefti_error_of_system(weft_status status)
{
    return status == WEFT_ERR_NO_MEMORY ? status : WEFT_ERR_SYSTEM;
}

#endif
