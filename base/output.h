/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/output.h - what a program writes arrives whole, or not at all and with
 * an error.
 */
#ifndef BASE_OUTPUT_H
#define BASE_OUTPUT_H

#include "weft/status.h"

#include <stdio.h>

/*
 * wefti_output - a file that a flag of the command line names, being written.
 *
 * file   where to write; stdout for the path "-".
 *
 * A regular file is written beside its place, as PATH.PID.N.new, and renamed
 * when it is complete: until then the path is as it was. Devices and pipes are
 * written as they are.
 */
typedef struct wefti_output {
    FILE *file;
    const char *flag, *path; /* borrowed, for messages */
    char *place, *fresh;     /* rename fresh to place; NULL: written as it is */
} wefti_output;

/*
 * wefti_output_open - begins to write.
 *
 * flag, path   as given ("--svg", "a.svg"); borrowed until the end.
 *
 * Returns     OK (to be ended) | ERR_SYSTEM, ERR_NO_MEMORY (nothing is open,
 *             the path as it was).
 */
WEFT_NODISCARD weft_status wefti_output_open(wefti_output *out,
                                             const char *flag,
                                             const char *path);

/*
 * wefti_output_end - completes the file where status is OK, else removes what
 * was written of it; zeros *out.
 *
 * Returns     OK | ERR_SYSTEM (something was lost) | status, its text behind
 *             flag and path. But for OK, the path is as it was.
 */
WEFT_NODISCARD weft_status wefti_output_end(wefti_output *out,
                                            weft_status status);

/*
 * wefti_output_try - whether the path could be written, before there is
 * anything to write: leaves nothing behind.
 *
 * Returns     as wefti_output_open.
 */
WEFT_NODISCARD weft_status wefti_output_try(const char *flag, const char *path);

/*
 * wefti_output_close - what was printed may still be lost: on a full disk, or
 * because the reader has closed its end. Closes the file.
 *
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_output_close(FILE *file);

#endif
