/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/storage.c - aligned, zeroed arrays.
 */
#include "trainer/model/storage.h"

#include "base/error.h"
#include "kernels/math/math_stream.h"

#include <stdlib.h>
#include <string.h>

weft_status wefti_storage_alloc(size_t elems, real **out)
{
    size_t bytes = elems * sizeof(real);
    size_t align = WEFTI_STORAGE_ALIGN_BYTES;
    size_t rounded = (bytes + align) / align * align; /* never 0 */
    *out = aligned_alloc(align, rounded);
    if (!*out) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           rounded);
    }
    memset(*out, 0, rounded);
    return WEFT_OK;
}

void wefti_storage_free(real *storage)
{
    free(storage);
}

weft_status wefti_storage_alloc_on(weft_device *device, weft_stream *compute,
                                   size_t elems, real **out)
{
    void *made;
    weft_status status = weft_device_alloc(device, elems * sizeof(real), &made);
    *out = status == WEFT_OK ? made : NULL;
    if (status == WEFT_OK) {
        const wefti_math_tensor all =
            wefti_math_flat(*out, WEFTI_REAL_DTYPE, elems);
        status = wefti_stream_fill(compute, &all, 0);
    }
    return status;
}

void wefti_storage_free_on(weft_device *device, real *storage)
{
    weft_device_free(device, storage);
}
