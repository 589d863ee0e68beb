/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_abi.h - the part of the CUDA driver's binary interface that
 * the fake driver serves, by the names of cuda.h (13.0), so that it builds
 * where the toolkit is absent. test_fake_abi.py compares it with the toolkit's
 * own header where that is installed. fake_functions.h has the functions.
 */
#ifndef TESTS_FAKE_FAKE_ABI_H
#define TESTS_FAKE_FAKE_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long CUdeviceptr;
typedef int CUdevice;
typedef unsigned long long CUmemGenericAllocationHandle;

/* What the handles point to is fake.h's. */
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;
struct CUgreenCtx_st;
struct CUdevResourceDesc_st;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUgraphEdgeData CUgraphEdgeData; /* of no use here */
typedef unsigned CUjit_option;
typedef unsigned CUlibraryOption;
typedef void (*CUhostFn)(void *user_data);

typedef struct CUuuid {
    char bytes[16];
} CUuuid;

typedef struct CUipcMemHandle {
    char reserved[64];
} CUipcMemHandle;

typedef struct CUipcEventHandle {
    char reserved[64];
} CUipcEventHandle;

/* X(name, value, what cuGetErrorString says) */
#define FAKE_RESULTS(X)                                                        \
    X(CUDA_SUCCESS, 0, "no error")                                             \
    X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                         \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                            \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                   \
    X(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down")                     \
    X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")         \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")         \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")               \
    X(CUDA_ERROR_MAP_FAILED, 205, "mapping of buffer object failed")           \
    X(CUDA_ERROR_ALREADY_MAPPED, 208, "resource already mapped")               \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "uncorrectable ECC error")            \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217, "no peer access between them")  \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220, "uncorrectable NVLink error")      \
    X(CUDA_ERROR_CONTAINED, 226, "invalid memory access, contained")           \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")               \
    X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                     \
    X(CUDA_ERROR_NOT_READY, 600, "device not ready")                           \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access")             \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "too many resources asked for") \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "the launch timed out")                  \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704,                             \
      "peer access is already enabled")                                        \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")            \
    X(CUDA_ERROR_ASSERT, 710, "device-side assert")                            \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712,                          \
      "host memory is already registered")                                     \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713,                              \
      "host memory is not registered")                                         \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714, "hardware stack error")            \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715, "illegal instruction")              \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "misaligned address")                \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717, "wrong address space")            \
    X(CUDA_ERROR_INVALID_PC, 718, "invalid program counter")                   \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")             \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721, "tensor memory leaked")              \
    X(CUDA_ERROR_NOT_PERMITTED, 800, "operation not permitted")                \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")                \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "driver and library differ")     \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810, "MPS client was terminated")      \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900,                              \
      "operation not permitted when stream is capturing")                      \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901,                              \
      "operation failed due to a previous error during capture")               \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903,                                \
      "capture was not begun in this stream")                                  \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904,                                 \
      "capturing stream has unjoined work")                                    \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905,                                \
      "dependency created on uncaptured work in another stream")               \
    X(CUDA_ERROR_CAPTURED_EVENT, 907,                                          \
      "operation not permitted on an event last recorded in a capturing "      \
      "stream")                                                                \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908,                             \
      "attempt to end a capture from another thread")                          \
    X(CUDA_ERROR_EXTERNAL_DEVICE, 911, "an external device has failed")        \
    X(CUDA_ERROR_INVALID_RESOURCE_TYPE, 914, "invalid resource type")          \
    X(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, 915,                          \
      "invalid resource configuration")                                        \
    X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

typedef enum CUresult {
#define FAKE_RESULT(name, value, text) name = value,
    FAKE_RESULTS(FAKE_RESULT)
#undef FAKE_RESULT
} CUresult;

typedef enum CUdriverProcAddressQueryResult {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
} CUdriverProcAddressQueryResult;

typedef enum CUdevice_attribute {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES = 98,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR = 123,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128
} CUdevice_attribute;

/* Highest attribute number that cuda.h 13.0 knows. */
enum { FAKE_LAST_ATTRIBUTE = 147 };

typedef enum CUmemorytype {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2
} CUmemorytype;

typedef enum CUpointer_attribute {
    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPED = 13,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16
} CUpointer_attribute;

enum {
    CU_STREAM_DEFAULT = 0,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_BLOCKING_SYNC = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_EVENT_INTERPROCESS = 4,
    CU_EVENT_RECORD_DEFAULT = 0,
    CU_EVENT_WAIT_DEFAULT = 0,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTALLOC_DEVICEMAP = 2,
    CU_MEMHOSTALLOC_WRITECOMBINED = 4,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP = 2,
    CU_MEMHOSTREGISTER_IOMEMORY = 4,
    CU_MEMHOSTREGISTER_READ_ONLY = 8,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
    CU_STREAM_WAIT_VALUE_GEQ = 0,
    CU_STREAM_WAIT_VALUE_EQ = 1,
    CU_STREAM_WAIT_VALUE_AND = 2,
    CU_STREAM_WAIT_VALUE_NOR = 3,
    CU_STREAM_WAIT_VALUE_FLUSH = 1 << 30,
    CU_STREAM_WRITE_VALUE_DEFAULT = 0,
    CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 1,
    CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING = 1,
    CU_GREEN_CTX_DEFAULT_STREAM = 1,
    CU_MEM_HANDLE_TYPE_NONE = 0,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1
};

typedef enum CUstreamCaptureMode {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2
} CUstreamCaptureMode;

typedef enum CUstreamCaptureStatus {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
} CUstreamCaptureStatus;

typedef enum CUstreamBatchMemOpType {
    CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
    CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
    CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
    CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
    CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
    CU_STREAM_MEM_OP_BARRIER = 6
} CUstreamBatchMemOpType;

/* Waits and writes have one layout. */
typedef struct fake_value_params {
    CUstreamBatchMemOpType operation;
    CUdeviceptr address;
    union {
        uint32_t value;
        uint64_t value64;
    };
    unsigned flags;
    CUdeviceptr alias;
} fake_value_params;

typedef union CUstreamBatchMemOpParams {
    CUstreamBatchMemOpType operation;
    fake_value_params waitValue;
    fake_value_params writeValue;
    uint64_t pad[6];
} CUstreamBatchMemOpParams;

typedef enum CUfunction_attribute {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
} CUfunction_attribute;

typedef enum CUdevResourceType {
    CU_DEV_RESOURCE_TYPE_SM = 1
} CUdevResourceType;

typedef struct CUdevSmResource {
    unsigned smCount, minSmPartitionSize, smCoscheduledAlignment;
} CUdevSmResource;

typedef struct CUdevResource {
    CUdevResourceType type;
    unsigned char _internal_padding[92];
    union {
        CUdevSmResource sm;
        unsigned char _oversize[48];
    };
} CUdevResource;

typedef enum CUmemLocationType {
    CU_MEM_LOCATION_TYPE_DEVICE = 1
} CUmemLocationType;

typedef enum CUmemAllocationType {
    CU_MEM_ALLOCATION_TYPE_PINNED = 1
} CUmemAllocationType;

typedef enum CUmemAccess_flags {
    CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
    CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
} CUmemAccess_flags;

typedef struct CUmemLocation {
    CUmemLocationType type;
    int id;
} CUmemLocation;

typedef struct CUmemAllocationProp {
    CUmemAllocationType type;
    unsigned requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

#endif
