/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_abi.h - NCCL's interface as its callers are compiled against
 * it: values, layouts and functions, in words of our own.
 *
 * An enumeration of NCCL's is an int here, a cudaStream_t and a communicator
 * are pointers. tests/doors/test_nccl_header.c compares all of it with nccl.h
 * where that is installed.
 */
#ifndef DOORS_NCCL_DOOR_ABI_H
#define DOORS_NCCL_DOOR_ABI_H

#include <limits.h>
#include <stddef.h>

struct ncclComm;
struct ncclWindow_vidmem;
struct CUstream_st;

/* What callers take the library for: 2.28.9. */
enum { WEFTI_DOOR_VERSION = 22809 };

/* X(name without WEFTI_DOOR_, NCCL's name, value, NCCL's text) */
#define WEFTI_DOOR_RESULT_LIST(X)                                              \
    X(SUCCESS, ncclSuccess, 0, "no error")                                     \
    X(UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError, 1, "unhandled cuda error") \
    X(SYSTEM_ERROR, ncclSystemError, 2, "unhandled system error")              \
    X(INTERNAL_ERROR, ncclInternalError, 3, "internal error")                  \
    X(INVALID_ARGUMENT, ncclInvalidArgument, 4, "invalid argument")            \
    X(INVALID_USAGE, ncclInvalidUsage, 5, "invalid usage")                     \
    X(REMOTE_ERROR, ncclRemoteError, 6,                                        \
      "remote process exited or network "                                      \
      "error")                                                                 \
    X(IN_PROGRESS, ncclInProgress, 7, "operation in progress")

/* X(name, NCCL's name, value) */
#define WEFTI_DOOR_CONSTANT_LIST(X)                                            \
    X(BUILT_IN_OPS, ncclNumOps, 5)                                             \
    X(SCALAR_DEVICE, ncclScalarDevice, 0)                                      \
    X(SCALAR_HOST, ncclScalarHostImmediate, 1)                                 \
    X(NO_COLOR, NCCL_SPLIT_NOCOLOR, -1)                                        \
    X(SHRINK_ABORT, NCCL_SHRINK_ABORT, 1)                                      \
    X(WINDOW_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC, 1)                            \
    X(WINDOW_ALIGNMENT, NCCL_WIN_REQUIRED_ALIGNMENT, 4096)

typedef enum wefti_door_constant {
#define WEFTI_DOOR_ENUM(name, theirs, value, ...) WEFTI_DOOR_##name = value,
    WEFTI_DOOR_RESULT_LIST(WEFTI_DOOR_ENUM)
        WEFTI_DOOR_CONSTANT_LIST(WEFTI_DOOR_ENUM)
#undef WEFTI_DOOR_ENUM
            WEFTI_DOOR_UNDEFINED = INT_MIN
} wefti_door_constant;

#define WEFTI_DOOR_CONFIG_MAGIC     0xcafebeefu
#define WEFTI_DOOR_SIMULATION_MAGIC 0x74685283u

typedef struct wefti_door_id {
    char internal[128];
} wefti_door_id;

/* ncclConfig_t of 2.28; later ones are longer, earlier ones shorter. */
typedef struct wefti_door_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} wefti_door_config;

/* ncclSimInfo_t */
typedef struct wefti_door_simulation {
    size_t size;
    unsigned magic;
    unsigned version;
    float estimatedTime;
} wefti_door_simulation;

/* ncclTeam of the interface for kernels. */
typedef struct wefti_door_team {
    int nRanks, rank, stride;
} wefti_door_team;

/* Arguments of what moves data, so that each line of the list is one. */
#define WEFTI_DOOR_COMM struct ncclComm *comm
#define WEFTI_DOOR_ON   WEFTI_DOOR_COMM, struct CUstream_st *stream
#define WEFTI_DOOR_DATA const void *send, void *recv, size_t count, int dtype

/* X(type of the result, name without nccl, arguments) */
#define WEFTI_DOOR_FUNCTION_LIST(X)                                            \
    X(int, GetVersion, (int *version))                                         \
    X(int, GetUniqueId, (wefti_door_id * id))                                  \
    X(const char *, GetErrorString, (int result))                              \
    X(const char *, GetLastError, (WEFTI_DOOR_COMM))                           \
    X(void, ResetDebugInit, (void))                                            \
    X(int, CommInitRank,                                                       \
      (struct ncclComm * *comm, int nranks, wefti_door_id id, int rank))       \
    X(int, CommInitRankConfig,                                                 \
      (struct ncclComm * *comm, int nranks, wefti_door_id id, int rank,        \
       wefti_door_config *config))                                             \
    X(int, CommInitRankScalable,                                               \
      (struct ncclComm * *comm, int nranks, int rank, int id_count,            \
       wefti_door_id *ids, wefti_door_config *config))                         \
    X(int, CommInitAll,                                                        \
      (struct ncclComm * *comms, int count, const int *devices))               \
    X(int, CommSplit,                                                          \
      (WEFTI_DOOR_COMM, int color, int key, struct ncclComm **comm_out,        \
       wefti_door_config *config))                                             \
    X(int, CommShrink,                                                         \
      (WEFTI_DOOR_COMM, int *ranks, int rank_count,                            \
       struct ncclComm **comm_out, wefti_door_config *config, int flags))      \
    X(int, CommFinalize, (WEFTI_DOOR_COMM))                                    \
    X(int, CommDestroy, (WEFTI_DOOR_COMM))                                     \
    X(int, CommAbort, (WEFTI_DOOR_COMM))                                       \
    X(int, CommRevoke, (WEFTI_DOOR_COMM, int flags))                           \
    X(int, CommGetAsyncError, (WEFTI_DOOR_COMM, int *result_out))              \
    X(int, CommCount, (WEFTI_DOOR_COMM, int *count_out))                       \
    X(int, CommCuDevice, (WEFTI_DOOR_COMM, int *device_out))                   \
    X(int, CommUserRank, (WEFTI_DOOR_COMM, int *rank_out))                     \
    X(int, CommRegister,                                                       \
      (WEFTI_DOOR_COMM, void *buffer, size_t bytes, void **handle_out))        \
    X(int, CommDeregister, (WEFTI_DOOR_COMM, void *handle))                    \
    X(int, CommWindowRegister,                                                 \
      (WEFTI_DOOR_COMM, void *buffer, size_t bytes,                            \
       struct ncclWindow_vidmem **window_out, int flags))                      \
    X(int, CommWindowDeregister,                                               \
      (WEFTI_DOOR_COMM, struct ncclWindow_vidmem * window))                    \
    X(int, MemAlloc, (void **pointer_out, size_t bytes))                       \
    X(int, MemFree, (void *pointer))                                           \
    X(int, RedOpCreatePreMulSum,                                               \
      (int *op_out, void *scalar, int dtype, int residence, WEFTI_DOOR_COMM))  \
    X(int, RedOpDestroy, (int op, WEFTI_DOOR_COMM))                            \
    X(int, GroupStart, (void))                                                 \
    X(int, GroupEnd, (void))                                                   \
    X(int, GroupSimulateEnd, (wefti_door_simulation * simulation))             \
    X(int, AllReduce, (WEFTI_DOOR_DATA, int op, WEFTI_DOOR_ON))                \
    X(int, Reduce, (WEFTI_DOOR_DATA, int op, int root, WEFTI_DOOR_ON))         \
    X(int, Bcast,                                                              \
      (void *buffer, size_t count, int dtype, int root, WEFTI_DOOR_ON))        \
    X(int, Broadcast, (WEFTI_DOOR_DATA, int root, WEFTI_DOOR_ON))              \
    X(int, AllGather, (WEFTI_DOOR_DATA, WEFTI_DOOR_ON))                        \
    X(int, ReduceScatter, (WEFTI_DOOR_DATA, int op, WEFTI_DOOR_ON))            \
    X(int, AlltoAll, (WEFTI_DOOR_DATA, WEFTI_DOOR_ON))                         \
    X(int, Gather, (WEFTI_DOOR_DATA, int root, WEFTI_DOOR_ON))                 \
    X(int, Scatter, (WEFTI_DOOR_DATA, int root, WEFTI_DOOR_ON))                \
    X(int, Send,                                                               \
      (const void *send, size_t count, int dtype, int peer, WEFTI_DOOR_ON))    \
    X(int, Recv, (void *recv, size_t count, int dtype, int peer, WEFTI_DOOR_ON))

/* What only the interface for kernels has, nccl_device.h. */
#define WEFTI_DOOR_KERNEL_LIST(X)                                              \
    X(int, DevCommCreate,                                                      \
      (WEFTI_DOOR_COMM, const void *requirements, void *comm_out))             \
    X(int, DevCommDestroy, (WEFTI_DOOR_COMM, const void *device_comm))         \
    X(wefti_door_team, TeamWorld, (WEFTI_DOOR_COMM))                           \
    X(wefti_door_team, TeamLsa, (WEFTI_DOOR_COMM))                             \
    X(wefti_door_team, TeamRail, (WEFTI_DOOR_COMM))                            \
    X(int, TeamRankToWorld, (WEFTI_DOOR_COMM, wefti_door_team team, int rank)) \
    X(int, TeamRankToLsa, (WEFTI_DOOR_COMM, wefti_door_team team, int rank))   \
    X(int, LsaBarrierCreateRequirement,                                        \
      (wefti_door_team team, int count, void *handle_out,                      \
       void *requirement_out))                                                 \
    X(int, GinBarrierCreateRequirement,                                        \
      (WEFTI_DOOR_COMM, wefti_door_team team, int count, void *handle_out,     \
       void *requirement_out))                                                 \
    X(int, LLA2ACreateRequirement,                                             \
      (int blocks, int slots, void *handle_out, void *requirement_out))        \
    X(int, LLA2ACalcSlots, (int elems, int elem_bytes))

#ifndef NCCL_VERSION_CODE /* a test has nccl.h, whose types are others */
#pragma GCC visibility push(default)
#define WEFTI_DOOR_DECLARE(type, name, arguments)                              \
    type nccl##name arguments;                                                 \
    type pnccl##name arguments;
WEFTI_DOOR_FUNCTION_LIST(WEFTI_DOOR_DECLARE)
WEFTI_DOOR_KERNEL_LIST(WEFTI_DOOR_DECLARE)
#undef WEFTI_DOOR_DECLARE
#pragma GCC visibility pop
#endif

/* The weak name of a pnccl function, behind its definition: a tool may define
 * the name itself and call on to the strong one. */
#define WEFTI_DOOR_WEAK(name)                                                  \
    extern __typeof__(pnccl##name) nccl##name                                  \
        __attribute__((weak, alias("pnccl" #name)));

#endif
