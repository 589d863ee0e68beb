/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_product.c - products of matrices on a GPU, by cuBLASLt.
 *
 *     product --key--> plan: descriptors, and the algorithm that the library's
 *             |        heuristic chose, kept for the next of this key
 *             stream's workspace --cublasLtMatmul--> stream
 *
 * The library is by columns: what is stored by rows is to it the transpose, so
 * it is asked for C^T = op(B)^T op(A)^T, of the very same arrays.
 *
 * f32 is multiplied in f32 (not in TF32), f64 in f64, bf16 summed in f32. Parts
 * of a sum may be added up in the workspace, in f32, never in C: C is rounded
 * once.
 *
 * A graph may outlive the stream that it was captured on, and be launched
 * beside it, and the program's own stream the one that wraps it: what is
 * captured, and what is queued there, does without a workspace.
 */
#include "base/error.h"
#include "base/log.h"
#include "device/cublaslt_api.h"
#include "device/cuda.h"
#include "device/cuda_gpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLANS = 256,
    ALIGNMENT_MOST = 256,       /* that the heuristic knows of */
    WORKSPACE_BYTES = 32 << 20, /* of a stream, at most */
    MORE_OPERATIONS = 1         /* than one: parts of sums are added up */
};

/* What a plan depends on; compared byte by byte, so without gaps. */
typedef struct key {
    uint64_t m, n, k, lda, ldb, ldc, workspace_bytes;
    int32_t type, c_type;
    int32_t transpose_a, transpose_b;
    uint32_t a_alignment, b_alignment, c_alignment;
    uint32_t unused;
} key;

typedef struct plan {
    key of;
    bool known;
    int refused;    /* the library's status: it does not do this one */
    unsigned users; /* calls that are queueing it */
    void *desc, *a, *b, *c;
    wefti_cublaslt_algo algo;
    size_t workspace_bytes;
} plan;

struct wefti_cuda_products {
    pthread_mutex_t lock; /* guards all; never held while work is queued */
    bool opened;          /* or tried */
    const wefti_cublaslt_api *api;
    struct cublasLtContext *handle; /* NULL: own kernels multiply */
    plan plans[PLANS];
    size_t next; /* the place to be used again */
};

weft_status wefti_cuda_products_create(wefti_cuda_gpu *gpu)
{
    gpu->products = calloc(1, sizeof(*gpu->products));
    if (!gpu->products) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    pthread_mutex_init(&gpu->products->lock, NULL);
    return WEFT_OK;
}

static void forget(const wefti_cublaslt_api *api, plan *place)
{
    void *const layouts[] = {place->a, place->b, place->c};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (layouts[i]) {
            (void)api->cublasLtMatrixLayoutDestroy(layouts[i]);
        }
    }
    if (place->desc) {
        (void)api->cublasLtMatmulDescDestroy(place->desc);
    }
    *place = (plan){0};
}

void wefti_cuda_products_destroy(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_products *products = gpu->products;
    for (size_t i = 0; i < PLANS && products->handle; i++) {
        forget(products->api, &products->plans[i]);
    }
    if (products->handle) {
        (void)products->api->cublasLtDestroy(products->handle);
    }
    pthread_mutex_destroy(&products->lock);
    free(products);
    gpu->products = NULL;
}

/* Once; in the context. Whether the library multiplies. */
static bool open_locked(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_products *products = gpu->products;
    if (products->opened) {
        return products->handle != NULL;
    }
    products->opened = true;
    if (wefti_cublaslt_api_open(&products->api) < 0) {
        wefti_log(WEFTI_LOG_INFO, -1,
                  "cuda device %d: products by weft's own kernel: %s",
                  gpu->index, weft_error_text());
        return false;
    }
    char text[40];
    wefti_cublaslt_version_text(products->api->version, text, sizeof(text));
    const int result = products->api->cublasLtCreate(&products->handle);
    if (result != WEFTI_CUBLAS_SUCCESS) {
        products->handle = NULL;
        wefti_log(WEFTI_LOG_INFO, -1,
                  "cuda device %d: products by weft's own kernel: %s does not "
                  "start: cublasLtCreate: %s",
                  gpu->index, text,
                  products->api->cublasLtGetStatusName(result));
        return false;
    }
    wefti_log(WEFTI_LOG_INFO, -1, "cuda device %d: products by %s", gpu->index,
              text);
    return true;
}

static int type_of(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F64    ? WEFTI_CUDA_R_64F
           : dtype == WEFT_DTYPE_BF16 ? WEFTI_CUDA_R_16BF
                                      : WEFTI_CUDA_R_32F;
}

static uint32_t alignment_of(const void *pointer)
{
    const uintptr_t bits = (uintptr_t)pointer | ALIGNMENT_MOST;
    return (uint32_t)(bits & (~bits + 1));
}

static key key_of(const wefti_product *product, size_t workspace_bytes)
{
    return (key){.m = product->m,
                 .n = product->n,
                 .k = product->k,
                 .lda = product->lda,
                 .ldb = product->ldb,
                 .ldc = product->ldc,
                 .workspace_bytes = workspace_bytes,
                 .type = type_of(product->dtype),
                 .c_type = type_of(product->c_dtype),
                 .transpose_a = product->transpose_a,
                 .transpose_b = product->transpose_b,
                 .a_alignment = alignment_of(product->a),
                 .b_alignment = alignment_of(product->b),
                 .c_alignment = alignment_of(product->c)};
}

/* The result of a call, unless one before it has failed. */
#define TRY(result, call)                                                      \
    do {                                                                       \
        if ((result) == WEFTI_CUBLAS_SUCCESS) {                                \
            (result) = (call);                                                 \
        }                                                                      \
    } while (0)

/* The library's A is B, and its B is A. */
static int describe(const wefti_cublaslt_api *api, plan *made)
{
    const key *of = &made->of;
    const bool is_double = of->type == WEFTI_CUDA_R_64F;
    const int32_t turn_a =
        of->transpose_b ? WEFTI_CUBLAS_OP_T : WEFTI_CUBLAS_OP_N;
    const int32_t turn_b =
        of->transpose_a ? WEFTI_CUBLAS_OP_T : WEFTI_CUBLAS_OP_N;
    int result = api->cublasLtMatmulDescCreate(
        &made->desc,
        is_double ? WEFTI_CUBLAS_COMPUTE_64F : WEFTI_CUBLAS_COMPUTE_32F,
        is_double ? WEFTI_CUDA_R_64F : WEFTI_CUDA_R_32F);
    TRY(result, api->cublasLtMatmulDescSetAttribute(
                    made->desc, WEFTI_LT_DESC_TRANSA, &turn_a, sizeof(turn_a)));
    TRY(result, api->cublasLtMatmulDescSetAttribute(
                    made->desc, WEFTI_LT_DESC_TRANSB, &turn_b, sizeof(turn_b)));
    TRY(result, api->cublasLtMatrixLayoutCreate(
                    &made->a, of->type, of->transpose_b ? of->k : of->n,
                    of->transpose_b ? of->n : of->k, (int64_t)of->ldb));
    TRY(result, api->cublasLtMatrixLayoutCreate(
                    &made->b, of->type, of->transpose_a ? of->m : of->k,
                    of->transpose_a ? of->k : of->m, (int64_t)of->lda));
    TRY(result, api->cublasLtMatrixLayoutCreate(&made->c, of->c_type, of->n,
                                                of->m, (int64_t)of->ldc));
    return result;
}

static int set_preferences(const wefti_cublaslt_api *api, const key *of,
                           void *preference)
{
    const uint32_t reduction = WEFTI_LT_REDUCTION_COMPUTE_TYPE;
    const struct {
        int attribute;
        const void *value;
        size_t bytes;
    } all[] = {
        {WEFTI_LT_PREF_WORKSPACE, &of->workspace_bytes, sizeof(uint64_t)},
        {WEFTI_LT_PREF_REDUCTION, &reduction, sizeof(uint32_t)},
        {WEFTI_LT_PREF_ALIGNMENT_A, &of->b_alignment, sizeof(uint32_t)},
        {WEFTI_LT_PREF_ALIGNMENT_B, &of->a_alignment, sizeof(uint32_t)},
        {WEFTI_LT_PREF_ALIGNMENT_C, &of->c_alignment, sizeof(uint32_t)},
        {WEFTI_LT_PREF_ALIGNMENT_D, &of->c_alignment, sizeof(uint32_t)}};
    int result = WEFTI_CUBLAS_SUCCESS;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        TRY(result,
            api->cublasLtMatmulPreferenceSetAttribute(
                preference, all[i].attribute, all[i].value, all[i].bytes));
    }
    return result;
}

/* The best of what the heuristic knows. */
static int choose(const struct wefti_cuda_products *products, plan *made)
{
    const wefti_cublaslt_api *api = products->api;
    wefti_cublaslt_result best = {.state = WEFTI_CUBLAS_NOT_SUPPORTED};
    void *preference = NULL;
    int found = 0;
    int result = api->cublasLtMatmulPreferenceCreate(&preference);
    TRY(result, set_preferences(api, &made->of, preference));
    TRY(result, api->cublasLtMatmulAlgoGetHeuristic(
                    products->handle, made->desc, made->a, made->b, made->c,
                    made->c, preference, 1, &best, &found));
    TRY(result, found > 0 ? best.state : WEFTI_CUBLAS_NOT_SUPPORTED);
    if (preference) {
        (void)api->cublasLtMatmulPreferenceDestroy(preference);
    }
    made->algo = best.algo;
    made->workspace_bytes = best.workspace_bytes;
    return result;
}

static void log_refusal(const wefti_cuda_gpu *gpu, const plan *refused,
                        const char *what)
{
    const key *of = &refused->of;
    wefti_log(WEFTI_LOG_INFO, -1,
              "cuda device %d: a product of %" PRIu64 " x %" PRIu64
              " x %" PRIu64 " by weft's own kernel: %s: %s",
              gpu->index, of->m, of->n, of->k, what,
              gpu->products->api->cublasLtGetStatusName(refused->refused));
}

/* A place that no call is using, emptied; NULL: all are in use. */
static plan *find_place_locked(struct wefti_cuda_products *products)
{
    for (size_t tries = 0; tries < PLANS; tries++) {
        plan *place = &products->plans[products->next];
        products->next = (products->next + 1) % PLANS;
        if (place->users == 0) {
            forget(products->api, place);
            return place;
        }
    }
    return NULL;
}

/* NULL: none can be made now. */
static plan *find_plan_locked(wefti_cuda_gpu *gpu, const key *of)
{
    struct wefti_cuda_products *products = gpu->products;
    plan *found = NULL;
    for (size_t i = 0; i < PLANS && !found; i++) {
        plan *place = &products->plans[i];
        if (place->known && memcmp(&place->of, of, sizeof(*of)) == 0) {
            found = place;
        }
    }
    if (!found) {
        found = find_place_locked(products);
        if (!found) {
            return NULL;
        }
        found->of = *of;
        found->known = true;
        found->refused = describe(products->api, found);
        TRY(found->refused, choose(products, found));
        if (found->refused != WEFTI_CUBLAS_SUCCESS) {
            log_refusal(gpu, found, "cuBLASLt has no algorithm");
        }
    }
    return found;
}

/* With one user more; NULL: the library does not do this. */
static plan *find_plan(wefti_cuda_gpu *gpu, const key *of)
{
    struct wefti_cuda_products *products = gpu->products;
    pthread_mutex_lock(&products->lock);
    plan *found = open_locked(gpu) ? find_plan_locked(gpu, of) : NULL;
    if (found && found->refused != WEFTI_CUBLAS_SUCCESS) {
        found = NULL;
    }
    if (found) {
        found->users++;
    }
    pthread_mutex_unlock(&products->lock);
    return found;
}

/* refused: what the library has said of it, if it does not do it after all. */
static void leave_plan(wefti_cuda_gpu *gpu, plan *used, int refused)
{
    pthread_mutex_lock(&gpu->products->lock);
    used->users--;
    if (used->refused == WEFTI_CUBLAS_SUCCESS &&
        refused != WEFTI_CUBLAS_SUCCESS) {
        used->refused = refused;
        log_refusal(gpu, used, "cublasLtMatmul");
    }
    pthread_mutex_unlock(&gpu->products->lock);
}

bool wefti_cuda_stream_has_workspace(wefti_cuda_stream *stream, size_t bytes)
{
    if (bytes > 0 && bytes <= WORKSPACE_BYTES && !stream->workspace &&
        wefti_cuda_mem_alloc(stream->base.device, WEFT_MEMORY_DEVICE,
                             WORKSPACE_BYTES, &stream->workspace) < 0) {
        stream->workspace = NULL;
        stream->lacks_workspace = true;
    }
    return bytes == 0 || (bytes <= WORKSPACE_BYTES && stream->workspace);
}

/* A plan for this stream; one without workspace where it gets none. */
static plan *find_plan_of(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                          const wefti_product *product, bool captured)
{
    const bool without = captured || !stream->owned || stream->lacks_workspace;
    key of = key_of(product, without ? 0 : WORKSPACE_BYTES);
    plan *found = find_plan(gpu, &of);
    if (found &&
        !wefti_cuda_stream_has_workspace(stream, found->workspace_bytes)) {
        leave_plan(gpu, found, WEFTI_CUBLAS_SUCCESS);
        of.workspace_bytes = 0;
        found = find_plan(gpu, &of);
    }
    return found;
}

static int queue(const wefti_cuda_gpu *gpu, const wefti_cuda_stream *stream,
                 const wefti_product *product, const plan *with)
{
    const struct wefti_cuda_products *products = gpu->products;
    const float alpha = (float)product->alpha, beta = (float)product->beta;
    const bool is_double = product->dtype == WEFT_DTYPE_F64;
    const void *factor = is_double ? (const void *)&product->alpha : &alpha;
    const void *kept = is_double ? (const void *)&product->beta : &beta;
    return products->api->cublasLtMatmul(
        products->handle, with->desc, factor, product->b, with->a, product->a,
        with->b, kept, product->c, with->c, product->c, with->c, &with->algo,
        with->workspace_bytes > 0 ? stream->workspace : NULL,
        with->workspace_bytes, stream->native);
}

/* Statuses by which a call says, before it queues anything, that it will not.
 */
static bool is_refusal(int result)
{
    return result == WEFTI_CUBLAS_NOT_SUPPORTED ||
           result == WEFTI_CUBLAS_INVALID_VALUE ||
           result == WEFTI_CUBLAS_ARCH_MISMATCH;
}

static weft_status multiply(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                            const wefti_product *product, bool captured,
                            bool *queued_out)
{
    plan *with = find_plan_of(gpu, stream, product, captured);
    if (!with) {
        return WEFT_OK;
    }
    const int result = queue(gpu, stream, product, with);
    *queued_out = result == WEFTI_CUBLAS_SUCCESS;
    leave_plan(gpu, with, is_refusal(result) ? result : WEFTI_CUBLAS_SUCCESS);
    return *queued_out || is_refusal(result)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM,
                             "cuda device %d: gemm: cublasLtMatmul: %s",
                             gpu->index,
                             gpu->products->api->cublasLtGetStatusName(result));
}

weft_status wefti_cuda_stream_multiply(weft_stream *base,
                                       const wefti_product *product,
                                       bool *queued_out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    bool captured;
    *queued_out = false;
    if (stream->green) {
        return WEFT_OK; /* no library has been seen to keep to a part */
    }
    weft_status status =
        wefti_cuda_enter_capture(gpu, stream, "gemm", &captured);
    if (status < 0) {
        return status;
    }
    if (!captured) {
        status = wefti_cuda_make_room(gpu, stream, MORE_OPERATIONS);
    }
    if (status == WEFT_OK) {
        status = multiply(gpu, stream, product, captured, queued_out);
    }
    wefti_cuda_leave(gpu);
    return status;
}

weft_status wefti_cuda_find_products(char text_out[64])
{
    const wefti_cublaslt_api *api;
    weft_status status = wefti_cublaslt_api_open(&api);
    if (status == WEFT_OK) {
        wefti_cublaslt_version_text(api->version, text_out, 64);
    }
    return status;
}
