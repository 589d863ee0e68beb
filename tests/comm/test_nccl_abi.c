/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what comm/nccl/nccl_api.h declares for itself is NCCL's interface, and
 * the library that belongs to the header is opened and has all of it.
 *
 * Method: nccl.h beside it; constants, layouts and types of functions are
 * compared when this compiles. Built where nccl.h is installed; the library is
 * asked for no more than its version, for which it needs no GPU.
 */
#include "comm/nccl/nccl_api.h"

#include <nccl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAME(name, theirs, value)                                              \
    _Static_assert((long long)(theirs) == (value) &&                           \
                       (long long)WEFTI_##name == (value),                     \
                   #theirs);
WEFTI_NCCL_CONSTANTS(SAME)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
WEFTI_NCCL_SMALL_FLOATS(SAME)
#endif

#define SIZES(own, theirs)                                                     \
    _Static_assert(sizeof(own) == sizeof(theirs), #theirs)
SIZES(int, ncclResult_t);
SIZES(int, ncclDataType_t);
SIZES(int, ncclRedOp_t);
SIZES(int, ncclScalarResidence_t);
SIZES(wefti_nccl_id, ncclUniqueId);
SIZES(struct CUstream_st *, cudaStream_t);

#define PLACES(member)                                                         \
    _Static_assert(offsetof(wefti_nccl_config, member) ==                      \
                           offsetof(ncclConfig_t, member) &&                   \
                       sizeof(((wefti_nccl_config *)0)->member) ==             \
                           sizeof(((ncclConfig_t *)0)->member),                \
                   "ncclConfig_t." #member)
PLACES(size);
PLACES(magic);
PLACES(version);
PLACES(blocking);

/* As NCCL writes them, with enumerations for ints. */
#define TAKES(name, ...)                                                       \
    _Static_assert(__builtin_types_compatible_p(                               \
                       __typeof__(&name), ncclResult_t (*)(__VA_ARGS__)),      \
                   #name)
TAKES(ncclGetVersion, int *);
TAKES(ncclGetUniqueId, ncclUniqueId *);
TAKES(ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int,
      ncclConfig_t *);
TAKES(ncclCommFinalize, ncclComm_t);
TAKES(ncclCommDestroy, ncclComm_t);
TAKES(ncclCommAbort, ncclComm_t);
TAKES(ncclCommGetAsyncError, ncclComm_t, ncclResult_t *);
TAKES(ncclGroupStart, void);
TAKES(ncclGroupEnd, void);
TAKES(ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
      ncclComm_t, cudaStream_t);
TAKES(ncclReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
      int, ncclComm_t, cudaStream_t);
TAKES(ncclBroadcast, const void *, void *, size_t, ncclDataType_t, int,
      ncclComm_t, cudaStream_t);
TAKES(ncclAllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t,
      cudaStream_t);
TAKES(ncclReduceScatter, const void *, void *, size_t, ncclDataType_t,
      ncclRedOp_t, ncclComm_t, cudaStream_t);
TAKES(ncclSend, const void *, size_t, ncclDataType_t, int, ncclComm_t,
      cudaStream_t);
TAKES(ncclRecv, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TAKES(ncclRedOpCreatePreMulSum, ncclRedOp_t *, void *, ncclDataType_t,
      ncclScalarResidence_t, ncclComm_t);
TAKES(ncclRedOpDestroy, ncclRedOp_t, ncclComm_t);

static void test_nccl_abi_of_this_build_is_the_headers(void **state)
{
    (void)state;
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    assert_true(NCCL_VERSION_CODE >= WEFTI_NCCL_FIRST_VERSION);
    assert_int_equal(theirs.magic, WEFTI_NCCL_MAGIC);
    assert_true(sizeof(wefti_nccl_config) <= theirs.size);
}

static void test_nccl_library_beside_the_header_has_all(void **state)
{
    (void)state;
    const wefti_nccl_api *api;
    char text[32];
    if (access(NCCL_LIBRARY, R_OK) != 0) {
        fprintf(stderr, "left out: there is no %s\n", NCCL_LIBRARY);
        return;
    }
    setenv("WEFT_NCCL", NCCL_LIBRARY, 1);
    weft_status status = wefti_nccl_api_open(&api);
    if (status != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
    }
    assert_int_equal(status, WEFT_OK);
    assert_int_equal(api->version, NCCL_VERSION_CODE);
    wefti_nccl_version_text(api->version, text, sizeof(text));
    printf("NCCL %s\n", text);
    assert_string_equal(api->ncclGetErrorString(WEFTI_NCCL_SUCCESS),
                        "no error");
}

static void test_nccl_version_text_both_forms(void **state)
{
    (void)state;
    char text[32];
    wefti_nccl_version_text(22809, text, sizeof(text));
    assert_string_equal(text, "2.28.9");
    wefti_nccl_version_text(2708, text, sizeof(text));
    assert_string_equal(text, "2.7.8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_abi_of_this_build_is_the_headers),
        cmocka_unit_test(test_nccl_version_text_both_forms),
        cmocka_unit_test(test_nccl_library_beside_the_header_has_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
