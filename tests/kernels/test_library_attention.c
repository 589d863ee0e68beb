/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: attention in bf16 on a GPU is the library's, forward and backward,
 * where it does what the call wants, else the kernels'; either is what the host
 * gives, within bf16's rounding.
 *
 * Method: the calls of math_stream.h on the cuda device, over the fake driver
 * and the stand-in for cuDNN, which counts what it has been given, and on the
 * host, side by side. Rows of a fused projection, shared heads.
 */
#include "tests/fake/fake_cudnn.h"
#include "tests/kernels/device_pair.h"

#include <dlfcn.h>

enum {
    SEQUENCES = 2,
    TOKENS = 24,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD = 16,
    ROWS = SEQUENCES * TOKENS,
    QUERIES = HEADS * HEAD,
    KEYS = KV_HEADS * HEAD,
    WIDTH = QUERIES + 2 * KEYS
};

#define BF16 WEFT_DTYPE_BF16

static const wefti_math_heads usual = {.sequences = SEQUENCES,
                                       .heads = HEADS,
                                       .kv_heads = KV_HEADS,
                                       .scale = 0.25,
                                       .causal = true};

/* What the library has been given so far. */
static int count_queued(void)
{
    fake_cudnn_counts counts = {0};
    fake_cudnn_get_counts_fn *get;
    void *library = dlopen(TEST_CUDNN, RTLD_NOW | RTLD_NOLOAD);
    void *found = library ? dlsym(library, "cudnnFakeGetCounts") : NULL;

    assert_non_null(found);
    memcpy(&get, &found, sizeof(get));
    get(&counts);
    dlclose(library);
    return counts.queued;
}

typedef struct arrays {
    pair_array *qkv, *o, *lse, *dout, *delta, *dqkv;
} arrays;

typedef struct parts {
    wefti_math_tensor q, k, v;
} parts;

static parts parts_of(const device_pair *pair, const pair_array *qkv)
{
    return (parts){pair_part(pair, qkv, 0, ROWS, QUERIES, WIDTH),
                   pair_part(pair, qkv, QUERIES, ROWS, KEYS, WIDTH),
                   pair_part(pair, qkv, QUERIES + KEYS, ROWS, KEYS, WIDTH)};
}

/* Where it accumulates, the backward once more on top. */
static void run(device_pair *pair, const arrays *a, bool accumulate, bool once)
{
    wefti_math_heads heads = usual;
    heads.once = once;
    weft_stream *stream = pair_stream(pair);
    parts in = parts_of(pair, a->qkv), d = parts_of(pair, a->dqkv);
    wefti_math_tensor o = pair_rows(pair, a->o, ROWS, QUERIES);
    wefti_math_tensor lse = pair_rows(pair, a->lse, ROWS, HEADS);
    wefti_math_tensor dout = pair_rows(pair, a->dout, ROWS, QUERIES);
    wefti_math_tensor delta = pair_rows(pair, a->delta, ROWS, HEADS);

    pair_ok(wefti_stream_attention_forward(stream, &o, &lse, &in.q, &in.k,
                                           &in.v, &heads, false));
    pair_ok(wefti_stream_attention_backward(stream, &d.q, &d.k, &d.v, &dout,
                                            &in.q, &in.k, &in.v, &o, &lse,
                                            &delta, &heads, false));
    if (accumulate)
        pair_ok(wefti_stream_attention_backward(stream, &d.q, &d.k, &d.v, &dout,
                                                &in.q, &in.k, &in.v, &o, &lse,
                                                &delta, &heads, true));
}

/* mixed: of o and the gradients. */
static void check(device_pair *pair, weft_dtype mixed, bool accumulate,
                  bool once, int queued)
{
    const arrays a = {.qkv = pair_random(pair, BF16, ROWS * WIDTH, -1, 1),
                      .o = pair_poison(pair, mixed, ROWS * QUERIES),
                      .lse = pair_poison(pair, WEFT_DTYPE_F32, ROWS * HEADS),
                      .dout = pair_random(pair, BF16, ROWS * QUERIES, -1, 1),
                      .delta = pair_poison(pair, WEFT_DTYPE_F32, ROWS * HEADS),
                      .dqkv = pair_poison(pair, mixed, ROWS * WIDTH)};

    EACH_SIDE(pair)
    run(pair, &a, accumulate, once);
    pair_near(pair, a.o, 0x1p-7, 0, "o");
    pair_near(pair, a.lse, 1e-3, 0, "lse");
    pair_near(pair, a.dqkv, 0x1p-5, 0x1p-6, "gradients");
    assert_int_equal(count_queued(), queued);
    pair_clear(pair);
}

static void test_attention_of_bf16_is_the_librarys(void **state)
{
    check(*state, BF16, false, false, 2);
    check(*state, BF16, true, false, 4); /* but for what is added to */
    check(*state, WEFT_DTYPE_F32, false, false, 4);
    check(*state, BF16, false, true, 4); /* lengths of a document */
}

static int open_pair(void **state)
{
    static device_pair pair;

    *state = &pair;
    return pair_open(&pair, "cuda") ? 0 : -1;
}

static int close_pair(void **state)
{
    pair_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_of_bf16_is_the_librarys),
    };

    setenv("WEFT_KERNELS", TEST_KERNELS, 1);
    setenv("WEFT_MATH_KERNELS", TEST_KERNELS, 1);
    setenv("WEFT_CUDNN", TEST_CUDNN, 1);
    return cmocka_run_group_tests(tests, open_pair, close_pair);
}
