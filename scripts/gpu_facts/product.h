// SPDX-License-Identifier: BSD-3-Clause
/*
 * A matrix product by cublasLt, opened at run time. D = op(A) B, all stored by
 * columns, fp32 inside, D in bf16.
 */
#ifndef GPU_FACTS_PRODUCT_H
#define GPU_FACTS_PRODUCT_H

#include "cu.h"

#if __has_include(<cublasLt.h>)
#define GPU_FACTS_HAS_CUBLASLT 1
#include <cublasLt.h>

struct gemm_form {
    int n; /* all three sides */
    cudaDataType_t type;
    bool transposed;                /* op(A) is A's transpose */
    cublasLtEpilogue_t epilogue;    /* 0: none */
    int sm_target;                  /* 0: all */
    int scale_mode_a, scale_mode_b; /* -1: no scales given */
};

struct gemm {
    struct gemm_form form;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a_layout, b_layout, d_layout;
    cublasLtMatmulAlgo_t algorithm;
    CUdeviceptr a, b, d, aux, workspace;
    int found;  /* algorithms that the heuristic returned */
    int status; /* what it answered */
};

#define GEMM_WORKSPACE ((size_t)32 << 20)

void gemm_open(void);
/* Fills the descriptors of FORM in G, whose memory is set already, and asks the
 * heuristic. */
void gemm_plan(struct gemm *g, struct gemm_form form);
/* Runs with the first algorithm found. */
void gemm_run(CUstream stream, void *gemm);
double gemm_tflops(const struct gemm *g, double ms);

#endif
#endif
