/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what device/cublaslt_api.h declares for itself is cuBLASLt's interface,
 * and the library that belongs to the header is opened and has all of it.
 *
 * Method: cublasLt.h beside it; constants, layouts and types of functions are
 * compared when this compiles. Built where the header is installed. Of the
 * library, which needs no GPU for that, descriptors are made, and attributes
 * set: it refuses one of the wrong size.
 */
#include "device/cublaslt_api.h"

#include "weft/status.h"

#include <cublasLt.h>
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
WEFTI_CUBLASLT_CONSTANTS(SAME)

#define SIZES(own, theirs)                                                     \
    _Static_assert(sizeof(own) == sizeof(theirs), #theirs)
SIZES(int, cublasStatus_t);
SIZES(int, cublasComputeType_t);
SIZES(int, cudaDataType);
SIZES(int, cublasLtMatmulDescAttributes_t);
SIZES(int, cublasLtMatmulPreferenceAttributes_t);
SIZES(void *, cublasLtMatmulDesc_t);
SIZES(void *, cublasLtMatrixLayout_t);
SIZES(void *, cublasLtMatmulPreference_t);
SIZES(struct cublasLtContext *, cublasLtHandle_t);
SIZES(struct CUstream_st *, cudaStream_t);
SIZES(wefti_cublaslt_algo, cublasLtMatmulAlgo_t);
SIZES(wefti_cublaslt_result, cublasLtMatmulHeuristicResult_t);

#define PLACES(member, theirs)                                                 \
    _Static_assert(                                                            \
        offsetof(wefti_cublaslt_result, member) ==                             \
                offsetof(cublasLtMatmulHeuristicResult_t, theirs) &&           \
            sizeof(((wefti_cublaslt_result *)0)->member) ==                    \
                sizeof(((cublasLtMatmulHeuristicResult_t *)0)->theirs),        \
        #theirs)
PLACES(algo, algo);
PLACES(workspace_bytes, workspaceSize);
PLACES(state, state);
PLACES(waves, wavesCount);

/* As cuBLASLt writes them, with enumerations for ints. */
#define TAKES(name, ...)                                                       \
    _Static_assert(__builtin_types_compatible_p(                               \
                       __typeof__(&name), cublasStatus_t (*)(__VA_ARGS__)),    \
                   #name)
TAKES(cublasLtCreate, cublasLtHandle_t *);
TAKES(cublasLtDestroy, cublasLtHandle_t);
TAKES(cublasLtMatmulDescCreate, cublasLtMatmulDesc_t *, cublasComputeType_t,
      cudaDataType);
TAKES(cublasLtMatmulDescDestroy, cublasLtMatmulDesc_t);
TAKES(cublasLtMatmulDescSetAttribute, cublasLtMatmulDesc_t,
      cublasLtMatmulDescAttributes_t, const void *, size_t);
TAKES(cublasLtMatrixLayoutCreate, cublasLtMatrixLayout_t *, cudaDataType,
      uint64_t, uint64_t, int64_t);
TAKES(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout_t);
TAKES(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreference_t *);
TAKES(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference_t);
TAKES(cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreference_t,
      cublasLtMatmulPreferenceAttributes_t, const void *, size_t);
TAKES(cublasLtMatmulAlgoGetHeuristic, cublasLtHandle_t, cublasLtMatmulDesc_t,
      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
      cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
      cublasLtMatmulHeuristicResult_t *, int *);
TAKES(cublasLtMatmul, cublasLtHandle_t, cublasLtMatmulDesc_t, const void *,
      const void *, cublasLtMatrixLayout_t, const void *,
      cublasLtMatrixLayout_t, const void *, const void *,
      cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,
      const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t);
_Static_assert(__builtin_types_compatible_p(__typeof__(&cublasLtGetVersion),
                                            size_t (*)(void)),
               "cublasLtGetVersion");
_Static_assert(__builtin_types_compatible_p(__typeof__(&cublasLtGetStatusName),
                                            const char *(*)(cublasStatus_t)),
               "cublasLtGetStatusName");

/* Opened once for all tests; NULL, having said why: it is not installed. */
static const wefti_cublaslt_api *open_installed(void)
{
    const wefti_cublaslt_api *api;
    if (access(CUBLASLT_LIBRARY, R_OK) != 0) {
        fprintf(stderr, "left out: there is no %s\n", CUBLASLT_LIBRARY);
        return NULL;
    }
    setenv("WEFT_CUBLASLT", CUBLASLT_LIBRARY, 1);
    weft_status status = wefti_cublaslt_api_open(&api);
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
    return api;
}

static void test_cublaslt_library_beside_the_header_has_all(void **state)
{
    (void)state;
    char text[40], want[40];
    const wefti_cublaslt_api *api = open_installed();
    if (api) {
        wefti_cublaslt_version_text(api->version, text, sizeof(text));
        snprintf(want, sizeof(want), "cuBLASLt %d.", CUBLAS_VER_MAJOR);
        printf("%s\n", text);
        assert_int_equal(strncmp(text, want, strlen(want)), 0);
        assert_true(api->version >= WEFTI_CUBLASLT_FIRST_VERSION);
        assert_string_equal(
            api->cublasLtGetStatusName(WEFTI_CUBLAS_NOT_SUPPORTED),
            "CUBLAS_STATUS_NOT_SUPPORTED");
    }
}

/* All that weft sets has the size that the library wants. */
static void test_cublaslt_library_takes_the_attributes(void **state)
{
    (void)state;
    const wefti_cublaslt_api *api = open_installed();
    const int32_t turn = WEFTI_CUBLAS_OP_T;
    const uint32_t small = WEFTI_LT_REDUCTION_COMPUTE_TYPE, aligned = 16;
    const uint64_t bytes = 1 << 20;
    void *desc = NULL, *layout = NULL, *wish = NULL;
    if (!api) {
        return;
    }
    assert_int_equal(api->cublasLtMatmulDescCreate(
                         &desc, WEFTI_CUBLAS_COMPUTE_32F, WEFTI_CUDA_R_32F),
                     0);
    assert_int_equal(api->cublasLtMatmulDescSetAttribute(
                         desc, WEFTI_LT_DESC_TRANSA, &turn, sizeof(turn)),
                     0);
    assert_int_equal(api->cublasLtMatmulDescSetAttribute(
                         desc, WEFTI_LT_DESC_TRANSB, &turn, sizeof(turn)),
                     0);
    assert_int_equal(api->cublasLtMatmulDescSetAttribute(
                         desc, WEFTI_LT_DESC_TRANSB, &turn, 2),
                     WEFTI_CUBLAS_INVALID_VALUE);
    assert_int_equal(
        api->cublasLtMatrixLayoutCreate(&layout, WEFTI_CUDA_R_16BF, 64, 32, 80),
        0);
    assert_int_equal(api->cublasLtMatmulPreferenceCreate(&wish), 0);
    assert_int_equal(api->cublasLtMatmulPreferenceSetAttribute(
                         wish, WEFTI_LT_PREF_WORKSPACE, &bytes, sizeof(bytes)),
                     0);
    assert_int_equal(api->cublasLtMatmulPreferenceSetAttribute(
                         wish, WEFTI_LT_PREF_REDUCTION, &small, sizeof(small)),
                     0);
    for (int of = WEFTI_LT_PREF_ALIGNMENT_A; of <= WEFTI_LT_PREF_ALIGNMENT_D;
         of++) {
        assert_int_equal(api->cublasLtMatmulPreferenceSetAttribute(
                             wish, of, &aligned, sizeof(aligned)),
                         0);
    }
    assert_int_equal(api->cublasLtMatmulPreferenceDestroy(wish), 0);
    assert_int_equal(api->cublasLtMatrixLayoutDestroy(layout), 0);
    assert_int_equal(api->cublasLtMatmulDescDestroy(desc), 0);
}

static void test_cublaslt_version_text_both_forms(void **state)
{
    (void)state;
    char text[40];
    wefti_cublaslt_version_text(120402, text, sizeof(text));
    assert_string_equal(text, "cuBLASLt 12.4.2");
    wefti_cublaslt_version_text(11602, text, sizeof(text));
    assert_string_equal(text, "cuBLASLt 11.6.2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cublaslt_version_text_both_forms),
        cmocka_unit_test(test_cublaslt_library_beside_the_header_has_all),
        cmocka_unit_test(test_cublaslt_library_takes_the_attributes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
