/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/gemm_kernel.c - the names of who multiplies.
 */
#include "kernels/math/gemm_kernel.h"

#include "kernels/math/blas_lock.h"
#include "kernels/math/math_table.h"
#include "kernels/math/onednn.h"
#include "kernels/math/real.h"

#include <pthread.h>
#include <stdio.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char wide[96], narrow[400];

static void find_names(void)
{
    const char *why, *found = NULL;
#ifndef WEFT_REAL_F64
    found = wefti_onednn_get_kernel(WEFTI_ONEDNN_F32, &why);
#endif
    snprintf(wide, sizeof(wide), "%s%s", found ? "" : "OpenBLAS ",
             found ? found : wefti_blas_get_kernel());
    found = wefti_onednn_get_kernel(WEFTI_ONEDNN_BF16, &why);
    if (found) {
        snprintf(narrow, sizeof(narrow), "%s", found);
    } else {
        snprintf(narrow, sizeof(narrow), "%s on widened blocks: %s", wide, why);
    }
}

const char *wefti_gemm_get_kernel(bool bf16)
{
    (void)pthread_once(&once, find_names);
    return bf16 ? narrow : wide;
}

void wefti_gemm_prepare(void)
{
    enum { SIDE = 128 }; /* enough for a kernel of its own */
    static const real zeros[SIDE * SIDE];
    real product[SIDE * SIDE];
    for (unsigned layout = 0; layout < 4; layout++) {
        wefti_math_get()->gemm(layout & 1U, layout & 2U, SIDE, SIDE, SIDE, 1,
                               zeros, SIDE, zeros, SIDE, 0, product, SIDE);
    }
}
