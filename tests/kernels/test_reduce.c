/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: kernels/wire computes what reduce.h says, to the bit, on every
 * instruction set level that this processor has.
 *
 * Method: compare with a scalar reference (reduce_reference.h). Random sizes,
 * alignments and numbers of sources, odd values among the inputs. Outputs are
 * poisoned and guarded on both sides.
 */
#include "base/check.h"
#include "kernels/wire/reduce.h"
#include "kernels/wire/reduce_level.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD_BYTES = 64, POISON = 0xa5, MOST_SOURCES = 33, MOST_BYTES = 40000 };

/* Buffers of one random call, each at an alignment of its own. */
typedef struct call {
    unsigned char *blocks[MOST_SOURCES];
    const unsigned char *sources[MOST_SOURCES];
    unsigned char *block;
    unsigned char *dst;
    unsigned char *expected;
    size_t count;
    size_t elems;
    size_t bytes;
    weft_dtype dtype;
    weft_redop redop;
} call;

static unsigned char *new_block(size_t bytes)
{
    unsigned char *block = malloc(bytes + 4 * GUARD_BYTES);
    assert_non_null(block);
    memset(block, POISON, bytes + 4 * GUARD_BYTES);
    return block;
}

static void call_init(call *made, weft_dtype dtype, weft_redop redop,
                      size_t count, size_t elems, uint64_t *seed)
{
    *made = (call){.count = count,
                   .elems = elems,
                   .dtype = dtype,
                   .redop = redop,
                   .bytes = elems * weft_dtype_bytes(dtype)};
    for (size_t k = 0; k < count; k++) {
        made->blocks[k] = new_block(made->bytes);
        made->sources[k] = made->blocks[k] + random_next(seed) % GUARD_BYTES;
        reference_fill(made->blocks[k] + (made->sources[k] - made->blocks[k]),
                       elems, dtype, seed);
    }
    made->block = new_block(made->bytes);
    made->dst = made->block + GUARD_BYTES + random_next(seed) % GUARD_BYTES;
    made->expected = new_block(made->bytes);
    reference_reduce(made->expected, made->sources, count, elems, dtype, redop);
}

static void call_fini(call *made)
{
    for (size_t k = 0; k < made->count; k++) {
        free(made->blocks[k]);
    }
    free(made->block);
    free(made->expected);
}

static void assert_guards(const call *made)
{
    for (size_t i = 1; i <= GUARD_BYTES; i++) {
        assert_int_equal(*(made->dst - i), POISON);
        assert_int_equal(made->dst[made->bytes + i - 1], POISON);
    }
}

static void assert_result(const call *made, const unsigned char *result,
                          const char *what)
{
    if (memcmp(result, made->expected, made->bytes) == 0) {
        return;
    }
    size_t width = weft_dtype_bytes(made->dtype);
    size_t i = 0;
    while (memcmp(result + i * width, made->expected + i * width, width) == 0) {
        i++;
    }
    fail_msg("%s: %s %s of %zu sources, %zu elements: element %zu differs",
             what, weft_dtype_text(made->dtype), weft_redop_text(made->redop),
             made->count, made->elems, i);
}

static size_t random_elems(weft_dtype dtype, uint64_t *seed)
{
    size_t most = MOST_BYTES / weft_dtype_bytes(dtype);
    switch (random_next(seed) % 4) {
    case 0:
        return random_next(seed) % 20;
    case 1: /* about a block */
        return 4096 / weft_dtype_bytes(dtype) - 3 + random_next(seed) % 7;
    default:
        return random_next(seed) % 600 +
               (random_next(seed) % 8 == 0) * most / 2;
    }
}

typedef void (*call_check)(call *made, const wefti_reduce_level *level);

/* Runs check on every type, operation, number of sources and level. */
static void for_each_call(call_check check)
{
#ifdef __SANITIZE_THREAD__ /* slow, and here is one thread */
    static const size_t counts[] = {1, 3, 8};
#else
    static const size_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, MOST_SOURCES};
#endif
    uint64_t seed = random_seed();
    for (int pair = 0; pair < WEFT_DTYPE_COUNT * WEFT_REDOP_COUNT; pair++) {
        weft_dtype dtype = (weft_dtype)(pair / WEFT_REDOP_COUNT);
        weft_redop redop = (weft_redop)(pair % WEFT_REDOP_COUNT);
        for (size_t s = 0;
             s < WEFTI_COUNT_OF(counts) && weft_redop_applies(redop, dtype);
             s++) {
            call made;
            call_init(&made, dtype, redop, counts[s],
                      random_elems(dtype, &seed), &seed);
            for (size_t i = 0; wefti_reduce_level_at(i) != NULL; i++) {
                check(&made, wefti_reduce_level_at(i));
            }
            call_fini(&made);
        }
    }
}

static void check_reduce(call *made, const wefti_reduce_level *level)
{
    memset(made->dst, POISON, made->bytes);
    wefti_reduce_by(level, made->dst, (const void *const *)made->sources,
                    made->count, made->elems, made->dtype, made->redop);
    assert_result(made, made->dst, level->name);
    assert_guards(made);
}

static void test_reduce_random_calls_equal_reference(void **state)
{
    (void)state;
    int rounds = getenv("WEFT_TEST_LONG") ? 20 : 1;
    for (int round = 0; round < rounds; round++) {
        for_each_call(check_reduce);
    }
}

/* Each source in turn is also the result. */
static void check_reduce_in_place(call *made, const wefti_reduce_level *level)
{
    unsigned char *kept = new_block(made->bytes);
    for (size_t k = 0; k < made->count; k += 1 + made->count / 3) {
        unsigned char *dst =
            made->blocks[k] + (made->sources[k] - made->blocks[k]);
        memcpy(kept, dst, made->bytes);
        wefti_reduce_by(level, dst, (const void *const *)made->sources,
                        made->count, made->elems, made->dtype, made->redop);
        assert_result(made, dst, level->name);
        memcpy(dst, kept, made->bytes);
    }
    free(kept);
}

static void test_reduce_into_a_source_equals_reference(void **state)
{
    (void)state;
    for_each_call(check_reduce_in_place);
}

/* widen, combine up the tree, narrow: what the tree pattern does by hand. */
static void combine_tree(call *made, const wefti_reduce_level *level,
                         unsigned char *out, size_t from, size_t count)
{
    size_t wide_bytes = made->elems * wefti_wide_bytes(made->dtype);
    wefti_widen_by(level, out, made->sources[from], made->elems, made->dtype);
    for (size_t size = 1; size < count; size *= 2) {
        size_t rest = count - size < size ? count - size : size;
        unsigned char *block = new_block(wide_bytes);
        unsigned char *high = block + 1 + size % 8;
        combine_tree(made, level, high, from + size, rest);
        level->combine[made->dtype][made->redop](out, high, made->elems);
        free(block);
    }
}

static void check_combine(call *made, const wefti_reduce_level *level)
{
    size_t wide_bytes = made->elems * wefti_wide_bytes(made->dtype);
    unsigned char *block = new_block(wide_bytes);
    combine_tree(made, level, block + 3, 0, made->count);
    memset(made->dst, POISON, made->bytes);
    wefti_narrow_by(level, made->dst, block + 3, made->count, made->elems,
                    made->dtype, made->redop);
    assert_result(made, made->dst, level->name);
    assert_guards(made);
    free(block);
}

static void test_combine_up_a_tree_equals_host(void **state)
{
    (void)state;
    for_each_call(check_combine);
}

/* Each source by the first element of another; then in place. */
static void check_scale(call *made, const wefti_reduce_level *level)
{
    if (made->redop != WEFT_REDOP_PREMULSUM || made->elems == 0) {
        return;
    }
    const unsigned char *scalar = made->sources[made->count - 1];
    for (size_t k = 0; k < made->count; k++) {
        reference_scale(made->expected, made->sources[k], scalar, made->elems,
                        made->dtype);
        memset(made->dst, POISON, made->bytes);
        level->scale[made->dtype](made->dst, made->sources[k], scalar,
                                  made->elems);
        assert_result(made, made->dst, level->name);
        assert_guards(made);
        memcpy(made->dst, made->sources[k], made->bytes);
        level->scale[made->dtype](made->dst, made->dst, scalar, made->elems);
        assert_result(made, made->dst, level->name);
    }
}

static void test_scale_random_calls_equal_reference(void **state)
{
    (void)state;
    for_each_call(check_scale);
}

static void check_public(call *made, const wefti_reduce_level *level)
{
    (void)level;
    memset(made->dst, POISON, made->bytes);
    wefti_reduce(made->dst, (const void *const *)made->sources, made->count,
                 made->elems, made->dtype, made->redop);
    assert_result(made, made->dst, "wefti_reduce");
    assert_guards(made);
}

static void test_reduce_public_call_equals_reference(void **state)
{
    (void)state;
    for_each_call(check_public);
}

/* Sizes round the line and the least streamed; every alignment of dst. */
static void test_copy_any_size_and_alignment_equal_and_guarded(void **state)
{
    (void)state;
    enum { MOST = 3 * 4096 };
    const size_t whole = (size_t)1 << 30; /* streams */
    unsigned char *src_block = new_block(MOST);
    uint64_t seed = random_seed();

    reference_fill(src_block, MOST + GUARD_BYTES, WEFT_DTYPE_U8, &seed);
    for (size_t round = 0; round < 2000; round++) {
        unsigned char *block = new_block(MOST);
        call made = {.bytes = round % 4 == 0
                                  ? random_next(&seed) % 300
                                  : 4000 + random_next(&seed) % (MOST - 4000),
                     .block = block,
                     .dst = block + GUARD_BYTES + round % GUARD_BYTES};
        const unsigned char *src = src_block + random_next(&seed) % GUARD_BYTES;
        if (round % 3 == 0) {
            wefti_copy(made.dst, src, made.bytes);
        } else {
            wefti_copy_part(made.dst, src, made.bytes, whole);
        }
        assert_memory_equal(made.dst, src, made.bytes);
        assert_guards(&made);
        free(block);
    }
    free(src_block);
}

/* Both levels at once, and one after the other; groups of drawn sizes. */
static void test_reduce_groups_random_calls_equal_reference(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int pair = 0; pair < WEFT_DTYPE_COUNT * WEFT_REDOP_COUNT; pair++) {
        weft_dtype dtype = (weft_dtype)(pair / WEFT_REDOP_COUNT);
        weft_redop redop = (weft_redop)(pair % WEFT_REDOP_COUNT);
        size_t count = 2 + random_next(&seed) % 9, groups = 0;
        int hosts[11], begins[12] = {0};
        call made;
        if (!weft_redop_applies(redop, dtype)) {
            continue;
        }
        for (size_t k = 0; k < count; k++) {
            groups += k == 0 || random_next(&seed) % 2;
            hosts[k] = (int)groups - 1;
            begins[groups] = (int)k + 1;
        }
        call_init(&made, dtype, redop, count, random_elems(dtype, &seed),
                  &seed);
        reference_reduce_hosts(made.expected, made.sources, hosts, count,
                               made.elems, dtype, redop);
        wefti_reduce_groups(made.dst, (const void *const *)made.sources, begins,
                            groups, made.elems, dtype, redop);
        assert_result(&made, made.dst, "reduce_groups");
        assert_guards(&made);

        const void *ends[11];
        unsigned char *blocks[11] = {NULL};
        for (size_t g = 0; g < groups; g++) {
            ends[g] = blocks[g] = new_block(made.bytes);
            wefti_reduce_part(
                blocks[g], (const void *const *)made.sources + begins[g],
                (size_t)(begins[g + 1] - begins[g]), count, made.elems, dtype,
                wefti_redop_inner(dtype, redop));
        }
        wefti_reduce_part(blocks[0], ends, groups, count, made.elems, dtype,
                          wefti_redop_outer(dtype, redop));
        assert_result(&made, blocks[0], "reduce_part");
        for (size_t g = 0; g < groups; g++) {
            free(blocks[g]);
        }
        call_fini(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_random_calls_equal_reference),
        cmocka_unit_test(test_reduce_into_a_source_equals_reference),
        cmocka_unit_test(test_reduce_groups_random_calls_equal_reference),
        cmocka_unit_test(test_combine_up_a_tree_equals_host),
        cmocka_unit_test(test_scale_random_calls_equal_reference),
        cmocka_unit_test(test_reduce_public_call_equals_reference),
        cmocka_unit_test(test_copy_any_size_and_alignment_equal_and_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
