/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: products of a cuda stream by cuBLASLt are right in each type, layout
 * and alignment, ask the heuristic once a shape, need no memory once they are
 * known, and can be captured.
 *
 * Method: a stand-in for the library (tests/fake/fake_cublaslt.h), on the fake
 * driver; on a real driver the system's own, of which only results are looked
 * at. Values have few bits, so that sums are exact in any order.
 */
#include "product_problem.h"

#include "device/cuda.h"
#include "tests/fake/fake_cublaslt.h"

#include <dlfcn.h>

enum { LONG = FAKE_CUBLASLT_LONG + 7, BUDGET = 16 };

/* What the stand-in has done; false: the library is a real one. */
static bool get_counts(fake_cublaslt_counts *out)
{
    const char *file = getenv("WEFT_CUBLASLT");
    void *library = file ? dlopen(file, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *found = library ? dlsym(library, "cublasLtFakeGetCounts") : NULL;
    fake_cublaslt_get_counts_fn *get;
    memcpy(&get, &found, sizeof(get));
    if (get) {
        get(out);
    }
    if (library) {
        dlclose(library);
    }
    return get != NULL;
}

static void multiply(const product_case *own, weft_stream *stream)
{
    bool queued = false;
    CHECK_WEFT(product_post(own, stream, &queued));
    CHECK(queued);
    CHECK_WEFT(weft_stream_wait(stream));
    product_check(own);
}

static const struct {
    weft_dtype own, out;
} types[] = {{WEFT_DTYPE_F32, WEFT_DTYPE_F32},
             {WEFT_DTYPE_BF16, WEFT_DTYPE_BF16},
             {WEFT_DTYPE_BF16, WEFT_DTYPE_F32},
             {WEFT_DTYPE_F64, WEFT_DTYPE_F64}};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

static void check_values(void *arg)
{
    (void)arg;
    fake_cublaslt_counts counts;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    for (size_t form = 0; form < TYPES * 16; form++) {
        const size_t type = form / 16;
        const problem of = {.dtype = types[type].own,
                            .c_dtype = types[type].out,
                            .m = 17,
                            .n = 24,
                            .k = form & 1 ? 9 : LONG,
                            .transpose_a = form & 2,
                            .transpose_b = form & 4,
                            .alpha = form & 8 ? 1 : 0.5,
                            .beta = form & 8 ? 0 : 2,
                            .gap = 8,
                            .shift = form & 8 ? 0 : 3};
        product_case own = product_open(device, &of);
        multiply(&own, stream);
        product_close(&own);
    }
    weft_stream_destroy(stream);
    if (get_counts(&counts)) {
        CHECK(counts.queued == TYPES * 16);
        CHECK(counts.with_workspace == TYPES * 8);
    }
    close_cuda(device);
    if (get_counts(&counts)) {
        CHECK(counts.handles == 0 && counts.objects == 0);
    }
}

static const problem long_sum = {.dtype = WEFT_DTYPE_BF16,
                                 .c_dtype = WEFT_DTYPE_F32,
                                 .m = 16,
                                 .n = 32,
                                 .k = LONG,
                                 .alpha = 1,
                                 .beta = 1};

/* A shape that is known costs no question, no descriptor, no memory. */
static void check_kept(void *arg)
{
    (void)arg;
    fake_cublaslt_counts before = {0}, after = {0};
    size_t unused_before, unused_after, total;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    product_case own = product_open(device, &long_sum);
    multiply(&own, stream);
    CHECK_WEFT(wefti_cuda_device_enter(device));
    CHECK_OK(cuMemGetInfo_v2(&unused_before, &total));
    const bool counted = get_counts(&before);
    for (int round = 0; round < 10; round++) {
        product_renew(&own, (uint64_t)round);
        multiply(&own, stream);
    }
    CHECK_OK(cuMemGetInfo_v2(&unused_after, &total));
    wefti_cuda_device_leave(device);
    CHECK(unused_before == unused_after);
    CHECK(get_counts(&after) == counted);
    CHECK(after.chosen == before.chosen && after.objects == before.objects);
    CHECK(after.queued == before.queued + (counted ? 10 : 0));
    product_close(&own);
    weft_stream_destroy(stream);
    close_cuda(device);
}

/* The graph outlives the stream that it was captured on, workspace and all. */
static void check_captured(void *arg)
{
    (void)arg;
    fake_cublaslt_counts before = {0}, after = {0};
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device), *other = make_stream(device);
    CUstream native = weft_stream_get_native(stream);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    bool queued = false;
    product_case own = product_open(device, &long_sum);
    multiply(&own, stream);
    (void)get_counts(&before);
    CHECK_WEFT(wefti_cuda_device_enter(device));
    CHECK_OK(cuStreamBeginCapture_v2(native, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_WEFT(product_post(&own, stream, &queued));
    CHECK(queued);
    CHECK_OK(cuStreamEndCapture(native, &graph));
    CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_OK(cuGraphDestroy(graph));
    (void)get_counts(&after);
    CHECK(after.with_workspace == before.with_workspace);
    weft_stream_destroy(stream);
    for (uint64_t round = 1; round < 4; round++) {
        product_renew(&own, round);
        CHECK_OK(cuGraphLaunch(exec, weft_stream_get_native(other)));
        CHECK_WEFT(weft_stream_wait(other));
        product_check(&own);
    }
    CHECK_OK(cuGraphExecDestroy(exec));
    wefti_cuda_device_leave(device);
    product_close(&own);
    weft_stream_destroy(other);
    close_cuda(device);
}

static void check_no_workspace(void *arg)
{
    (void)arg;
    fake_cublaslt_counts counts;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    product_case own = product_open(device, &long_sum);
    multiply(&own, stream);
    product_renew(&own, 7);
    multiply(&own, stream);
    CHECK(get_counts(&counts));
    CHECK(counts.queued == 2 && counts.with_workspace == 0);
    product_close(&own);
    weft_stream_destroy(stream);
    close_cuda(device);
}

/* A budget's multiprocessors are kept to by weft's own kernel. */
static void check_budget(void *arg)
{
    (void)arg;
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .sm_budget = BUDGET};
    bool queued = true;
    weft_stream *stream = NULL;
    weft_device *device = open_cuda(0);
    product_case own = product_open(device, &long_sum);
    CHECK_WEFT(weft_stream_create_as(device, &config, &stream));
    CHECK_WEFT(product_post(&own, stream, &queued));
    CHECK(!queued);
    weft_stream_destroy(stream);
    product_close(&own);
    close_cuda(device);
}

static void test_cuda_product_values_are_right(void **state)
{
    (void)state;
    in_child(check_values, NULL, NULL);
}

static void test_cuda_product_known_shape_needs_nothing(void **state)
{
    (void)state;
    in_child(check_kept, NULL, NULL);
}

static void test_cuda_product_captured_outlives_its_stream(void **state)
{
    (void)state;
    in_child(check_captured, NULL, NULL);
}

/* The arrays fit, the workspace does not. */
static void test_cuda_product_without_memory_for_workspace(void **state)
{
    (void)state;
    in_child(check_no_workspace, NULL, "WEFT_FAKE_GPU_MEMORY_MIB", "16", NULL);
}

static void test_cuda_product_of_a_budget_is_not_the_librarys(void **state)
{
    (void)state;
    in_child(check_budget, NULL, NULL);
}

static int set_library(void **state)
{
    const int status = set_kernels(state);
    return getenv("WEFT_TEST_DRIVER")
               ? status
               : setenv("WEFT_CUBLASLT", TEST_CUBLASLT, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_product_values_are_right),
        cmocka_unit_test(test_cuda_product_known_shape_needs_nothing),
        cmocka_unit_test(test_cuda_product_captured_outlives_its_stream),
        cmocka_unit_test(test_cuda_product_without_memory_for_workspace),
        cmocka_unit_test(test_cuda_product_of_a_budget_is_not_the_librarys),
    };
    return cmocka_run_group_tests(tests, set_library, NULL);
}
