/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench_math - how far each math kernel is from what one core allows.
 *
 * Per kernel and shape: the measured time over the time that the same bytes
 * take at the bandwidth of a copy with the same working set, or the same
 * arithmetic at the peak rate of multiply-adds in registers, whichever is
 * longer. An exp counts as 9 multiply-adds, a division or square root as 4;
 * the last column counts them as nothing. Times are the best of several runs,
 * the roofline is measured in the same process.
 *
 *     bench_math [--quick] [--level base|v3|v4] [--limit RATIO] [NAME]
 *
 * --quick: the demo's shapes only, short runs. --limit: exit 1 where a ratio is
 * above it. NAME: only kernels whose name contains it.
 */
#include "tests/kernels/roofline.h"

#include "kernels/math/gemm_kernel.h"
#include "kernels/math/math_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXP_FLOPS = 18, DIVIDE_FLOPS = 8 };

/* One line of the table. */
typedef struct line_cost {
    const char *name;
    char shape[48];
    double bytes; /* read plus written, each array once */
    double flops; /* without exp, division, root */
    double special_flops;
    double peak; /* of what carries it out; 0: the processor's */
} line_cost;

/* Arrays that any case may use, filled once. */
typedef struct arrays {
    real *a, *b, *c, *d, *e, *scratch;
    int32_t *ids;
    double *partials;
} arrays;

typedef struct benchmark {
    const wefti_math *math;
    arrays arena;
    double peak;
    double limit;
    double best_of_s; /* seconds spent on one line */
    const char *filter;
    int over;
} benchmark;

typedef void run_fn(const benchmark *bench, const size_t *extent);

enum { QUICK_ELEMS = 1 << 20, MOST_ELEMS = 1 << 23, EXTENTS = 5, AGAIN = 4 };

static real *alloc_reals(size_t elems)
{
    real *made = aligned_alloc(64, elems * sizeof(real));

    if (!made)
        abort();
    for (size_t i = 0; i < elems; i++)
        made[i] = (real)((double)(i * 2654435761u % 2048) / 1024 - 1);
    return made;
}

static double best_time(const benchmark *bench, run_fn *run,
                        const size_t *extent)
{
    double best = INFINITY, until = roofline_clock() + bench->best_of_s;

    for (int n = 0; n < 5 || roofline_clock() < until; n++) {
        double start = roofline_clock();

        run(bench, extent);

        double took = roofline_clock() - start;

        /* Some virtual machines' clocks stand still now and then. */
        best = took > 0 && took < best ? took : best;
    }
    return best;
}

/* Of what seems too slow, more runs: what else the machine does only adds. */
static double shortest_time(const benchmark *bench, run_fn *run,
                            const size_t *extent, double bound)
{
    double best = best_time(bench, run, extent);

    for (int n = 0; n < AGAIN && best / bound > bench->limit; n++)
        best = fmin(best, best_time(bench, run, extent));
    return best;
}

static void measure(benchmark *bench, line_cost cost, run_fn *run,
                    const size_t *extent)
{
    if (bench->filter && !strstr(cost.name, bench->filter))
        return;

    double memory = cost.bytes / roofline_bandwidth((size_t)cost.bytes);
    double peak = cost.peak > 0 ? cost.peak : bench->peak;
    double strict = fmax(memory, cost.flops / peak);
    double bound = fmax(memory, (cost.flops + cost.special_flops) / peak);
    double took = shortest_time(bench, run, extent, bound);

    printf("%-20s %-30s %9.1f %8.2f %8.2f %7.2f %7.2f\n", cost.name, cost.shape,
           took * 1e6, cost.bytes / took * 1e-9,
           (cost.flops + cost.special_flops) / took * 1e-9, took / bound,
           took / strict);
    fflush(stdout);
    if (took / bound > bench->limit)
        bench->over++;
}

/* Rows by width. */

static void run_rmsnorm_forward(const benchmark *bench, const size_t *e)
{
    bench->math->rmsnorm_forward(bench->arena.a, bench->arena.e, bench->arena.b,
                                 bench->arena.c, e[0], e[1], WEFTI_REAL(1e-5));
}

static void run_rmsnorm_backward(const benchmark *bench, const size_t *e)
{
    bench->math->rmsnorm_backward(
        bench->arena.a, bench->arena.scratch, bench->arena.b, bench->arena.c,
        bench->arena.d, bench->arena.e, e[0], e[1], false);
}

static void run_swiglu_forward(const benchmark *bench, const size_t *e)
{
    bench->math->swiglu_forward(bench->arena.a, bench->arena.b,
                                bench->arena.b + e[1], e[0], e[1], 2 * e[1]);
}

static void run_swiglu_backward(const benchmark *bench, const size_t *e)
{
    bench->math->swiglu_backward(bench->arena.a, bench->arena.a + e[1],
                                 bench->arena.c, bench->arena.b,
                                 bench->arena.b + e[1], e[0], e[1], 2 * e[1]);
}

static void run_cross_entropy(const benchmark *bench, const size_t *e)
{
    bench->math->cross_entropy(bench->arena.e, bench->arena.a, bench->arena.b,
                               bench->arena.ids, e[0], e[1], WEFTI_REAL(0.01));
}

static void run_embedding_forward(const benchmark *bench, const size_t *e)
{
    bench->math->embedding_forward(bench->arena.a, bench->arena.b,
                                   bench->arena.ids, e[0], 256, e[1]);
}

static void run_embedding_backward(const benchmark *bench, const size_t *e)
{
    bench->math->embedding_backward(bench->arena.a, bench->arena.b,
                                    bench->arena.ids, e[0], 256, e[1]);
}

static void rows_by_width(benchmark *bench, size_t rows, size_t width)
{
    double n = (double)(rows * width), bytes = n * sizeof(real);
    size_t e[EXTENTS] = {rows, width};
    line_cost cost = {0};

    snprintf(cost.shape, sizeof(cost.shape), "rows %zu width %zu", rows, width);
#define ROWS(kernel, arrays, operations, special)                              \
    cost.name = #kernel;                                                       \
    cost.bytes = (arrays)*bytes;                                               \
    cost.flops = (operations)*n;                                               \
    cost.special_flops = (special)*n;                                          \
    measure(bench, cost, run_##kernel, e)
    ROWS(rmsnorm_forward, 2, 4, 0);
    ROWS(rmsnorm_backward, 3, 12, 0);
    ROWS(swiglu_forward, 3, 3, EXP_FLOPS + DIVIDE_FLOPS);
    ROWS(swiglu_backward, 5, 8, EXP_FLOPS + DIVIDE_FLOPS);
    ROWS(embedding_forward, 2, 0, 0);
    ROWS(embedding_backward, 3, 1, 0);
#undef ROWS
}

static void losses(benchmark *bench, size_t tokens, size_t vocab)
{
    double n = (double)(tokens * vocab);
    size_t e[EXTENTS] = {tokens, vocab};
    line_cost cost = {.name = "cross_entropy",
                      .bytes = 2 * n * sizeof(real),
                      .flops = 3 * n,
                      .special_flops = EXP_FLOPS * n};

    snprintf(cost.shape, sizeof(cost.shape), "tokens %zu vocab %zu", tokens,
             vocab);
    measure(bench, cost, run_cross_entropy, e);
}

/* Flat ranges. */

static void run_adamw(const benchmark *bench, const size_t *e)
{
    wefti_adamw_config config = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 10};

    bench->math->adamw(bench->arena.a, bench->arena.b, bench->arena.d,
                       bench->arena.c, e[0], &config);
}

static void run_sumsq(const benchmark *bench, const size_t *e)
{
    bench->math->sumsq(bench->arena.partials, bench->arena.b, e[0]);
}

static void run_add(const benchmark *bench, const size_t *e)
{
    bench->math->add(bench->arena.a, bench->arena.b, bench->arena.c, e[0]);
}

static void run_scale(const benchmark *bench, const size_t *e)
{
    bench->math->scale(bench->arena.a, bench->arena.b, WEFTI_REAL(0.5), e[0]);
}

static void flat(benchmark *bench, size_t elems)
{
    double n = (double)elems;
    size_t e[EXTENTS] = {elems};
    line_cost cost = {0};

    snprintf(cost.shape, sizeof(cost.shape), "elems %zu", elems);
#define FLAT(kernel, arrays, operations, special)                              \
    cost.name = #kernel;                                                       \
    cost.bytes = (arrays)*n * sizeof(real);                                    \
    cost.flops = (operations)*n;                                               \
    cost.special_flops = (special)*n;                                          \
    measure(bench, cost, run_##kernel, e)
    FLAT(adamw, 7, 12, 2 * DIVIDE_FLOPS);
    FLAT(sumsq, 1, 4, 4);
    FLAT(add, 3, 1, 0);
    FLAT(scale, 2, 1, 0);
#undef FLAT
}

/* Heads. */

static wefti_attention shape_of(const size_t *e)
{
    return (wefti_attention){.q_tokens = e[0],
                             .kv_tokens = e[0],
                             .heads = e[1],
                             .kv_heads = e[2],
                             .head_size = e[3],
                             .q_stride = e[1] * e[3],
                             .kv_stride = e[2] * e[3],
                             .o_stride = e[1] * e[3],
                             .scale = (real)(1 / sqrt((double)e[3])),
                             .causal = e[4] != 0};
}

static void run_attention_forward(const benchmark *bench, const size_t *e)
{
    wefti_attention shape = shape_of(e);

    bench->math->attention_forward(
        bench->arena.a, bench->arena.e, bench->arena.b, bench->arena.c,
        bench->arena.d, &shape, false, bench->arena.scratch);
}

static void run_attention_backward(const benchmark *bench, const size_t *e)
{
    wefti_attention shape = shape_of(e);
    size_t elems = shape.q_tokens * shape.q_stride;

    /* lse (e) is forward's; any other arrays of the shape do for the time */
    bench->math->attention_backward(
        bench->arena.a, bench->arena.a + elems, bench->arena.a + 2 * elems,
        bench->arena.b + elems, bench->arena.b, bench->arena.c, bench->arena.d,
        bench->arena.e, bench->arena.c + elems, &shape, bench->arena.scratch);
}

static void run_rope_forward(const benchmark *bench, const size_t *e)
{
    bench->math->rope_forward(bench->arena.a, bench->arena.b, e[0], e[1], e[3],
                              e[1] * e[3]);
}

static void heads(benchmark *bench, size_t tokens, size_t head_count,
                  size_t kv_heads, size_t head_size, bool causal)
{
    size_t e[EXTENTS] = {tokens, head_count, kv_heads, head_size, causal};
    double t = (double)tokens, h = (double)head_count, d = (double)head_size;
    double pairs = h * (causal ? t * (t + 1) / 2 : t * t);
    double q = t * h * d * sizeof(real);
    double kv = t * (double)kv_heads * d * sizeof(real);
    line_cost cost = {.name = "attention_forward"};

    snprintf(cost.shape, sizeof(cost.shape), "seq %zu heads %zu/%zu d %zu%s",
             tokens, head_count, kv_heads, head_size, causal ? " causal" : "");
    cost.bytes = 2 * q + 2 * kv;
    cost.flops = 4 * d * pairs;
    cost.special_flops = EXP_FLOPS * pairs;
    measure(bench, cost, run_attention_forward, e);
    run_attention_forward(bench, e);
    cost.name = "attention_backward";
    cost.bytes = 4 * q + 6 * kv;
    cost.flops = 10 * d * pairs;
    measure(bench, cost, run_attention_backward, e);
    cost.name = "rope_forward";
    cost.bytes = 2 * q + t * d * sizeof(real);
    cost.flops = 3 * t * h * d;
    cost.special_flops = 0;
    measure(bench, cost, run_rope_forward, e);
}

/* Products. */

static void run_gemm(const benchmark *bench, const size_t *e)
{
    bench->math->gemm(e[3], e[4], e[0], e[1], e[2], 1, bench->arena.a,
                      e[3] ? e[0] : e[2], bench->arena.b, e[4] ? e[2] : e[1], 0,
                      bench->arena.c, e[1]);
}

static void product(benchmark *bench, size_t m, size_t n, size_t k)
{
    for (size_t op = 0; op < 3; op++) {
        size_t e[EXTENTS] = {m, n, k, op == 2, op == 1};
        double dm = (double)m, dn = (double)n, dk = (double)k;
        line_cost cost = {.name = "gemm",
                          .bytes = (dm * dk + dk * dn + dm * dn) * sizeof(real),
                          .flops = 2 * dm * dn * dk};

        /* OpenBLAS's for processors that it does not know, of vectors of 16
         * bytes. */
        if (strcmp(wefti_gemm_get_kernel(false), "OpenBLAS Prescott") == 0)
            cost.peak = roofline_base_flops();
        snprintf(cost.shape, sizeof(cost.shape), "%zux%zux%zu %c%c", m, n, k,
                 op == 2 ? 'T' : 'N', op == 1 ? 'T' : 'N');
        measure(bench, cost, run_gemm, e);
    }
}

static void all_cases(benchmark *bench, bool quick)
{
    heads(bench, 128, 4, 2, 32, true);
    heads(bench, 256, 8, 4, 32, true);
    heads(bench, 512, 4, 4, 64, true);
    rows_by_width(bench, 256, 128);
    rows_by_width(bench, 512, 256);
    losses(bench, 128, 256);
    losses(bench, 512, 256);
    flat(bench, 1 << 18);
    product(bench, 512, 256, 256);
    if (quick)
        return;
    heads(bench, 512, 8, 4, 32, true);
    heads(bench, 512, 8, 4, 32, false);
    heads(bench, 1024, 8, 2, 64, true);
    heads(bench, 1024, 8, 2, 128, true);
    heads(bench, 2048, 4, 1, 128, false);
    heads(bench, 500, 3, 1, 48, true);
    rows_by_width(bench, 512, 704);
    rows_by_width(bench, 1024, 4096);
    rows_by_width(bench, 100, 999);
    rows_by_width(bench, 100, 1024);
    losses(bench, 512, 4096);
    losses(bench, 128, 32000);
    losses(bench, 100, 999);
    flat(bench, 1 << 14);
    flat(bench, 1 << 23);
    product(bench, 128, 128, 128);
    product(bench, 1024, 1024, 1024);
}

static bool take_arguments(benchmark *bench, int argc, char **argv, bool *quick)
{
    const char *level = NULL;

    for (int n = 1; n < argc; n++) {
        bool more = n + 1 < argc;

        if (strcmp(argv[n], "--quick") == 0)
            *quick = true;
        else if (strcmp(argv[n], "--level") == 0 && more)
            level = argv[++n];
        else if (strcmp(argv[n], "--limit") == 0 && more)
            bench->limit = strtod(argv[++n], NULL);
        else if (argv[n][0] != '-')
            bench->filter = argv[n];
        else
            return false;
    }
    for (size_t n = 0; (bench->math = wefti_math_at(n)) != NULL; n++)
        if (!level || strcmp(level, bench->math->level) == 0)
            return true;
    return false;
}

static void arena_init(arrays *arena, size_t elems)
{
    real **reals[] = {&arena->a, &arena->b, &arena->c,
                      &arena->d, &arena->e, &arena->scratch};

    for (size_t n = 0; n < sizeof(reals) / sizeof(reals[0]); n++)
        *reals[n] = alloc_reals(elems);
    arena->ids = calloc(elems, sizeof(int32_t));
    arena->partials = calloc(elems, sizeof(double));
    if (!arena->ids || !arena->partials)
        abort();
    for (size_t i = 0; i < elems; i++) {
        arena->ids[i] = (int32_t)(i * 40503u % 256);
        arena->d[i] = (real)fabs((double)arena->d[i]); /* AdamW's v */
    }
}

static void arena_fini(arrays *arena)
{
    free(arena->a);
    free(arena->b);
    free(arena->c);
    free(arena->d);
    free(arena->e);
    free(arena->scratch);
    free(arena->ids);
    free(arena->partials);
}

int main(int argc, char **argv)
{
    benchmark bench = {.limit = INFINITY};
    bool quick = false;

    if (!take_arguments(&bench, argc, argv, &quick)) {
        fprintf(stderr,
                "usage: %s [--quick] [--level base|v3|v4] "
                "[--limit RATIO] [NAME]\n",
                argv[0]);
        return 2;
    }
    bench.best_of_s = quick ? 0.02 : 0.2;
    arena_init(&bench.arena, quick ? QUICK_ELEMS : MOST_ELEMS);
    bench.peak = roofline_flops();
    printf("level %s, %s, peak %.1f GFLOP/s in registers\n", bench.math->level,
           WEFTI_REAL_NAME, bench.peak * 1e-9);
    printf("%-20s %-30s %9s %8s %8s %7s %7s\n", "kernel", "shape", "us", "GB/s",
           "GFLOP/s", "ratio", "strict");
    all_cases(&bench, quick);
    if (bench.over > 0)
        printf("%d above %.2f\n", bench.over, bench.limit);
    arena_fini(&bench.arena);
    return bench.over > 0;
}
