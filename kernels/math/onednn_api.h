/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/onednn_api.h - the part of oneDNN's interface that weft uses,
 * declared here so that weft builds without it.
 *
 * Names, values and layouts are those of oneDNN 2, whose descriptors are
 * structs of the caller's: here room for them. tests/kernels/test_onednn_abi.c
 * compares this with dnnl.h where that is installed.
 */
#ifndef KERNELS_MATH_ONEDNN_API_H
#define KERNELS_MATH_ONEDNN_API_H

#include <stdint.h>

enum {
    WEFTI_DNNL_VERSION = 2,
    WEFTI_DNNL_NO_MEMORY = 1,
    WEFTI_DNNL_CPU = 1,
    WEFTI_DNNL_BF16 = 2,
    WEFTI_DNNL_F32 = 3,
    WEFTI_DNNL_SRC = 1,
    WEFTI_DNNL_WEIGHTS = 33,
    WEFTI_DNNL_DST = 17,
    WEFTI_DNNL_IN_ORDER = 1,
    WEFTI_DNNL_IMPLEMENTATION = 8,
    WEFTI_DNNL_DIMS = 12,
    WEFTI_DNNL_ISA_AVX512 = 0x27, /* its bits: AVX-512 of servers */
    WEFTI_DNNL_ISA_BF16 = 0xe7,   /* and products of bf16 */
    WEFTI_DNNL_ISA_AMX = 0x3e7
};

typedef struct wefti_dnnl_memory_desc {
    _Alignas(16) unsigned char bytes[696];
} wefti_dnnl_memory_desc;

typedef struct wefti_dnnl_matmul_desc {
    _Alignas(16) unsigned char bytes[2800];
} wefti_dnnl_matmul_desc;

typedef struct wefti_dnnl_version {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} wefti_dnnl_version;

typedef struct wefti_dnnl_arg {
    int arg;
    void *memory;
} wefti_dnnl_arg;

/* X(type of the result, name, arguments). Handles are pointers, a status is an
 * int, 0 for success. */
#define WEFTI_DNNL_FUNCTIONS(X)                                                \
    X(const wefti_dnnl_version *, dnnl_version, (void))                        \
    X(int, dnnl_get_effective_cpu_isa, (void))                                 \
    X(int, dnnl_engine_create, (void **engine, int kind, size_t index))        \
    X(int, dnnl_stream_create, (void **stream, void *engine, unsigned flags))  \
    X(int, dnnl_stream_wait, (void *stream))                                   \
    X(int, dnnl_stream_destroy, (void *stream))                                \
    X(int, dnnl_memory_desc_init_by_strides,                                   \
      (wefti_dnnl_memory_desc * desc, int dims, const int64_t *extents,        \
       int type, const int64_t *strides))                                      \
    X(int, dnnl_matmul_desc_init,                                              \
      (wefti_dnnl_matmul_desc * desc, const wefti_dnnl_memory_desc *src,       \
       const wefti_dnnl_memory_desc *weights,                                  \
       const wefti_dnnl_memory_desc *bias, const wefti_dnnl_memory_desc *dst)) \
    X(int, dnnl_primitive_attr_create, (void **attr))                          \
    X(int, dnnl_primitive_attr_destroy, (void *attr))                          \
    X(int, dnnl_primitive_attr_set_output_scales,                              \
      (void *attr, int64_t count, int mask, const float *scales))              \
    X(int, dnnl_primitive_attr_set_post_ops, (void *attr, const void *ops))    \
    X(int, dnnl_post_ops_create, (void **ops))                                 \
    X(int, dnnl_post_ops_destroy, (void *ops))                                 \
    X(int, dnnl_post_ops_append_sum, (void *ops, float scale))                 \
    X(int, dnnl_primitive_desc_create,                                         \
      (void **primitive_desc, const void *desc, const void *attr,              \
       void *engine, const void *hint))                                        \
    X(int, dnnl_primitive_desc_destroy, (void *primitive_desc))                \
    X(int, dnnl_primitive_desc_query,                                          \
      (const void *primitive_desc, int what, int index, void *result))         \
    X(int, dnnl_primitive_create, (void **primitive, const void *desc))        \
    X(int, dnnl_primitive_destroy, (void *primitive))                          \
    X(int, dnnl_primitive_execute,                                             \
      (const void *primitive, void *stream, int count,                         \
       const wefti_dnnl_arg *args))                                            \
    X(int, dnnl_memory_create,                                                 \
      (void **memory, const wefti_dnnl_memory_desc *desc, void *engine,        \
       void *data))                                                            \
    X(int, dnnl_memory_set_data_handle, (void *memory, void *data))            \
    X(int, dnnl_memory_destroy, (void *memory))                                \
    X(int, dnnl_sgemm,                                                         \
      (char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, \
       const float *a, int64_t lda, const float *b, int64_t ldb, float beta,   \
       float *c, int64_t ldc))

#endif
