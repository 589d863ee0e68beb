/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cublaslt_api.h - the part of cuBLASLt's interface that weft uses,
 * declared here so that weft builds without it, and opened at run time.
 *
 * Names, values and layouts are those of cublasLt.h 12.0 and later;
 * tests/device/test_cublaslt_abi.c compares them with it where it is
 * installed. An enumeration of cuBLASLt's is an int here, a descriptor a
 * pointer to nothing known, a cudaStream_t a pointer.
 */
#ifndef DEVICE_CUBLASLT_API_H
#define DEVICE_CUBLASLT_API_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

struct cublasLtContext;
struct CUstream_st;

/* X(name without WEFTI_, in capitals, cuBLASLt's name, value) */
#define WEFTI_CUBLASLT_CONSTANTS(X)                                            \
    X(CUBLAS_SUCCESS, CUBLAS_STATUS_SUCCESS, 0)                                \
    X(CUBLAS_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED, 1)                \
    X(CUBLAS_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED, 3)                      \
    X(CUBLAS_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE, 7)                    \
    X(CUBLAS_ARCH_MISMATCH, CUBLAS_STATUS_ARCH_MISMATCH, 8)                    \
    X(CUBLAS_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED, 13)             \
    X(CUBLAS_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED, 15)                   \
    X(CUBLAS_OP_N, CUBLAS_OP_N, 0)                                             \
    X(CUBLAS_OP_T, CUBLAS_OP_T, 1)                                             \
    X(CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F, 68)                              \
    X(CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F, 70)                              \
    X(CUDA_R_32F, CUDA_R_32F, 0)                                               \
    X(CUDA_R_64F, CUDA_R_64F, 1)                                               \
    X(CUDA_R_16BF, CUDA_R_16BF, 14)                                            \
    X(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA, 3)                          \
    X(LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB, 4)                          \
    X(LT_DESC_SM_COUNT_TARGET, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 15)       \
    X(LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)          \
    X(LT_PREF_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)        \
    X(LT_PREF_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)      \
    X(LT_PREF_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)      \
    X(LT_PREF_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)      \
    X(LT_PREF_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)      \
    X(LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)

enum {
#define WEFTI_CUBLASLT_ENUM(name, theirs, value) WEFTI_##name = value,
    WEFTI_CUBLASLT_CONSTANTS(WEFTI_CUBLASLT_ENUM)
#undef WEFTI_CUBLASLT_ENUM
        WEFTI_CUBLASLT_FIRST_VERSION = 120000 /* with what is below */
};

/* What the library keeps of an algorithm; its own affair. */
typedef struct wefti_cublaslt_algo {
    uint64_t data[8];
} wefti_cublaslt_algo;

/* One answer of the heuristic. */
typedef struct wefti_cublaslt_result {
    wefti_cublaslt_algo algo;
    size_t workspace_bytes;
    int state; /* CUBLAS_SUCCESS, else the rest means nothing */
    float waves;
    int reserved[4];
} wefti_cublaslt_result;

/* X(type of the result, name, arguments). Results are a status but where it is
 * not an int. */
#define WEFTI_CUBLASLT_FUNCTIONS(X)                                            \
    X(int, cublasLtCreate, (struct cublasLtContext * *handle))                 \
    X(int, cublasLtDestroy, (struct cublasLtContext * handle))                 \
    X(const char *, cublasLtGetStatusName, (int status))                       \
    X(int, cublasLtMatmulDescCreate, (void **desc, int compute, int scale))    \
    X(int, cublasLtMatmulDescDestroy, (void *desc))                            \
    X(int, cublasLtMatmulDescSetAttribute,                                     \
      (void *desc, int attribute, const void *value, size_t bytes))            \
    X(int, cublasLtMatrixLayoutCreate,                                         \
      (void **layout, int type, uint64_t rows, uint64_t columns,               \
       int64_t leading))                                                       \
    X(int, cublasLtMatrixLayoutDestroy, (void *layout))                        \
    X(int, cublasLtMatmulPreferenceCreate, (void **preference))                \
    X(int, cublasLtMatmulPreferenceDestroy, (void *preference))                \
    X(int, cublasLtMatmulPreferenceSetAttribute,                               \
      (void *preference, int attribute, const void *value, size_t bytes))      \
    X(int, cublasLtMatmulAlgoGetHeuristic,                                     \
      (struct cublasLtContext * handle, void *desc, void *a, void *b, void *c, \
       void *d, void *preference, int asked, wefti_cublaslt_result *results,   \
       int *found))                                                            \
    X(int, cublasLtMatmul,                                                     \
      (struct cublasLtContext * handle, void *desc, const void *alpha,         \
       const void *a, void *a_layout, const void *b, void *b_layout,           \
       const void *beta, const void *c, void *c_layout, void *d,               \
       void *d_layout, const wefti_cublaslt_algo *algo, void *workspace,       \
       size_t workspace_bytes, struct CUstream_st *stream))

/* All of them are there. */
typedef struct wefti_cublaslt_api {
    size_t version; /* 130100: 13.1.0 */
#define WEFTI_CUBLASLT_MEMBER(type, name, arguments) type(*name) arguments;
    WEFTI_CUBLASLT_FUNCTIONS(WEFTI_CUBLASLT_MEMBER)
#undef WEFTI_CUBLASLT_MEMBER
} wefti_cublaslt_api;

/*
 * wefti_cublaslt_api_open - the cuBLASLt of this process: what WEFT_CUBLASLT
 * names, else libcublasLt.so.13 or .12, opened by the first call and kept. No
 * driver is asked.
 *
 * Returns     OK | ERR_UNSUPPORTED (the setting is off, there is none, it is
 *             too old, it lacks functions: the text says which).
 * Threads     any.
 */
WEFT_NODISCARD weft_status
wefti_cublaslt_api_open(const wefti_cublaslt_api **api_out);

/* "cuBLASLt 13.1.0" */
void wefti_cublaslt_version_text(size_t version, char *text_out,
                                 size_t text_bytes);

#endif
