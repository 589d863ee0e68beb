/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every call of math_stream.h gives on a device what it gives on the
 * host without a stream: shadow, or by its argument "host" a stream of the
 * host, or "cuda" the cuda device, on the fake driver that it is linked with or
 * (scripts/gpu-check) on a GPU. Products there are cuBLASLt's, by its stand-in,
 * and with WEFT_CUBLASLT=off weft's own kernel's.
 *
 * Method: the same random arrays on both, one test a call, in f32, bf16 and
 * bf16 beside f32; a second program is over double. Results start poisoned,
 * strided rows have gaps, which stay so. Tolerances are the host headers'
 * twice, and bf16's rounding.
 */
#include "tests/kernels/device_pair.h"

#include "kernels/math/math_launch.h"
#include "tests/kernels/pair_tokens.h"

static const char *kind = "shadow";

#ifdef WEFT_REAL_F64
static const weft_dtype own_types[] = {WEFT_DTYPE_F64};
#elif defined(__SANITIZE_THREAD__)
/* What it looks for is in calls of any type alike. */
static const weft_dtype own_types[] = {WEFT_DTYPE_F32};
#else
static const weft_dtype own_types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16};
#endif
#define WIDE WEFTI_REAL_DTYPE
#define F64  WEFT_DTYPE_F64

/* Runs a case in every type, and with what may be mixed in f32 as well. */
typedef void case_fn(device_pair *pair, weft_dtype own, weft_dtype mixed);

static void in_types(void **state, case_fn *run)
{
    device_pair *pair = *state;

    for (size_t i = 0; i < sizeof(own_types) / sizeof(own_types[0]); i++) {
        run(pair, own_types[i], own_types[i]);
        pair_clear(pair);
        if (own_types[i] == WEFT_DTYPE_BF16) {
            run(pair, WEFT_DTYPE_BF16, WEFT_DTYPE_F32);
            pair_clear(pair);
        }
    }
}

#define IN_TYPES(name)                                                         \
    static void test_devices_##name##_as_the_host(void **state)                \
    {                                                                          \
        in_types(state, case_##name);                                          \
    }

static void case_elementwise(device_pair *pair, weft_dtype own,
                             weft_dtype mixed)
{
    enum { ELEMS = 1777, ROWS = 37, WIDTH = 40, STEP = 48 };
    pair_array *a = pair_random(pair, own, ELEMS, -2, 2);
    pair_array *b = pair_random(pair, own, ELEMS, -2, 2);
    pair_array *sum = pair_poison(pair, own, ELEMS);
    pair_array *filled = pair_poison(pair, own, ELEMS);
    pair_array *copied = pair_poison(pair, own, ELEMS);
    pair_array *wide = pair_random(pair, mixed, ELEMS, -2, 2);

    EACH_SIDE(pair)
    {
        wefti_math_tensor ta = pair_flat(pair, a), tb = pair_flat(pair, b);
        wefti_math_tensor ts = pair_flat(pair, sum);
        wefti_math_tensor tf = pair_flat(pair, filled);
        wefti_math_tensor from = pair_part(pair, a, 1, ROWS, WIDTH, STEP);
        wefti_math_tensor other = pair_part(pair, wide, 1, ROWS, 3, STEP);
        wefti_math_tensor to = pair_part(pair, copied, 5, ROWS, WIDTH, 44);
        wefti_math_tensor more = pair_part(pair, sum, 3, ROWS, WIDTH, 44);

        pair_ok(wefti_stream_add(pair_stream(pair), &ts, &ta, &tb));
        pair_ok(wefti_stream_scale(pair_stream(pair), &tb, &tb, 0.3));
        pair_ok(wefti_stream_fill(pair_stream(pair), &tf, -1.5));
        pair_ok(wefti_stream_copy_rows(pair_stream(pair), &to, &from, false));
        pair_ok(wefti_stream_copy_rows(pair_stream(pair), &more, &from, true));
        to.width = more.width = other.width; /* written over, and added to */
        pair_ok(wefti_stream_copy_rows(pair_stream(pair), &to, &other, false));
        pair_ok(wefti_stream_copy_rows(pair_stream(pair), &more, &other, true));
    }
    pair_same(pair, copied, "copy_rows");
    pair_same(pair, sum, "add, of rows too");
    pair_same(pair, b, "scale");
    pair_same(pair, filled, "fill");
}
IN_TYPES(elementwise)

static void case_rmsnorm(device_pair *pair, weft_dtype own, weft_dtype mixed)
{
    enum { ROWS = 70, WIDTH = 65, ELEMS = ROWS * WIDTH };
    const size_t partials = wefti_math_dweight_partials(ROWS);
    const double near = TOLERANCE(2e-5, 2e-13);
    pair_array *x = pair_random(pair, own, ELEMS, -2, 2);
    pair_array *weight = pair_random(pair, own, WIDTH, 0.5, 1.5);
    pair_array *y = pair_poison(pair, own, ELEMS);
    pair_array *rstd = pair_poison(pair, WIDE, ROWS);
    pair_array *dy = pair_random(pair, own, ELEMS, -1, 1);
    pair_array *dx = pair_random(pair, own, ELEMS, -1, 1);
    pair_array *dweight = pair_random(pair, WIDE, WIDTH, -1, 1);
    pair_array *scratch = pair_poison(pair, WIDE, partials * WIDTH);

    (void)mixed;
    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor tx = pair_rows(pair, x, ROWS, WIDTH);
        wefti_math_tensor ty = pair_rows(pair, y, ROWS, WIDTH);
        wefti_math_tensor tdx = pair_rows(pair, dx, ROWS, WIDTH);
        wefti_math_tensor tdy = pair_rows(pair, dy, ROWS, WIDTH);
        wefti_math_tensor tw = pair_flat(pair, weight);
        wefti_math_tensor tr = pair_flat(pair, rstd);
        wefti_math_tensor tdw = pair_flat(pair, dweight);
        wefti_math_tensor ts = pair_rows(pair, scratch, partials, WIDTH);

        pair_ok(wefti_stream_rmsnorm_forward(stream, &ty, &tr, &tx, &tw, 1e-5));
        pair_ok(wefti_stream_rmsnorm_backward(stream, &tdx, &tdw, &tdy, &tx,
                                              &tw, &tr, true, &ts));
        /* in the place of what comes from above */
        pair_ok(wefti_stream_rmsnorm_backward(stream, &tdy, &tdw, &tdy, &tx,
                                              &tw, &tr, false, &ts));
    }
    pair_near(pair, rstd, near, near, "rstd");
    pair_near(pair, y, near, near, "y");
    pair_near(pair, dx, near, near, "dx, added");
    pair_near(pair, dy, near, near, "dx");
    pair_near(pair, dweight, 20 * near, near, "dweight");
}
IN_TYPES(rmsnorm)

static void case_rope(device_pair *pair, weft_dtype own, weft_dtype mixed)
{
    enum { TOKENS = 9, HEADS = 3, HEAD = 6, GAP = 5 };
    const size_t stride = HEADS * HEAD + GAP;
    pair_array *table = pair_poison(pair, WIDE, TOKENS * HEAD);
    pair_array *again = pair_poison(pair, WIDE, TOKENS * HEAD);
    pair_array *positions = pair_ids(pair, TOKENS, 100000);
    pair_array *x = pair_random(pair, own, TOKENS * stride, -1, 1);
    pair_array *y = pair_random(pair, own, TOKENS * stride, -1, 1);

    (void)mixed;
    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor tt = pair_rows(pair, table, TOKENS, HEAD);
        wefti_math_tensor ta = pair_rows(pair, again, TOKENS, HEAD);
        wefti_math_tensor tp = pair_flat(pair, positions);
        wefti_math_tensor tx =
            pair_part(pair, x, 0, TOKENS, HEADS * HEAD, stride);
        wefti_math_tensor ty =
            pair_part(pair, y, 0, TOKENS, HEADS * HEAD, stride);

        pair_ok(wefti_stream_rope_table(stream, &tt, NULL, 3000, 10000));
        pair_ok(wefti_stream_rope_table(stream, &ta, &tp, 0, 10000));
        pair_ok(wefti_stream_rope(stream, &tx, &tt, false));
        pair_ok(wefti_stream_rope(stream, &ty, &ta, true));
    }
    pair_near(pair, table, TOLERANCE(4e-7, 8e-11), 0, "table");
    pair_near(pair, again, TOLERANCE(4e-7, 8e-11), 0, "table of positions");
    pair_near(pair, x, TOLERANCE(8e-7, 2e-10), 0, "x");
    pair_near(pair, y, TOLERANCE(8e-7, 2e-10), 0, "x turned back");
}
IN_TYPES(rope)

static void case_swiglu(device_pair *pair, weft_dtype own, weft_dtype mixed)
{
    enum { ROWS = 5, WIDTH = 133, STRIDE = 2 * WIDTH };
    const double near = TOLERANCE(8e-7, 2e-15) * 25;
    pair_array *both = pair_random(pair, own, ROWS * STRIDE, -4, 4);
    pair_array *dboth = pair_poison(pair, own, ROWS * STRIDE);
    pair_array *out = pair_poison(pair, own, ROWS * WIDTH);
    pair_array *dout = pair_random(pair, own, ROWS * WIDTH, -1, 1);

    (void)mixed;
    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor to = pair_rows(pair, out, ROWS, WIDTH);
        wefti_math_tensor tdo = pair_rows(pair, dout, ROWS, WIDTH);
        wefti_math_tensor gate = pair_part(pair, both, 0, ROWS, WIDTH, STRIDE);
        wefti_math_tensor up =
            pair_part(pair, both, WIDTH, ROWS, WIDTH, STRIDE);
        wefti_math_tensor dgate =
            pair_part(pair, dboth, 0, ROWS, WIDTH, STRIDE);
        wefti_math_tensor dup =
            pair_part(pair, dboth, WIDTH, ROWS, WIDTH, STRIDE);

        pair_ok(wefti_stream_swiglu_forward(stream, &to, &gate, &up));
        pair_ok(wefti_stream_swiglu_backward(stream, &dgate, &dup, &tdo, &gate,
                                             &up));
        pair_ok(
            wefti_stream_swiglu_backward(stream, &gate, &up, &tdo, &gate, &up));
    }
    pair_near(pair, out, near, 0, "out");
    pair_near(pair, dboth, near, 0, "slopes");
    pair_near(pair, both, near, 0, "slopes in place");
}
IN_TYPES(swiglu)

IN_TYPES(tokens)

static void case_step(device_pair *pair, weft_dtype own, weft_dtype mixed)
{
    enum { ELEMS = 3100, ROWS = 31 };
    const wefti_adamw_config config = {1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3};
    const size_t blocks = wefti_sumsq_blocks(ELEMS);
    const double near = TOLERANCE(1e-6, 4e-15);
    const bool small = own == WEFT_DTYPE_BF16;
    pair_array *param = pair_poison(pair, own, ELEMS);
    pair_array *master = pair_random(pair, WIDE, ELEMS, -1, 1);
    pair_array *m = pair_random(pair, WIDE, ELEMS, -0.1, 0.1);
    pair_array *v = pair_random(pair, WIDE, ELEMS, 0.01, 0.1);
    pair_array *grad = pair_random(pair, mixed, ELEMS, -1, 1);
    pair_array *partials = pair_poison(pair, F64, blocks);
    pair_array *norm = pair_poison(pair, F64, 1);
    pair_array *factor = pair_poison(pair, F64, 1);
    pair_array *totals = pair_poison(pair, F64, ROWS);

    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor tp = pair_flat(pair, param);
        wefti_math_tensor tw = pair_flat(pair, master);
        wefti_math_tensor tm = pair_flat(pair, m), tv = pair_flat(pair, v);
        wefti_math_tensor tg = pair_flat(pair, grad);
        wefti_math_tensor ts = pair_flat(pair, partials);
        wefti_math_tensor tn = pair_flat(pair, norm);
        wefti_math_tensor tf = pair_flat(pair, factor);
        wefti_math_tensor rows = pair_rows(pair, grad, ROWS, ELEMS / ROWS);
        wefti_math_tensor tt = pair_flat(pair, totals);

        pair_ok(wefti_stream_totals(stream, &tt, &rows));
        pair_ok(wefti_stream_sumsq(stream, &ts, &tg));
        pair_ok(wefti_stream_clip(stream, &tn, &tf, &ts, 0.5, 3));
        pair_ok(
            wefti_stream_adamw(stream, &tp, &tw, &tm, &tv, &tg, &tf, &config));
        if (!small) /* of masters alone, without a factor */
            pair_ok(wefti_stream_adamw(stream, NULL, &tw, &tm, &tv, &tg, NULL,
                                       &config));
    }
    pair_same(pair, totals, "sums of rows");
    pair_near(pair, partials, 0, TOLERANCE(0, 37 * 0x1p-52), "squares");
    pair_near(pair, norm, 0, TOLERANCE(0x1p-51, 37 * 0x1p-52), "norm");
    pair_near(pair, factor, 0, TOLERANCE(0x1p-50, 37 * 0x1p-51), "factor");
    pair_near(pair, m, 2 * near, 0, "m");
    pair_near(pair, v, 2 * near, 0, "v");
    pair_near(pair, master, 12 * near, 0, "master");
    pair_near(pair, param, 12 * near, 0, "param");
}
IN_TYPES(step)

/* Two sequences, shared heads, causal with an offset, gaps in every row. */
enum {
    SEQUENCES = 2,
    QUERIES = 35,
    KEYS = 41,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD = 24,
    Q_ROWS = SEQUENCES * QUERIES,
    KV_ROWS = SEQUENCES * KEYS,
    Q_STRIDE = HEADS * HEAD + 3,
    KV_STRIDE = KV_HEADS * HEAD + 5,
    O_STRIDE = HEADS * HEAD + 1
};

typedef struct attention_arrays {
    pair_array *q, *k, *v, *o, *lse, *dout, *delta, *dq, *dk, *dv;
} attention_arrays;

static wefti_math_tensor queries(const device_pair *pair, const pair_array *of)
{
    return pair_part(pair, of, 0, Q_ROWS, HEADS * HEAD, of->elems / Q_ROWS);
}

static wefti_math_tensor keys(const device_pair *pair, const pair_array *of)
{
    return pair_part(pair, of, 0, KV_ROWS, KV_HEADS * HEAD, KV_STRIDE);
}

static const wefti_math_heads heads_of_all = {.sequences = SEQUENCES,
                                              .heads = HEADS,
                                              .kv_heads = KV_HEADS,
                                              .scale = 0.2,
                                              .causal = true,
                                              .causal_offset = 3};

static attention_arrays make_attention(device_pair *pair, weft_dtype own,
                                       weft_dtype mixed)
{
    return (attention_arrays){
        .q = pair_random(pair, own, (size_t)Q_ROWS * Q_STRIDE, -1, 1),
        .k = pair_random(pair, own, (size_t)KV_ROWS * KV_STRIDE, -1, 1),
        .v = pair_random(pair, own, (size_t)KV_ROWS * KV_STRIDE, -1, 1),
        .o = pair_poison(pair, mixed, (size_t)Q_ROWS * O_STRIDE),
        .lse = pair_poison(pair, WIDE, (size_t)Q_ROWS * HEADS),
        .dout = pair_random(pair, own, (size_t)Q_ROWS * O_STRIDE, -1, 1),
        .delta = pair_poison(pair, WIDE, (size_t)Q_ROWS * HEADS),
        .dq = pair_poison(pair, mixed, (size_t)Q_ROWS * Q_STRIDE),
        .dk = pair_poison(pair, mixed, (size_t)KV_ROWS * KV_STRIDE),
        .dv = pair_poison(pair, mixed, (size_t)KV_ROWS * KV_STRIDE)};
}

static void case_attention(device_pair *pair, weft_dtype own, weft_dtype mixed)
{
    const double near = TOLERANCE(8e-5, 4e-12);
    attention_arrays a = make_attention(pair, own, mixed);

    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor q = queries(pair, a.q), o = queries(pair, a.o);
        wefti_math_tensor k = keys(pair, a.k), v = keys(pair, a.v);
        wefti_math_tensor dout = queries(pair, a.dout);
        wefti_math_tensor lse = pair_rows(pair, a.lse, Q_ROWS, HEADS);
        wefti_math_tensor delta = pair_rows(pair, a.delta, Q_ROWS, HEADS);
        wefti_math_tensor dq = queries(pair, a.dq);
        wefti_math_tensor dk = keys(pair, a.dk), dv = keys(pair, a.dv);

        pair_ok(wefti_stream_attention_forward(stream, &o, &lse, &q, &k, &v,
                                               &heads_of_all, false));
        for (int add = 0; add < 2; add++) /* then with its delta */
            pair_ok(wefti_stream_attention_backward(
                stream, &dq, &dk, &dv, &dout, &q, &k, &v, add ? NULL : &o, &lse,
                &delta, &heads_of_all, add));
    }
    /* delta and the gradients have o's rounding in them */
    double rounded = mixed == WEFT_DTYPE_BF16 ? 2e-2 : near;

    pair_near(pair, a.o, near, near, "o");
    pair_near(pair, a.lse, near, near, "lse");
    pair_near(pair, a.delta, rounded, near, "delta");
    pair_near(pair, a.dq, rounded, near, "dq");
    pair_near(pair, a.dk, rounded, near, "dk");
    pair_near(pair, a.dv, rounded, near, "dv");
}
IN_TYPES(attention)

/* Half of the keys, then the rest on top; and both halves by themselves. */
static void case_attention_merged(device_pair *pair, weft_dtype own,
                                  weft_dtype mixed)
{
    const double near = TOLERANCE(8e-5, 4e-12);
    attention_arrays a = make_attention(pair, own, mixed);
    pair_array *other = pair_poison(pair, mixed, a.o->elems);
    pair_array *other_lse = pair_poison(pair, WIDE, a.lse->elems);
    const double two = mixed == WEFT_DTYPE_BF16 ? 0x1p-7 : 0;
    wefti_math_heads late = heads_of_all;

    late.causal_offset = -7; /* the first queries see no key of it */
    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor q = queries(pair, a.q), o = queries(pair, a.o);
        wefti_math_tensor k = keys(pair, a.k), v = keys(pair, a.v);
        wefti_math_tensor second = queries(pair, other);
        wefti_math_tensor lse = pair_rows(pair, a.lse, Q_ROWS, HEADS);
        wefti_math_tensor second_lse =
            pair_rows(pair, other_lse, Q_ROWS, HEADS);

        pair_ok(wefti_stream_attention_forward(stream, &second, &second_lse, &q,
                                               &v, &k, &late, false));
        pair_ok(wefti_stream_attention_forward(stream, &o, &lse, &q, &k, &v,
                                               &heads_of_all, false));
        pair_ok(wefti_stream_attention_forward(stream, &o, &lse, &q, &v, &k,
                                               &late, true));
        if (mixed == own) /* o of one type with all else */
            pair_ok(wefti_stream_attention_merge(stream, &o, &lse, &second,
                                                 &second_lse));
    }
    pair_near(pair, other, near, near, "o of the second");
    pair_near(pair, other_lse, near, near, "lse of the second");
    pair_near(pair, a.o, near + 2 * two, near + two, "o merged");
    pair_near(pair, a.lse, near, near, "lse merged");
}
IN_TYPES(attention_merged)

static void check_product(device_pair *pair, weft_dtype own, weft_dtype mixed,
                          bool turn_a, bool turn_b)
{
    enum { M = 67, N = 70, K = 21, GAP = 3 };
    const size_t a_rows = turn_a ? K : M, a_width = turn_a ? M : K;
    const size_t b_rows = turn_b ? N : K, b_width = turn_b ? K : N;
    const double near = 4 * K * WEFTI_REAL_EPSILON;
    pair_array *a = pair_random(pair, own, a_rows * (a_width + GAP), -1, 1);
    pair_array *b = pair_random(pair, own, b_rows * (b_width + GAP), -1, 1);
    pair_array *c = pair_poison(pair, mixed, (size_t)M * (N + GAP));
    pair_array *d = pair_random(pair, mixed, (size_t)M * (N + GAP), -1, 1);

    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor ta =
            pair_part(pair, a, 0, a_rows, a_width, a_width + GAP);
        wefti_math_tensor tb =
            pair_part(pair, b, 0, b_rows, b_width, b_width + GAP);
        wefti_math_tensor tc = pair_part(pair, c, 0, M, N, N + GAP);
        wefti_math_tensor td = pair_part(pair, d, 0, M, N, N + GAP);

        pair_ok(wefti_stream_gemm(stream, &tc, &ta, turn_a, &tb, turn_b, 1, 0));
        pair_ok(
            wefti_stream_gemm(stream, &td, &ta, turn_a, &tb, turn_b, 0.5, 2));
    }
    pair_near(pair, c, near * K / 4, 0, "product");
    pair_near(pair, d, near * K / 4 + near, 0, "product added");
}

static void case_gemm(device_pair *pair, weft_dtype own, weft_dtype mixed)
{
    for (int layout = 0; layout < 4; layout++) {
        check_product(pair, own, mixed, layout & 1, layout & 2);
        pair_clear(pair);
    }
}
IN_TYPES(gemm)

/* Nothing to do is fine, on any device. */
static void case_empty(device_pair *pair, weft_dtype own, weft_dtype mixed)
{
    wefti_math_tensor none = wefti_math_flat(NULL, own, 0);
    wefti_math_tensor rows = wefti_math_rows(NULL, own, 0, 8);
    pair_array *c = pair_random(pair, mixed, 12, -1, 1);

    EACH_SIDE(pair)
    {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor a = wefti_math_rows(NULL, own, 4, 0);
        wefti_math_tensor b = wefti_math_rows(NULL, own, 0, 3);
        wefti_math_tensor tc = pair_rows(pair, c, 4, 3);

        pair_ok(wefti_stream_add(stream, &none, &none, &none));
        pair_ok(wefti_stream_swiglu_forward(stream, &rows, &rows, &rows));
        pair_ok(wefti_stream_gemm(stream, &tc, &a, false, &b, false, 1, 0.5));
    }
    pair_same(pair, c, "a product over nothing");
}
IN_TYPES(empty)

/* A step, a product and gradients of the host's device are the very functions
 * of math_table.h. */
static void test_devices_host_gives_the_tables_bits(void **state)
{
    enum { ROWS = 66, WIDTH = 37, ELEMS = ROWS * WIDTH };
    device_pair *pair = *state;
    const wefti_math *math = wefti_math_get();
    const wefti_adamw_config config = {1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3};
    pair_array *x = pair_random(pair, WIDE, ELEMS, -1, 1);
    pair_array *y = pair_random(pair, WIDE, ELEMS, -1, 1);
    pair_array *sums = pair_random(pair, WIDE, ELEMS, 0, 1);
    pair_array *squares = pair_random(pair, WIDE, ELEMS, 0, 1);
    pair_array *product = pair_poison(pair, WIDE, ROWS * ROWS);
    real *want = x->bytes, *c = product->bytes;

    pair->side = 0;
    wefti_math_tensor tx = pair_flat(pair, x), ty = pair_flat(pair, y);
    wefti_math_tensor tm = pair_flat(pair, sums), tv = pair_flat(pair, squares);
    wefti_math_tensor a = pair_rows(pair, x, ROWS, WIDTH);
    wefti_math_tensor b = pair_rows(pair, y, ROWS, WIDTH);
    wefti_math_tensor tc = pair_rows(pair, product, ROWS, ROWS);

    pair_ok(wefti_stream_adamw(pair->stream[0], NULL, &tx, &tm, &tv, &ty, NULL,
                               &config));
    math->adamw(want, sums->bytes, squares->bytes, y->bytes, ELEMS, &config);
    pair_ok(wefti_stream_gemm(pair->stream[0], &tc, &a, false, &b, true, 1, 0));
    math->gemm(false, true, ROWS, ROWS, WIDTH, 1, want, WIDTH, y->bytes, WIDTH,
               0, c, ROWS);

    real *got = pair_read(pair, x, 0), *got_c = pair_read(pair, product, 0);

    check_same_bits(got, want, ELEMS);
    check_same_bits(got_c, c, ROWS * ROWS);
    free(got);
    free(got_c);
    pair_clear(pair);
}

#define refuses(status, call, text)                                            \
    do {                                                                       \
        assert_int_equal(call, status);                                        \
        if (!strstr(weft_error_text(), text))                                  \
            fail_msg("no \"%s\" in: %s", text, weft_error_text());             \
    } while (0)

/* A caller's mistakes, on the device: named, and nothing has happened. */
static void test_devices_refuse_what_does_not_fit(void **state)
{
    device_pair *pair = *state;
    pair_array *x = pair_random(pair, WIDE, 60, -1, 1);
    pair_array *half = pair_random(pair, WEFT_DTYPE_F16, 60, 0, 1);
    pair_array *before = pair_random(pair, WIDE, 60, -1, 1);

    for (pair->side = 0; pair->side < 2; pair->side++) {
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor a = pair_flat(pair, x), b = pair_flat(pair, before);
        wefti_math_tensor c = pair_rows(pair, x, 6, 10), short_one = b;
        wefti_math_tensor other = pair_flat(pair, half), gap = c;
        const wefti_math_heads odd = {1, 3, 2, 1, false, 0, false};

        short_one.width = 59;
        gap.stride = 12;
        refuses(WEFT_ERR_INVALID, wefti_stream_fill(stream, &other, 1),
                "fill: dst is of f16: allowed is f32, bf16 or f64");
        refuses(WEFT_ERR_INVALID, wefti_stream_fill(stream, NULL, 1),
                "fill: dst is NULL");
        refuses(WEFT_ERR_INVALID, wefti_stream_scale(stream, &b, NULL, 2),
                "scale: src is NULL");
        refuses(WEFT_ERR_INVALID, wefti_stream_add(stream, &b, &a, &short_one),
                "add: b is " WEFTI_REAL_NAME " [1][59]");
        refuses(WEFT_ERR_INVALID, wefti_stream_fill(stream, &c, 1),
                "allowed is " WEFTI_REAL_NAME " [1][10]");
        refuses(
            WEFT_ERR_INVALID, wefti_stream_swiglu_forward(stream, &gap, &c, &c),
            "out is " WEFTI_REAL_NAME " [6][10], its rows 12 elements apart");
        refuses(WEFT_ERR_INVALID,
                wefti_stream_attention_forward(stream, &c, &a, &c, &c, &c, &odd,
                                               false),
                "whole groups of heads");
    }
    pair_near(pair, x, 0, 0, "x");
    pair_near(pair, before, 0, 0, "what was not written");
    pair_clear(pair);
}

static int open_pair(void **state)
{
    static device_pair pair;

    *state = &pair;
    return pair_open(&pair, kind) ? 0 : -1;
}

static int close_pair(void **state)
{
    pair_close(*state);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_elementwise_as_the_host),
        cmocka_unit_test(test_devices_rmsnorm_as_the_host),
        cmocka_unit_test(test_devices_rope_as_the_host),
        cmocka_unit_test(test_devices_swiglu_as_the_host),
        cmocka_unit_test(test_devices_tokens_as_the_host),
        cmocka_unit_test(test_devices_step_as_the_host),
        cmocka_unit_test(test_devices_attention_as_the_host),
        cmocka_unit_test(test_devices_attention_merged_as_the_host),
        cmocka_unit_test(test_devices_gemm_as_the_host),
        cmocka_unit_test(test_devices_empty_as_the_host),
        cmocka_unit_test(test_devices_host_gives_the_tables_bits),
        cmocka_unit_test(test_devices_refuse_what_does_not_fit),
    };

    if (argc > 1)
        kind = argv[1];
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    if (!getenv("WEFT_TEST_DRIVER")) { /* the fake's kernels stand behind it */
        setenv("WEFT_KERNELS", TEST_KERNELS, 1);
        setenv("WEFT_MATH_KERNELS", TEST_KERNELS, 1);
        setenv("WEFT_CUBLASLT", TEST_CUBLASLT, 0);
        setenv("WEFT_CUDNN", TEST_CUDNN, 0);
    }
    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
