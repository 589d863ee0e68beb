/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a sum has the same bits on every rank, in every run, whatever the
 * algorithm and the chunk size.
 *
 * Method: random f32 and bf16 data whose sums depend on the order of addition
 * (shown first: the reversed order differs); every algorithm with three chunk
 * sizes, for 2 to 7 ranks, compared bitwise with the first variant.
 */
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { ELEMS = 20011, MOST_RANKS = 7, VARIANTS = 9 };

static const struct variant {
    const char *algorithm;
    const char *chunk_bytes;
} variants[VARIANTS] = {
    {"all_reduce:direct", "0"},     {"all_reduce:direct", "1000"},
    {"all_reduce:direct", "512"},   {"all_reduce:tree", "0"},
    {"all_reduce:exchange", "0"},   {"all_reduce:exchange", "1000"},
    {"all_reduce:exchange", "512"}, {"all_reduce:tree", "1000"},
    {"all_reduce:tree", "512"},
};

static uint64_t seed;
static unsigned char results[MOST_RANKS][ELEMS * 4];
static unsigned char reference[ELEMS * 4];

static void make_input(int rank, bool narrow, unsigned char *out)
{
    uint64_t random = seed + (uint64_t)rank * 1000003;
    for (size_t i = 0; i < ELEMS; i++) {
        double unit = (double)(random_next(&random) >> 11) / 9007199254740992.0;
        float value =
            (float)((unit - 0.5) * (double)(1u << (random_next(&random) % 12)));
        uint32_t bits;
        memcpy(&bits, &value, 4);
        if (narrow) {
            memcpy(out + 2 * i, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
        } else {
            memcpy(out + 4 * i, &bits, 4);
        }
    }
}

static int sum(weft_comm *comm, void *context)
{
    bool narrow = *(bool *)context;
    int rank = weft_comm_get_rank(comm);
    static _Thread_local unsigned char input[ELEMS * 4];
    make_input(rank, narrow, input);
    memset(results[rank], 0xA5, sizeof(results[rank]));
    return weft_allreduce(input, results[rank], ELEMS,
                          narrow ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                          WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
}

static void compare_variants(int nranks, bool narrow)
{
    size_t bytes = ELEMS * (narrow ? 2 : 4);
    for (int v = 0; v < VARIANTS; v++) {
        setenv("WEFT_ALGORITHM", variants[v].algorithm, 1);
        setenv("WEFT_CHUNK_BYTES", variants[v].chunk_bytes, 1);
        struct world world = {
            .nranks = nranks, .call = sum, .context = &narrow};
        assert_int_equal(world_run_threads(&world), 0);
        if (v == 0) {
            memcpy(reference, results[0], bytes);
        }
        for (int rank = 0; rank < nranks; rank++) {
            assert_memory_equal(results[rank], reference, bytes);
        }
    }
    unsetenv("WEFT_ALGORITHM");
    unsetenv("WEFT_CHUNK_BYTES");
}

static void test_data_other_order_differs(void **state)
{
    (void)state;
    static unsigned char inputs[5][ELEMS * 4];
    size_t differing = 0;
    for (int rank = 0; rank < 5; rank++) {
        make_input(rank, false, inputs[rank]);
    }
    for (size_t i = 0; i < ELEMS; i++) {
        float up = 0, down = 0, value;
        for (int rank = 0; rank < 5; rank++) {
            memcpy(&value, inputs[rank] + 4 * i, 4);
            up += value;
            memcpy(&value, inputs[4 - rank] + 4 * i, 4);
            down += value;
        }
        differing += memcmp(&up, &down, 4) != 0;
    }
    assert_true(differing > ELEMS / 10);
}

static void test_sum_f32_all_variants_same_bits(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
        compare_variants(nranks, false);
    }
}

static void test_sum_bf16_all_variants_same_bits(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
        compare_variants(nranks, true);
    }
}

int main(void)
{
    seed = random_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_other_order_differs),
        cmocka_unit_test(test_sum_f32_all_variants_same_bits),
        cmocka_unit_test(test_sum_bf16_all_variants_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
