/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what device/cudnn_api.h declares for itself is cuDNN's interface; the
 * library that belongs to the header is opened, has all of it, and takes every
 * operation of attention's graph.
 *
 * Method: cudnn.h beside it; constants and types of functions are compared when
 * this compiles. Built where the header is installed. Operations are finalised
 * by the library, which needs no GPU for that; a plan needs one.
 */
#include "device/attention_graph.h"

#include <cudnn.h>
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
WEFTI_CUDNN_CONSTANTS(SAME)

#define SIZES(own, theirs)                                                     \
    _Static_assert(sizeof(own) == sizeof(theirs), #theirs)
SIZES(int, cudnnStatus_t);
SIZES(int, cudnnDataType_t);
SIZES(int, cudnnBackendHeurMode_t);
SIZES(int, cudnnPointwiseMode_t);
SIZES(int, cudnnReduceTensorOp_t);
SIZES(int, cudnnBackendAttributeName_t);
SIZES(int, cudnnBackendAttributeType_t);
SIZES(int, cudnnBackendDescriptorType_t);
SIZES(void *, cudnnBackendDescriptor_t);
SIZES(struct cudnnContext *, cudnnHandle_t);
SIZES(struct CUstream_st *, cudaStream_t);

/* As cuDNN writes them, with enumerations for ints. */
#define TAKES(name, ...)                                                       \
    _Static_assert(__builtin_types_compatible_p(                               \
                       __typeof__(&name), cudnnStatus_t (*)(__VA_ARGS__)),     \
                   #name)
TAKES(cudnnCreate, cudnnHandle_t *);
TAKES(cudnnDestroy, cudnnHandle_t);
TAKES(cudnnSetStream, cudnnHandle_t, cudaStream_t);
TAKES(cudnnBackendCreateDescriptor, cudnnBackendDescriptorType_t,
      cudnnBackendDescriptor_t *);
TAKES(cudnnBackendDestroyDescriptor, cudnnBackendDescriptor_t);
TAKES(cudnnBackendSetAttribute, cudnnBackendDescriptor_t,
      cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
      const void *);
TAKES(cudnnBackendGetAttribute, cudnnBackendDescriptor_t const,
      cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t,
      int64_t *, void *);
TAKES(cudnnBackendFinalize, cudnnBackendDescriptor_t);
TAKES(cudnnBackendExecute, cudnnHandle_t, cudnnBackendDescriptor_t,
      cudnnBackendDescriptor_t);
_Static_assert(__builtin_types_compatible_p(__typeof__(&cudnnGetVersion),
                                            size_t (*)(void)),
               "cudnnGetVersion");
_Static_assert(__builtin_types_compatible_p(__typeof__(&cudnnGetErrorString),
                                            const char *(*)(cudnnStatus_t)),
               "cudnnGetErrorString");

/* NULL, having said why: it is not installed. */
static const wefti_cudnn_api *open_installed(void)
{
    const wefti_cudnn_api *api;
    if (access(CUDNN_LIBRARY, R_OK) != 0) {
        fprintf(stderr, "left out: there is no %s\n", CUDNN_LIBRARY);
        return NULL;
    }
    setenv("WEFT_CUDNN", CUDNN_LIBRARY, 1);
    if (wefti_cudnn_api_open(&api) != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
    return api;
}

static void test_cudnn_library_beside_the_header_has_all(void **state)
{
    (void)state;
    char text[40];
    const wefti_cudnn_api *api = open_installed();
    if (api) {
        wefti_cudnn_version_text(api->version, text, sizeof(text));
        printf("%s\n", text);
        assert_int_equal(api->version, CUDNN_VERSION);
        assert_string_equal(api->cudnnGetErrorString(WEFTI_CUDNN_SUCCESS),
                            "CUDNN_STATUS_SUCCESS");
    }
}

/* Forward and backward, with a mask or without, with groups of heads and
 * strides of tokens. */
static void test_cudnn_library_takes_the_operations(void **state)
{
    (void)state;
    static const size_t counts[] = {10, 14, 19, 23};
    const wefti_cudnn_api *api = open_installed();
    for (int form = 0; api && form < 4; form++) {
        wefti_attention_plan plan = {.api = api,
                                     .of = {.sequences = 2,
                                            .q_tokens = 64,
                                            .kv_tokens = 96,
                                            .heads = 8,
                                            .kv_heads = 2,
                                            .head_size = 64,
                                            .q_stride = 600,
                                            .kv_stride = 136,
                                            .o_stride = 512,
                                            .causal = form % 2,
                                            .dout = form < 2 ? NULL : counts}};
        assert_false(wefti_attention_plan_make(&plan)); /* it has no handle */
        printf("%zu operations, then %s: %s\n", plan.op_count, plan.what,
               api->cudnnGetErrorString(plan.status));
        assert_int_equal(plan.op_count, counts[form]);
        assert_true(plan.desc_count < WEFTI_ATTENTION_DESCS - 12);
        wefti_attention_plan_end(&plan);
        assert_int_equal(plan.desc_count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cudnn_library_beside_the_header_has_all),
        cmocka_unit_test(test_cudnn_library_takes_the_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
