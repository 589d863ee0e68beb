/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_device - how fast each call of math_stream.h is on a device.
 *
 *     bench_device [--device host|cuda|shadow] [--type f32|bf16] [--quick]
 *                  [NAME]
 *
 * Random data, as zeros would be faster. A time is that of several calls queued
 * at once over their number, the median of 5 such; the first calls do not
 * count. GB/s are of bytes read and written, each array once; GFLOP/s of
 * multiplications and additions. --quick: small shapes. NAME: only calls whose
 * name contains it.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/small_float.h"
#include "device/cuda.h"
#include "kernels/math/gemm_kernel.h"
#include "kernels/math/math_launch.h"
#include "kernels/math/math_stream.h"
#include "kernels/math/sumsq.h"
#include "tests/seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, WARM_UP = 2, ARRAYS = 10, VOCAB = 32000, HEAD = 128 };

/* What all calls work on: rows of tokens, and heads of 128. */
typedef struct sizes {
    size_t rows, width, elems, vocab, tokens, heads, product, calls;
} sizes;

static const sizes large = {8192, 4096, 1 << 25, VOCAB, 2048, 16, 4096, 10};
static const sizes small = {128, 256, 1 << 15, 128, 128, 2, 128, 2};

typedef struct bench {
    weft_device *device;
    weft_stream *stream;
    weft_dtype own;
    sizes n;
    void *at[ARRAYS]; /* room for any array of any call, at random */
    void *ids;
    const char *filter;
    bool *met; /* whether a name has it */
} bench;

static wefti_math_tensor rows_of(const bench *b, int array, size_t rows,
                                 size_t width)
{
    return wefti_math_rows(b->at[array], b->own, rows, width);
}

/* Sums and statistics. */
static wefti_math_tensor wide_of(const bench *b, int array, size_t rows,
                                 size_t width)
{
    return wefti_math_rows(b->at[array], WEFT_DTYPE_F32, rows, width);
}

static wefti_math_tensor ids_of(const bench *b, size_t tokens)
{
    return wefti_math_flat(b->ids, WEFT_DTYPE_I32, tokens);
}

static weft_status run_add(const bench *b)
{
    wefti_math_tensor c = rows_of(b, 0, 1, b->n.elems);
    wefti_math_tensor x = rows_of(b, 1, 1, b->n.elems);
    wefti_math_tensor y = rows_of(b, 2, 1, b->n.elems);
    return wefti_stream_add(b->stream, &c, &x, &y);
}

static weft_status run_scale(const bench *b)
{
    wefti_math_tensor c = rows_of(b, 0, 1, b->n.elems);
    wefti_math_tensor x = rows_of(b, 1, 1, b->n.elems);
    return wefti_stream_scale(b->stream, &c, &x, 0.5);
}

static weft_status run_fill(const bench *b)
{
    wefti_math_tensor c = rows_of(b, 0, 1, b->n.elems);
    return wefti_stream_fill(b->stream, &c, 0.5);
}

static weft_status run_sumsq(const bench *b)
{
    wefti_math_tensor partials = wefti_math_flat(
        b->at[0], WEFT_DTYPE_F64, wefti_sumsq_blocks(b->n.elems));
    wefti_math_tensor x = rows_of(b, 1, 1, b->n.elems);
    return wefti_stream_sumsq(b->stream, &partials, &x);
}

/* v is made of positive values in main. */
static weft_status run_adamw(const bench *b)
{
    const wefti_adamw_config config = {1e-4, 0.9, 0.95, 1e-8, 0.1, 1, 10};
    wefti_math_tensor param = rows_of(b, 0, 1, b->n.elems);
    wefti_math_tensor master = wide_of(b, 3, 1, b->n.elems);
    wefti_math_tensor m = wide_of(b, 4, 1, b->n.elems);
    wefti_math_tensor v = wide_of(b, ARRAYS - 1, 1, b->n.elems);
    wefti_math_tensor grad = rows_of(b, 1, 1, b->n.elems);
    return wefti_stream_adamw(b->stream, &param, &master, &m, &v, &grad, NULL,
                              &config);
}

static weft_status run_rmsnorm_forward(const bench *b)
{
    wefti_math_tensor y = rows_of(b, 0, b->n.rows, b->n.width);
    wefti_math_tensor x = rows_of(b, 1, b->n.rows, b->n.width);
    wefti_math_tensor weight = rows_of(b, 2, 1, b->n.width);
    wefti_math_tensor rstd = wide_of(b, 3, 1, b->n.rows);
    return wefti_stream_rmsnorm_forward(b->stream, &y, &rstd, &x, &weight,
                                        1e-5);
}

static weft_status run_rmsnorm_backward(const bench *b)
{
    wefti_math_tensor dx = rows_of(b, 0, b->n.rows, b->n.width);
    wefti_math_tensor dy = rows_of(b, 4, b->n.rows, b->n.width);
    wefti_math_tensor x = rows_of(b, 1, b->n.rows, b->n.width);
    wefti_math_tensor weight = rows_of(b, 2, 1, b->n.width);
    wefti_math_tensor rstd = wide_of(b, ARRAYS - 1, 1, b->n.rows);
    wefti_math_tensor dweight = wide_of(b, 5, 1, b->n.width);
    wefti_math_tensor scratch =
        wide_of(b, 6, wefti_math_dweight_partials(b->n.rows), b->n.width);
    return wefti_stream_rmsnorm_backward(b->stream, &dx, &dweight, &dy, &x,
                                         &weight, &rstd, false, &scratch);
}

static weft_status run_swiglu_forward(const bench *b)
{
    wefti_math_tensor out = rows_of(b, 0, b->n.rows, b->n.width);
    wefti_math_tensor gate = rows_of(b, 1, b->n.rows, b->n.width);
    wefti_math_tensor up = rows_of(b, 2, b->n.rows, b->n.width);
    return wefti_stream_swiglu_forward(b->stream, &out, &gate, &up);
}

static weft_status run_swiglu_backward(const bench *b)
{
    wefti_math_tensor dgate = rows_of(b, 0, b->n.rows, b->n.width);
    wefti_math_tensor dup = rows_of(b, 3, b->n.rows, b->n.width);
    wefti_math_tensor dout = rows_of(b, 4, b->n.rows, b->n.width);
    wefti_math_tensor gate = rows_of(b, 1, b->n.rows, b->n.width);
    wefti_math_tensor up = rows_of(b, 2, b->n.rows, b->n.width);
    return wefti_stream_swiglu_backward(b->stream, &dgate, &dup, &dout, &gate,
                                        &up);
}

static weft_status run_rope(const bench *b)
{
    wefti_math_tensor x = rows_of(b, 0, b->n.tokens, b->n.heads * HEAD);
    wefti_math_tensor table = wide_of(b, 1, b->n.tokens, HEAD);
    return wefti_stream_rope(b->stream, &x, &table, false);
}

static weft_status run_embedding_forward(const bench *b)
{
    wefti_math_tensor out = rows_of(b, 0, b->n.tokens, HEAD);
    wefti_math_tensor table = rows_of(b, 1, b->n.vocab, HEAD);
    wefti_math_tensor ids = ids_of(b, b->n.tokens);
    return wefti_stream_embedding_forward(b->stream, &out, &table, &ids);
}

static weft_status run_embedding_backward(const bench *b)
{
    wefti_math_tensor dtable = wide_of(b, 3, b->n.vocab, HEAD);
    wefti_math_tensor dout = rows_of(b, 1, b->n.tokens, HEAD);
    wefti_math_tensor ids = ids_of(b, b->n.tokens);
    return wefti_stream_embedding_backward(b->stream, &dtable, &dout, &ids);
}

static weft_status run_cross_entropy(const bench *b)
{
    const size_t tokens = b->n.elems / b->n.vocab;
    wefti_math_tensor logits = rows_of(b, 1, tokens, b->n.vocab);
    wefti_math_tensor dlogits = rows_of(b, 0, tokens, b->n.vocab);
    wefti_math_tensor loss = wide_of(b, 3, 1, tokens);
    wefti_math_tensor targets = ids_of(b, tokens);
    return wefti_stream_cross_entropy(b->stream, &loss, &dlogits, &logits,
                                      &targets, 0.01);
}

static wefti_math_heads heads_of(const bench *b)
{
    return (wefti_math_heads){.sequences = 1,
                              .heads = b->n.heads,
                              .kv_heads = b->n.heads,
                              .scale = 0.088,
                              .causal = true};
}

static weft_status run_attention_forward(const bench *b)
{
    const wefti_math_heads heads = heads_of(b);
    wefti_math_tensor o = rows_of(b, 0, b->n.tokens, b->n.heads * HEAD);
    wefti_math_tensor q = rows_of(b, 1, b->n.tokens, b->n.heads * HEAD);
    wefti_math_tensor k = rows_of(b, 2, b->n.tokens, b->n.heads * HEAD);
    wefti_math_tensor v = rows_of(b, 3, b->n.tokens, b->n.heads * HEAD);
    wefti_math_tensor lse = wide_of(b, 4, b->n.tokens, b->n.heads);
    return wefti_stream_attention_forward(b->stream, &o, &lse, &q, &k, &v,
                                          &heads, false);
}

/* Any o and lse do for the time. */
static weft_status run_attention_backward(const bench *b)
{
    const wefti_math_heads heads = heads_of(b);
    const size_t width = b->n.heads * HEAD;
    wefti_math_tensor q = rows_of(b, 1, b->n.tokens, width);
    wefti_math_tensor k = rows_of(b, 2, b->n.tokens, width);
    wefti_math_tensor v = rows_of(b, 3, b->n.tokens, width);
    wefti_math_tensor dout = rows_of(b, 5, b->n.tokens, width);
    wefti_math_tensor dq = rows_of(b, 6, b->n.tokens, width);
    wefti_math_tensor dk = rows_of(b, 7, b->n.tokens, width);
    wefti_math_tensor dv = rows_of(b, 0, b->n.tokens, width);
    wefti_math_tensor lse = wide_of(b, ARRAYS - 1, b->n.tokens, b->n.heads);
    wefti_math_tensor delta = wide_of(b, 8, b->n.tokens, b->n.heads);
    return wefti_stream_attention_backward(b->stream, &dq, &dk, &dv, &dout, &q,
                                           &k, &v, &dout, &lse, &delta, &heads,
                                           false);
}

static weft_status product(const bench *b, bool turn_a, bool turn_b)
{
    wefti_math_tensor c = rows_of(b, 0, b->n.product, b->n.product);
    wefti_math_tensor x = rows_of(b, 1, b->n.product, b->n.product);
    wefti_math_tensor y = rows_of(b, 2, b->n.product, b->n.product);
    return wefti_stream_gemm(b->stream, &c, &x, turn_a, &y, turn_b, 1, 0);
}

static weft_status run_gemm_nn(const bench *b)
{
    return product(b, false, false);
}

static weft_status run_gemm_nt(const bench *b)
{
    return product(b, false, true);
}

static weft_status run_gemm_tn(const bench *b)
{
    return product(b, true, false);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static weft_status time_calls(const bench *b,
                              weft_status (*run)(const bench *b), size_t calls,
                              int64_t *ns_out)
{
    const int64_t begin = wefti_clock_ns();
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < calls && status == WEFT_OK; i++) {
        status = run(b);
    }
    const weft_status ended = weft_stream_wait(b->stream);
    *ns_out = wefti_clock_ns() - begin;
    return status < 0 ? status : ended;
}

/* One line; false, having said why. */
static bool measure(const bench *b, const char *name,
                    weft_status (*run)(const bench *b), double bytes,
                    double flops)
{
    int64_t ns[ROUNDS], first;
    if (b->filter && !strstr(name, b->filter)) {
        return true;
    }
    *b->met = true;
    weft_status status = time_calls(b, run, WARM_UP, &first);
    for (int round = 0; round < ROUNDS && status == WEFT_OK; round++) {
        status = time_calls(b, run, b->n.calls, &ns[round]);
    }
    if (status < 0) {
        printf("%-20s FAILED: %s\n", name, weft_error_text());
        return false;
    }
    qsort(ns, ROUNDS, sizeof(ns[0]), compare);
    const double took = (double)ns[ROUNDS / 2] / (double)b->n.calls;
    printf("%-20s %12.1f %10.2f %12.2f\n", name, took * 1e-3, bytes / took,
           flops / took);
    fflush(stdout);
    return true;
}

static bool measure_all(const bench *b)
{
    const double s = (double)weft_dtype_bytes(b->own);
    const double n = (double)b->n.elems;
    const double r = (double)b->n.rows * (double)b->n.width;
    const double t = (double)b->n.tokens, p = (double)b->n.product;
    const double h = t * (double)b->n.heads * HEAD;
    const double pairs = t * (t + 1) / 2 * (double)b->n.heads;
    bool ok = measure(b, "fill", run_fill, n * s, 0);
    ok &= measure(b, "scale", run_scale, 2 * n * s, n);
    ok &= measure(b, "add", run_add, 3 * n * s, n);
    ok &= measure(b, "sumsq", run_sumsq, n * s, 2 * n);
    ok &= measure(b, "adamw", run_adamw, n * (2 * s + 24), 12 * n);
    ok &= measure(b, "cross_entropy", run_cross_entropy, 2 * n * s, 3 * n);
    ok &= measure(b, "rmsnorm_forward", run_rmsnorm_forward, 2 * r * s, 4 * r);
    ok &=
        measure(b, "rmsnorm_backward", run_rmsnorm_backward, 3 * r * s, 12 * r);
    ok &= measure(b, "swiglu_forward", run_swiglu_forward, 3 * r * s, 3 * r);
    ok &= measure(b, "swiglu_backward", run_swiglu_backward, 5 * r * s, 8 * r);
    ok &= measure(b, "rope", run_rope, 2 * h * s + 4 * t * HEAD, 3 * h);
    ok &= measure(b, "embedding_forward", run_embedding_forward,
                  2 * t * HEAD * s, 0);
    ok &= measure(b, "embedding_backward", run_embedding_backward,
                  t * HEAD * (s + 8), t * HEAD);
    ok &= measure(b, "attention_forward", run_attention_forward, 4 * h * s,
                  4 * HEAD * pairs);
    ok &= measure(b, "attention_backward", run_attention_backward, 7 * h * s,
                  10 * HEAD * pairs);
    ok &= measure(b, "gemm_nn", run_gemm_nn, 3 * p * p * s, 2 * p * p * p);
    ok &= measure(b, "gemm_nt", run_gemm_nt, 3 * p * p * s, 2 * p * p * p);
    ok &= measure(b, "gemm_tn", run_gemm_tn, 3 * p * p * s, 2 * p * p * p);
    return ok;
}

/* Random values, of both types at once: each half of an f32 is a bf16 of
 * nearly its size. The last array's are f32 in [0.5, 1.5). */
static uint32_t draw(uint64_t *seed, bool positive)
{
    const double drawn = (double)(random_next(seed) >> 11) * 0x1p-53;
    const float value = (float)(positive ? 0.5 + drawn : 2 * drawn - 1);
    const uint32_t high = wefti_bf16_narrow(value);
    return positive ? wefti_f32_bits(value) : high << 16 | high;
}

static bool fill_arrays(bench *b)
{
    uint64_t seed = random_seed();
    const size_t elems = b->n.elems;
    uint32_t *from = malloc(elems * sizeof(*from));
    weft_status status = from ? WEFT_OK : WEFT_ERR_NO_MEMORY;
    for (int i = 0; i <= ARRAYS && status == WEFT_OK; i++) {
        void **at = i < ARRAYS ? &b->at[i] : &b->ids;
        for (size_t e = 0; e < elems; e++) {
            from[e] = i < ARRAYS ? draw(&seed, i == ARRAYS - 1)
                                 : (uint32_t)(random_next(&seed) % b->n.vocab);
        }
        status = weft_device_alloc(b->device, elems * sizeof(*from), at);
        if (status == WEFT_OK) {
            status = weft_device_copy(b->device, *at, from,
                                      elems * sizeof(*from), b->stream);
        }
        if (status == WEFT_OK) {
            status = weft_stream_wait(b->stream);
        }
    }
    free(from);
    return status == WEFT_OK;
}

static bool take_arguments(bench *b, const char **kind, int argc, char **argv)
{
    for (int n = 1; n < argc; n++) {
        const bool more = n + 1 < argc;
        if (strcmp(argv[n], "--quick") == 0) {
            b->n = small;
        } else if (strcmp(argv[n], "--device") == 0 && more) {
            *kind = argv[++n];
        } else if (strcmp(argv[n], "--type") == 0 && more) {
            const char *type = argv[++n];
            b->own = WEFT_DTYPE_BF16;
            if (strcmp(type, "f32") == 0) {
                b->own = WEFT_DTYPE_F32;
            } else if (strcmp(type, "bf16") != 0) {
                return false;
            }
        } else if (argv[n][0] != '-') {
            b->filter = argv[n];
        } else {
            return false;
        }
    }
    return true;
}

static void print_products(const char *kind)
{
    char library[64];
    if (strcmp(kind, "cuda") != 0) {
        printf("products of f32: %s; of bf16: %s\n",
               wefti_gemm_get_kernel(false), wefti_gemm_get_kernel(true));
    } else {
        printf("products: %s\n", wefti_cuda_find_products(library) == WEFT_OK
                                     ? library
                                     : weft_error_text());
        printf("attention of bf16: %s\n",
               wefti_cuda_find_attention(library) == WEFT_OK
                   ? library
                   : weft_error_text());
    }
}

int main(int argc, char **argv)
{
    bool met = false; /* something to measure */
    bench b = {.own = WEFT_DTYPE_BF16, .n = large, .met = &met};
    const char *kind = "host";
    if (!take_arguments(&b, &kind, argc, argv)) {
        fprintf(stderr, "usage: bench_device [--device host|cuda|shadow] "
                        "[--type f32|bf16] [--quick] [NAME]\n");
        return 2;
    }
    if (weft_device_open(kind, 0, &b.device) < 0) {
        fprintf(stderr, "bench_device: %s\n", weft_error_text());
        return 2;
    }
    bool ok = weft_stream_create(b.device, 0, &b.stream) == WEFT_OK &&
              fill_arrays(&b);
    if (!ok) {
        fprintf(stderr, "bench_device: %s\n", weft_error_text());
    } else {
        print_products(kind);
        printf("%s, %s\n%-20s %12s %10s %12s\n", kind, weft_dtype_text(b.own),
               "call", "us", "GB/s", "GFLOP/s");
        ok = measure_all(&b);
        if (!met) {
            fprintf(stderr, "bench_device: no call's name has \"%s\"\n",
                    b.filter);
            ok = false;
        }
    }
    for (int i = 0; i <= ARRAYS; i++) {
        weft_device_free(b.device, i < ARRAYS ? b.at[i] : b.ids);
    }
    weft_stream_destroy(b.stream);
    weft_device_close(b.device);
    return !ok;
}
