/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/input.h - a whole file in memory.
 */
#ifndef BASE_INPUT_H
#define BASE_INPUT_H

#include "weft/status.h"

#include <stddef.h>

/* What may be read. A device has no end; a pipe may wait for its writer. */
typedef enum wefti_input_kind {
    WEFTI_INPUT_FILE,        /* regular files */
    WEFTI_INPUT_FILE_OR_PIPE /* pipes and FIFOs too, to their end */
} wefti_input_kind;

/*
 * wefti_file_read - all bytes of a file, with a NUL after them; free() them.
 *
 * Returns     OK | ERR_SYSTEM | ERR_NO_MEMORY (a regular file: before it is
 *             read) | ERR_INVALID (it is of no allowed kind, or has more than
 * most_bytes, which is seen before a regular file is read); the text names the
 * path. Blocks      on a pipe, until its writers have closed it.
 */
WEFT_NODISCARD weft_status wefti_file_read(const char *path,
                                           wefti_input_kind allowed,
                                           size_t most_bytes, char **text_out,
                                           size_t *text_bytes_out);

#endif
