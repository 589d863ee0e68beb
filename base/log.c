/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/log.c - leveled lines on stderr.
 */
#include "base/log.h"

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug",
                                          "trace"};

/* The level that WEFT_LOG names, or -1. */
static int wanted_level(void)
{
    const char *wanted = wefti_setting_text(WEFTI_SETTING_LOG);
    for (size_t known = 0; known < WEFTI_COUNT_OF(level_names); known++) {
        if (strcmp(wanted, level_names[known]) == 0) {
            return (int)known;
        }
    }
    return -1;
}

weft_status wefti_log_check(void)
{
    if (wanted_level() < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_LOG=%s: allowed is error, warn, info, debug "
                           "or trace",
                           wefti_setting_text(WEFTI_SETTING_LOG));
    }
    return WEFT_OK;
}

bool wefti_log_enabled(wefti_log_level level)
{
    int wanted = wanted_level();
    return (int)level <= (wanted >= 0 ? wanted : (int)WEFTI_LOG_WARN);
}

void wefti_log(wefti_log_level level, int rank, const char *format, ...)
{
    char line[1024], raw[1024];
    int cause = errno; /* callers log first and report it afterwards */
    if (!wefti_log_enabled(level)) {
        return;
    }
    int used = rank >= 0 ? snprintf(raw, sizeof(raw), "weft: rank %d: ", rank)
                         : snprintf(raw, sizeof(raw), "weft: ");
    va_list args;
    va_start(args, format);
    vsnprintf(raw + used, sizeof(raw) - (size_t)used, format, args);
    va_end(args);
    wefti_printable(raw, strlen(raw), line, sizeof(line) - 1);
    size_t length = strlen(line);
    line[length++] = '\n';
    /* A lost line of a full pipe must not become an error of the caller. */
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written;
    errno = cause;
}
