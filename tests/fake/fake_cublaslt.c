/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_cublaslt.c - the stand-in for cuBLASLt: its descriptors, its
 * heuristic, its products. With FAKE_CUBLASLT_LACKS it lacks a function.
 */
#include "tests/fake/fake_cublaslt.h"

#include "base/small_float.h"
#include "tests/fake/fake_host_work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x66616b656c743133)

enum {
    PART_BYTES = 64 << 10,
    HALVES = 2,
    POINTER_ALIGNMENT = 16,
    KNOWN_SHAPES = 65521
};

typedef enum object_kind { DESC = 1, LAYOUT, PREFERENCE } object_kind;

typedef struct layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
} layout;

typedef struct desc {
    int compute, scale;
    int32_t turn_a, turn_b;
} desc;

typedef struct preference {
    uint64_t workspace_bytes;
    uint32_t reduction;
    uint32_t a_alignment, b_alignment, c_alignment, d_alignment;
} preference;

typedef struct object {
    uint64_t magic;
    object_kind kind;
    layout layout;
    desc desc;
    preference preference;
} object;

struct cublasLtContext {
    uint64_t magic;
    CUcontext context;
};

/* What an algorithm is for; fits the library's eight words. */
typedef struct chosen {
    uint64_t magic, shape, workspace_bytes;
    uint32_t alignment[3]; /* of a, b, c */
    uint32_t unused;
} chosen;
_Static_assert(sizeof(chosen) <= sizeof(wefti_cublaslt_algo), "eight words");

/* One product on its way; the arrays' places come with it. */
typedef struct product {
    layout a, b, c;
    bool turn_a, turn_b, reads_c;
    uint64_t part_rows; /* of the workspace; 0: it has none */
    double alpha, beta;
} product;
_Static_assert(sizeof(product) <= FAKE_HOST_ARGS_BYTES, "arguments of work");

static _Atomic int handles, objects, choices, queued, with_workspace;

void cublasLtFakeGetCounts(fake_cublaslt_counts *out)
{
    *out = (fake_cublaslt_counts){handles, objects, choices, queued,
                                  with_workspace};
}

static void demand(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "fake cuBLASLt: %s\n", what);
        abort();
    }
}

static bool has_fault(const char *kind)
{
    const char *asked = getenv("WEFT_FAKE_CUBLASLT_FAULT");
    return asked && strcmp(asked, kind) == 0;
}

size_t cublasLtGetVersion(void)
{
    const char *text = getenv("WEFT_FAKE_CUBLASLT_VERSION");
    return text && *text ? strtoul(text, NULL, 10) : 130100;
}

const char *cublasLtGetStatusName(int status)
{
    switch (status) {
    case WEFTI_CUBLAS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case WEFTI_CUBLAS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case WEFTI_CUBLAS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case WEFTI_CUBLAS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case WEFTI_CUBLAS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_UNKNOWN";
    }
}

/* ---- handles and descriptors -----------------------------------------------
 */

int cublasLtCreate(struct cublasLtContext **handle)
{
    CUcontext current = NULL;
    demand(cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL,
           "cublasLtCreate: no context is current");
    if (has_fault("create")) {
        return WEFTI_CUBLAS_NOT_INITIALIZED;
    }
    *handle = malloc(sizeof(**handle));
    demand(*handle != NULL, "no memory");
    **handle = (struct cublasLtContext){MAGIC, current};
    handles++;
    return WEFTI_CUBLAS_SUCCESS;
}

int cublasLtDestroy(struct cublasLtContext *handle)
{
    demand(handle->magic == MAGIC, "cublasLtDestroy: not a handle");
    handle->magic = 0;
    free(handle);
    handles--;
    return WEFTI_CUBLAS_SUCCESS;
}

static object *make(object_kind kind)
{
    object *made = calloc(1, sizeof(*made));
    demand(made != NULL, "no memory");
    made->magic = MAGIC;
    made->kind = kind;
    objects++;
    return made;
}

static object *take(void *given, object_kind kind)
{
    object *of = given;
    demand(of && of->magic == MAGIC && of->kind == kind,
           "not a descriptor of this kind, or its end came");
    return of;
}

static int end(void *given, object_kind kind)
{
    object *of = take(given, kind);
    of->magic = 0;
    free(of);
    objects--;
    return WEFTI_CUBLAS_SUCCESS;
}

static size_t bytes_of(int type)
{
    demand(type == WEFTI_CUDA_R_32F || type == WEFTI_CUDA_R_64F ||
               type == WEFTI_CUDA_R_16BF,
           "a type that weft has no use for");
    return type == WEFTI_CUDA_R_64F    ? sizeof(double)
           : type == WEFTI_CUDA_R_16BF ? sizeof(uint16_t)
                                       : sizeof(float);
}

int cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    object *made = make(DESC);
    made->desc = (desc){.compute = compute, .scale = scale};
    *out = made;
    return WEFTI_CUBLAS_SUCCESS;
}

int cublasLtMatmulDescDestroy(void *given)
{
    return end(given, DESC);
}

int cublasLtMatmulDescSetAttribute(void *given, int attribute,
                                   const void *value, size_t bytes)
{
    desc *of = &take(given, DESC)->desc;
    int32_t *place = attribute == WEFTI_LT_DESC_TRANSA   ? &of->turn_a
                     : attribute == WEFTI_LT_DESC_TRANSB ? &of->turn_b
                                                         : NULL;
    demand(place != NULL, "an attribute that weft has no use for");
    if (!value || bytes != sizeof(*place)) {
        return WEFTI_CUBLAS_INVALID_VALUE;
    }
    memcpy(place, value, bytes);
    return *place == WEFTI_CUBLAS_OP_N || *place == WEFTI_CUBLAS_OP_T
               ? WEFTI_CUBLAS_SUCCESS
               : WEFTI_CUBLAS_INVALID_VALUE;
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows,
                               uint64_t columns, int64_t leading)
{
    object *made = make(LAYOUT);
    demand(bytes_of(type) > 0 && rows > 0 && columns > 0 && leading > 0 &&
               (uint64_t)leading >= rows,
           "a layout without elements, or of columns that overlap");
    made->layout = (layout){type, rows, columns, leading};
    *out = made;
    return WEFTI_CUBLAS_SUCCESS;
}

int cublasLtMatrixLayoutDestroy(void *given)
{
    return end(given, LAYOUT);
}

/* "default: 256", of alignments; no workspace; all reductions. */
int cublasLtMatmulPreferenceCreate(void **out)
{
    object *made = make(PREFERENCE);
    made->preference = (preference){0, 7, 256, 256, 256, 256};
    *out = made;
    return WEFTI_CUBLAS_SUCCESS;
}

#ifndef FAKE_CUBLASLT_LACKS
int cublasLtMatmulPreferenceDestroy(void *given)
{
    return end(given, PREFERENCE);
}
#endif

int cublasLtMatmulPreferenceSetAttribute(void *given, int attribute,
                                         const void *value, size_t bytes)
{
    preference *of = &take(given, PREFERENCE)->preference;
    const struct {
        int attribute;
        void *place;
        size_t bytes;
    } known[] = {{WEFTI_LT_PREF_WORKSPACE, &of->workspace_bytes, 8},
                 {WEFTI_LT_PREF_REDUCTION, &of->reduction, 4},
                 {WEFTI_LT_PREF_ALIGNMENT_A, &of->a_alignment, 4},
                 {WEFTI_LT_PREF_ALIGNMENT_B, &of->b_alignment, 4},
                 {WEFTI_LT_PREF_ALIGNMENT_C, &of->c_alignment, 4},
                 {WEFTI_LT_PREF_ALIGNMENT_D, &of->d_alignment, 4}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].attribute == attribute) {
            if (!value || bytes != known[i].bytes) {
                return WEFTI_CUBLAS_INVALID_VALUE;
            }
            memcpy(known[i].place, value, bytes);
            return WEFTI_CUBLAS_SUCCESS;
        }
    }
    demand(false, "a preference that weft has no use for");
    return WEFTI_CUBLAS_INVALID_VALUE;
}

/* ---- the heuristic ---------------------------------------------------------
 */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

static uint64_t hash_of(const desc *of, const layout *const of_arrays[3])
{
    uint64_t hash = mix(mix(MAGIC, (uint64_t)of->turn_a), (uint64_t)of->turn_b);
    for (int i = 0; i < 3; i++) {
        const layout *one = of_arrays[i];
        hash = mix(mix(hash, (uint64_t)one->type), one->rows);
        hash = mix(mix(hash, one->columns), (uint64_t)one->leading);
    }
    return hash;
}

/* op(A) is rows of C by the sum's length, op(B) that by columns of C. */
static bool agree(const desc *of, const layout *a, const layout *b,
                  const layout *c)
{
    const bool ta = of->turn_a == WEFTI_CUBLAS_OP_T;
    const bool tb = of->turn_b == WEFTI_CUBLAS_OP_T;
    return (ta ? a->columns : a->rows) == c->rows &&
           (tb ? b->rows : b->columns) == c->columns &&
           (ta ? a->rows : a->columns) == (tb ? b->columns : b->rows);
}

/* The table of types in cublasLtMatmul()'s documentation. */
static bool has_types(const desc *of, const layout *a, const layout *b,
                      const layout *c)
{
    if (of->compute == WEFTI_CUBLAS_COMPUTE_64F) {
        return of->scale == WEFTI_CUDA_R_64F && a->type == WEFTI_CUDA_R_64F &&
               b->type == a->type && c->type == a->type;
    }
    return of->compute == WEFTI_CUBLAS_COMPUTE_32F &&
           of->scale == WEFTI_CUDA_R_32F && b->type == a->type &&
           ((a->type == WEFTI_CUDA_R_16BF && c->type == WEFTI_CUDA_R_16BF) ||
            (a->type != WEFTI_CUDA_R_64F && c->type == WEFTI_CUDA_R_32F));
}

static bool is_aligned(const preference *of, const layout *a, const layout *b,
                       const layout *c)
{
    return of->a_alignment >= bytes_of(a->type) &&
           of->b_alignment >= bytes_of(b->type) &&
           of->c_alignment >= bytes_of(c->type) &&
           of->d_alignment == of->c_alignment;
}

int cublasLtMatmulAlgoGetHeuristic(struct cublasLtContext *handle,
                                   void *given_desc, void *given_a,
                                   void *given_b, void *given_c, void *given_d,
                                   void *given_preference, int asked,
                                   wefti_cublaslt_result *results, int *found)
{
    const desc *of = &take(given_desc, DESC)->desc;
    const layout *a = &take(given_a, LAYOUT)->layout;
    const layout *b = &take(given_b, LAYOUT)->layout;
    const layout *c = &take(given_c, LAYOUT)->layout;
    const preference *wish = &take(given_preference, PREFERENCE)->preference;
    const uint64_t depth =
        of->turn_a == WEFTI_CUBLAS_OP_T ? a->rows : a->columns;
    demand(handle->magic == MAGIC, "the heuristic: not a handle");
    demand(given_d == given_c, "a D with a layout of its own");
    demand(wish->reduction == WEFTI_LT_REDUCTION_COMPUTE_TYPE,
           "parts of sums may be rounded to C's type");
    choices++;
    *found = 0;
    if (asked < 1 || !agree(of, a, b, c)) {
        return WEFTI_CUBLAS_INVALID_VALUE;
    }
    if (has_fault("refuse") || !has_types(of, a, b, c) ||
        !is_aligned(wish, a, b, c)) {
        return WEFTI_CUBLAS_NOT_SUPPORTED;
    }
    if (has_fault("none")) {
        return WEFTI_CUBLAS_SUCCESS;
    }
    chosen made = {
        .magic = MAGIC,
        .shape = hash_of(of, (const layout *const[]){a, b, c}),
        .alignment = {wish->a_alignment, wish->b_alignment, wish->c_alignment}};
    if (depth >= FAKE_CUBLASLT_LONG && wish->workspace_bytes >= PART_BYTES) {
        made.workspace_bytes = PART_BYTES;
    }
    results[0] = (wefti_cublaslt_result){
        .workspace_bytes = made.workspace_bytes, .waves = 1};
    memcpy(&results[0].algo, &made, sizeof(made));
    *found = 1;
    return WEFTI_CUBLAS_SUCCESS;
}

/* ---- products --------------------------------------------------------------
 */

static double get(const void *at, const layout *of, uint64_t row,
                  uint64_t column)
{
    const uint64_t i = row + column * (uint64_t)of->leading;
    return of->type == WEFTI_CUDA_R_64F ? ((const double *)at)[i]
           : of->type == WEFTI_CUDA_R_32F
               ? (double)((const float *)at)[i]
               : (double)wefti_bf16_widen(((const uint16_t *)at)[i]);
}

static void put(void *at, const layout *of, uint64_t row, uint64_t column,
                double value)
{
    const uint64_t i = row + column * (uint64_t)of->leading;
    if (of->type == WEFTI_CUDA_R_64F) {
        ((double *)at)[i] = value;
    } else if (of->type == WEFTI_CUDA_R_32F) {
        ((float *)at)[i] = (float)value;
    } else {
        ((uint16_t *)at)[i] = wefti_bf16_narrow((float)value);
    }
}

/* Of the sum's terms from first to last, rounded as what it computes in. */
static double sum_of(const product *p, void *const at[], uint64_t row,
                     uint64_t column, uint64_t first, uint64_t last)
{
    double wide = 0;
    float narrow = 0;
    for (uint64_t l = first; l < last; l++) {
        const double x =
            p->turn_a ? get(at[0], &p->a, l, row) : get(at[0], &p->a, row, l);
        const double y = p->turn_b ? get(at[1], &p->b, column, l)
                                   : get(at[1], &p->b, l, column);
        wide += x * y;
        narrow += (float)x * (float)y;
    }
    return p->c.type == WEFTI_CUDA_R_64F ? wide : (double)narrow;
}

/* The second half of each sum, where there is a workspace, from there. */
static void run_product(const void *args, void *const at[FAKE_HOST_PARTS])
{
    const product *p = args;
    const uint64_t depth = p->turn_a ? p->a.rows : p->a.columns;
    const uint64_t half = p->part_rows > 0 ? depth / HALVES : depth;
    for (uint64_t column = 0; column < p->c.columns; column++) {
        double *parts = at[3];
        for (uint64_t row = 0; row < p->c.rows && row < p->part_rows; row++) {
            parts[row] = sum_of(p, at, row, column, half, depth);
        }
        for (uint64_t row = 0; row < p->c.rows; row++) {
            const double sum =
                sum_of(p, at, row, column, 0, half) +
                (row < p->part_rows ? parts[row]
                                    : sum_of(p, at, row, column, half, depth));
            const double kept =
                p->reads_c ? p->beta * get(at[2], &p->c, row, column) : 0;
            put(at[2], &p->c, row, column, p->alpha * sum + kept);
        }
    }
}

/* Whether this is the first product of its shape, whose kernel is then put on
 * the GPU, where it stays. */
static bool is_first(uint64_t shape)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t known[KNOWN_SHAPES];
    size_t at = shape % KNOWN_SHAPES, looks = 0;
    pthread_mutex_lock(&lock);
    for (; known[at] != 0 && known[at] != shape; at = (at + 1) % KNOWN_SHAPES) {
        demand(++looks < KNOWN_SHAPES, "more shapes than the fake can know");
    }
    const bool first = known[at] == 0;
    known[at] = shape;
    pthread_mutex_unlock(&lock);
    return first;
}

static double factor_of(const desc *of, const void *factor)
{
    demand(factor != NULL, "no alpha, or no beta");
    return of->scale == WEFTI_CUDA_R_64F ? *(const double *)factor
                                         : (double)*(const float *)factor;
}

static fake_host_part part_of(const void *at, const layout *of,
                              uint32_t alignment)
{
    const size_t elems =
        (size_t)((of->columns - 1) * (uint64_t)of->leading + of->rows);
    demand((uintptr_t)at % alignment == 0,
           "an array less aligned than the heuristic was told");
    return (fake_host_part){(CUdeviceptr)(uintptr_t)at,
                            elems * bytes_of(of->type)};
}

int cublasLtMatmul(struct cublasLtContext *handle, void *given_desc,
                   const void *alpha, const void *a, void *given_a,
                   const void *b, void *given_b, const void *beta,
                   const void *c, void *given_c, void *d, void *given_d,
                   const wefti_cublaslt_algo *algo, void *workspace,
                   size_t workspace_bytes, struct CUstream_st *stream)
{
    const desc *of = &take(given_desc, DESC)->desc;
    const product made = {.a = take(given_a, LAYOUT)->layout,
                          .b = take(given_b, LAYOUT)->layout,
                          .c = take(given_c, LAYOUT)->layout,
                          .turn_a = of->turn_a == WEFTI_CUBLAS_OP_T,
                          .turn_b = of->turn_b == WEFTI_CUBLAS_OP_T,
                          .reads_c = factor_of(of, beta) != 0,
                          .part_rows = workspace_bytes / sizeof(double),
                          .alpha = factor_of(of, alpha),
                          .beta = factor_of(of, beta)};
    CUcontext current = NULL;
    chosen with;
    memcpy(&with, algo, sizeof(with));
    demand(handle->magic == MAGIC &&
               cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
               current == handle->context,
           "cublasLtMatmul: the handle's context is not current");
    demand(
        with.magic == MAGIC &&
            with.shape ==
                hash_of(of, (const layout *const[]){&made.a, &made.b, &made.c}),
        "an algorithm of another product");
    demand(c == d && given_c == given_d, "C and D are not one");
    demand(workspace_bytes == with.workspace_bytes &&
               (workspace != NULL) == (workspace_bytes > 0) &&
               (uintptr_t)workspace % POINTER_ALIGNMENT == 0,
           "not the workspace that the algorithm needs");
    if (has_fault("late") || has_fault("launch")) {
        return has_fault("late") ? WEFTI_CUBLAS_NOT_SUPPORTED
                                 : WEFTI_CUBLAS_EXECUTION_FAILED;
    }
    fake_host_work work = {
        .what = "cublasLtMatmul",
        .loads = is_first(with.shape),
        .run = run_product,
        .parts = {part_of(a, &made.a, with.alignment[0]),
                  part_of(b, &made.b, with.alignment[1]),
                  part_of(d, &made.c, with.alignment[2]),
                  {(CUdeviceptr)(uintptr_t)workspace, workspace_bytes}}};
    memcpy(work.args, &made, sizeof(made));
    queued++;
    with_workspace += workspace_bytes > 0;
    return fake_host_launch(stream, &work) == CUDA_SUCCESS
               ? WEFTI_CUBLAS_SUCCESS
               : WEFTI_CUBLAS_EXECUTION_FAILED;
}
