/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Embedding rows: gather forward, ordered scatter-add backward.
 */
#include "kernels/math/embedding.h"

#include "base/check.h"
#include "kernels/math/level.h"

#include <string.h>

void WEFTI_LEVEL(embedding_forward)(real *out, const real *table,
                                    const int32_t *ids, size_t tokens,
                                    size_t vocab, size_t width)
{
    for (size_t t = 0; t < tokens; t++) {
        if (ids[t] < 0) {
            memset(out + t * width, 0, width * sizeof(real));
            continue;
        }
        WEFTI_ASSERT((size_t)ids[t] < vocab);
        memcpy(out + t * width, table + (size_t)ids[t] * width,
               width * sizeof(real));
    }
    (void)vocab;
}

void WEFTI_LEVEL(embedding_backward)(real *dtable, const real *dout,
                                     const int32_t *ids, size_t tokens,
                                     size_t vocab, size_t width)
{
    for (size_t t = 0; t < tokens; t++) {
        if (ids[t] < 0)
            continue;
        WEFTI_ASSERT((size_t)ids[t] < vocab);
        const real *from = dout + t * width;
        real *to = dtable + (size_t)ids[t] * width;

        for (size_t i = 0; i < width; i++)
            to[i] += from[i];
    }
    (void)vocab;
}
