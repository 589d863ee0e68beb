/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a model with an encoder learns the same, bit by bit, on every layout
 *          that it may have: copies, pipelines whose ranks have stages of both
 *          branches, more of either, schedules, recomputation, devices; what
 *          one layout saves, another goes on from; ranks hold what was planned;
 *          what is not possible is refused by name.
 * Method   whole jobs, ranks as threads, beside one rank's. Bytes of the
 * encoder are no text. Its part in the result: other bytes, other losses.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "tests/trainer/token_files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PIPELINE(ranks) "parallel.pipeline_model_parallel_size=" #ranks
#define SCHEDULE(name)  "parallel.schedule=" #name
#define CHUNKS(count)   "parallel.virtual_pipeline_model_parallel_size=" #count
#define ENCODER(count)  "parallel.encoder_virtual_stages=" #count
#define TENSOR(ranks)   "parallel.tensor_model_parallel_size=" #ranks
#define EXPERTS(ranks)  "parallel.expert_model_parallel_size=" #ranks

static scratch own;
static job_result reference; /* of one rank */

static const char *const model[] = {
    "model.layers=4", "model.encoder_layers=4", "model.encoder_seq_length=5",
    "data.encoder_path=pictures", "train.steps=4"};
enum { MODEL = sizeof(model) / sizeof(*model) };

/* what's own settings stand behind the model's. */
static job with_encoder(const job *what)
{
    job own_job = *what;
    for (size_t i = 0; i + MODEL < JOB_SETTINGS_MOST; i++) {
        own_job.settings[i + MODEL] = what->settings[i];
    }
    memcpy(own_job.settings, model, sizeof(model));
    return own_job;
}

static job_result run(const job *what)
{
    const job own_job = with_encoder(what);
    return job_run_well(&own, &own_job);
}

static int open_scratch(void **state)
{
    uint64_t seed = random_seed();
    unsigned char bytes[900];
    (void)state;
    scratch_open(&own);
    job_prepare(&own, seed);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)random_next(&seed);
    }
    bytes[7] = 0;
    bytes[8] = 0xff; /* no UTF-8 */
    scratch_write(&own, "pictures", bytes, sizeof(bytes));
    bytes[8] ^= 1;
    scratch_write(&own, "others", bytes, sizeof(bytes));
    scratch_write(&own, "short", bytes, 11);
    reference = run(&(job){.nranks = 1});
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    job_result_fini(&reference);
    scratch_close(&own);
    return 0;
}

/* The text that a job has generated, its last line. */
static const char *generated(const job_result *result)
{
    const char *line = strstr(result->printed, "\ngenerated ");
    assert_non_null(line);
    return line;
}

static void check_same(const job_result *wanted, const job *what)
{
    job_result got = run(what);
    job_assert_same_bits(wanted, &got);
    assert_true(wanted->val_loss == got.val_loss);
    assert_true(got.peaks_as_planned);
    const char *text = generated(wanted);
    assert_memory_equal(text, generated(&got), strlen(text));
    job_result_fini(&got);
}

static void test_every_layout_gives_the_same_bits(void **state)
{
    const job jobs[] = {
        {.nranks = 2},
        {.nranks = 2, .settings = {PIPELINE(2), SCHEDULE(interleaved)}},
        {.nranks = 4, .settings = {PIPELINE(2), SCHEDULE(zbv)}},
        {.nranks = 2, .settings = {PIPELINE(2), SCHEDULE(dualpipev)}},
        {.nranks = 2,
         .settings = {PIPELINE(2), SCHEDULE(interleaved), CHUNKS(2)}},
        {.nranks = 2,
         .settings = {PIPELINE(2), SCHEDULE(interleaved), ENCODER(2),
                      "memory.recompute=full"}},
        {.nranks = 4,
         .settings = {PIPELINE(4), SCHEDULE(interleaved),
                      "overlap.pipeline=false"}},
        {.nranks = 2,
         .settings = {PIPELINE(2), SCHEDULE(interleaved),
                      "train.device=shadow"}},
        {.nranks = 2,
         .settings = {PIPELINE(2), SCHEDULE(interleaved)},
         .measure = true},
    };
    (void)state;
    const size_t count = sizeof(jobs) / sizeof(*jobs);
    for (size_t i = 0; i < count; i++) {
        const bool few = i == 2 || i == 4 || (i == 7 && !job_is_slow());
        if (!job_is_sanitized() || few) {
            check_same(&reference, &jobs[i]);
        }
    }
}

/* One sequence a pass: products have other shapes, and no neighbours. */
static void test_single_sequences_give_the_same_bits(void **state)
{
    (void)state;
    job one = {.nranks = 1, .settings = {"train.micro_batch_size=1"}};
    job two = {.nranks = 2,
               .settings = {"train.micro_batch_size=1", PIPELINE(2),
                            SCHEDULE(interleaved)}};
    job_result wanted = run(&one);
    check_same(&wanted, &two);
    job_result_fini(&wanted);
}

static void test_bf16_gives_the_same_bits(void **state)
{
    (void)state;
    job one = {.nranks = 1, .settings = {"model.dtype=bf16"}};
    job two = {.nranks = 2,
               .settings = {"model.dtype=bf16", PIPELINE(2), SCHEDULE(zbv)}};
    job_result wanted = run(&one);
    check_same(&wanted, &two);
    job_result_fini(&wanted);
}

static void check_close(const job_result *wanted, const job *what)
{
    job_result got = run(what);
    assert_int_equal(got.steps, wanted->steps);
    for (size_t i = 0; i < got.steps; i++) {
        const double loss = wanted->loss[i], norm = wanted->grad_norm[i];
        if (!(fabs(got.loss[i] - loss) < 1e-5 * loss) ||
            !(fabs(got.grad_norm[i] - norm) < 1e-4 * norm)) {
            fail_msg("%d ranks, %s, step %zu: loss %.9g, want %.9g, norm "
                     "%.9g, want %.9g",
                     what->nranks, what->settings[0], i, got.loss[i], loss,
                     got.grad_norm[i], norm);
        }
    }
    assert_true(fabs(got.val_loss - wanted->val_loss) <
                1e-5 * wanted->val_loss);
    assert_true(got.peaks_as_planned);
    job_result_fini(&got);
}

/* Both branches' layers are shared, and what joins them. */
static void test_ranks_that_share_layers_give_the_same_losses(void **state)
{
    const job jobs[] = {
        {.nranks = 2, .settings = {TENSOR(2)}},
        {.nranks = 4,
         .settings = {TENSOR(2), PIPELINE(2), SCHEDULE(interleaved)}},
        {.nranks = 4,
         .settings = {TENSOR(2), PIPELINE(2), SCHEDULE(zbv),
                      "memory.recompute=full"}},
        {.nranks = 4, .settings = {TENSOR(4), "overlap.tensor=false"}},
    };
    (void)state;
    for (size_t i = 0; i < (job_is_sanitized() ? 2 : 4); i++) {
        check_close(&reference, &jobs[i]);
    }
}

/* The decoder's layers have them; the encoder's stay dense. */
static void test_decoder_of_experts_gives_the_same_losses(void **state)
{
#define SPARSE "model.experts=4", "model.ffn_size=64"
#define DEPTHS "model.encoder_layers=2"
    const job jobs[] = {
        {.nranks = 2, .settings = {SPARSE, EXPERTS(2)}},
        {.nranks = 4,
         .settings = {SPARSE, EXPERTS(2), PIPELINE(2), SCHEDULE(interleaved),
                      "moe.place_every=1"}},
        {.nranks = 4,
         .settings = {SPARSE, EXPERTS(4), "memory.recompute=full"}},
    };
    const job alone = {.nranks = 1, .settings = {SPARSE}};
    /* Depths by which a rank's layers have other numbers in either branch. */
    const job deep = {.nranks = 1, .settings = {SPARSE, DEPTHS}};
    const job deep_cut[] = {
        {.nranks = 4,
         .settings = {SPARSE, DEPTHS, EXPERTS(2), PIPELINE(2),
                      SCHEDULE(interleaved)}},
        {.nranks = 4,
         .settings = {SPARSE, EXPERTS(2), PIPELINE(2), SCHEDULE(zbv)}}};
    (void)state;
    job_result wanted = run(&alone);
    for (size_t i = 0; i < (job_is_sanitized() ? 2 : 3); i++) {
        check_close(&wanted, &jobs[i]);
    }
    check_close(&wanted, &deep_cut[1]);
    job_result_fini(&wanted);
    wanted = run(&deep);
    check_close(&wanted, &deep_cut[0]);
    job_result_fini(&wanted);
#undef SPARSE
#undef DEPTHS
}

/* Its bytes and the decoder's numbers are of two vocabularies. */
static void test_ranks_share_both_vocabularies(void **state)
{
#define NUMBERS                                                                \
    "model.vocab=600", "data.paths=[some.tokens]",                             \
        "data.validation_fraction=0.1"
    static uint32_t ids[2000];
    static uint8_t image[TOKEN_HEADER_BYTES + 2 * 2000];
    uint64_t seed = 20261127;
    const job alone = {.nranks = 1, .settings = {NUMBERS}};
    const job shared = {.nranks = 2, .settings = {NUMBERS, TENSOR(2)}};
#undef NUMBERS
    (void)state;
    for (size_t i = 0; i < 2000; i++) {
        ids[i] = (uint32_t)(random_next(&seed) % 600);
    }
    scratch_write(&own, "some.tokens", image,
                  make_tokens(image, ids, 2000, 2, 600));
    job_result wanted = run(&alone);
    check_close(&wanted, &shared);
    job_result_fini(&wanted);
}

/* Saved by ranks that share layers and have experts, gone on with by one that
 * has all, and the other way round. */
static void test_shared_state_goes_on_on_one_rank(void **state)
{
#define STEADY                                                                 \
    "train.lr_decay_style=constant", "model.experts=4", "model.ffn_size=64"
    static const char *const cut[][3] = {
        {NULL}, {EXPERTS(2), PIPELINE(2), SCHEDULE(interleaved)}};
    (void)state;
    const job whole = {.nranks = 1, .settings = {STEADY}};
    job_result wanted = run(&whole);
    for (size_t i = 0; i < 2; i++) {
        const char *const *from = cut[i], *const *to = cut[1 - i];
        char saved_at[512], dir[48];
        snprintf(dir, sizeof(dir), "checkpoint.dir=shared%zu", i);
        snprintf(saved_at, sizeof(saved_at), "%s",
                 scratch_path(&own, strchr(dir, '=') + 1));
        const job first = {.nranks = from[0] ? 4 : 1,
                           .settings = {STEADY, dir, "checkpoint.every=2",
                                        "train.steps=2", from[0], from[1],
                                        from[2]}};
        const job second = {.nranks = to[0] ? 4 : 1,
                            .resume = saved_at,
                            .settings = {STEADY, to[0], to[1], to[2]}};
        job_result saved = run(&first), got = run(&second);
        assert_int_equal(got.steps, 2);
        for (size_t k = 0; k < 2; k++) {
            assert_true(fabs(got.loss[k] - wanted.loss[2 + k]) <
                        1e-5 * wanted.loss[2 + k]);
        }
        job_result_fini(&saved);
        job_result_fini(&got);
    }
    job_result_fini(&wanted);
#undef STEADY
}

/* A list of one's own, whose encoder stages are the first ones. */
static void test_own_list_gives_the_same_bits(void **state)
{
    (void)state;
    scratch_text(&own, "own.csv",
                 "0F0,0F1,2F0,0F2,2F1,2B0,0F3,0B0,2F2,2B1,0B1,2F3,2B2,0B2,2B3,"
                 "0B3\n"
                 "1F0,1F1,3F0,3B0,1F2,3F1,3B1,1B0,1F3,3F2,3B2,1B1,3F3,3B3,1B2,"
                 "1B3\n");
    job one = {.nranks = 1, .settings = {"train.global_batch_size=8"}};
    job two = {.nranks = 2,
               .settings = {"train.global_batch_size=8", PIPELINE(2),
                            SCHEDULE(own.csv)}};
    job_result wanted = run(&one);
    check_same(&wanted, &two);
    job_result_fini(&wanted);
}

static void test_what_the_encoder_reads_matters(void **state)
{
    (void)state;
    const job what = {.nranks = 1, .settings = {"data.encoder_path=others"}};
    job_result got = run(&what);
    assert_true(got.loss[3] != reference.loss[3]);
    job_result_fini(&got);

    char dir[512];
    snprintf(dir, sizeof(dir), "%s", scratch_path(&own, "pictured"));
    const job first = {.nranks = 1,
                       .settings = {"checkpoint.dir=pictured",
                                    "checkpoint.every=2", "train.steps=2"}};
    const job second = with_encoder(&(job){
        .nranks = 1,
        .resume = dir,
        .settings = {"checkpoint.dir=pictured", "data.encoder_path=others"}});
    job_result saved = run(&first), refused = job_run(&own, &second);
    assert_int_not_equal(refused.status, WEFT_OK);
    assert_non_null(strstr(refused.error, "data.encoder_path"));
    job_result_fini(&saved);
    job_result_fini(&refused);
}

/* Saved by one layout after two steps, gone on with by another. */
static void test_another_layout_goes_on(void **state)
{
    const char *const cut[][4] = {
        {NULL},
        {PIPELINE(2), SCHEDULE(interleaved), ENCODER(2)},
        {PIPELINE(2), SCHEDULE(zbv)},
    };
    (void)state;
    for (size_t i = 0; i < (job_is_sanitized() ? 2 : 3); i++) {
        const char *const *from = cut[i], *const *to = cut[(i + 1) % 3];
        char folder[32], dir[48], saved_at[512];
        snprintf(folder, sizeof(folder), "ckpt%zu", i);
        snprintf(saved_at, sizeof(saved_at), "%s", scratch_path(&own, folder));
        snprintf(dir, sizeof(dir), "checkpoint.dir=%s", folder);
        job first = {.nranks = from[0] ? 2 : 1,
                     .settings = {dir, "checkpoint.every=2", "train.steps=2",
                                  "train.lr_decay_style=constant", from[0],
                                  from[1], from[2]}};
        job second = {
            .nranks = to[0] ? 2 : 1,
            .resume = saved_at,
            .settings = {"train.lr_decay_style=constant", to[0], to[1], to[2]}};
        job whole = {.nranks = 1,
                     .settings = {"train.lr_decay_style=constant"}};
        job_result saved = run(&first), got = run(&second);
        job_result wanted = run(&whole);
        assert_int_equal(got.steps, 2);
        for (size_t k = 0; k < 2; k++) {
            assert_true(got.loss[k] == wanted.loss[2 + k]);
            assert_true(got.grad_norm[k] == wanted.grad_norm[2 + k]);
        }
        assert_memory_equal(got.parameters, wanted.parameters,
                            wanted.parameter_count * sizeof(real));
        job_result_fini(&saved);
        job_result_fini(&got);
        job_result_fini(&wanted);
    }
}

typedef struct refusal {
    const char *settings[6];
    int nranks;
    const char *says;
} refusal;

static const refusal refusals[] = {
    {{PIPELINE(2)}, 2, "parallel.schedule: 1f1b has one stage a rank"},
    {{PIPELINE(2), SCHEDULE(auto)}, 2, "allowed is interleaved, zbv, "},
    {{PIPELINE(2), SCHEDULE(dualpipe)},
     2,
     "parallel.schedule: dualpipe has one"},
    {{PIPELINE(2), SCHEDULE(zbv), ENCODER(2)},
     2,
     "parallel.encoder_virtual_stages: 2 is not for schedule zbv"},
    {{PIPELINE(2), SCHEDULE(zbv), CHUNKS(2)},
     2,
     "virtual_pipeline_model_parallel_size: 2 is not for schedule zbv"},
    {{PIPELINE(2), SCHEDULE(interleaved), ENCODER(3)},
     2,
     "model.encoder_layers: 4 is too few for 6 stages (2 ranks of a pipeline * "
     "3 of parallel.encoder_virtual_stages); allowed is from 6"},
    {{PIPELINE(2), SCHEDULE(interleaved), CHUNKS(3)},
     2,
     "model.layers: 4 is too few for 6 stages"},
    {{ENCODER(2)}, 1, "parallel.encoder_virtual_stages: 2 needs a pipeline"},
    {{PIPELINE(2), SCHEDULE(interleaved), "parallel.compare=[zbv]"},
     2,
     "parallel.compare: zbv is not possible in this version with "
     "model.encoder_layers"},
    {{TENSOR(3), "model.hidden_size=24", "model.heads=6", "model.kv_heads=3",
      "model.ffn_size=96", "model.vocab=300"},
     3,
     "parallel.tensor_model_parallel_size: 3 is not possible in this version "
     "with model.encoder_layers from 1; allowed is what divides the 256 bytes"},
    {{TENSOR(2), "parallel.sequence_parallel=true"},
     2,
     "parallel.sequence_parallel: true is not possible in this version with "
     "model.encoder_layers from 1; allowed is false"},
    {{"parallel.context_parallel_size=2"},
     2,
     "context_parallel_size: 2 is not"},
    {{"model.tie_embeddings=true"}, 1, "model.tie_embeddings: true is not"},
    {{"data.document_end=10"}, 1, "data.document_end: 10 is not possible"},
    {{"data.encoder_path=none"},
     1,
     "data.encoder_path: none leaves the encoder of model.encoder_layers "
     "without bytes"},
    {{"data.encoder_path=nowhere"}, 1, "--set data.encoder_path: "},
    {{"data.encoder_path=short", "model.encoder_seq_length=11",
      "data.validation_fraction=0.1"},
     1,
     "--set data.encoder_path: the training part has 10 bytes, one sequence "
     "needs 12 (model.encoder_seq_length + 1)"},
    {{"data.encoder_path=short", "model.encoder_seq_length=4",
      "data.validation_fraction=0.1"},
     1,
     "the validation part has 1 of 11 bytes, one sequence needs 5"},
    {{"model.encoder_layers=0"},
     1,
     "pictures needs an encoder: set model.encoder_layers from 1"},
    {{"model.encoder_layers=0", "data.encoder_path=none"},
     1,
     "model.encoder_seq_length: 5 needs an encoder"},
    {{"model.encoder_layers=0", "data.encoder_path=none", ENCODER(2)},
     1,
     "parallel.encoder_virtual_stages: 2 needs an encoder"},
};

static void test_what_is_not_possible_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
        const refusal *r = &refusals[i];
        job what = {.nranks = r->nranks};
        memcpy(what.settings, r->settings, sizeof(r->settings));
        const job all = with_encoder(&what);
        job_result got = job_run(&own, &all);
        if (got.status == WEFT_OK || !strstr(got.errors, r->says)) {
            fail_msg("%s: gave %d, \"%s\"", r->says, got.status, got.errors);
        }
        job_result_fini(&got);
    }
}

static void test_export_is_refused(void **state)
{
    (void)state;
    const job what = with_encoder(&(job){.nranks = 1, .export_hf = "out"});
    job_result got = job_run(&own, &what);
    assert_int_equal(got.status, WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(got.error, "--export-hf: is for models without an "
                                      "encoder (model.encoder_layers: 0)"));
    job_result_fini(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_gives_the_same_bits),
        cmocka_unit_test(test_single_sequences_give_the_same_bits),
        cmocka_unit_test(test_bf16_gives_the_same_bits),
        cmocka_unit_test(test_ranks_that_share_layers_give_the_same_losses),
        cmocka_unit_test(test_decoder_of_experts_gives_the_same_losses),
        cmocka_unit_test(test_ranks_share_both_vocabularies),
        cmocka_unit_test(test_shared_state_goes_on_on_one_rank),
        cmocka_unit_test(test_own_list_gives_the_same_bits),
        cmocka_unit_test(test_what_the_encoder_reads_matters),
        cmocka_unit_test(test_another_layout_goes_on),
        cmocka_unit_test(test_what_is_not_possible_is_refused_by_name),
        cmocka_unit_test(test_export_is_refused),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
