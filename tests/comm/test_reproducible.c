/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a sum has the same bits on every rank, in every run, whatever the
 * algorithm and the chunk size; with WEFT_SUM_FLAT whatever ranks share memory.
 *
 * Method: random data of every float type whose sums depend on the order of
 * addition (shown first: the reversed order differs); every algorithm with
 * three chunk sizes, for 2 to 7 ranks, compared bitwise with the first variant
 * and with the reference of the kernels' tests. f32 and bf16 in every world,
 * the other types in 3 and 6 ranks, products and averages too; with sanitizers
 * fewer ranks. Where not all ranks share memory (tests/comm/spread.h), in fewer
 * worlds, and once more with WEFT_SUM_FLAT.
 */
#include "base/check.h"
#include "tests/comm/spread.h"
#include "tests/comm/sums.h"
#include "tests/comm/world.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* Sanitizers slow everything down: no trees of many, and several chunks of each
 * size are as good as many. */
#if defined(__SANITIZE_THREAD__)
enum { MOST_RANKS = 4, ELEMS = 5003 };
#elif defined(__SANITIZE_ADDRESS__)
enum { MOST_RANKS = 5, ELEMS = 20011 };
#else
enum { MOST_RANKS = 7, ELEMS = 20011 };
#endif
enum { FEW_ELEMS = 60, VARIANTS = 18 };

/* few: also where worlds take their time to meet, and nodes of two ranks; else
 * of some */
static const struct variant {
    const char *algorithm;
    const char *chunk_bytes;
    bool few;
} variants[VARIANTS] = {
    {"all_reduce:direct", "0", true},
    {"all_reduce:direct", "1000", false},
    {"all_reduce:direct", "512", false},
    {"all_reduce:tree", "0", false},
    {"all_reduce:exchange", "0", false},
    {"all_reduce:exchange", "1000", true},
    {"all_reduce:exchange", "512", false},
    {"all_reduce:tree", "1000", true},
    {"all_reduce:tree", "512", false},
    {"all_reduce:hierarchical/tree", "0", true},
    {"all_reduce:hierarchical/tree", "1000", false},
    {"all_reduce:hierarchical/tree", "512", true},
    {"all_reduce:oneshot/exchange", "0", true},
    {"all_reduce:dissemination/exchange", "0", true},
    {"all_reduce:nested/tree", "0", true},
    {"all_reduce:nested/tree", "1000", false},
    {"all_reduce:nested_sums", "0", true},
    {"all_reduce:nested_sums", "1000", true},
};

enum { ELEM_BYTES = 8 };

/* Whose result is compared, and how it is made. */
struct sum_case {
    weft_dtype dtype;
    weft_redop redop;
};

static uint64_t seed;
static unsigned char results[MOST_RANKS][ELEMS * ELEM_BYTES];
static unsigned char few_results[MOST_RANKS][FEW_ELEMS * ELEM_BYTES];
static unsigned char reference[ELEMS * ELEM_BYTES];
static unsigned char inputs[MOST_RANKS][ELEMS * ELEM_BYTES];

static void make_input(int rank, weft_dtype dtype, unsigned char *out)
{
    uint64_t random = seed + (uint64_t)rank * 1000003;
    size_t bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < ELEMS; i++) {
        double unit = (double)(random_next(&random) >> 11) / 9007199254740992.0;
        double value =
            (unit - 0.5) * (double)(1u << (random_next(&random) % 12));
        if (bytes == 1) {
            value /= 64; /* the narrow ranges */
        }
        reference_store(out + i * bytes, value, dtype);
    }
}

/* Much, and so little that it goes in one shot: the first elements again. */
static int sum(weft_comm *comm, void *context)
{
    const struct sum_case *what = context;
    int rank = weft_comm_get_rank(comm);
    const unsigned char *input = inputs[rank];
    memset(results[rank], 0xA5, sizeof(results[rank]));
    memset(few_results[rank], 0xA5, sizeof(few_results[rank]));
    return weft_allreduce(input, results[rank], ELEMS, what->dtype, what->redop,
                          comm, NULL) != WEFT_OK ||
           weft_allreduce(input, few_results[rank], FEW_ELEMS, what->dtype,
                          what->redop, comm, NULL) != WEFT_OK;
}

/* All ranks' inputs, and what the definition makes of them. */
static void make_reference(int nranks, const struct sum_case *what)
{
    const unsigned char *sources[MOST_RANKS];
    for (int rank = 0; rank < nranks; rank++) {
        make_input(rank, what->dtype, inputs[rank]);
        sources[rank] = inputs[rank];
    }
    sums_reference(reference, sources, nranks, ELEMS, what->dtype, what->redop);
}

/* Whether the world can take it: two ranks in a row of one host are a node of
 * its tree, if there are others and the tree is not one over all. */
static bool suits(const struct variant *variant, int nranks)
{
    const char *spread = spread_get();
    const bool nodes =
        (!spread || strcmp(spread, "uneven") == 0) && !getenv("WEFT_SUM_FLAT");
    return (variant->few || !spread_is_wide()) &&
           (strcmp(variant->algorithm, "all_reduce:nested_sums") != 0 ||
            (nranks > 2 && nodes));
}

static void compare_variants(int nranks, struct sum_case what)
{
    size_t width = weft_dtype_bytes(what.dtype);
    make_reference(nranks, &what);
    for (int v = 0; v < VARIANTS; v++) {
        if (!suits(&variants[v], nranks)) {
            continue;
        }
        setenv("WEFT_ALGO", variants[v].algorithm, 1);
        setenv("WEFT_CHUNK_BYTES", variants[v].chunk_bytes, 1);
        setenv("WEFT_LEVELS", variants[v].few ? "2" : "a,b,a,c,b,a,a", 1);
        struct world world = {.nranks = nranks, .call = sum, .context = &what};
        assert_int_equal(world_run_threads(&world), 0);
        for (int rank = 0; rank < nranks; rank++) {
            assert_memory_equal(results[rank], reference, ELEMS * width);
            assert_memory_equal(few_results[rank], reference,
                                FEW_ELEMS * width);
        }
    }
    unsetenv("WEFT_ALGO");
    unsetenv("WEFT_CHUNK_BYTES");
    unsetenv("WEFT_LEVELS");
}

/* Where worlds take their time to meet, the largest only. */
static int first_world(void)
{
    return spread_is_wide() ? MOST_RANKS : 2;
}

static void test_data_other_order_differs(void **state)
{
    (void)state;
    static unsigned char summands[5][ELEMS * 4];
    size_t differing = 0;
    for (int rank = 0; rank < 5; rank++) {
        make_input(rank, WEFT_DTYPE_F32, summands[rank]);
    }
    for (size_t i = 0; i < ELEMS; i++) {
        float up = 0, down = 0, value;
        for (int rank = 0; rank < 5; rank++) {
            memcpy(&value, summands[rank] + 4 * i, 4);
            up += value;
            memcpy(&value, summands[4 - rank] + 4 * i, 4);
            down += value;
        }
        differing += memcmp(&up, &down, 4) != 0;
    }
    assert_true(differing > ELEMS / 10);
}

static void test_sum_f32_all_variants_same_bits(void **state)
{
    (void)state;
    for (int nranks = first_world(); nranks <= MOST_RANKS; nranks++) {
        compare_variants(nranks,
                         (struct sum_case){WEFT_DTYPE_F32, WEFT_REDOP_SUM});
    }
}

static void test_sum_bf16_all_variants_same_bits(void **state)
{
    (void)state;
    for (int nranks = first_world(); nranks <= MOST_RANKS; nranks++) {
        compare_variants(nranks,
                         (struct sum_case){WEFT_DTYPE_BF16, WEFT_REDOP_SUM});
    }
}

static void test_other_floats_all_variants_same_bits(void **state)
{
    (void)state;
    static const struct sum_case cases[] = {{WEFT_DTYPE_F16, WEFT_REDOP_SUM},
                                            {WEFT_DTYPE_F8E4M3, WEFT_REDOP_SUM},
                                            {WEFT_DTYPE_F8E5M2, WEFT_REDOP_SUM},
                                            {WEFT_DTYPE_F64, WEFT_REDOP_SUM},
                                            {WEFT_DTYPE_F16, WEFT_REDOP_AVG},
                                            {WEFT_DTYPE_F8E4M3, WEFT_REDOP_AVG},
                                            {WEFT_DTYPE_F16, WEFT_REDOP_PROD},
                                            {WEFT_DTYPE_F32, WEFT_REDOP_PROD}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(cases); i++) {
        if (spread_is_wide() && i % 2) {
            continue;
        }
        compare_variants(3 + spread_is_wide(), cases[i]);
        if (MOST_RANKS - 1 > 3 && !spread_is_wide()) {
            compare_variants(MOST_RANKS - 1, cases[i]);
        }
    }
}

static void test_sum_flat_any_hosts_same_bits(void **state)
{
    (void)state;
    setenv("WEFT_SUM_FLAT", "on", 1); /* the reference is the flat one then */
    compare_variants(MOST_RANKS,
                     (struct sum_case){WEFT_DTYPE_BF16, WEFT_REDOP_AVG});
    if (!spread_is_wide()) {
        compare_variants(4, (struct sum_case){WEFT_DTYPE_F32, WEFT_REDOP_SUM});
    }
    unsetenv("WEFT_SUM_FLAT");
}

int main(void)
{
    seed = random_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_other_order_differs),
        cmocka_unit_test(test_sum_f32_all_variants_same_bits),
        cmocka_unit_test(test_sum_bf16_all_variants_same_bits),
        cmocka_unit_test(test_other_floats_all_variants_same_bits),
        cmocka_unit_test(test_sum_flat_any_hosts_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
