// SPDX-License-Identifier: BSD-3-Clause
/*
 * See product.h.
 */
#include "product.h"

#ifdef GPU_FACTS_HAS_CUBLASLT

#define LT_FUNCTIONS(X)                                                        \
    X(cublasLtCreate)                                                          \
    X(cublasLtMatmulDescCreate)                                                \
    X(cublasLtMatmulDescSetAttribute)                                          \
    X(cublasLtMatrixLayoutCreate)                                              \
    X(cublasLtMatmulPreferenceCreate)                                          \
    X(cublasLtMatmulPreferenceSetAttribute)                                    \
    X(cublasLtMatmulAlgoGetHeuristic)                                          \
    X(cublasLtMatmul)                                                          \
    X(cublasLtGetStatusName)
#define MEMBER(name) __typeof__(name) *name;
#define LOAD(name)   lt.name = library_function(library, #name);

static struct {
    LT_FUNCTIONS(MEMBER)
} lt;
static cublasLtHandle_t handle;

static void check(cublasStatus_t status, const char *call)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        give_up("%s: %s (%d)", call, lt.cublasLtGetStatusName(status),
                (int)status);
}
#define LT(call) check(lt.call, #call)

void gemm_open(void)
{
    static const char *const names[] = {
        "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    void *library = library_open(names);
    LT_FUNCTIONS(LOAD)
    LT(cublasLtCreate(&handle));
}

static void set(struct gemm *g, cublasLtMatmulDescAttributes_t attribute,
                const void *value, size_t bytes)
{
    LT(cublasLtMatmulDescSetAttribute(g->op, attribute, value, bytes));
}

static void set_int(struct gemm *g, cublasLtMatmulDescAttributes_t attribute,
                    int32_t value)
{
    set(g, attribute, &value, sizeof(value));
}

static void set_pointer(struct gemm *g,
                        cublasLtMatmulDescAttributes_t attribute,
                        CUdeviceptr at)
{
    set(g, attribute, &at, sizeof(at));
}

static void set_epilogue(struct gemm *g, cublasLtEpilogue_t epilogue)
{
    int64_t leading = g->form.n;
    uint32_t value = epilogue;
    set(g, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, sizeof(value));
    set_pointer(g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g->workspace);
    if (epilogue & 128) { /* those with _AUX or D */
        set_pointer(g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g->aux);
        set(g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &leading, sizeof(leading));
    }
}

static void set_form(struct gemm *g)
{
    const struct gemm_form *form = &g->form;
    LT(cublasLtMatmulDescCreate(&g->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set_int(g, CUBLASLT_MATMUL_DESC_TRANSA,
            form->transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (form->sm_target)
        set_int(g, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, form->sm_target);
    if (form->epilogue)
        set_epilogue(g, form->epilogue);
    if (form->scale_mode_a >= 0) {
        set_int(g, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, form->scale_mode_a);
        set_int(g, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, form->scale_mode_b);
        set_pointer(g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, g->workspace);
        set_pointer(g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, g->workspace);
    }
}

void gemm_plan(struct gemm *g, struct gemm_form form)
{
    cublasLtMatmulHeuristicResult_t results[4];
    cublasLtMatmulPreference_t preference;
    size_t workspace = GEMM_WORKSPACE;
    uint64_t n = (uint64_t)form.n;
    g->form = form;
    set_form(g);
    LT(cublasLtMatrixLayoutCreate(&g->a_layout, form.type, n, n, form.n));
    LT(cublasLtMatrixLayoutCreate(&g->b_layout, form.type, n, n, form.n));
    LT(cublasLtMatrixLayoutCreate(&g->d_layout, CUDA_R_16BF, n, n, form.n));
    LT(cublasLtMatmulPreferenceCreate(&preference));
    LT(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
        sizeof(workspace)));
    g->found = 0;
    g->status = (int)lt.cublasLtMatmulAlgoGetHeuristic(
        handle, g->op, g->a_layout, g->b_layout, g->d_layout, g->d_layout,
        preference, 4, results, &g->found);
    if (g->found > 0)
        g->algorithm = results[0].algo;
}

void gemm_run(CUstream stream, void *gemm)
{
    struct gemm *g = gemm;
    float one = 1, zero = 0;
    LT(cublasLtMatmul(handle, g->op, &one, (void *)g->a, g->a_layout,
                      (void *)g->b, g->b_layout, &zero, (void *)g->d,
                      g->d_layout, (void *)g->d, g->d_layout, &g->algorithm,
                      (void *)g->workspace, GEMM_WORKSPACE, (void *)stream));
}

double gemm_tflops(const struct gemm *g, double ms)
{
    double n = g->form.n;
    return 2 * n * n * n / ms / 1e9;
}

#endif
