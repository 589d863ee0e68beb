/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/onednn.c - oneDNN: opened once, and its kernels by shape.
 */
#include "kernels/math/onednn.h"

#include "base/log.h"
#include "base/settings.h"
#include "kernels/math/onednn_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct api {
#define MEMBER(type, name, arguments) type(*name) arguments;
    WEFTI_DNNL_FUNCTIONS(MEMBER)
#undef MEMBER
} api;

/* What a kernel depends on; compared byte by byte, so without gaps. */
typedef struct shape {
    int64_t m, n, k, lda, ldb, ldc;
    float alpha, beta;
    int32_t transpose_a, transpose_b, c_is_wide;
    int32_t unused;
} shape;

/* A product's kernel, and its three arrays, which get their places anew. */
typedef struct kept {
    shape of;
    void *primitive; /* NULL: this place is free */
    void *memory[3]; /* a, b, c */
} kept;

/* Of the process. Kernels by shape are bf16's, whose callers take turns
 * (kernels/math/gemm_bf16.c); all else stays as the library was opened. */
static struct {
    pthread_once_t once;
    char kernel[WEFTI_ONEDNN_TYPES][64]; /* "": cannot be used, and why */
    char why[256];                       /* of all types */
    const char *lacks[WEFTI_ONEDNN_TYPES];
    api call;
    void *engine, *stream;
    void (*set_threads)(int count); /* of its OpenMP; NULL: it has none */
    int (*get_threads)(void);
    kept kept[WEFTI_ONEDNN_KEPT];
    size_t next; /* the place to be used again */
} dnn = {.once = PTHREAD_ONCE_INIT};

static bool find_functions(void *library)
{
#define FIND(type, name, arguments)                                            \
    {                                                                          \
        void *found = dlsym(library, #name);                                   \
        if (!found) {                                                          \
            snprintf(dnn.why, sizeof(dnn.why), "it has no %s", #name);         \
            return false;                                                      \
        }                                                                      \
        memcpy(&dnn.call.name, &found, sizeof(found));                         \
    }
    WEFTI_DNNL_FUNCTIONS(FIND)
#undef FIND
    void *found = dlsym(library, "omp_set_num_threads");
    memcpy(&dnn.set_threads, &found, sizeof(found));
    found = dlsym(library, "omp_get_max_threads");
    memcpy(&dnn.get_threads, &found, sizeof(found));
    return true;
}

/* Before descriptors, whose layout is of one version. */
static bool has_version(void *library, const char *name)
{
    const wefti_dnnl_version *(*get)(void) = NULL;
    void *found = dlsym(library, "dnnl_version");
    memcpy(&get, &found, sizeof(found));
    if (!get) {
        snprintf(dnn.why, sizeof(dnn.why), "%s is not oneDNN", name);
        return false;
    }
    if (get()->major != WEFTI_DNNL_VERSION) {
        snprintf(dnn.why, sizeof(dnn.why), "%s is oneDNN %d: needed is %d",
                 name, get()->major, WEFTI_DNNL_VERSION);
        return false;
    }
    return true;
}

static bool start(void)
{
    if (dnn.call.dnnl_engine_create(&dnn.engine, WEFTI_DNNL_CPU, 0) != 0 ||
        dnn.call.dnnl_stream_create(&dnn.stream, dnn.engine,
                                    WEFTI_DNNL_IN_ORDER) != 0) {
        snprintf(dnn.why, sizeof(dnn.why), "it does not start");
        return false;
    }
    return true;
}

/* The types that the processor multiplies fast, by the name of its best. */
static void name_kernels(void)
{
    static const struct {
        int isa;
        const char *name, *lacks;
    } types[WEFTI_ONEDNN_TYPES] = {
        [WEFTI_ONEDNN_F32] = {WEFTI_DNNL_ISA_AVX512, "avx512_core",
                              "this processor has no AVX-512"},
        [WEFTI_ONEDNN_BF16] = {WEFTI_DNNL_ISA_BF16, "avx512_core_bf16",
                               "this processor has no products of bf16"},
    };
    const wefti_dnnl_version *version = dnn.call.dnnl_version();
    const int isa = dnn.call.dnnl_get_effective_cpu_isa();
    const bool tiles = (isa & WEFTI_DNNL_ISA_AMX) == WEFTI_DNNL_ISA_AMX;
    for (size_t i = 0; i < WEFTI_ONEDNN_TYPES; i++) {
        if ((isa & types[i].isa) != types[i].isa) {
            dnn.lacks[i] = types[i].lacks;
            continue;
        }
        snprintf(dnn.kernel[i], sizeof(dnn.kernel[i]), "oneDNN %d.%d.%d, %s",
                 version->major, version->minor, version->patch,
                 tiles && i == WEFTI_ONEDNN_BF16 ? "avx512_core_amx"
                                                 : types[i].name);
    }
}

static void open_library(void)
{
    const char *name = wefti_setting_text(WEFTI_SETTING_ONEDNN);
    name = name[0] ? name : "libdnnl.so.2";
    if (strcmp(name, "off") == 0) {
        snprintf(dnn.why, sizeof(dnn.why), "WEFT_ONEDNN=off");
        return;
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(dnn.why, sizeof(dnn.why), "%s", dlerror());
        return;
    }
    if (!has_version(library, name) || !find_functions(library)) {
        dlclose(library);
        return;
    }
    if (start()) {
        name_kernels();
    } /* else it stays open: it may have left threads behind */
}

const char *wefti_onednn_get_kernel(wefti_onednn_type type,
                                    const char **why_out)
{
    (void)pthread_once(&dnn.once, open_library);
    *why_out = dnn.lacks[type] ? dnn.lacks[type] : dnn.why;
    return dnn.kernel[type][0] ? dnn.kernel[type] : NULL;
}

static void forget(kept *place)
{
    for (size_t i = 0; i < 3; i++) {
        if (place->memory[i]) {
            (void)dnn.call.dnnl_memory_destroy(place->memory[i]);
        }
    }
    if (place->primitive) {
        (void)dnn.call.dnnl_primitive_destroy(place->primitive);
    }
    *place = (kept){0};
}

/* Rows of a matrix that is stored [rows][columns], or the other way round. */
static bool describe(wefti_dnnl_memory_desc *desc, int64_t rows,
                     int64_t columns, int64_t stride, bool transposed, int type)
{
    const int64_t extents[WEFTI_DNNL_DIMS] = {rows, columns};
    const int64_t strides[WEFTI_DNNL_DIMS] = {transposed ? 1 : stride,
                                              transposed ? stride : 1};
    return dnn.call.dnnl_memory_desc_init_by_strides(desc, 2, extents, type,
                                                     strides) == 0;
}

/* alpha, and C's old value by a sum. */
static bool set_factors(void *attr, const shape *of)
{
    void *ops = NULL;
    bool good = of->alpha == 1.0F ||
                dnn.call.dnnl_primitive_attr_set_output_scales(attr, 1, 0,
                                                               &of->alpha) == 0;
    if (good && of->beta != 0.0F) {
        good = dnn.call.dnnl_post_ops_create(&ops) == 0 &&
               dnn.call.dnnl_post_ops_append_sum(ops, of->beta) == 0 &&
               dnn.call.dnnl_primitive_attr_set_post_ops(attr, ops) == 0;
    }
    if (ops) {
        (void)dnn.call.dnnl_post_ops_destroy(ops);
    }
    return good;
}

static bool make_primitive(kept *made, const wefti_dnnl_memory_desc arrays[3])
{
    wefti_dnnl_matmul_desc product;
    void *attr = NULL, *desc = NULL;
    bool good = dnn.call.dnnl_matmul_desc_init(&product, &arrays[0], &arrays[1],
                                               NULL, &arrays[2]) == 0 &&
                dnn.call.dnnl_primitive_attr_create(&attr) == 0 &&
                set_factors(attr, &made->of) &&
                dnn.call.dnnl_primitive_desc_create(&desc, &product, attr,
                                                    dnn.engine, NULL) == 0 &&
                dnn.call.dnnl_primitive_create(&made->primitive, desc) == 0;
    if (desc) {
        (void)dnn.call.dnnl_primitive_desc_destroy(desc);
    }
    if (attr) {
        (void)dnn.call.dnnl_primitive_attr_destroy(attr);
    }
    return good;
}

static bool make(kept *made, const shape *of)
{
    wefti_dnnl_memory_desc arrays[3];
    made->of = *of;
    bool good = describe(&arrays[0], of->m, of->k, of->lda, of->transpose_a,
                         WEFTI_DNNL_BF16) &&
                describe(&arrays[1], of->k, of->n, of->ldb, of->transpose_b,
                         WEFTI_DNNL_BF16) &&
                describe(&arrays[2], of->m, of->n, of->ldc, false,
                         of->c_is_wide ? WEFTI_DNNL_F32 : WEFTI_DNNL_BF16) &&
                make_primitive(made, arrays);
    for (size_t i = 0; i < 3 && good; i++) {
        good = dnn.call.dnnl_memory_create(&made->memory[i], &arrays[i],
                                           dnn.engine, NULL) == 0;
    }
    if (!good) {
        forget(made);
    }
    return good;
}

static kept *find(const shape *of)
{
    for (size_t i = 0; i < WEFTI_ONEDNN_KEPT && dnn.kept[i].primitive; i++) {
        if (memcmp(&dnn.kept[i].of, of, sizeof(*of)) == 0) {
            return &dnn.kept[i];
        }
    }
    kept fresh = {0};
    if (!make(&fresh, of)) {
        return NULL;
    }
    kept *place = &dnn.kept[dnn.next];
    dnn.next = (dnn.next + 1) % WEFTI_ONEDNN_KEPT;
    forget(place);
    *place = fresh;
    return place;
}

static bool multiply(const wefti_math_gemm *product, bool c_is_wide)
{
    const shape of = {.m = (int64_t)product->m,
                      .n = (int64_t)product->n,
                      .k = (int64_t)product->k,
                      .lda = (int64_t)product->lda,
                      .ldb = (int64_t)product->ldb,
                      .ldc = (int64_t)product->ldc,
                      .alpha = (float)product->alpha,
                      .beta = (float)product->beta,
                      .transpose_a = product->transpose_a != 0,
                      .transpose_b = product->transpose_b != 0,
                      .c_is_wide = c_is_wide};
    void *const places[3] = {(void *)product->a, (void *)product->b,
                             product->c};
    const int names[3] = {WEFTI_DNNL_SRC, WEFTI_DNNL_WEIGHTS, WEFTI_DNNL_DST};
    kept *with = find(&of);
    wefti_dnnl_arg args[3];
    for (size_t i = 0; with && i < 3; i++) {
        args[i] = (wefti_dnnl_arg){names[i], with->memory[i]};
        if (dnn.call.dnnl_memory_set_data_handle(with->memory[i], places[i]) !=
            0) {
            return false;
        }
    }
    return with &&
           dnn.call.dnnl_primitive_execute(with->primitive, dnn.stream, 3,
                                           args) == 0 &&
           dnn.call.dnnl_stream_wait(dnn.stream) == 0;
}

/* One thread, of the caller's own, whose OpenMP stays as it was: what it had,
 * 0 where nothing is to be put back. */
static int begin_alone(void)
{
    const int before =
        dnn.set_threads && dnn.get_threads ? dnn.get_threads() : 1;
    if (before == 1) {
        return 0;
    }
    dnn.set_threads(1);
    return before;
}

static void end_alone(int before)
{
    if (before > 0) {
        dnn.set_threads(before);
    }
}

bool wefti_onednn_multiply_bf16(const wefti_math_gemm *product, bool c_is_wide)
{
    const int before = begin_alone();
    const bool done = multiply(product, c_is_wide);
    end_alone(before);
    return done;
}

bool wefti_onednn_multiply_f32(bool transpose_a, bool transpose_b, size_t m,
                               size_t n, size_t k, float alpha, const float *a,
                               size_t lda, const float *b, size_t ldb,
                               float beta, float *c, size_t ldc)
{
    const char *why;
    if (!wefti_onednn_get_kernel(WEFTI_ONEDNN_F32, &why)) {
        return false;
    }
    const int before = begin_alone();
    const int status = dnn.call.dnnl_sgemm(
        transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', (int64_t)m,
        (int64_t)n, (int64_t)k, alpha, a, (int64_t)lda, b, (int64_t)ldb, beta,
        c, (int64_t)ldc);
    end_alone(before);
    if (status == WEFTI_DNNL_NO_MEMORY && beta != 0.0F) {
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "oneDNN has no memory for a product of %zu x %zu x %zu", m, n,
                  k);
        abort();
    }
    return status == 0;
}
