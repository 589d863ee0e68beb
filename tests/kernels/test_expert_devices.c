/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the calls of math_stream.h for a mixture of experts give on a device
 * what they give on the host without a stream: shadow, or by its argument
 * "cuda" the cuda device, on the fake driver. What does not fit is refused.
 *
 * Method: a whole block forwards and backwards on both sides, so that a call
 * reads what the one before has left on the device; counts too. A second
 * program is over double. Tolerances are the host headers', grown by each sum.
 */
#include "tests/kernels/device_pair.h"

static const char *kind = "shadow";

enum { TOKENS = 37, EXPERTS = 6, SLOTS = 2, WIDTH = 20, HALF = 9 };
enum { ROWS = TOKENS * SLOTS };

#define REAL WEFTI_REAL_DTYPE

/* The arrays of a block; of whole numbers first ids, then results. */
typedef struct block {
    pair_array *logits, *bias, *affinity, *expert, *weight;
    pair_array *counts, *place, *load;
    pair_array *x, *rows, *gate_up, *gated, *made, *out;
    pair_array *w_in, *w_out;
    pair_array *dots, *d_logits, *d_gate_up, *d_in, *dw_in, *dw_own;
} block;

/* Rows and matrices of a type; routes are wide, and gradients of matrices too,
 * or of that type (dw_own). */
static block make_block(device_pair *pair, weft_dtype own)
{
    return (block){
        .logits = pair_random(pair, REAL, TOKENS * EXPERTS, -2, 2),
        .bias = pair_random(pair, own, EXPERTS, -0.1, 0.1),
        .affinity = pair_poison(pair, REAL, TOKENS * EXPERTS),
        .expert = pair_ids(pair, ROWS, 1),
        .weight = pair_poison(pair, REAL, ROWS),
        .counts = pair_ids(pair, EXPERTS, 1),
        .place = pair_ids(pair, ROWS, 1),
        .load = pair_random(pair, WEFT_DTYPE_F64, EXPERTS, 0, 1),
        .x = pair_random(pair, own, TOKENS * WIDTH, -1, 1),
        .rows = pair_poison(pair, own, ROWS * WIDTH),
        .gate_up = pair_poison(pair, own, ROWS * 2 * HALF),
        .gated = pair_poison(pair, own, ROWS * HALF),
        .made = pair_poison(pair, own, ROWS * WIDTH),
        .out = pair_poison(pair, own, TOKENS * WIDTH),
        .w_in = pair_random(pair, own, EXPERTS * 2 * HALF * WIDTH, -1, 1),
        .w_out = pair_random(pair, own, EXPERTS * WIDTH * HALF, -1, 1),
        .dots = pair_poison(pair, REAL, ROWS),
        .d_logits = pair_poison(pair, REAL, TOKENS * EXPERTS),
        .d_gate_up = pair_poison(pair, own, ROWS * 2 * HALF),
        .d_in = pair_poison(pair, own, ROWS * WIDTH),
        .dw_in = pair_poison(pair, REAL, EXPERTS * 2 * HALF * WIDTH),
        .dw_own = pair_poison(pair, own, EXPERTS * 2 * HALF * WIDTH)};
}

static void run_forward(device_pair *pair, const block *b)
{
    static const wefti_math_routing how = {3, 2};
    weft_stream *stream = pair_stream(pair);
    wefti_math_tensor logits = pair_rows(pair, b->logits, TOKENS, EXPERTS);
    wefti_math_tensor bias = pair_flat(pair, b->bias);
    wefti_math_tensor affinity = pair_rows(pair, b->affinity, TOKENS, EXPERTS);
    wefti_math_tensor expert = pair_rows(pair, b->expert, TOKENS, SLOTS);
    wefti_math_tensor weight = pair_rows(pair, b->weight, TOKENS, SLOTS);
    wefti_math_tensor counts = pair_flat(pair, b->counts);
    wefti_math_tensor place = pair_rows(pair, b->place, TOKENS, SLOTS);
    wefti_math_tensor load = pair_flat(pair, b->load);
    wefti_math_tensor x = pair_rows(pair, b->x, TOKENS, WIDTH);
    wefti_math_tensor rows = pair_rows(pair, b->rows, ROWS, WIDTH);
    wefti_math_tensor gate_up = pair_rows(pair, b->gate_up, ROWS, 2 * HALF);
    wefti_math_tensor gated = pair_rows(pair, b->gated, ROWS, HALF);
    wefti_math_tensor made = pair_rows(pair, b->made, ROWS, WIDTH);
    wefti_math_tensor out = pair_rows(pair, b->out, TOKENS, WIDTH);
    wefti_math_tensor w_in =
        pair_rows(pair, b->w_in, EXPERTS * 2 * HALF, WIDTH);
    wefti_math_tensor w_out = pair_rows(pair, b->w_out, EXPERTS * WIDTH, HALF);

    pair_ok(wefti_stream_route_forward(stream, &affinity, &expert, &weight,
                                       &logits, &bias, &how));
    pair_ok(wefti_stream_expert_order(stream, &counts, &place, &expert));
    pair_ok(wefti_stream_expert_load(stream, &load, &expert));
    pair_ok(wefti_stream_expert_spread(stream, &rows, &x, &place, NULL));
    pair_ok(wefti_stream_expert_gemm(stream, WEFTI_EXPERT_FORWARD, &rows,
                                     &gate_up, &w_in, &counts));
    pair_ok(wefti_stream_expert_gate(stream, &gated, &gate_up, &counts));
    pair_ok(wefti_stream_expert_gemm(stream, WEFTI_EXPERT_FORWARD, &gated,
                                     &made, &w_out, &counts));
    pair_ok(wefti_stream_expert_collect(stream, &out, &made, &place, &weight));
}

/* As if the slopes of what was made were the rows. */
static void run_backward(device_pair *pair, const block *b)
{
    weft_stream *stream = pair_stream(pair);
    wefti_math_tensor affinity = pair_rows(pair, b->affinity, TOKENS, EXPERTS);
    wefti_math_tensor expert = pair_rows(pair, b->expert, TOKENS, SLOTS);
    wefti_math_tensor counts = pair_flat(pair, b->counts);
    wefti_math_tensor place = pair_rows(pair, b->place, TOKENS, SLOTS);
    wefti_math_tensor x = pair_rows(pair, b->x, TOKENS, WIDTH);
    wefti_math_tensor rows = pair_rows(pair, b->rows, ROWS, WIDTH);
    wefti_math_tensor gate_up = pair_rows(pair, b->gate_up, ROWS, 2 * HALF);
    wefti_math_tensor gated = pair_rows(pair, b->gated, ROWS, HALF);
    wefti_math_tensor made = pair_rows(pair, b->made, ROWS, WIDTH);
    wefti_math_tensor w_in =
        pair_rows(pair, b->w_in, EXPERTS * 2 * HALF, WIDTH);
    wefti_math_tensor dots = pair_rows(pair, b->dots, TOKENS, SLOTS);
    wefti_math_tensor d_logits = pair_rows(pair, b->d_logits, TOKENS, EXPERTS);
    wefti_math_tensor d_gate_up = pair_rows(pair, b->d_gate_up, ROWS, 2 * HALF);
    wefti_math_tensor d_in = pair_rows(pair, b->d_in, ROWS, WIDTH);
    wefti_math_tensor dw_in =
        pair_rows(pair, b->dw_in, EXPERTS * 2 * HALF, WIDTH);
    wefti_math_tensor dw_own =
        pair_rows(pair, b->dw_own, EXPERTS * 2 * HALF, WIDTH);

    pair_ok(wefti_stream_expert_dots(stream, &dots, &made, &x, &place));
    pair_ok(wefti_stream_route_backward(stream, &d_logits, &dots, &affinity,
                                        &expert));
    pair_ok(wefti_stream_expert_gate_backward(stream, &d_gate_up, &gated,
                                              &gate_up, &counts));
    pair_ok(wefti_stream_expert_gemm(stream, WEFTI_EXPERT_INPUTS, &d_in,
                                     &d_gate_up, &w_in, &counts));
    pair_ok(wefti_stream_expert_gemm(stream, WEFTI_EXPERT_WEIGHTS, &rows,
                                     &d_gate_up, &dw_in, &counts));
    pair_ok(wefti_stream_expert_gemm(stream, WEFTI_EXPERT_WEIGHTS, &rows,
                                     &d_gate_up, &dw_own, &counts));
}

static void check_block(device_pair *pair, weft_dtype own, double near)
{
    const block b = make_block(pair, own);

    EACH_SIDE(pair)
    {
        run_forward(pair, &b);
        run_backward(pair, &b);
    }
    pair_same(pair, b.expert, "expert");
    pair_same(pair, b.counts, "counts");
    pair_same(pair, b.place, "place");
    pair_near(pair, b.load, 1e-12, 0, "load");
    pair_near(pair, b.affinity, near, 0, "affinity");
    pair_near(pair, b.weight, near, 0, "weight");
    pair_near(pair, b.rows, 0, 0, "rows");
    pair_near(pair, b.gate_up, near, near, "gate_up");
    pair_near(pair, b.gated, 10 * near, near, "gated");
    pair_near(pair, b.out, 100 * near, near, "out");
    pair_near(pair, b.dots, 100 * near, near, "dots");
    pair_near(pair, b.d_logits, 100 * near, near, "d_logits");
    pair_near(pair, b.d_gate_up, 100 * near, near, "d_gate_up");
    pair_near(pair, b.d_in, 1000 * near, near, "d_in");
    pair_near(pair, b.dw_in, 1000 * near, near, "dw_in");
    pair_near(pair, b.dw_own, 1000 * near, near, "dw_own");
    pair_clear(pair);
}

static void test_expert_devices_block_as_the_host(void **state)
{
    check_block(*state, REAL, TOLERANCE(2e-5, 1e-13));
}

/* What one call has rounded the other way, the next ones go on from. */
static void test_expert_devices_block_of_bf16_as_the_host(void **state)
{
    if (REAL == WEFT_DTYPE_F32)
        check_block(*state, WEFT_DTYPE_BF16, 1e-2);
}

#define refuses(call, text)                                                    \
    do {                                                                       \
        assert_true((call) < 0);                                               \
        if (!strstr(weft_error_text(), text))                                  \
            fail_msg("\"%s\" lacks \"%s\"", weft_error_text(), text);          \
    } while (0)

static void test_expert_devices_refuse_what_does_not_fit(void **state)
{
    device_pair *pair = *state;
    const block b = make_block(pair, REAL);
    pair_array *small = pair_random(pair, WEFT_DTYPE_BF16, ROWS * WIDTH, 0, 1);

    EACH_SIDE(pair)
    {
        static const wefti_math_routing thirds = {4, 1}, one = {6, 1};
        weft_stream *stream = pair_stream(pair);
        wefti_math_tensor logits = pair_rows(pair, b.logits, TOKENS, EXPERTS);
        wefti_math_tensor affinity =
            pair_rows(pair, b.affinity, TOKENS, EXPERTS);
        wefti_math_tensor expert = pair_rows(pair, b.expert, TOKENS, SLOTS);
        wefti_math_tensor weight = pair_rows(pair, b.weight, TOKENS, SLOTS);
        wefti_math_tensor x = pair_rows(pair, b.x, TOKENS, WIDTH);
        wefti_math_tensor half = pair_rows(pair, b.x, TOKENS, WIDTH / 2);
        wefti_math_tensor rows = pair_rows(pair, b.rows, ROWS, WIDTH);
        wefti_math_tensor bf16 = pair_rows(pair, small, TOKENS, EXPERTS);
        wefti_math_tensor place = pair_rows(pair, b.place, TOKENS, SLOTS);

        refuses(wefti_stream_route_forward(stream, &affinity, &expert, &weight,
                                           &logits, NULL, &thirds),
                "equal groups");
        refuses(wefti_stream_route_forward(stream, &affinity, &expert, &weight,
                                           &logits, NULL, &one),
                "no more slots than their experts");
        refuses(wefti_stream_route_backward(stream, &bf16, &weight, &affinity,
                                            &expert),
                "kernels for f32 and f64");
        if (REAL == WEFT_DTYPE_F32)
            refuses(wefti_stream_expert_spread(stream, &bf16, &x, &place, NULL),
                    "expert_spread: x is");
        refuses(wefti_stream_expert_spread(stream, &rows, &half, &place, NULL),
                "expert_spread: x is");
    }
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
        cmocka_unit_test(test_expert_devices_block_as_the_host),
        cmocka_unit_test(test_expert_devices_block_of_bf16_as_the_host),
        cmocka_unit_test(test_expert_devices_refuse_what_does_not_fit),
    };

    if (argc > 1)
        kind = argv[1];
    if (!getenv("WEFT_TEST_DRIVER")) { /* the fake's kernels stand behind it */
        setenv("WEFT_KERNELS", TEST_KERNELS, 1);
        setenv("WEFT_MATH_KERNELS", TEST_KERNELS, 1);
    }
    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
