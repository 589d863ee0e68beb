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
    int32_t transpose_a, transpose_b;
    int32_t type, c_type; /* of A and B, of C */
} shape;

/* A product's kernel, and its three arrays, which get their places anew: a
 * thread has it to itself while it multiplies. */
typedef struct kept {
    shape of;
    bool is_there, is_busy;
    void *primitive; /* NULL: this shape is refused */
    void *stream;
    void *memory[3]; /* a, b, c */
} kept;

/* Of the process. The lock is for kernels by shape; all else stays as the
 * library was opened. */
static struct {
    pthread_once_t once;
    char kernel[WEFTI_ONEDNN_TYPES][64]; /* "": cannot be used, and why */
    char why[256];                       /* of all types */
    const char *lacks[WEFTI_ONEDNN_TYPES];
    api call;
    void *engine;
    void (*set_threads)(int count); /* of its OpenMP; NULL: it has none */
    int (*get_threads)(void);
    pthread_mutex_t lock;
    pthread_cond_t freed; /* a place is busy no longer */
    kept kept[WEFTI_ONEDNN_KEPT];
    size_t next; /* the place to be used again */
} dnn = {.once = PTHREAD_ONCE_INIT,
         .lock = PTHREAD_MUTEX_INITIALIZER,
         .freed = PTHREAD_COND_INITIALIZER};

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
    if (dnn.call.dnnl_engine_create(&dnn.engine, WEFTI_DNNL_CPU, 0) != 0) {
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
    if (place->stream) {
        (void)dnn.call.dnnl_stream_destroy(place->stream);
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

/* By oneDNN's small products, made for a shape: of f32 they are what is faster
 * than dnnl_sgemm, of bf16 its plain loops may do as well. */
static bool is_fast(const shape *of, const void *desc)
{
    const char *name = "";
    return of->type == WEFTI_DNNL_BF16 ||
           (dnn.call.dnnl_primitive_desc_query(desc, WEFTI_DNNL_IMPLEMENTATION,
                                               0, &name) == 0 &&
            strncmp(name, "brg", 3) == 0);
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
                is_fast(&made->of, desc) &&
                dnn.call.dnnl_primitive_create(&made->primitive, desc) == 0;
    if (desc) {
        (void)dnn.call.dnnl_primitive_desc_destroy(desc);
    }
    if (attr) {
        (void)dnn.call.dnnl_primitive_attr_destroy(attr);
    }
    return good;
}

/* A shape that is refused is known as such. */
static void make(kept *made, const shape *of)
{
    wefti_dnnl_memory_desc arrays[3];
    made->of = *of;
    bool good =
        describe(&arrays[0], of->m, of->k, of->lda, of->transpose_a,
                 of->type) &&
        describe(&arrays[1], of->k, of->n, of->ldb, of->transpose_b,
                 of->type) &&
        describe(&arrays[2], of->m, of->n, of->ldc, false, of->c_type) &&
        make_primitive(made, arrays) &&
        dnn.call.dnnl_stream_create(&made->stream, dnn.engine,
                                    WEFTI_DNNL_IN_ORDER) == 0;
    for (size_t i = 0; i < 3 && good; i++) {
        good = dnn.call.dnnl_memory_create(&made->memory[i], &arrays[i],
                                           dnn.engine, NULL) == 0;
    }
    if (!good) {
        forget(made);
        made->of = *of;
    }
    made->is_there = true;
}

/* One of this shape that nobody uses; NULL: none. */
static kept *find(const shape *of)
{
    for (size_t i = 0; i < WEFTI_ONEDNN_KEPT && dnn.kept[i].is_there; i++) {
        if (!dnn.kept[i].is_busy &&
            memcmp(&dnn.kept[i].of, of, sizeof(*of)) == 0) {
            return &dnn.kept[i];
        }
    }
    return NULL;
}

/* The place that was filled longest ago of those that nobody uses; NULL: all
 * are used. */
static kept *find_place(void)
{
    for (size_t i = 0; i < WEFTI_ONEDNN_KEPT; i++) {
        kept *place = &dnn.kept[dnn.next];
        dnn.next = (dnn.next + 1) % WEFTI_ONEDNN_KEPT;
        if (!place->is_busy) {
            return place;
        }
    }
    return NULL;
}

/* The shape's kernel, for this thread alone. */
static kept *borrow(const shape *of)
{
    kept *place;
    pthread_mutex_lock(&dnn.lock);
    while (!(place = find(of)) && !(place = find_place())) {
        pthread_cond_wait(&dnn.freed, &dnn.lock);
    }
    if (!place->is_there || memcmp(&place->of, of, sizeof(*of)) != 0) {
        forget(place);
        make(place, of);
    }
    place->is_busy = true;
    pthread_mutex_unlock(&dnn.lock);
    return place;
}

static void give_back(kept *place)
{
    pthread_mutex_lock(&dnn.lock);
    place->is_busy = false;
    pthread_cond_signal(&dnn.freed);
    pthread_mutex_unlock(&dnn.lock);
}

static bool execute(const kept *with, const void *a, const void *b, void *c)
{
    void *const places[3] = {(void *)a, (void *)b, c};
    const int names[3] = {WEFTI_DNNL_SRC, WEFTI_DNNL_WEIGHTS, WEFTI_DNNL_DST};
    wefti_dnnl_arg args[3];
    for (size_t i = 0; with->primitive && i < 3; i++) {
        args[i] = (wefti_dnnl_arg){names[i], with->memory[i]};
        if (dnn.call.dnnl_memory_set_data_handle(with->memory[i], places[i]) !=
            0) {
            return false;
        }
    }
    return with->primitive &&
           dnn.call.dnnl_primitive_execute(with->primitive, with->stream, 3,
                                           args) == 0 &&
           dnn.call.dnnl_stream_wait(with->stream) == 0;
}

static bool multiply(const shape *of, const void *a, const void *b, void *c)
{
    kept *with = borrow(of);
    const bool done = execute(with, a, b, c);
    give_back(with);
    return done;
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
                      .type = WEFTI_DNNL_BF16,
                      .c_type = c_is_wide ? WEFTI_DNNL_F32 : WEFTI_DNNL_BF16};
    const int before = begin_alone();
    const bool done = multiply(&of, product->a, product->b, product->c);
    end_alone(before);
    return done;
}

/*
 * Whether a product of f32 goes by a kernel of its shape. With B transposed
 * they are 6% faster than dnnl_sgemm in the median, in other layouts not
 * (docs/kernels.md). Making one takes 0.1 to 0.3 ms, as long as some ten
 * products of the least size, so not for rows whose count changes from one to
 * the next, as those of an expert, or of a text being written: of these only
 * one in sixteen.
 */
static bool is_by_shape(const shape *of)
{
    enum { ROWS = 16, LEAST_WORK = 1 << 20 };
    return of->transpose_b && !of->transpose_a && of->m % ROWS == 0 &&
           of->m * of->n * of->k >= LEAST_WORK;
}

static int multiply_f32(const shape *of, const float *a, const float *b,
                        float *c)
{
    if (is_by_shape(of) && multiply(of, a, b, c)) {
        return 0;
    }
    return dnn.call.dnnl_sgemm(
        of->transpose_a ? 'T' : 'N', of->transpose_b ? 'T' : 'N', of->m, of->n,
        of->k, of->alpha, a, of->lda, b, of->ldb, of->beta, c, of->ldc);
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
    const shape of = {.m = (int64_t)m,
                      .n = (int64_t)n,
                      .k = (int64_t)k,
                      .lda = (int64_t)lda,
                      .ldb = (int64_t)ldb,
                      .ldc = (int64_t)ldc,
                      .alpha = alpha,
                      .beta = beta,
                      .transpose_a = transpose_a,
                      .transpose_b = transpose_b,
                      .type = WEFTI_DNNL_F32,
                      .c_type = WEFTI_DNNL_F32};
    const int before = begin_alone();
    const int status = multiply_f32(&of, a, b, c);
    end_alone(before);
    if (status == WEFTI_DNNL_NO_MEMORY && beta != 0.0F) {
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "oneDNN has no memory for a product of %zu x %zu x %zu", m, n,
                  k);
        abort();
    }
    return status == 0;
}
