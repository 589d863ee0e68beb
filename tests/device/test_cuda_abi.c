/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what device/cuda_api.h declares for itself is the toolkit's interface.
 * Method: cuda.h beside it; constants and layouts are compared when this
 * compiles, and what one wrote is read as the other's. It is built where the
 * toolkit is installed.
 */
#include "device/cuda_api.h"

#include <cuda.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SAME(name, value)                                                      \
    _Static_assert((long long)(name) == (value) &&                             \
                       (long long)WEFTI_##name == (value),                     \
                   #name);
WEFTI_CUDA_RESULTS(SAME)
WEFTI_CUDA_CONSTANTS(SAME)

#define SIZES(own, theirs)                                                     \
    _Static_assert(sizeof(own) == sizeof(theirs), #theirs)
#define PLACES(own, member, theirs, their_member)                              \
    _Static_assert(offsetof(own, member) == offsetof(theirs, their_member) &&  \
                       sizeof(((own *)0)->member) ==                           \
                           sizeof(((theirs *)0)->their_member),                \
                   #theirs "." #their_member)

SIZES(int, CUresult);
SIZES(int, CUdevice);
SIZES(int, CUstreamCaptureStatus);
SIZES(int, CUstreamCaptureMode);
SIZES(int, CUdevice_attribute);
SIZES(int, CUpointer_attribute);
SIZES(int, CUdevResourceType);
SIZES(int, CUmemAllocationHandleType);
SIZES(uint64_t, CUdeviceptr);
SIZES(uint64_t, CUmemGenericAllocationHandle);
SIZES(uint64_t, cuuint64_t);

SIZES(wefti_cuda_memop, CUstreamBatchMemOpParams);
PLACES(wefti_cuda_memop, value.address, CUstreamBatchMemOpParams,
       writeValue.address);
PLACES(wefti_cuda_memop, value.value64, CUstreamBatchMemOpParams,
       writeValue.value64);
PLACES(wefti_cuda_memop, value.flags, CUstreamBatchMemOpParams,
       writeValue.flags);

SIZES(wefti_cuda_ipc_handle, CUipcMemHandle);
SIZES(wefti_cuda_uuid, CUuuid);
SIZES(wefti_cuda_location, CUmemLocation);
PLACES(wefti_cuda_location, id, CUmemLocation, id);
SIZES(wefti_cuda_alloc_prop, CUmemAllocationProp);
PLACES(wefti_cuda_alloc_prop, handle_types, CUmemAllocationProp,
       requestedHandleTypes);
PLACES(wefti_cuda_alloc_prop, location, CUmemAllocationProp, location);
PLACES(wefti_cuda_alloc_prop, win32, CUmemAllocationProp, win32HandleMetaData);
PLACES(wefti_cuda_alloc_prop, flags, CUmemAllocationProp, allocFlags);
SIZES(wefti_cuda_access, CUmemAccessDesc);
PLACES(wefti_cuda_access, flags, CUmemAccessDesc, flags);
SIZES(wefti_cuda_resource, CUdevResource);
PLACES(wefti_cuda_resource, sm.count, CUdevResource, sm.smCount);

static void test_cuda_abi_of_this_build_is_the_toolkits(void **state)
{
    (void)state;
    assert_true(CUDA_VERSION >= WEFTI_CUDA_FIRST_VERSION);
    assert_ptr_equal(CU_STREAM_PER_THREAD, WEFTI_CU_STREAM_PER_THREAD);
    const wefti_cuda_memop wait = {
        .value = {.operation = WEFTI_CU_STREAM_MEM_OP_WAIT_VALUE_64,
                  .address = 3,
                  .value64 = 5,
                  .flags = 7}};
    const CUstreamBatchMemOpParams *same = (const void *)&wait;
    assert_int_equal(same->operation, CU_STREAM_MEM_OP_WAIT_VALUE_64);
    assert_int_equal(same->waitValue.address, 3);
    assert_int_equal(same->waitValue.value64, 5);
    assert_int_equal(same->waitValue.flags, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_abi_of_this_build_is_the_toolkits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
