/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/nccl/nccl_api.h - the part of NCCL's interface that weft uses, declared
 * here so that weft builds without it, and opened at run time.
 *
 * Names, values and layouts are those of nccl.h 2.14 and later;
 * tests/comm/test_nccl_abi.c compares them with it where it is installed. An
 * enumeration of NCCL's is an int here, a cudaStream_t a pointer.
 */
#ifndef COMM_NCCL_NCCL_API_H
#define COMM_NCCL_NCCL_API_H

#include "weft/status.h"

#include <limits.h>
#include <stddef.h>

struct ncclComm;
struct CUstream_st;

/* X(name without WEFTI_, in capitals, NCCL's name, value) */
#define WEFTI_NCCL_CONSTANTS(X)                                                \
    X(NCCL_SUCCESS, ncclSuccess, 0)                                            \
    X(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError, 1)                    \
    X(NCCL_SYSTEM_ERROR, ncclSystemError, 2)                                   \
    X(NCCL_INTERNAL_ERROR, ncclInternalError, 3)                               \
    X(NCCL_INVALID_ARGUMENT, ncclInvalidArgument, 4)                           \
    X(NCCL_INVALID_USAGE, ncclInvalidUsage, 5)                                 \
    X(NCCL_REMOTE_ERROR, ncclRemoteError, 6)                                   \
    X(NCCL_IN_PROGRESS, ncclInProgress, 7)                                     \
    X(NCCL_INT8, ncclInt8, 0)                                                  \
    X(NCCL_UINT8, ncclUint8, 1)                                                \
    X(NCCL_INT32, ncclInt32, 2)                                                \
    X(NCCL_UINT32, ncclUint32, 3)                                              \
    X(NCCL_INT64, ncclInt64, 4)                                                \
    X(NCCL_UINT64, ncclUint64, 5)                                              \
    X(NCCL_FLOAT16, ncclFloat16, 6)                                            \
    X(NCCL_FLOAT32, ncclFloat32, 7)                                            \
    X(NCCL_FLOAT64, ncclFloat64, 8)                                            \
    X(NCCL_BFLOAT16, ncclBfloat16, 9)                                          \
    X(NCCL_SUM, ncclSum, 0)                                                    \
    X(NCCL_PROD, ncclProd, 1)                                                  \
    X(NCCL_MAX, ncclMax, 2)                                                    \
    X(NCCL_MIN, ncclMin, 3)                                                    \
    X(NCCL_AVG, ncclAvg, 4)                                                    \
    X(NCCL_SCALAR_HOST_IMMEDIATE, ncclScalarHostImmediate, 1)

/* Types that came later. */
#define WEFTI_NCCL_SMALL_FLOATS(X)                                             \
    X(NCCL_FLOAT8E4M3, ncclFloat8e4m3, 10)                                     \
    X(NCCL_FLOAT8E5M2, ncclFloat8e5m2, 11)

enum {
#define WEFTI_NCCL_ENUM(name, theirs, value) WEFTI_##name = value,
    WEFTI_NCCL_CONSTANTS(WEFTI_NCCL_ENUM)
        WEFTI_NCCL_SMALL_FLOATS(WEFTI_NCCL_ENUM)
#undef WEFTI_NCCL_ENUM
            WEFTI_NCCL_FIRST_VERSION = 21400, /* with what is below */
    WEFTI_NCCL_SMALL_FLOATS_VERSION = 22400
};

#define WEFTI_NCCL_MAGIC 0xcafebeefu

typedef struct wefti_nccl_id {
    char internal[128];
} wefti_nccl_id;

/* As of 2.14: later ones take a shorter one for what it is. */
typedef struct wefti_nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
} wefti_nccl_config;

/* X(type of the result, name, arguments) */
#define WEFTI_NCCL_FUNCTIONS(X)                                                \
    X(int, ncclGetVersion, (int *version))                                     \
    X(int, ncclGetUniqueId, (wefti_nccl_id * id))                              \
    X(const char *, ncclGetErrorString, (int result))                          \
    X(const char *, ncclGetLastError, (struct ncclComm * comm))                \
    X(int, ncclCommInitRankConfig,                                             \
      (struct ncclComm * *comm, int nranks, wefti_nccl_id id, int rank,        \
       wefti_nccl_config *config))                                             \
    X(int, ncclCommFinalize, (struct ncclComm * comm))                         \
    X(int, ncclCommDestroy, (struct ncclComm * comm))                          \
    X(int, ncclCommAbort, (struct ncclComm * comm))                            \
    X(int, ncclCommGetAsyncError, (struct ncclComm * comm, int *result))       \
    X(int, ncclGroupStart, (void))                                             \
    X(int, ncclGroupEnd, (void))                                               \
    X(int, ncclAllReduce,                                                      \
      (const void *send, void *recv, size_t count, int dtype, int op,          \
       struct ncclComm *comm, struct CUstream_st *stream))                     \
    X(int, ncclReduce,                                                         \
      (const void *send, void *recv, size_t count, int dtype, int op,          \
       int root, struct ncclComm *comm, struct CUstream_st *stream))           \
    X(int, ncclBroadcast,                                                      \
      (const void *send, void *recv, size_t count, int dtype, int root,        \
       struct ncclComm *comm, struct CUstream_st *stream))                     \
    X(int, ncclAllGather,                                                      \
      (const void *send, void *recv, size_t send_count, int dtype,             \
       struct ncclComm *comm, struct CUstream_st *stream))                     \
    X(int, ncclReduceScatter,                                                  \
      (const void *send, void *recv, size_t recv_count, int dtype, int op,     \
       struct ncclComm *comm, struct CUstream_st *stream))                     \
    X(int, ncclSend,                                                           \
      (const void *send, size_t count, int dtype, int peer,                    \
       struct ncclComm *comm, struct CUstream_st *stream))                     \
    X(int, ncclRecv,                                                           \
      (void *recv, size_t count, int dtype, int peer, struct ncclComm *comm,   \
       struct CUstream_st *stream))                                            \
    X(int, ncclRedOpCreatePreMulSum,                                           \
      (int *op, void *scalar, int dtype, int residence,                        \
       struct ncclComm *comm))                                                 \
    X(int, ncclRedOpDestroy, (int op, struct ncclComm *comm))

/* All of them are there. */
typedef struct wefti_nccl_api {
    int version; /* 22809: 2.28.9 */
#define WEFTI_NCCL_MEMBER(type, name, arguments) type(*name) arguments;
    WEFTI_NCCL_FUNCTIONS(WEFTI_NCCL_MEMBER)
#undef WEFTI_NCCL_MEMBER
} wefti_nccl_api;

/*
 * wefti_nccl_api_open - the NCCL of this process: what WEFT_NCCL names, else
 * libnccl.so.2, opened by the first call and kept.
 *
 * Returns     OK | ERR_UNSUPPORTED (there is none, it is too old, it lacks
 *             functions, the parent of this process has opened it: the text
 *             says which).
 * Threads     any.
 */
WEFT_NODISCARD weft_status wefti_nccl_api_open(const wefti_nccl_api **api_out);

/* "2.28.9" */
void wefti_nccl_version_text(int version, char *text_out, size_t text_bytes);

/* The error that a result is, and NCCL's last words: of result's own text. */
WEFT_NODISCARD weft_status wefti_nccl_error(const wefti_nccl_api *api,
                                            struct ncclComm *comm, int result,
                                            const char *what);

#endif
