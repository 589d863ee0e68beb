/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_cublaslt.h - a stand-in for libcublasLt.so.13 over the fake
 * CUDA driver: products by columns, by plain loops of the host, as work of the
 * caller's stream. It is stricter than the library: what that leaves undefined,
 * or refuses by a status that weft has no use for, ends the program with a
 * line. Plans for long sums want a workspace where they may have one, and keep
 * parts of the sums there.
 *
 * Source: NVIDIA, cuBLAS library documentation, "Using the cuBLASLt API".
 *
 * WEFT_FAKE_CUBLASLT_VERSION   what cublasLtGetVersion says (130100)
 * WEFT_FAKE_CUBLASLT_FAULT     create   cublasLtCreate fails
 *                              refuse   the heuristic knows no algorithm
 *                              none     it says so by a count of 0
 *                              late     cublasLtMatmul does not support it
 *                              launch   cublasLtMatmul fails to launch
 */
#ifndef TESTS_FAKE_FAKE_CUBLASLT_H
#define TESTS_FAKE_FAKE_CUBLASLT_H

#include "device/cublaslt_api.h"

/* What has been done in the process; read by dlsym. */
typedef struct fake_cublaslt_counts {
    int handles, objects; /* alive */
    int chosen;           /* calls of the heuristic */
    int queued, with_workspace;
} fake_cublaslt_counts;

enum { FAKE_CUBLASLT_LONG = 64 }; /* sums of so many want a workspace */

typedef void fake_cublaslt_get_counts_fn(fake_cublaslt_counts *out);

#pragma GCC visibility push(default)
size_t cublasLtGetVersion(void);
fake_cublaslt_get_counts_fn cublasLtFakeGetCounts;
#define FAKE_CUBLASLT_PROTOTYPE(type, name, arguments) type name arguments;
WEFTI_CUBLASLT_FUNCTIONS(FAKE_CUBLASLT_PROTOTYPE)
#undef FAKE_CUBLASLT_PROTOTYPE
#pragma GCC visibility pop

#endif
