/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/error.c - status texts, and the last error of each thread.
 */
#include "base/error.h"

#include "base/printable.h"

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
    wefti_printable(text, strlen(text), last_error, sizeof(last_error));
}

weft_status wefti_error_keep_system(const char *format, ...)
{
    int cause = errno;
    char reason[96];
    char text[384], whole[sizeof(last_error)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(whole, sizeof(whole), "%s: %s", text,
             strerror_r(cause, reason, sizeof(reason)));
    wefti_printable(whole, strlen(whole), last_error, sizeof(last_error));
    return cause == ENOMEM ? WEFT_ERR_NO_MEMORY : WEFT_ERR_SYSTEM;
}
