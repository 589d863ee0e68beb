/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a run learns, of bytes and of token ids; generating is repeatable
 *          and takes its settings; the summary has its yardsticks; a run that
 *          cannot go on says so and spoils nothing.
 * Method   whole jobs, ranks as threads, on a small text from a printed seed.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "tests/trainer/token_files.h"
#include "trainer/checkpoint/checkpoint.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Sequences long enough to learn from wherever others are shorter. */
#define LEARNS "model.seq_length=12", "data.validation_fraction=0.05"

static scratch own;

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

static void test_run_learns(void **state)
{
    (void)state;
    job what = {.nranks = 2, .settings = {"train.steps=24", LEARNS}};
    job_result result = job_run_well(&own, &what);
    assert_int_equal(result.steps, 24);
    assert_true(fabs(result.loss[0] - log(256)) < 0.2);
    assert_true(result.val_loss < 3.5);
    job_result_fini(&result);
}

static void test_run_generate_twice_the_same_by_its_settings(void **state)
{
    (void)state;
    job plain = {.nranks = 2,
                 .settings = {"generate.bytes=200"},
                 .generate = "the loom"};
    job named = plain;
    memcpy(named.settings,
           (const char *[]){"generate.temperature=0.7", "generate.top_k=256",
                            "generate.top_p=1", "generate.seed=1",
                            "generate.bytes=300"},
           5 * sizeof(char *));
    job other = named;
    other.settings[3] = "generate.seed=2";
    job_result first = job_run_well(&own, &plain);
    job_result second = job_run_well(&own, &plain);
    job_result third = job_run_well(&own, &named);
    job_result fourth = job_run_well(&own, &other);
    assert_int_equal(first.printed_bytes, 200);
    assert_int_equal(second.printed_bytes, 200);
    assert_memory_equal(first.printed, second.printed, 200);
    assert_int_equal(third.printed_bytes, 300);
    assert_memory_equal(first.printed, third.printed, 200);
    assert_memory_not_equal(third.printed, fourth.printed, 200);
    job_result_fini(&first);
    job_result_fini(&second);
    job_result_fini(&third);
    job_result_fini(&fourth);
}

static void test_run_summary_has_the_yardsticks(void **state)
{
    (void)state;
    job what = {.nranks = 1};
    job_result result = job_run_well(&own, &what);
    assert_non_null(strstr(result.printed, "validation loss"));
    assert_non_null(strstr(result.printed, "2-gram"));
    assert_non_null(strstr(result.printed, "4-gram"));
    assert_non_null(strstr(result.printed, "tokens/s"));
    assert_non_null(strstr(result.printed, "compute"));
    job_result_fini(&result);
}

static void test_run_impossible_layout_is_refused(void **state)
{
    (void)state;
    job what = {.nranks = 3};
    job_result result = job_run(&own, &what);
    assert_int_equal(result.status, WEFT_ERR_INVALID);
    assert_non_null(strstr(result.error, "global_batch_size"));
    job_result_fini(&result);
}

/* What a checkpoint before it has is kept, and nothing is saved any more. */
static void test_run_diverged_ends_all_ranks_and_saves_nothing(void **state)
{
    (void)state;
    char dir[512];
    uint64_t *steps;
    size_t count;
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    job what = {.nranks = 2,
                .settings = {"train.steps=40", "train.lr=100",
                             "checkpoint.every=1", "checkpoint.keep=3"}};
    job_result result = job_run(&own, &what);
    assert_int_equal(result.status, WEFT_ERR_INVALID);
    assert_non_null(strstr(result.error, "has diverged"));
    assert_non_null(strstr(result.error, "lower train.lr (now 100)"));
    assert_in_range(result.steps, 1, 39);
    for (size_t i = 0; i < result.steps; i++) { /* null, read as NAN */
        assert_true(isfinite(result.loss[i]) && isfinite(result.grad_norm[i]));
    }
    assert_int_equal(wefti_checkpoint_list(dir, &steps, &count), WEFT_OK);
    assert_true(count >= 1 && steps[0] <= result.steps);
    free(steps);
    job_result_fini(&result);
}

static void test_run_unwritable_json_ends_before_training(void **state)
{
    (void)state;
    job what = {.nranks = 1, .json = "/nowhere/at/all"};
    job_result result = job_run(&own, &what);
    assert_int_equal(result.status, WEFT_ERR_SYSTEM);
    assert_non_null(strstr(result.error, "--json /nowhere/at/all: "));
    assert_int_equal(result.steps, 0);
    job_result_fini(&result);
}

/* Words of a few ids each, so that there is something to learn. */
static void write_token_file(const char *name)
{
    enum { IDS = 3000, VOCAB = 1000 };
    static uint32_t ids[IDS];
    static uint8_t image[TOKEN_HEADER_BYTES + 4 * IDS];
    uint64_t seed = 1;
    for (size_t i = 0; i < IDS; i += 3) {
        uint32_t word = (uint32_t)(random_next(&seed) % 8);
        ids[i] = 900 + word;
        ids[i + 1] = 300 + 7 * word;
        ids[i + 2] = 1;
    }
    scratch_write(&own, name, image,
                  make_tokens(image, ids, IDS, sizeof(ids[0]), VOCAB));
}

/* Of a vocabulary padded beyond the file's, which has ids above a byte's. */
static void test_run_learns_token_ids_with_the_same_bits_on_two_ranks(void **st)
{
    (void)st;
    write_token_file("some.tokens");
    job two = {.nranks = 2,
               .settings = {"model.vocab=1024", "data.paths=[some.tokens]",
                            "train.steps=40", "train.global_batch_size=16",
                            "generate.bytes=20", LEARNS},
               .generate = "900 300"};
    job one = two;
    one.nranks = 1;
    job_result wanted = job_run_well(&own, &one);
    job_result result = job_run_well(&own, &two);
    job_assert_same_bits(&wanted, &result);
    assert_true(fabs(result.loss[0] - log(1024)) < 0.2);
    assert_true(result.val_loss < 1.5); /* a word of 8 every third token */
    char *text = result.printed;
    for (size_t i = 0; i < 20; i++) {
        char *end = text;
        unsigned long id = strtoul(text, &end, 10);
        assert_true(end > text && *end == (i < 19 ? ' ' : '\n') && id < 1024);
        text = end + 1;
    }
    assert_int_equal(text - result.printed, result.printed_bytes);
    job_result_fini(&wanted);
    job_result_fini(&result);
}

static void
test_run_of_other_data_than_the_vocabulary_says_is_refused(void **st)
{
    (void)st;
    write_token_file("some.tokens");
    static const struct {
        const char *settings[2], *generate, *part;
    } wrong[] = {
        {{"model.vocab=1024"}, NULL, "text.txt: byte 0: not a file of token"},
        {{"data.paths=[some.tokens]"}, NULL, "no text in "},
        {{"data.paths=[some.tokens]", "model.vocab=999"},
         NULL,
         "some.tokens: byte 24: a vocabulary of 1000; allowed is 1..999"},
        {{"data.paths=[some.tokens]", "model.vocab=1000"},
         "7 1000",
         "--generate: '1000' is no token id; allowed are whole numbers 0..999"},
        {{"data.paths=[some.tokens]", "model.vocab=1000"},
         "weft",
         "--generate: 'weft' is no token id"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        job what = {.nranks = 2,
                    .settings = {wrong[i].settings[0], wrong[i].settings[1]},
                    .generate = wrong[i].generate};
        job_result result = job_run(&own, &what);
        assert_int_equal(result.status, WEFT_ERR_INVALID);
        assert_int_equal(result.steps, 0);
        if (!strstr(result.error, wrong[i].part)) {
            fail_msg("\"%s\" instead of \"%s\"", result.error, wrong[i].part);
        }
        job_result_fini(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_learns),
        cmocka_unit_test(test_run_generate_twice_the_same_by_its_settings),
        cmocka_unit_test(test_run_summary_has_the_yardsticks),
        cmocka_unit_test(test_run_impossible_layout_is_refused),
        cmocka_unit_test(test_run_diverged_ends_all_ranks_and_saves_nothing),
        cmocka_unit_test(test_run_unwritable_json_ends_before_training),
        cmocka_unit_test(
            test_run_learns_token_ids_with_the_same_bits_on_two_ranks),
        cmocka_unit_test(
            test_run_of_other_data_than_the_vocabulary_says_is_refused),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
