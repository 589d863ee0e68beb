/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/output.c - output that did not arrive is a failure.
 */
#include "base/output.h"

#include "base/error.h"

#include <errno.h>
#include <stdbool.h>

weft_status wefti_output_close(FILE *file)
{
    bool lost_before = ferror(file) != 0;
    if (fclose(file) != 0) {
        return wefti_error_system("output was lost");
    }
    return lost_before ? wefti_error(WEFT_ERR_SYSTEM, "output was lost")
                       : WEFT_OK;
}
