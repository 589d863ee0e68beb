// SPDX-License-Identifier: BSD-3-Clause
/*
 * The matrix product: its ceiling on random data, which forms of it the library
 * has an algorithm for, and what SM_COUNT_TARGET does beside a communication
 * kernel.
 */
#include "product.h"

#ifdef GPU_FACTS_HAS_CUBLASLT

#define N       8192
#define REPEATS 11
#define BF16    .n = N, .type = CUDA_R_16BF, .scale_mode_a = -1

static struct gemm allocate(int n)
{
    size_t bytes = 2 * (size_t)n * (size_t)n;
    struct gemm g = {.a = gpu_alloc(bytes),
                     .b = gpu_alloc(bytes),
                     .d = gpu_alloc(bytes),
                     .aux = gpu_alloc(bytes),
                     .workspace = gpu_alloc(GEMM_WORKSPACE)};
    return g;
}

static void need_algorithm(const struct gemm *g)
{
    if (g->found == 0)
        give_up("the heuristic found no algorithm (status %d)", g->status);
}

static void ask_rate(struct gemm *g, const char *name, const char *how)
{
    double ms[REPEATS];
    char text[128];
    gpu_time_ms(gpu_stream(), gemm_run, g, REPEATS, ms);
    snprintf(text, sizeof(text), "median of %d by events: %d^3, %s", REPEATS,
             g->form.n, how);
    fact_number(name, gemm_tflops(g, quantile(ms, REPEATS, 0.5)), "TFLOP/s",
                text);
}

void q_gemm(int variant)
{
    (void)variant;
    gpu_open();
    gemm_open();
    struct gemm g = allocate(N);
    gemm_plan(&g, (struct gemm_form){BF16});
    need_algorithm(&g);
    gpu_fill(g.a, 2 * (size_t)N * N, 1);
    gpu_fill(g.b, 2 * (size_t)N * N, 2);
    ask_rate(&g, "bf16", "random data");
    CU(cuMemsetD8(g.a, 0, 2 * (size_t)N * N));
    CU(cuMemsetD8(g.b, 0, 2 * (size_t)N * N));
    ask_rate(&g, "bf16_on_zeros", "zeros, for the difference only");
    struct gemm_form fp8 = {
        .n = N, .type = CUDA_R_8F_E4M3, .transposed = true, .scale_mode_a = -1};
    gemm_plan(&g, fp8);
    need_algorithm(&g);
    unsigned long long bytes = (unsigned long long)N * N;
    unsigned seed = 3;
    LAUNCH(NULL, "fill_e4m3", 8 * gpu_sms(), 256, &g.a, &bytes, &seed);
    LAUNCH(NULL, "fill_e4m3", 8 * gpu_sms(), 256, &g.b, &bytes, &seed);
    CU(cuCtxSynchronize());
    ask_rate(&g, "fp8_tn", "e4m3, no scales, random data");
}

struct form_row {
    const char *name;
    struct gemm_form form;
};

#define SIDE 4096
#define WITH(kind)                                                             \
    {                                                                          \
        .n = SIDE, .type = CUDA_R_16BF, .scale_mode_a = -1,                    \
        .epilogue = CUBLASLT_EPILOGUE_##kind                                   \
    }
#define FP8(trans, mode_a, mode_b)                                             \
    {                                                                          \
        .n = SIDE, .type = CUDA_R_8F_E4M3, .transposed = trans,                \
        .scale_mode_a = mode_a, .scale_mode_b = mode_b                         \
    }

static const struct form_row form_rows[] = {
    {"epilogue_bias", WITH(BIAS)},
    {"epilogue_gelu_aux_bias", WITH(GELU_AUX_BIAS)},
    {"epilogue_dgelu_bgrad", WITH(DGELU_BGRAD)},
    {"epilogue_bgrada", WITH(BGRADA)},
    {"epilogue_bgradb", WITH(BGRADB)},
    {"fp8_tn", FP8(true, -1, -1)},
    {"fp8_nn", FP8(false, -1, -1)},
    {"fp8_tn_scale_tensor", FP8(true, 0, 0)},
    {"fp8_tn_scale_rows_and_columns", FP8(true, 3, 3)},
    {"fp8_tn_scale_1x128_both", FP8(true, 4, 4)},
    {"fp8_tn_scale_1x128_by_128x128", FP8(true, 4, 5)},
};

void q_gemm_forms(int variant)
{
    (void)variant;
    gpu_open();
    gemm_open();
    struct gemm g = allocate(SIDE);
    for (size_t i = 0; i < sizeof(form_rows) / sizeof(*form_rows); i++) {
        gemm_plan(&g, form_rows[i].form);
        fact_text(form_rows[i].name,
                  "cublasLtMatmulAlgoGetHeuristic, 4 asked for, 4096^3",
                  "%d algorithms, status %d", g.found, g.status);
    }
}

struct beside {
    CUdeviceptr to, a, b, started, stop, out;
    unsigned *started_host, *stop_host;
    unsigned long long *out_host;
    CUstream gemm_stream, comm_stream;
};

#define COMM_BYTES ((size_t)256 << 20)

static struct beside open_beside(void)
{
    struct beside s = {.to = gpu_alloc(COMM_BYTES),
                       .a = gpu_alloc(COMM_BYTES),
                       .b = gpu_alloc(COMM_BYTES)};
    s.started_host = gpu_pinned(64, &s.started);
    s.stop_host = gpu_pinned(64, &s.stop);
    s.out_host = gpu_pinned(4096, &s.out);
    int least, greatest;
    CU(cuCtxGetStreamPriorityRange(&least, &greatest));
    CU(cuStreamCreateWithPriority(&s.gemm_stream, CU_STREAM_NON_BLOCKING,
                                  least));
    CU(cuStreamCreateWithPriority(&s.comm_stream, CU_STREAM_NON_BLOCKING,
                                  greatest));
    return s;
}

/* The GEMM's time beside a reducing kernel of BLOCKS blocks (0: alone), and
 * that kernel's rate. */
static void run_beside(struct beside *s, struct gemm *g, int blocks)
{
    double ms[REPEATS], rate = 0;
    char name[48], full[72];
    unsigned long long n = COMM_BYTES / 16, limit_ns = 500000000;
    __atomic_store_n(s->started_host, 0, __ATOMIC_RELEASE);
    __atomic_store_n(s->stop_host, 0, __ATOMIC_RELEASE);
    /* Its kernel must be loaded before another one holds the device. */
    gemm_run(s->gemm_stream, g);
    CU(cuStreamSynchronize(s->gemm_stream));
    if (blocks) {
        LAUNCH(s->comm_stream, "reduce", blocks, 512, &s->to, &s->a, &s->b, &n,
               &s->started, &s->stop, &limit_ns, &s->out);
        if (!host_await(s->started_host, 1, 1e6))
            give_up("the communication kernel did not start");
    }
    gpu_time_ms(s->gemm_stream, gemm_run, g, REPEATS, ms);
    bool beside = !blocks || cu.cuStreamQuery(s->comm_stream) != CUDA_SUCCESS;
    __atomic_store_n(s->stop_host, 1, __ATOMIC_RELEASE);
    CU(cuStreamSynchronize(s->comm_stream));
    for (int i = 0; i < blocks; i++)
        rate += (double)s->out_host[2 * i] / (double)s->out_host[2 * i + 1];
    snprintf(name, sizeof(name), "comm_%d_target_%d", blocks,
             g->form.sm_target);
    if (!beside) {
        fact_none(name, "the communication kernel ended before the products");
        return;
    }
    snprintf(full, sizeof(full), "%s_gemm", name);
    fact_spread(full, ms, REPEATS, "ms",
                "8192^3 bf16 beside a reduce kernel of so many blocks");
    if (blocks == 0)
        return;
    snprintf(full, sizeof(full), "%s_reduce", name);
    fact_number(full, rate, "GB/s",
                "2 reads and 1 write of that kernel, 512 threads a block");
}

void q_gemm_beside(int variant)
{
    static const int blocks[] = {0, 8, 16, 32};
    (void)variant;
    gpu_open();
    gemm_open();
    struct gemm g = allocate(N);
    struct beside s = open_beside();
    gpu_fill(g.a, 2 * (size_t)N * N, 1);
    gpu_fill(g.b, 2 * (size_t)N * N, 2);
    gpu_fill(s.a, COMM_BYTES, 3);
    gpu_fill(s.b, COMM_BYTES, 4);
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++)
        for (size_t j = 0; j < sizeof(blocks) / sizeof(*blocks); j++) {
            if (j > 0 && i > 0 && i != j)
                continue; /* a target that leaves out other than the blocks */
            gemm_plan(&g,
                      (struct gemm_form){
                          BF16, .sm_target = j ? gpu_sms() - blocks[j] : 0});
            need_algorithm(&g);
            run_beside(&s, &g, blocks[i]);
        }
}

#else
static void refuse(void)
{
    give_up("built without cublasLt.h");
}

void q_gemm(int variant)
{
    (void)variant;
    refuse();
}

void q_gemm_forms(int variant)
{
    (void)variant;
    refuse();
}

void q_gemm_beside(int variant)
{
    (void)variant;
    refuse();
}
#endif
