/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: on the host every call of math_stream.h on bf16 gives, to the bit, what
 * the kernels of f32 give on the widened arrays, rounded once; what is summed
 * up in f32 is the same to the bit too; and no copy of a large array is made.
 *
 * Method: each call twice, on arrays of bf16 and on f32 ones of the same
 * values, long enough for several pieces and no whole number of them, with gaps
 * where strides are free. Gaps and results start poisoned. What the calls
 * allocate is counted here.
 */
#include "tests/kernels/math_check.h"

#include "base/small_float.h"
#include "kernels/math/math_launch.h"
#include "kernels/math/math_stream.h"
#include "kernels/math/sumsq.h"

#include <stdatomic.h>

enum { ARRAYS = 12, PEAK_BYTES = 640 * 1024 };

/* One set of arrays in two types; side 0 is bf16, side 1 f32. */
typedef struct twin {
    bool narrow; /* of bf16 on side 0; else the same bytes on both */
    size_t elems, elem_bytes;
    void *at[2];
} twin;

typedef struct fixture {
    weft_device *device;
    weft_stream *stream;
    check_random random;
    twin twins[ARRAYS];
    size_t count;
    int side;
} fixture;

static atomic_size_t largest_bytes;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static void count_bytes(size_t bytes)
{
    size_t seen = atomic_load(&largest_bytes);
    while (bytes > seen &&
           !atomic_compare_exchange_weak(&largest_bytes, &seen, bytes)) {
    }
}

void *__wrap_malloc(size_t bytes)
{
    count_bytes(bytes);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    count_bytes(count * bytes);
    return __real_calloc(count, bytes);
}

static int set_up(void **state)
{
    static fixture f;
    f = (fixture){.random = check_seed()};
    *state = &f;
    return weft_device_open("host", 0, &f.device) < 0 ||
           weft_stream_create(f.device, 0, &f.stream) < 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    weft_stream_destroy(f->stream);
    weft_device_close(f->device);
    return 0;
}

/* ---- arrays ----------------------------------------------------------------
 */

static twin *add(fixture *f, bool narrow, size_t elems, size_t elem_bytes)
{
    assert_true(f->count < ARRAYS);
    twin *made = &f->twins[f->count++];
    *made = (twin){narrow, elems, elem_bytes, {NULL, NULL}};
    for (int side = 0; side < 2; side++) {
        size_t bytes = elems * (narrow && side == 0 ? 2 : elem_bytes);
        made->at[side] = malloc(bytes);
        assert_non_null(made->at[side]);
        memset(made->at[side], 0xff, bytes);
    }
    return made;
}

/* Of the type at test, or wide. */
static twin *poison(fixture *f, bool narrow, size_t elems)
{
    return add(f, narrow, elems, sizeof(float));
}

static twin *fill(fixture *f, bool narrow, size_t elems, double low,
                  double high)
{
    twin *made = poison(f, narrow, elems);
    float *wide = made->at[1];
    for (size_t i = 0; i < elems; i++) {
        wide[i] = (float)check_uniform(&f->random, low, high);
        if (narrow) {
            uint16_t code = wefti_bf16_narrow(wide[i]);
            ((uint16_t *)made->at[0])[i] = code;
            wide[i] = wefti_bf16_widen(code);
        } else {
            ((float *)made->at[0])[i] = wide[i];
        }
    }
    return made;
}

static twin *ids(fixture *f, size_t elems, size_t below)
{
    twin *made = add(f, false, elems, sizeof(int32_t));
    for (size_t i = 0; i < elems; i++) {
        ((int32_t *)made->at[0])[i] = (int32_t)(check_bits(&f->random) % below);
    }
    memcpy(made->at[1], made->at[0], elems * sizeof(int32_t));
    return made;
}

static weft_dtype dtype_of(const fixture *f, const twin *of)
{
    return of->elem_bytes == sizeof(double) ? WEFT_DTYPE_F64
           : of->narrow && f->side == 0     ? WEFT_DTYPE_BF16
                                            : WEFT_DTYPE_F32;
}

static wefti_math_tensor part(const fixture *f, const twin *of, size_t first,
                              size_t rows, size_t width, size_t stride)
{
    weft_dtype dtype = dtype_of(f, of);
    char *at = (char *)of->at[f->side] + first * weft_dtype_bytes(dtype);
    return (wefti_math_tensor){at, dtype, rows, width, stride};
}

static wefti_math_tensor rows_of(const fixture *f, const twin *of, size_t rows)
{
    return part(f, of, 0, rows, of->elems / rows, of->elems / rows);
}

static wefti_math_tensor flat(const fixture *f, const twin *of)
{
    return rows_of(f, of, 1);
}

static wefti_math_tensor flat_ids(const fixture *f, const twin *of)
{
    return wefti_math_flat(of->at[f->side], WEFT_DTYPE_I32, of->elems);
}

/* What a side computes; the first allocates little. */
#define EACH_SIDE(f) for ((f)->side = 0; (f)->side < 2; end_side(f))

static void end_side(fixture *f)
{
    assert_int_equal(weft_stream_wait(f->stream), WEFT_OK);
    if (f->side++ == 0 && atomic_load(&largest_bytes) > PEAK_BYTES) {
        fail_msg("%zu bytes in one piece", atomic_load(&largest_bytes));
    }
}

static void start(fixture *f)
{
    f->count = 0;
}

/* From here on allocations count. */
static void begin(fixture *f)
{
    (void)f;
    atomic_store(&largest_bytes, 0);
}

static void post(weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
}

static uint32_t code_of(const twin *of, int side, size_t i)
{
    float wide;
    if (!of->narrow || side == 1) {
        memcpy(&wide, (float *)of->at[side] + i, sizeof(wide));
    } else {
        return ((uint16_t *)of->at[0])[i];
    }
    return of->narrow ? wefti_bf16_narrow(wide) : wefti_f32_bits(wide);
}

/* All of the arrays, rounded once; poison is NaN in both, whatever its bits. */
static void finish(fixture *f, const char *what)
{
    for (size_t k = 0; k < f->count; k++) {
        const twin *t = &f->twins[k];
        if (t->elem_bytes == sizeof(double)) {
            assert_memory_equal(t->at[0], t->at[1], t->elems * sizeof(double));
        }
        for (size_t i = 0; t->elem_bytes == sizeof(float) && i < t->elems;
             i++) {
            uint32_t got = code_of(t, 0, i), want = code_of(t, 1, i);
            bool untouched = t->narrow && got == 0xffff && want == 0x7fc0;
            if (got != want && !untouched) {
                fail_msg("%s: array %zu, element %zu is %x instead of %x", what,
                         k, i, got, want);
            }
        }
    }
    for (size_t k = 0; k < f->count; k++) {
        free(f->twins[k].at[0]);
        free(f->twins[k].at[1]);
    }
}

/* ---- calls -----------------------------------------------------------------
 */

enum { ELEMS = 1000003, ROWS = 1021, WIDTH = 517 };

static void test_pieces_elementwise_is_the_wide_one_rounded(void **state)
{
    fixture *f = *state;
    start(f);
    twin *a = fill(f, true, ELEMS, -2, 2), *b = fill(f, true, ELEMS, -2, 2);
    twin *sum = poison(f, true, ELEMS), *filled = poison(f, true, ELEMS);
    begin(f);
    EACH_SIDE(f)
    {
        wefti_math_tensor ta = flat(f, a), tb = flat(f, b);
        wefti_math_tensor ts = flat(f, sum), tf = flat(f, filled);
        post(wefti_stream_add(f->stream, &ts, &ta, &tb));
        post(wefti_stream_scale(f->stream, &tb, &tb, 0.3));
        post(wefti_stream_add(f->stream, &ta, &ta, &ta));
        post(wefti_stream_fill(f->stream, &tf, 1.0 / 3));
    }
    finish(f, "elementwise");
}

static void test_pieces_rmsnorm_is_the_wide_one_rounded(void **state)
{
    fixture *f = *state;
    for (int add_up = 0; add_up < 2; add_up++) {
        start(f);
        twin *x = fill(f, true, ROWS * WIDTH, -2, 2);
        twin *weight = fill(f, true, WIDTH, 0.5, 1.5);
        twin *y = poison(f, true, ROWS * WIDTH);
        twin *rstd = poison(f, false, ROWS);
        twin *dy = fill(f, true, ROWS * WIDTH, -1, 1);
        twin *dx = fill(f, true, ROWS * WIDTH, -1, 1);
        twin *dweight = fill(f, false, WIDTH, -1, 1);
        twin *scratch =
            fill(f, false, wefti_math_dweight_partials(ROWS) * WIDTH, 0, 1);
        begin(f);
        EACH_SIDE(f)
        {
            wefti_math_tensor tx = rows_of(f, x, ROWS);
            wefti_math_tensor ty = rows_of(f, y, ROWS);
            wefti_math_tensor tdy = rows_of(f, dy, ROWS);
            wefti_math_tensor tdx = rows_of(f, dx, ROWS);
            wefti_math_tensor tw = flat(f, weight), tr = flat(f, rstd);
            wefti_math_tensor tdw = flat(f, dweight);
            wefti_math_tensor ts = part(
                f, scratch, 0, wefti_math_dweight_partials(ROWS), WIDTH, WIDTH);
            post(wefti_stream_rmsnorm_forward(f->stream, &ty, &tr, &tx, &tw,
                                              1e-5));
            post(wefti_stream_rmsnorm_backward(f->stream, &tdx, &tdw, &tdy, &tx,
                                               &tw, &tr, add_up, &ts));
        }
        finish(f, "rmsnorm");
    }
}

static void test_pieces_rope_is_the_wide_one_rounded(void **state)
{
    enum { TOKENS = 701, HEADS = 5, HEAD = 66, STRIDE = HEADS * HEAD + 7 };
    fixture *f = *state;
    start(f);
    twin *table = poison(f, false, TOKENS * HEAD);
    twin *x = fill(f, true, TOKENS * STRIDE, -1, 1);
    begin(f);
    EACH_SIDE(f)
    {
        wefti_math_tensor tt = rows_of(f, table, TOKENS);
        wefti_math_tensor tx = part(f, x, 0, TOKENS, HEADS * HEAD, STRIDE);
        post(wefti_stream_rope_table(f->stream, &tt, NULL, 3, 10000));
        post(wefti_stream_rope(f->stream, &tx, &tt, false));
    }
    finish(f, "rope");
}

static void test_pieces_swiglu_is_the_wide_one_rounded(void **state)
{
    enum { STRIDE = 2 * WIDTH + 3 };
    fixture *f = *state;
    start(f);
    twin *both = fill(f, true, ROWS * STRIDE, -4, 4);
    twin *dboth = poison(f, true, ROWS * STRIDE);
    twin *out = poison(f, true, ROWS * WIDTH);
    twin *dout = fill(f, true, ROWS * WIDTH, -1, 1);
    begin(f);
    EACH_SIDE(f)
    {
        wefti_math_tensor gate = part(f, both, 0, ROWS, WIDTH, STRIDE);
        wefti_math_tensor up = part(f, both, WIDTH, ROWS, WIDTH, STRIDE);
        wefti_math_tensor dgate = part(f, dboth, 0, ROWS, WIDTH, STRIDE);
        wefti_math_tensor dup = part(f, dboth, WIDTH, ROWS, WIDTH, STRIDE);
        wefti_math_tensor to = rows_of(f, out, ROWS);
        wefti_math_tensor tdo = rows_of(f, dout, ROWS);
        post(wefti_stream_swiglu_forward(f->stream, &to, &gate, &up));
        post(wefti_stream_swiglu_backward(f->stream, &dgate, &dup, &tdo, &gate,
                                          &up));
        post(wefti_stream_swiglu_backward(f->stream, &gate, &up, &tdo, &gate,
                                          &up));
    }
    finish(f, "swiglu");
}

static void test_pieces_tokens_are_the_wide_ones_rounded(void **state)
{
    enum { VOCAB = 4001, TOKENS = 203 };
    fixture *f = *state;
    start(f);
    twin *at = ids(f, TOKENS, VOCAB);
    twin *table = fill(f, true, VOCAB * WIDTH, -1, 1);
    twin *dtable = fill(f, false, VOCAB * WIDTH, -1, 1);
    twin *out = poison(f, true, TOKENS * WIDTH);
    twin *dout = fill(f, true, TOKENS * WIDTH, -1, 1);
    twin *logits = fill(f, true, TOKENS * VOCAB, -5, 5);
    twin *dlogits = poison(f, true, TOKENS * VOCAB);
    twin *loss = poison(f, false, TOKENS), *again = poison(f, false, TOKENS);
    begin(f);
    EACH_SIDE(f)
    {
        wefti_math_tensor ti = flat_ids(f, at);
        wefti_math_tensor tt = rows_of(f, table, VOCAB);
        wefti_math_tensor tdt = rows_of(f, dtable, VOCAB);
        wefti_math_tensor to = rows_of(f, out, TOKENS);
        wefti_math_tensor tdo = rows_of(f, dout, TOKENS);
        wefti_math_tensor tl = rows_of(f, logits, TOKENS);
        wefti_math_tensor tdl = rows_of(f, dlogits, TOKENS);
        wefti_math_tensor te = flat(f, loss), ta = flat(f, again);
        post(wefti_stream_embedding_forward(f->stream, &to, &tt, &ti));
        post(wefti_stream_embedding_backward(f->stream, &tdt, &tdo, &ti));
        post(wefti_stream_cross_entropy(f->stream, &te, &tdl, &tl, &ti, 0.1));
        post(wefti_stream_cross_entropy(f->stream, &ta, &tl, &tl, &ti, 0.1));
    }
    finish(f, "tokens");
}

/* Weights of bf16 with masters of f32; gradients of either. */
static void test_pieces_step_is_the_wide_one_rounded(void **state)
{
    const wefti_adamw_config config = {1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3};
    fixture *f = *state;
    for (int mixed = 0; mixed < 2; mixed++) {
        start(f);
        twin *param = poison(f, true, ELEMS);
        twin *master = fill(f, false, ELEMS, -1, 1);
        twin *m = fill(f, false, ELEMS, -0.1, 0.1);
        twin *v = fill(f, false, ELEMS, 0.01, 0.1);
        twin *grad = fill(f, !mixed, ELEMS, -1, 1);
        twin *sums = add(f, false, wefti_sumsq_blocks(ELEMS), sizeof(double));
        twin *norm = add(f, false, 1, sizeof(double));
        twin *factor = add(f, false, 1, sizeof(double));
        twin *totals = add(f, false, ELEMS / WIDTH, sizeof(double));
        begin(f);
        EACH_SIDE(f)
        {
            wefti_math_tensor tp = flat(f, param), tw = flat(f, master);
            wefti_math_tensor tm = flat(f, m), tv = flat(f, v);
            wefti_math_tensor tg = flat(f, grad), ts = flat(f, sums);
            wefti_math_tensor tn = flat(f, norm), tf = flat(f, factor);
            wefti_math_tensor tt = flat(f, totals);
            const wefti_math_tensor rows =
                wefti_math_rows(tg.at, tg.dtype, ELEMS / WIDTH, WIDTH);
            post(wefti_stream_totals(f->stream, &tt, &rows));
            post(wefti_stream_sumsq(f->stream, &ts, &tg));
            post(wefti_stream_clip(f->stream, &tn, &tf, &ts, 0.5, 3));
            post(wefti_stream_adamw(f->stream, &tp, &tw, &tm, &tv, &tg, &tf,
                                    &config));
        }
        finish(f, "step");
    }
}

static void run_attention(fixture *f, bool mixed)
{
    enum {
        SEQUENCES = 5,
        TOKENS = 67,
        Q = 4 * 24,
        KV = 2 * 24,
        Q_ROWS = SEQUENCES * TOKENS
    };
    const wefti_math_heads heads = {SEQUENCES, 4, 2, 0.2, true, 0, false};
    start(f);
    twin *q = fill(f, true, Q_ROWS * (Q + 3), -1, 1);
    twin *k = fill(f, true, Q_ROWS * (KV + 5), -1, 1);
    twin *v = fill(f, true, Q_ROWS * (KV + 5), -1, 1);
    twin *o = poison(f, !mixed, Q_ROWS * (Q + 1));
    twin *lse = poison(f, false, Q_ROWS * 4);
    twin *dout = fill(f, true, Q_ROWS * (Q + 1), -1, 1);
    twin *delta = fill(f, false, Q_ROWS * 4, -1, 1);
    twin *dq = fill(f, !mixed, Q_ROWS * (Q + 3), -1, 1);
    twin *dk = fill(f, !mixed, Q_ROWS * (KV + 5), -1, 1);
    twin *dv = fill(f, !mixed, Q_ROWS * (KV + 5), -1, 1);
    twin *other = fill(f, !mixed, Q_ROWS * (Q + 1), -1, 1);
    begin(f);
    EACH_SIDE(f)
    {
        wefti_math_tensor before = part(f, other, 0, Q_ROWS, Q, Q + 1);
        wefti_math_tensor tq = part(f, q, 0, Q_ROWS, Q, Q + 3);
        wefti_math_tensor tk = part(f, k, 0, Q_ROWS, KV, KV + 5);
        wefti_math_tensor tv = part(f, v, 0, Q_ROWS, KV, KV + 5);
        wefti_math_tensor to = part(f, o, 0, Q_ROWS, Q, Q + 1);
        wefti_math_tensor tl = rows_of(f, lse, Q_ROWS);
        wefti_math_tensor tdo = part(f, dout, 0, Q_ROWS, Q, Q + 1);
        wefti_math_tensor td = rows_of(f, delta, Q_ROWS);
        wefti_math_tensor tdq = part(f, dq, 0, Q_ROWS, Q, Q + 3);
        wefti_math_tensor tdk = part(f, dk, 0, Q_ROWS, KV, KV + 5);
        wefti_math_tensor tdv = part(f, dv, 0, Q_ROWS, KV, KV + 5);
        post(wefti_stream_attention_forward(f->stream, &to, &tl, &tq, &tk, &tv,
                                            &heads, false));
        post(wefti_stream_attention_backward(
            f->stream, &tdq, &tdk, &tdv, &tdo, &tq, &tk, &tv,
            mixed ? &before : NULL, &tl, &td, &heads, mixed));
    }
    finish(f, "attention");
}

static void test_pieces_attention_is_the_wide_one_rounded(void **state)
{
    run_attention(*state, false);
    run_attention(*state, true);
}

static void test_pieces_attention_merged_is_the_wide_one_rounded(void **state)
{
    enum { TOKENS = 1001, WIDE = 4 * 24, STRIDE = WIDE + 1 };
    fixture *f = *state;
    start(f);
    twin *o = fill(f, true, TOKENS * STRIDE, -1, 1);
    twin *other = fill(f, true, TOKENS * STRIDE, -1, 1);
    twin *lse = fill(f, false, TOKENS * 4, -1, 1);
    twin *other_lse = fill(f, false, TOKENS * 4, -1, 1);
    twin *delta = poison(f, false, TOKENS * 4);
    begin(f);
    EACH_SIDE(f)
    {
        wefti_math_tensor to = part(f, o, 0, TOKENS, WIDE, STRIDE);
        wefti_math_tensor tn = part(f, other, 0, TOKENS, WIDE, STRIDE);
        wefti_math_tensor tl = rows_of(f, lse, TOKENS);
        wefti_math_tensor tm = rows_of(f, other_lse, TOKENS);
        wefti_math_tensor td = rows_of(f, delta, TOKENS);
        post(wefti_stream_attention_delta(f->stream, &td, &to, &tn));
        post(wefti_stream_attention_merge(f->stream, &to, &tl, &tn, &tm));
    }
    finish(f, "merge");
}

/* Rows of none, beside a weight that there is. */
static void test_pieces_of_nothing_are_nothing(void **state)
{
    fixture *f = *state;
    start(f);
    twin *weight = fill(f, true, WIDTH, 0.5, 1.5);
    begin(f);
    EACH_SIDE(f)
    {
        weft_dtype own = dtype_of(f, weight);
        wefti_math_tensor none = wefti_math_rows(NULL, own, 0, WIDTH);
        wefti_math_tensor tw = flat(f, weight);
        post(wefti_stream_rmsnorm_forward(f->stream, &none, NULL, &none, &tw,
                                          1e-5));
    }
    finish(f, "nothing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_elementwise_is_the_wide_one_rounded),
        cmocka_unit_test(test_pieces_rmsnorm_is_the_wide_one_rounded),
        cmocka_unit_test(test_pieces_rope_is_the_wide_one_rounded),
        cmocka_unit_test(test_pieces_swiglu_is_the_wide_one_rounded),
        cmocka_unit_test(test_pieces_tokens_are_the_wide_ones_rounded),
        cmocka_unit_test(test_pieces_step_is_the_wide_one_rounded),
        cmocka_unit_test(test_pieces_attention_is_the_wide_one_rounded),
        cmocka_unit_test(test_pieces_attention_merged_is_the_wide_one_rounded),
        cmocka_unit_test(test_pieces_of_nothing_are_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
