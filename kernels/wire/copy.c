/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/copy.c - copies that may pass the cache by.
 */
#include "kernels/wire/fold.h"

#include <string.h>

void wefti_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes != 0) {
        memcpy(dst, src, bytes);
    }
}
