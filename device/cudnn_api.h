/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cudnn_api.h - the part of cuDNN's backend interface that weft uses,
 * declared here so that weft builds without it, and opened at run time.
 *
 * Names and values are those of cuDNN 9; tests/device/test_cudnn_abi.c compares
 * them with cudnn.h where it is installed. An enumeration of cuDNN's is an int
 * here, a descriptor a pointer to nothing known, a cudaStream_t a pointer.
 */
#ifndef DEVICE_CUDNN_API_H
#define DEVICE_CUDNN_API_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

struct cudnnContext;
struct CUstream_st;

/* X(name without WEFTI_, in capitals, cuDNN's name, value). DNN_TENSOR is a
 * kind of descriptor, DNN_TYPE_INT64 a type of attribute, DNN_TENSOR_ID an
 * attribute. */
#define WEFTI_CUDNN_CONSTANTS(X)                                               \
    X(CUDNN_SUCCESS, CUDNN_STATUS_SUCCESS, 0)                                  \
    X(CUDNN_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED, 3000)                   \
    X(CUDNN_FLOAT, CUDNN_DATA_FLOAT, 0)                                        \
    X(CUDNN_INT32, CUDNN_DATA_INT32, 4)                                        \
    X(CUDNN_BF16, CUDNN_DATA_BFLOAT16, 9)                                      \
    X(CUDNN_BOOLEAN, CUDNN_DATA_BOOLEAN, 11)                                   \
    X(DNN_POINTWISE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                    \
    X(DNN_ENGINECFG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                    \
    X(DNN_ENGINEHEUR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                  \
    X(DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                    \
    X(DNN_OP_POINTWISE, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)      \
    X(DNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                  \
    X(DNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                     \
    X(DNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                         \
    X(DNN_MATMUL, CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                         \
    X(DNN_OP_MATMUL, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)            \
    X(DNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                   \
    X(DNN_OP_REDUCTION, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)      \
    X(DNN_OP_RESHAPE, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)          \
    X(DNN_TYPE_HANDLE, CUDNN_TYPE_HANDLE, 0)                                   \
    X(DNN_TYPE_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1)                             \
    X(DNN_TYPE_BOOLEAN, CUDNN_TYPE_BOOLEAN, 2)                                 \
    X(DNN_TYPE_INT64, CUDNN_TYPE_INT64, 3)                                     \
    X(DNN_TYPE_VOID_PTR, CUDNN_TYPE_VOID_PTR, 6)                               \
    X(DNN_TYPE_HEUR_MODE, CUDNN_TYPE_HEUR_MODE, 8)                             \
    X(DNN_TYPE_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 14)                  \
    X(DNN_TYPE_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                  \
    X(DNN_TYPE_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)              \
    X(DNN_HEUR_MODE_A, CUDNN_HEUR_MODE_A, 3)                                   \
    X(DNN_MUL, CUDNN_POINTWISE_MUL, 1)                                         \
    X(DNN_ADD, CUDNN_POINTWISE_ADD, 0)                                         \
    X(DNN_SUB, CUDNN_POINTWISE_SUB, 9)                                         \
    X(DNN_DIV, CUDNN_POINTWISE_DIV, 6)                                         \
    X(DNN_EXP, CUDNN_POINTWISE_EXP, 13)                                        \
    X(DNN_LOG, CUDNN_POINTWISE_LOG, 15)                                        \
    X(DNN_CMP_GE, CUDNN_POINTWISE_CMP_GE, 303)                                 \
    X(DNN_GEN_INDEX, CUDNN_POINTWISE_GEN_INDEX, 501)                           \
    X(DNN_SELECT, CUDNN_POINTWISE_BINARY_SELECT, 601)                          \
    X(DNN_REDUCE_MAX, CUDNN_REDUCE_TENSOR_MAX, 3)                              \
    X(DNN_REDUCE_ADD, CUDNN_REDUCE_TENSOR_ADD, 0)                              \
    X(DNN_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE, 0)                        \
    X(DNN_POINTWISE_PREC, CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                   \
    X(DNN_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS, 9)                        \
    X(DNN_OP_POINTWISE_HOW, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750) \
    X(DNN_OP_POINTWISE_X, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)           \
    X(DNN_OP_POINTWISE_B, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)           \
    X(DNN_OP_POINTWISE_Y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)           \
    X(DNN_OP_POINTWISE_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)           \
    X(DNN_MATMUL_TYPE, CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                      \
    X(DNN_OP_MATMUL_A, CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                \
    X(DNN_OP_MATMUL_B, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                \
    X(DNN_OP_MATMUL_C, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                \
    X(DNN_OP_MATMUL_HOW, CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)               \
    X(DNN_REDUCTION_KIND, CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                 \
    X(DNN_REDUCTION_TYPE, CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                \
    X(DNN_OP_REDUCTION_X, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)          \
    X(DNN_OP_REDUCTION_Y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)          \
    X(DNN_OP_REDUCTION_HOW, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)         \
    X(DNN_OP_RESHAPE_X, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)              \
    X(DNN_OP_RESHAPE_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)              \
    X(DNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)             \
    X(DNN_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                       \
    X(DNN_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                \
    X(DNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES, 903)                      \
    X(DNN_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                         \
    X(DNN_TENSOR_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                   \
    X(DNN_TENSOR_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                 \
    X(DNN_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                 \
    X(DNN_GRAPH_OPS, CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                       \
    X(DNN_HEUR_MODE, CUDNN_ATTR_ENGINEHEUR_MODE, 200)                          \
    X(DNN_HEUR_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)              \
    X(DNN_HEUR_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                    \
    X(DNN_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                  \
    X(DNN_PLAN_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)           \
    X(DNN_PLAN_WORKSPACE, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)       \
    X(DNN_PACK_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                  \
    X(DNN_PACK_POINTERS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)          \
    X(DNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)

enum {
#define WEFTI_CUDNN_ENUM(name, theirs, value) WEFTI_##name = value,
    WEFTI_CUDNN_CONSTANTS(WEFTI_CUDNN_ENUM)
#undef WEFTI_CUDNN_ENUM
        WEFTI_CUDNN_FIRST_VERSION = 91000 /* whose masks may be infinite */
};

/* X(type of the result, name, arguments). Results are a status but where it is
 * not an int. */
#define WEFTI_CUDNN_FUNCTIONS(X)                                               \
    X(int, cudnnCreate, (struct cudnnContext * *handle))                       \
    X(int, cudnnDestroy, (struct cudnnContext * handle))                       \
    X(int, cudnnSetStream,                                                     \
      (struct cudnnContext * handle, struct CUstream_st * stream))             \
    X(const char *, cudnnGetErrorString, (int status))                         \
    X(int, cudnnBackendCreateDescriptor, (int kind, void **desc))              \
    X(int, cudnnBackendDestroyDescriptor, (void *desc))                        \
    X(int, cudnnBackendSetAttribute,                                           \
      (void *desc, int attribute, int type, int64_t count,                     \
       const void *values))                                                    \
    X(int, cudnnBackendGetAttribute,                                           \
      (void *desc, int attribute, int type, int64_t asked, int64_t *count,     \
       void *values))                                                          \
    X(int, cudnnBackendFinalize, (void *desc))                                 \
    X(int, cudnnBackendExecute,                                                \
      (struct cudnnContext * handle, void *plan, void *pack))

/* All of them are there. */
typedef struct wefti_cudnn_api {
    size_t version; /* 91900: 9.19.0 */
#define WEFTI_CUDNN_MEMBER(type, name, arguments) type(*name) arguments;
    WEFTI_CUDNN_FUNCTIONS(WEFTI_CUDNN_MEMBER)
#undef WEFTI_CUDNN_MEMBER
} wefti_cudnn_api;

/*
 * wefti_cudnn_api_open - the cuDNN of this process: what WEFT_CUDNN names, else
 * libcudnn.so.9, opened by the first call and kept. No driver is asked.
 *
 * Returns     OK | ERR_UNSUPPORTED (the setting is off, there is none, it is
 *             too old, it lacks functions: the text says which).
 * Threads     any.
 */
WEFT_NODISCARD weft_status
wefti_cudnn_api_open(const wefti_cudnn_api **api_out);

/* "cuDNN 9.19.0" */
void wefti_cudnn_version_text(size_t version, char *text_out,
                              size_t text_bytes);

#endif
