/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: attention of a cuda stream by cuDNN, forward and backward, is the
 * formula's, of all heads, groups, masks, lengths and strides that it takes; a
 * shape's plan is made once; where the library is missing or refuses, nothing
 * is queued and the log says why; what it does not take is left to weft's own
 * kernel.
 *
 * Method: a stand-in for the library (tests/fake/fake_cudnn.h), on the fake
 * driver; on a real driver the system's own, of which only results are looked
 * at. Results start poisoned.
 */
#include "cuda_test.h"

#include "base/small_float.h"
#include "device/cuda.h"
#include "tests/fake/fake_cudnn.h"

#include <dlfcn.h>
#include <math.h>

enum { GAP = 8 };

typedef struct shape {
    size_t sequences, q_tokens, kv_tokens, heads, kv_heads, head_size;
    bool causal;
} shape;

typedef struct scene {
    weft_device *device;
    weft_stream *stream;
    wefti_attention_call call;
    size_t q_elems, kv_elems, o_elems, lse_elems;
    uint16_t *q, *k, *v, *dout; /* as the device has them */
} scene;

static bool get_counts(fake_cudnn_counts *out)
{
    const char *file = getenv("WEFT_CUDNN");
    void *library = file ? dlopen(file, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *found = library ? dlsym(library, "cudnnFakeGetCounts") : NULL;
    fake_cudnn_get_counts_fn *get;
    memcpy(&get, &found, sizeof(get));
    if (get) {
        get(out);
    }
    if (library) {
        dlclose(library);
    }
    return get != NULL;
}

static uint16_t *make_array(const scene *own, size_t elems, uint64_t seed,
                            const void **on_device)
{
    uint16_t *host = malloc(elems * sizeof(*host));
    void *device =
        make_memory(own->device, WEFT_MEMORY_DEVICE, elems * sizeof(*host));
    CHECK(host != NULL);
    for (size_t i = 0; i < elems; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        host[i] = wefti_bf16_narrow((float)(seed >> 40) * 0x1p-23F - 1);
    }
    CHECK_WEFT(weft_device_copy(own->device, device, host,
                                elems * sizeof(*host), NULL));
    *on_device = device;
    return host;
}

static void *make_poison(const scene *own, size_t bytes)
{
    void *device = make_memory(own->device, WEFT_MEMORY_DEVICE, bytes);
    void *host = malloc(bytes);
    CHECK(host != NULL);
    memset(host, 0xff, bytes);
    CHECK_WEFT(weft_device_copy(own->device, device, host, bytes, NULL));
    free(host);
    return device;
}

/* What it is to do, with arrays of its own. */
static void make_call(scene *own, const shape *of)
{
    wefti_attention_call *call = &own->call;
    *call = (wefti_attention_call){
        .sequences = of->sequences,
        .q_tokens = of->q_tokens,
        .kv_tokens = of->kv_tokens,
        .heads = of->heads,
        .kv_heads = of->kv_heads,
        .head_size = of->head_size,
        .q_stride = of->heads * of->head_size + GAP,
        .kv_stride = of->kv_heads * of->head_size + 2 * GAP,
        .o_stride = of->heads * of->head_size + 3 * GAP,
        .scale = 1 / sqrt((double)of->head_size),
        .causal = of->causal};
    own->q_elems = of->sequences * of->q_tokens * call->q_stride;
    own->kv_elems = of->sequences * of->kv_tokens * call->kv_stride;
    own->lse_elems = of->sequences * of->q_tokens * of->heads;
    own->q = make_array(own, own->q_elems, 1, &call->q);
    own->k = make_array(own, own->kv_elems, 2, &call->k);
    own->v = make_array(own, own->kv_elems, 3, &call->v);
    own->o_elems = of->sequences * of->q_tokens * call->o_stride;
    call->o = make_poison(own, 2 * own->o_elems);
    call->lse = make_poison(own, own->lse_elems * sizeof(float));
}

/* Its backward, once o and lse are there. */
static void make_backward(scene *own)
{
    wefti_attention_call *call = &own->call;
    own->dout = make_array(own, own->o_elems, 4, &call->dout);
    call->dq = make_poison(own, 2 * own->q_elems);
    call->dk = make_poison(own, 2 * own->kv_elems);
    call->dv = make_poison(own, 2 * own->kv_elems);
    call->delta = make_poison(own, own->lse_elems * sizeof(float));
}

static void free_call(scene *own)
{
    const wefti_attention_call *c = &own->call;
    const void *const all[] = {c->q,    c->k,  c->v,  c->o,  c->lse,
                               c->dout, c->dq, c->dk, c->dv, c->delta};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        weft_device_free(own->device, (void *)(uintptr_t)all[i]);
    }
    free(own->q);
    free(own->k);
    free(own->v);
    free(own->dout);
    own->dout = NULL;
}

/* The formula of one query and head. */
static double want_of(const scene *own, size_t row, size_t head, double *o)
{
    const wefti_attention_call *c = &own->call;
    const size_t first = row / c->q_tokens * c->kv_tokens;
    const size_t group = head / (c->heads / c->kv_heads);
    const size_t seen = c->causal && row % c->q_tokens < c->kv_tokens
                            ? row % c->q_tokens + 1
                            : c->kv_tokens;
    double sum = 0;
    memset(o, 0, c->head_size * sizeof(*o));
    for (size_t j = 0; j < seen; j++) {
        const size_t key = (first + j) * c->kv_stride + group * c->head_size;
        double score = 0;
        for (size_t d = 0; d < c->head_size; d++) {
            score += (double)wefti_bf16_widen(
                         own->q[row * c->q_stride + head * c->head_size + d]) *
                     (double)wefti_bf16_widen(own->k[key + d]);
        }
        const double weight = exp(score * c->scale); /* scores are small */
        sum += weight;
        for (size_t d = 0; d < c->head_size; d++) {
            o[d] += weight * (double)wefti_bf16_widen(own->v[key + d]);
        }
    }
    for (size_t d = 0; d < c->head_size; d++) {
        o[d] /= sum;
    }
    return log(sum);
}

/* Weights are rounded to bf16 before they meet V, and so is o. */
static void check_values(const scene *own)
{
    const wefti_attention_call *c = &own->call;
    const size_t rows = c->sequences * c->q_tokens;
    uint16_t *o = malloc(rows * c->o_stride * sizeof(*o));
    float *lse = malloc(own->lse_elems * sizeof(*lse));
    double *want = malloc(c->head_size * sizeof(*want));
    CHECK(o && lse && want);
    CHECK_WEFT(weft_device_copy(own->device, o, c->o,
                                rows * c->o_stride * sizeof(*o), NULL));
    CHECK_WEFT(weft_device_copy(own->device, lse, c->lse,
                                own->lse_elems * sizeof(*lse), NULL));
    for (size_t row = 0; row < rows; row++) {
        for (size_t head = 0; head < c->heads; head++) {
            const double sum = want_of(own, row, head, want);
            CHECK(fabs((double)lse[row * c->heads + head] - sum) < 1e-3);
            for (size_t d = 0; d < c->head_size; d++) {
                const double got = (double)wefti_bf16_widen(
                    o[row * c->o_stride + head * c->head_size + d]);
                CHECK(fabs(got - want[d]) < 0x1p-7);
            }
        }
        for (size_t d = c->heads * c->head_size; d < c->o_stride; d++) {
            CHECK(o[row * c->o_stride + d] == 0xffff);
        }
    }
    free(o);
    free(lse);
    free(want);
}

/* ---- backward --------------------------------------------------------------
 */

static double at(const uint16_t *array, size_t i)
{
    return (double)wefti_bf16_widen(array[i]);
}

static double dot(const uint16_t *a, size_t first_a, const uint16_t *b,
                  size_t first_b, size_t count)
{
    double sum = 0;
    for (size_t d = 0; d < count; d++) {
        sum += at(a, first_a + d) * at(b, first_b + d);
    }
    return sum;
}

static void add(double *sum, size_t first, double factor, const uint16_t *of,
                size_t from, size_t count)
{
    for (size_t d = 0; d < count; d++) {
        sum[first + d] += factor * at(of, from + d);
    }
}

typedef struct gradients {
    uint16_t *o; /* and lse, as the forward left them */
    float *lse;
    double *dq, *dk, *dv;
} gradients;

/* What a query and head have to do with a key. */
static void add_pair(const scene *own, const gradients *g, size_t row,
                     size_t head, size_t key)
{
    const wefti_attention_call *c = &own->call;
    const size_t size = c->head_size;
    const size_t q = row * c->q_stride + head * size;
    const size_t o = row * c->o_stride + head * size;
    const size_t kv =
        key * c->kv_stride + head / (c->heads / c->kv_heads) * size;
    const double lse = (double)g->lse[row * c->heads + head];
    const double weight =
        exp(dot(own->q, q, own->k, kv, size) * c->scale - lse);
    const double slope = weight * c->scale *
                         (dot(own->dout, o, own->v, kv, size) -
                          dot(own->dout, o, g->o, o, size));
    add(g->dv, kv, weight, own->dout, o, size);
    add(g->dk, kv, slope, own->q, q, size);
    add(g->dq, q, slope, own->k, kv, size);
}

static void *read_back(const scene *own, const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    CHECK(to != NULL);
    CHECK_WEFT(weft_device_copy(own->device, to, from, bytes, NULL));
    return to;
}

/* Weights and slopes are rounded to bf16 before they meet the others, and so
 * is what each head adds to a key's gradient. */
static void check_gradient(const scene *own, const void *on_device,
                           const double *want, size_t elems, size_t width,
                           size_t stride)
{
    uint16_t *got = read_back(own, on_device, 2 * elems);
    for (size_t i = 0; i < elems; i++) {
        if (i % stride < width) {
            CHECK(fabs(at(got, i) - want[i]) < 0x1p-6 * (1 + fabs(want[i])));
        } else {
            CHECK(got[i] == 0xffff);
        }
    }
    free(got);
}

static void check_gradients(const scene *own)
{
    const wefti_attention_call *c = &own->call;
    const gradients g = {read_back(own, c->o, 2 * own->o_elems),
                         read_back(own, c->lse, own->lse_elems * sizeof(float)),
                         calloc(own->q_elems, sizeof(double)),
                         calloc(own->kv_elems, sizeof(double)),
                         calloc(own->kv_elems, sizeof(double))};
    const size_t keys = c->kv_heads * c->head_size;
    CHECK(g.dq && g.dk && g.dv);
    for (size_t row = 0; row < c->sequences * c->q_tokens; row++) {
        const size_t first = row / c->q_tokens * c->kv_tokens;
        for (size_t pair = 0; pair < c->heads * c->kv_tokens; pair++) {
            const size_t key = pair / c->heads;
            if (!c->causal || key <= row % c->q_tokens) {
                add_pair(own, &g, row, pair % c->heads, first + key);
            }
        }
    }
    check_gradient(own, c->dq, g.dq, own->q_elems, c->heads * c->head_size,
                   c->q_stride);
    check_gradient(own, c->dk, g.dk, own->kv_elems, keys, c->kv_stride);
    check_gradient(own, c->dv, g.dv, own->kv_elems, keys, c->kv_stride);
    free(g.o);
    free(g.lse);
    free(g.dq);
    free(g.dk);
    free(g.dv);
}

/* ---- scenes ----------------------------------------------------------------
 */

static const shape small = {1, 9, 9, 2, 2, 16, true};

static void check_shapes(void *arg)
{
    (void)arg;
    static const shape shapes[] = {{1, 9, 9, 2, 2, 16, true},
                                   {2, 12, 12, 4, 2, 64, true},
                                   {2, 7, 13, 4, 1, 32, false},
                                   {3, 1, 1, 1, 1, 8, true},
                                   {1, 5, 11, 2, 1, 128, true}};
    enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    fake_cudnn_counts counts;
    scene own = {.device = open_cuda(0)};
    own.stream = make_stream(own.device);
    for (size_t i = 0; i < 2 * SHAPES; i++) {
        bool queued = false;
        make_call(&own, &shapes[i % SHAPES]);
        CHECK_WEFT(wefti_stream_attend(own.stream, &own.call, &queued));
        CHECK(queued || is_system_driver());
        CHECK_WEFT(weft_stream_wait(own.stream));
        if (queued) {
            check_values(&own);
            make_backward(&own);
            CHECK_WEFT(wefti_stream_attend(own.stream, &own.call, &queued));
            CHECK(queued || is_system_driver());
            CHECK_WEFT(weft_stream_wait(own.stream));
        }
        if (queued) {
            check_gradients(&own);
        } else {
            fprintf(stderr, "refused: shape %zu\n", i);
        }
        free_call(&own);
    }
    if (get_counts(&counts)) {
        CHECK(counts.plans == 2 * SHAPES && counts.queued == 4 * SHAPES);
    }
    weft_stream_destroy(own.stream);
    if (get_counts(&counts)) {
        CHECK(counts.handles == 0 && counts.objects == 0);
    }
    close_cuda(own.device);
}

/* More shapes than plans are kept. */
static void check_many(void *arg)
{
    (void)arg;
    scene own = {.device = open_cuda(0)};
    own.stream = make_stream(own.device);
    for (size_t tokens = 1; tokens <= 20; tokens++) {
        const shape of = {1, tokens, tokens, 1, 1, 8, true};
        bool queued = false;
        make_call(&own, &of);
        CHECK_WEFT(wefti_stream_attend(own.stream, &own.call, &queued));
        CHECK(queued);
        CHECK_WEFT(weft_stream_wait(own.stream));
        check_values(&own);
        free_call(&own);
    }
    weft_stream_destroy(own.stream);
    close_cuda(own.device);
}

static void expect_own(scene *own, weft_stream *stream)
{
    bool queued = true;
    CHECK_WEFT(wefti_stream_attend(stream, &own->call, &queued));
    CHECK(!queued);
}

/* Graphs and streams that outlive a plan, a budget, arrays that lie badly. */
static void check_left(void *arg)
{
    (void)arg;
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .sm_budget = 16};
    scene own = {.device = open_cuda(0)};
    weft_stream *budget = NULL, *wrapped = NULL;
    CUgraph graph = NULL;
    own.stream = make_stream(own.device);
    make_call(&own, &small);
    const wefti_attention_call good = own.call;
    CUstream native = weft_stream_get_native(own.stream);
    CHECK_WEFT(weft_stream_create_as(own.device, &config, &budget));
    CHECK_WEFT(weft_stream_wrap(own.device, native, &wrapped));
    expect_own(&own, budget);
    expect_own(&own, wrapped);
    own.call.q = (const char *)good.q + 2;
    expect_own(&own, own.stream);
    own.call = good;
    own.call.kv_stride += 1;
    expect_own(&own, own.stream);
    own.call = good;
    own.call.head_size = 12;
    expect_own(&own, own.stream);
    own.call = good;
    CHECK_WEFT(wefti_cuda_device_enter(own.device));
    CHECK_OK(cuStreamBeginCapture_v2(native, CU_STREAM_CAPTURE_MODE_GLOBAL));
    expect_own(&own, own.stream);
    CHECK_OK(cuStreamEndCapture(native, &graph));
    CHECK_OK(cuGraphDestroy(graph));
    wefti_cuda_device_leave(own.device);
    free_call(&own);
    weft_stream_destroy(wrapped);
    weft_stream_destroy(budget);
    weft_stream_destroy(own.stream);
    close_cuda(own.device);
}

/* Before 9.16 it takes no other number of keys than multiples of 128. */
static void check_old_backward(void *arg)
{
    (void)arg;
    static const shape shapes[] = {{1, 4, 128, 1, 1, 8, false},
                                   {1, 4, 127, 1, 1, 8, false}};
    scene own = {.device = open_cuda(0)};
    own.stream = make_stream(own.device);
    for (int i = 0; i < 2; i++) {
        bool queued = false;
        make_call(&own, &shapes[i]);
        CHECK_WEFT(wefti_stream_attend(own.stream, &own.call, &queued));
        CHECK(queued);
        make_backward(&own);
        CHECK_WEFT(wefti_stream_attend(own.stream, &own.call, &queued));
        CHECK(queued == (i == 0));
        CHECK_WEFT(weft_stream_wait(own.stream));
        free_call(&own);
    }
    weft_stream_destroy(own.stream);
    close_cuda(own.device);
}

/* A workspace that streams do not have is the plan's own; where there is no
 * memory for it, nothing is queued. */
static void check_workspace(void *arg)
{
    const bool fits = arg != NULL;
    scene own = {.device = open_cuda(0)};
    bool queued = false;
    own.stream = make_stream(own.device);
    make_call(&own, &small);
    CHECK_WEFT(wefti_stream_attend(own.stream, &own.call, &queued));
    CHECK(queued == fits);
    CHECK_WEFT(weft_stream_wait(own.stream));
    if (fits) {
        check_values(&own);
    }
    free_call(&own);
    weft_stream_destroy(own.stream);
    close_cuda(own.device);
}

/* Nothing is queued, and the log has the reason, once. */
static void check_reason(void *arg)
{
    const char *reason = arg;
    char logged[8192] = "";
    FILE *log = tmpfile();
    const int kept = dup(STDERR_FILENO);
    CHECK(log && kept >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    scene own = {.device = open_cuda(0)};
    own.stream = make_stream(own.device);
    make_call(&own, &small);
    expect_own(&own, own.stream);
    expect_own(&own, own.stream);
    free_call(&own);
    weft_stream_destroy(own.stream);
    close_cuda(own.device);
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
    scene own = {.device = open_cuda(0)};
    own.stream = make_stream(own.device);
    make_call(&own, &small);
    CHECK_REFUSED(WEFT_ERR_SYSTEM,
                  wefti_stream_attend(own.stream, &own.call, &queued),
                  "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED");
    CHECK(!queued);
    free_call(&own);
    weft_stream_destroy(own.stream);
    close_cuda(own.device);
}

static void test_cuda_attention_values_are_right(void **state)
{
    (void)state;
    in_child(check_shapes, NULL, NULL);
}

static void test_cuda_attention_backward_of_old_versions(void **state)
{
    (void)state;
    if (!is_system_driver()) {
        in_child(check_old_backward, NULL, "WEFT_FAKE_CUDNN_VERSION", "91500",
                 NULL);
    }
}

static void test_cuda_attention_workspace_is_found_or_refused(void **state)
{
    (void)state;
    static char fits;
    if (!is_system_driver()) {
        in_child(check_workspace, &fits, "WEFT_FAKE_CUDNN_WORKSPACE",
                 "40000000", NULL);
        in_child(check_workspace, NULL, "WEFT_FAKE_CUDNN_WORKSPACE",
                 "1000000000000000", NULL);
    }
}

static void test_cuda_attention_more_shapes_than_plans(void **state)
{
    (void)state;
    if (!is_system_driver()) { /* a plan takes a second there */
        in_child(check_many, NULL, NULL);
    }
}

static void test_cuda_attention_that_is_left_to_wefts_kernel(void **state)
{
    (void)state;
    in_child(check_left, NULL, NULL);
}

#define REASON(text, name, value)                                              \
    in_child(check_reason, (void *)(uintptr_t)(text), "WEFT_LOG", "info",      \
             name, value, NULL)

static void test_cuda_attention_library_that_cannot_is_named(void **state)
{
    (void)state;
    if (is_system_driver()) {
        fprintf(stderr, "left out: the stand-in's refusals\n");
        return;
    }
    REASON("attention by weft's own kernel: WEFT_CUDNN=off", "WEFT_CUDNN",
           "off");
    REASON("own kernel: no cuDNN: /no/such/file", "WEFT_CUDNN",
           "/no/such/file");
    REASON("has no cudnnGetVersion: it is not cuDNN", "WEFT_CUDNN",
           TEST_DRIVER);
    REASON("is cuDNN 9.1.0: needed is 9.10 or later", "WEFT_FAKE_CUDNN_VERSION",
           "90100");
    REASON("own kernel: cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED",
           "WEFT_FAKE_CUDNN_FAULT", "create");
    REASON(
        "forward, 9 x 9 tokens, heads of 16, by weft's own kernel: cuDNN, the "
        "heuristic knows no engine: CUDNN_STATUS_NOT_SUPPORTED",
        "WEFT_FAKE_CUDNN_FAULT", "none");
    REASON("own kernel: cuDNN, the plan: CUDNN_STATUS_NOT_SUPPORTED",
           "WEFT_FAKE_CUDNN_FAULT", "plan");
    in_child(check_launch_error, NULL, "WEFT_FAKE_CUDNN_FAULT", "launch", NULL);
}

static int set_library(void **state)
{
    const int status = set_kernels(state);
    return getenv("WEFT_TEST_DRIVER") ? status
                                      : setenv("WEFT_CUDNN", TEST_CUDNN, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_attention_values_are_right),
        cmocka_unit_test(test_cuda_attention_backward_of_old_versions),
        cmocka_unit_test(test_cuda_attention_workspace_is_found_or_refused),
        cmocka_unit_test(test_cuda_attention_more_shapes_than_plans),
        cmocka_unit_test(test_cuda_attention_that_is_left_to_wefts_kernel),
        cmocka_unit_test(test_cuda_attention_library_that_cannot_is_named),
    };
    return cmocka_run_group_tests(tests, set_library, NULL);
}
