/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/sized.c - structs of older and newer callers.
 */
#include "base/sized.h"

#include "base/error.h"

#include <string.h>

weft_status wefti_sized_check(const char *name, size_t size_bytes,
                              size_t least_bytes, size_t own_bytes)
{
    if (size_bytes >= least_bytes && size_bytes <= WEFTI_SIZED_MOST_BYTES) {
        return WEFT_OK;
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "%s->size_bytes %zu: allowed is its sizeof, here %zu",
                       name, size_bytes, own_bytes);
}

weft_status wefti_sized_read(const char *name, const void *given,
                             size_t least_bytes, void *own_out,
                             size_t own_bytes)
{
    const unsigned char *bytes = given;
    size_t given_bytes;
    memcpy(&given_bytes, given, sizeof(given_bytes));
    weft_status status =
        wefti_sized_check(name, given_bytes, least_bytes, own_bytes);
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t at = own_bytes; at < given_bytes; at++) {
        if (bytes[at]) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s asks for something that this weft does not "
                               "know (byte %zu of %zu, here %zu): allowed is 0",
                               name, at, given_bytes, own_bytes);
        }
    }
    size_t used = given_bytes < own_bytes ? given_bytes : own_bytes;
    memcpy(own_out, given, used);
    memset((unsigned char *)own_out + used, 0, own_bytes - used);
    memcpy(own_out, &own_bytes, sizeof(own_bytes));
    return WEFT_OK;
}

void wefti_sized_write(void *out, const void *own, size_t own_bytes)
{
    size_t out_bytes;
    memcpy(&out_bytes, out, sizeof(out_bytes));
    const size_t used = out_bytes < own_bytes ? out_bytes : own_bytes;
    memcpy(out, own, used);
    memset((unsigned char *)out + used, 0, out_bytes - used);
    memcpy(out, &out_bytes, sizeof(out_bytes));
}
