/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/log.h - the library's only output: lines on stderr by level.
 *
 * WEFT_LOG = error | warn (default) | info (once a run) | debug (per object) |
 * trace (per operation). A line starts "weft: rank 2: ".
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "weft/status.h"

#include <stdbool.h>

typedef enum wefti_log_level {
    WEFTI_LOG_ERROR,
    WEFTI_LOG_WARN,
    WEFTI_LOG_INFO,
    WEFTI_LOG_DEBUG,
    WEFTI_LOG_TRACE
} wefti_log_level;

/* Whether a line of this level would be printed. Threads: any. */
bool wefti_log_enabled(wefti_log_level level);

/*
 * wefti_log_check - whether WEFT_LOG names a level; an unknown level is taken
 * as "warn", so the caller has to report it.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_log_check(void);

/*
 * wefti_log - print one line in one write, so that lines of ranks do not mix.
 *
 * rank   whose line it is; -1: not known or not one rank's.
 *
 * Threads     any.  Allocates: no (cut at 1023 bytes). Leaves errno alone.
 */
void wefti_log(wefti_log_level level, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
