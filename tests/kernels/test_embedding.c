/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Embedding copies the right rows, and its backward adds every
 *          token's gradient to its row in token order.
 * Method   Repeated ids; the expected sum is made with the same additions in
 *          the same order and compared bit for bit.
 */
#include "tests/kernels/math_check.h"

enum { TOKENS = 50, VOCAB = 9 };
static const size_t widths[] = {1, 16, 19, 64, 129};

static void test_embedding_repeated_ids_copy_and_add_in_order(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
        size_t width = widths[w];
        int32_t ids[TOKENS];
        real *table = check_alloc_random(&random, VOCAB * width, 1);
        real *dout = check_alloc_random(&random, TOKENS * width, 1);
        real *out = check_alloc(TOKENS * width);
        real *want = check_alloc_copy(table, VOCAB * width);

        for (size_t t = 0; t < TOKENS; t++)
            ids[t] = (int32_t)(check_bits(&random) % VOCAB);
        math->embedding_forward(out, table, ids, TOKENS, VOCAB, width);
        for (size_t t = 0; t < TOKENS; t++)
            check_same_bits(out + t * width, table + (size_t)ids[t] * width,
                            width);
        math->embedding_backward(table, dout, ids, TOKENS, VOCAB, width);
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t i = 0; i < width; i++)
                want[(size_t)ids[t] * width + i] += dout[t * width + i];
        check_same_bits(table, want, VOCAB * width);
        free(table);
        free(dout);
        free(out);
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_repeated_ids_copy_and_add_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
