/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: two ranks whose counts for an all_gatherv or a reduce_scatterv differ
 * have other digests, whatever differs, and the text names a count that does
 * with both sides; also where a word of the row stands for several ranks.
 *
 * Method: rows of worlds of 2 to 4096 ranks are packed and compared without a
 * communicator; counts are drawn from a seed, which is printed. Ranks that
 * really disagree are those of tests/comm/test_disagree.c.
 */
#include "comm/steps/common_counts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MOST = 4096, WORDS_MOST = 512, TEXT_BYTES = 192 };

typedef struct rows {
    size_t own_counts[RANKS_MOST], their_counts[RANKS_MOST];
    uint64_t own[WORDS_MOST], theirs[WORDS_MOST];
    char text[TEXT_BYTES];
} rows;

static wefti_op make_op(weft_collective collective, int rank, int nranks)
{
    wefti_op op;
    memset(&op, 0, sizeof(op));
    op.desc.collective = collective;
    op.desc.dtype = WEFT_DTYPE_F32;
    op.problem.rank = rank;
    op.problem.nranks = nranks;
    return op;
}

/* All the same, but what peer has of rank `of`. */
static void pack(rows *at, int nranks, int of, size_t own, size_t theirs)
{
    for (int rank = 0; rank < nranks; rank++) {
        at->own_counts[rank] = at->their_counts[rank] = 3;
    }
    at->own_counts[of] = own;
    at->their_counts[of] = theirs;
    const uint64_t own_digest =
        wefti_common_counts_pack(at->own_counts, nranks, at->own);
    const uint64_t their_digest =
        wefti_common_counts_pack(at->their_counts, nranks, at->theirs);
    assert_int_equal(own_digest == their_digest, own == theirs);
}

static void check(weft_collective collective, int nranks, int of,
                  const char *wanted)
{
    enum { OWN = 1, PEER = 2, SENT = 7, OTHER = 8 };
    rows *at = malloc(sizeof(*at));
    assert_non_null(at);
    const wefti_op op = make_op(collective, OWN, nranks);
    pack(at, nranks, of, SENT, OTHER);
    wefti_common_counts_text(&op, PEER, at->own, at->theirs, at->text,
                             sizeof(at->text));
    assert_string_equal(at->text, wanted);
    free(at);
}

static void test_counts_text_names_a_count_that_differs(void **state)
{
    const weft_collective gather = WEFT_COLLECTIVE_ALLGATHERV;
    const weft_collective scatter = WEFT_COLLECTIVE_REDUCESCATTERV;
    (void)state;
    check(gather, 3, 2,
          "rank 2 posted all_gatherv with 8 f32 for rank 1, rank 1 expects 7");
    check(gather, 3, 1,
          "rank 1 posted all_gatherv with 7 f32 for rank 2, rank 2 expects 8");
    check(gather, 512, 511,
          "rank 2 posted all_gatherv with 8 f32 from rank 511, rank 1 with 7");
    check(scatter, 3, 1,
          "rank 2 posted reduce_scatterv with 8 f32 for rank 1, rank 1 expects "
          "7");
    check(scatter, 3, 2,
          "rank 1 posted reduce_scatterv with 7 f32 for rank 2, rank 2 expects "
          "8");
    check(scatter, 4096, 4090,
          "rank 2 posted reduce_scatterv with 29 f32 for ranks 4088 to 4095 "
          "together, rank 1 with 28");
    check(gather, 513, 512,
          "rank 2 posted all_gatherv with 8 f32 from rank 512, rank 1 with 7");
}

/* Two ranks' parts changed places: the sum that stands for both is the same. */
static void
test_counts_that_differ_behind_one_sum_have_other_digests(void **state)
{
    enum { RANKS = 1024 };
    rows *at = malloc(sizeof(*at));
    (void)state;
    assert_non_null(at);
    pack(at, RANKS, 0, 4, 4);
    at->their_counts[0] = at->own_counts[1];
    at->their_counts[1] = at->own_counts[0];
    const uint64_t own =
        wefti_common_counts_pack(at->own_counts, RANKS, at->own);
    const uint64_t theirs =
        wefti_common_counts_pack(at->their_counts, RANKS, at->theirs);
    assert_true(own != theirs);
    const wefti_op op = make_op(WEFT_COLLECTIVE_ALLGATHERV, 1, RANKS);
    wefti_common_counts_text(&op, 2, at->own, at->theirs, at->text,
                             sizeof(at->text));
    assert_string_equal(at->text,
                        "rank 2 posted all_gatherv with other counts than "
                        "rank 1");
    free(at);
}

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return *seed >> 33;
}

static void test_counts_of_any_world_fit_an_entry(void **state)
{
    uint64_t seed = 20261126;
    rows *at = malloc(sizeof(*at));
    (void)state;
    assert_non_null(at);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int nranks = 1; nranks <= RANKS_MOST; nranks += 1 + nranks / 7) {
        const size_t bytes = wefti_common_counts_bytes(nranks);
        assert_true(bytes > 0 && bytes <= WEFTI_PAYLOAD_BYTES);
        const int of = (int)(draw(&seed) % (uint64_t)nranks);
        const size_t count = (size_t)draw(&seed);
        memset(at->own, 0xa5, sizeof(at->own));
        pack(at, nranks, of, count, count);
        assert_memory_equal(at->own, at->theirs, bytes);
        pack(at, nranks, of, count, count + 1 + (size_t)draw(&seed));
        assert_memory_not_equal(at->own, at->theirs, bytes);
    }
    free(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_text_names_a_count_that_differs),
        cmocka_unit_test(
            test_counts_that_differ_behind_one_sum_have_other_digests),
        cmocka_unit_test(test_counts_of_any_world_fit_an_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
