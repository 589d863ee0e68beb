/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/error.c - status texts, and the last error of each thread.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[512];

const char *weft_status_text(weft_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                         \
    case WEFT_##name:                                                          \
        return text;
        WEFT_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *weft_error_text(void)
{
    return last_error;
}

void wefti_error_keep(const char *format, ...)
{
    char text[sizeof(last_error)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* Only now: an argument may be the old text itself. */
    memcpy(last_error, text, sizeof(text));
}

weft_status wefti_error_keep_system(const char *format, ...)
{
    int cause = errno;
    char reason[96];
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(last_error, sizeof(last_error), "%s: %s", text,
             strerror_r(cause, reason, sizeof(reason)));
    return cause == ENOMEM ? WEFT_ERR_NO_MEMORY : WEFT_ERR_SYSTEM;
}
