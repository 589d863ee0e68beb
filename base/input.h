/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/input.h - a whole file in memory.
 */
#ifndef BASE_INPUT_H
#define BASE_INPUT_H

#include "weft/status.h"

#include <stddef.h>

/*
 * wefti_file_read - all bytes of a file, with a NUL after them; free() them.
 * Also of a pipe, whose length nobody knows before.
 *
 * Returns     OK | ERR_SYSTEM | ERR_NO_MEMORY | ERR_INVALID (it has more than
 *             most_bytes); the text names the path.
 */
WEFT_NODISCARD weft_status wefti_file_read(const char *path, size_t most_bytes,
                                           char **text_out,
                                           size_t *text_bytes_out);

#endif
