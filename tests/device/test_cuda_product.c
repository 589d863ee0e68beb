/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: products of a cuda stream by cuBLASLt are right in each type, layout
 * and alignment, ask the heuristic once a shape, keep to a bounded number of
 * plans, need no memory once they are known, and can be captured; where the
 * library is missing or refuses, nothing is queued and the log says why.
 *
 * Method: a stand-in for the library (tests/fake/fake_cublaslt.h), on the fake
 * driver; on a real driver the system's own, of which only results are looked
 * at. Values have few bits, so that sums are exact in any order.
 */
#include "product_problem.h"

#include "device/cuda.h"
#include "tests/fake/fake_cublaslt.h"

#include <dlfcn.h>

enum { LONG = FAKE_CUBLASLT_LONG + 7, THREADS = 4, SHAPES = 100, BUDGET = 16 };

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

/* A real library may refuse what is badly aligned. */
static void multiply(const product_case *own, weft_stream *stream)
{
    bool queued = false;
    CHECK_WEFT(product_post(own, stream, &queued));
    CHECK(queued || (is_system_driver() && own->of.shift > 0));
    CHECK_WEFT(weft_stream_wait(stream));
    if (queued) {
        product_check(own);
    } else {
        fprintf(stderr, "refused: a product of arrays %zu elements off\n",
                own->of.shift);
    }
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
    CHECK(!counted || unused_before == unused_after); /* others use a GPU */
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

/* The program's stream may be at work when its wrapping is gone. */
static void check_wrapped(void *arg)
{
    (void)arg;
    fake_cublaslt_counts counts;
    CUstream native = NULL;
    weft_stream *stream = NULL;
    bool queued = false;
    weft_device *device = open_cuda(0);
    product_case own = product_open(device, &long_sum);
    CHECK_WEFT(wefti_cuda_device_enter(device));
    CHECK_OK(cuStreamCreateWithPriority(&native, CU_STREAM_NON_BLOCKING, 0));
    CHECK_WEFT(weft_stream_wrap(device, native, &stream));
    CHECK_WEFT(product_post(&own, stream, &queued));
    CHECK(queued);
    weft_stream_destroy(stream);
    CHECK_OK(cuStreamSynchronize(native));
    CHECK_OK(cuStreamDestroy_v2(native));
    wefti_cuda_device_leave(device);
    product_check(&own);
    if (get_counts(&counts)) {
        CHECK(counts.queued == 1 && counts.with_workspace == 0);
    }
    product_close(&own);
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

/* Shapes of its own and shapes of all, more than plans are kept. */
static void *multiply_shapes(void *arg)
{
    product_case *all = arg;
    weft_stream *stream = make_stream(all[0].device);
    for (size_t i = 0; i < SHAPES; i++) {
        bool queued = false;
        CHECK_WEFT(product_post(&all[i], stream, &queued));
        CHECK(queued);
    }
    CHECK_WEFT(weft_stream_wait(stream));
    weft_stream_destroy(stream);
    return NULL;
}

static void check_threads(void *arg)
{
    (void)arg;
    static product_case all[THREADS][SHAPES];
    pthread_t threads[THREADS];
    fake_cublaslt_counts counts;
    weft_device *device = open_cuda(0);
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < SHAPES; i++) {
            const problem of = {.dtype = WEFT_DTYPE_F32,
                                .c_dtype = WEFT_DTYPE_F32,
                                .m = 1 + i % 10,
                                .n = 1 + i / 10,
                                .k = i % 2 ? LONG : 3 + t,
                                .alpha = 1};
            all[t][i] = product_open(device, &of);
        }
        CHECK(pthread_create(&threads[t], NULL, multiply_shapes, all[t]) == 0);
    }
    for (size_t t = 0; t < THREADS; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0);
    }
    if (get_counts(&counts)) {
        CHECK(counts.queued == THREADS * SHAPES);
        CHECK(counts.objects <= 4 * 256 && counts.handles == 1);
    }
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < SHAPES; i++) {
            product_check(&all[t][i]);
            product_close(&all[t][i]);
        }
    }
    close_cuda(device);
    if (get_counts(&counts)) {
        CHECK(counts.handles == 0 && counts.objects == 0);
    }
}

/* Nothing is queued, C is as it was, and the log has the reason, once. */
static void check_reason(void *arg)
{
    const char *reason = arg;
    char logged[8192] = "";
    bool queued = true;
    FILE *log = tmpfile();
    const int kept = dup(STDERR_FILENO);
    CHECK(log && kept >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    product_case own = product_open(device, &long_sum);
    for (int round = 0; round < 2; round++) {
        CHECK_WEFT(product_post(&own, stream, &queued));
        CHECK(!queued);
    }
    own.of.alpha = 0; /* with beta 1: C as it was */
    product_check(&own);
    product_close(&own);
    weft_stream_destroy(stream);
    close_cuda(device);
    CHECK(dup2(kept, STDERR_FILENO) >= 0);
    rewind(log);
    const size_t bytes = fread(logged, 1, sizeof(logged) - 1, log);
    const char *found = strstr(logged, reason);
    if (bytes == 0 || !found || strstr(found + 1, reason)) {
        fprintf(stderr, "not \"%s\" once in: %s\n", reason, logged);
        _exit(1);
    }
}

static void check_launch_error(void *arg)
{
    (void)arg;
    bool queued = true;
    weft_device *device = open_cuda(0);
    weft_stream *stream = make_stream(device);
    product_case own = product_open(device, &long_sum);
    CHECK_REFUSED(WEFT_ERR_SYSTEM, product_post(&own, stream, &queued),
                  "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED");
    CHECK(!queued);
    product_close(&own);
    weft_stream_destroy(stream);
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

static void test_cuda_product_of_a_wrapped_stream(void **state)
{
    (void)state;
    in_child(check_wrapped, NULL, NULL);
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

static void test_cuda_product_threads_share_the_plans(void **state)
{
    (void)state;
    in_child(check_threads, NULL, "WEFT_FAKE_GPU_DELAY", "1", NULL);
}

#define REASON(text, name, value)                                              \
    in_child(check_reason, (void *)(uintptr_t)(text), "WEFT_LOG", "info",      \
             name, value, NULL)

static void test_cuda_product_library_that_cannot_is_named(void **state)
{
    (void)state;
    if (is_system_driver()) {
        fprintf(stderr, "left out: the stand-in's refusals\n");
        return;
    }
    REASON("own kernel: WEFT_CUBLASLT=off", "WEFT_CUBLASLT", "off");
    REASON("own kernel: no cuBLASLt: /no/such/file", "WEFT_CUBLASLT",
           "/no/such/file");
    REASON("has no cublasLtGetVersion: it is not cuBLASLt", "WEFT_CUBLASLT",
           TEST_DRIVER);
    REASON("cuBLASLt 13.1.0, has no cublasLtMatmulPreferenceDestroy",
           "WEFT_CUBLASLT", TEST_CUBLASLT_LACKING);
    REASON("is cuBLASLt 11.6.2: needed is 12.0 or later",
           "WEFT_FAKE_CUBLASLT_VERSION", "11602");
    REASON("does not start: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED",
           "WEFT_FAKE_CUBLASLT_FAULT", "create");
}

static void test_cuda_product_that_the_library_refuses_is_named(void **state)
{
    (void)state;
    if (is_system_driver()) {
        fprintf(stderr, "left out: the stand-in's refusals\n");
        return;
    }
    REASON("16 x 32 x 71 by weft's own kernel: cuBLASLt has no algorithm: "
           "CUBLAS_STATUS_NOT_SUPPORTED",
           "WEFT_FAKE_CUBLASLT_FAULT", "refuse");
    REASON("own kernel: cuBLASLt has no algorithm: CUBLAS_STATUS_NOT_SUPPORTED",
           "WEFT_FAKE_CUBLASLT_FAULT", "none");
    REASON("own kernel: cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED",
           "WEFT_FAKE_CUBLASLT_FAULT", "late");
    in_child(check_launch_error, NULL, "WEFT_FAKE_CUBLASLT_FAULT", "launch",
             NULL);
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
        cmocka_unit_test(test_cuda_product_of_a_wrapped_stream),
        cmocka_unit_test(test_cuda_product_without_memory_for_workspace),
        cmocka_unit_test(test_cuda_product_of_a_budget_is_not_the_librarys),
        cmocka_unit_test(test_cuda_product_threads_share_the_plans),
        cmocka_unit_test(test_cuda_product_library_that_cannot_is_named),
        cmocka_unit_test(test_cuda_product_that_the_library_refuses_is_named),
    };
    return cmocka_run_group_tests(tests, set_library, NULL);
}
