/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/output.h - the last thing a program does with what it printed.
 */
#ifndef BASE_OUTPUT_H
#define BASE_OUTPUT_H

#include "weft/status.h"

#include <stdio.h>

/*
 * wefti_output_close - what was printed may still be lost: on a full disk, or
 * because nobody reads any more. Closes the file.
 *
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_output_close(FILE *file);

#endif
