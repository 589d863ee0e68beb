/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/log.c - leveled lines on stderr.
 */
#include "base/log.h"

#include "base/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug",
                                          "trace"};

bool wefti_log_enabled(wefti_log_level level)
{
    const char *wanted = wefti_setting_text(WEFTI_SETTING_LOG);
    for (int known = WEFTI_LOG_TRACE; known >= 0; known--) {
        if (strcmp(wanted, level_names[known]) == 0) {
            return (int)level <= known;
        }
    }
    return level <= WEFTI_LOG_WARN;
}

void wefti_log(wefti_log_level level, int rank, const char *format, ...)
{
    char line[1024];
    if (!wefti_log_enabled(level)) {
        return;
    }
    int used = rank >= 0
                   ? snprintf(line, sizeof(line), "weft: rank %d: ", rank)
                   : snprintf(line, sizeof(line), "weft: ");
    va_list args;
    va_start(args, format);
    int more =
        vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
    va_end(args);
    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    /* A lost line of a full pipe must not become an error of the caller. */
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written;
}
