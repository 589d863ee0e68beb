/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a pipeline that is not possible, sequences that ranks cannot share, and
 * what does not go together are refused by the key that is in the way, with
 * what is possible; what is compared must be possible too.
 * Method: texts, and what is expected to be said of each.
 */
#include "base/check.h"
#include "tests/trainer/configs.h"

#define P(ranks) "parallel: {pipeline_model_parallel_size: " #ranks

static void test_config_pipeline_names_what_fails(void **state)
{
    (void)state;
    check_layout(P(2) "}", 4, NULL);
    check_layout(P(4) ", schedule: zb_h1}", 4, NULL);
    check_layout("model: {layers: 8}\n" P(4) ", schedule: dualpipev}", 8, NULL);
    check_layout(P(3) "}\ntrain: {global_batch_size: 24}", 4,
                 "2:42: parallel.pipeline_model_parallel_size: 3 does not "
                 "divide 4 ranks; nearest that work: 2, or 3 or 6 ranks");
    check_layout("model: {layers: 6}\n" P(4) "}", 4, NULL);
    check_layout("model: {layers: 3}\n" P(4) "}", 4,
                 "model.layers: 3 is too few for 4 stages (4 ranks of a "
                 "pipeline * 1 each); allowed is from 4");
    check_layout(P(4) ", schedule: zbv}", 4,
                 "model.layers: 4 is too few for 8 stages (4 ranks of a "
                 "pipeline * 2 each); allowed is from 8");
    check_layout(P(2) "}\ntrain: {global_batch_size: 5}", 4,
                 "train.global_batch_size: 5 is not divisible by 2 pipelines * "
                 "micro_batch_size 1 = 2; nearest that work: 4 or 6, or 1 "
                 "pipeline");
    check_layout(P(4) ", schedule: dualpipe}\ntrain: {global_batch_size: 6}", 4,
                 "schedule: dualpipe is not possible with 6 micro-batches a "
                 "step for each pipeline: ");
    check_layout(P(2) ", schedule: interleaved}", 2,
                 "virtual_pipeline_model_parallel_size: 1 is too few");
    check_layout(P(2) ", virtual_pipeline_model_parallel_size: 2}", 2,
                 "2 is not for schedule 1f1b; allowed is 1");
    check_layout(P(2) ", virtual_group_size: 2}", 2,
                 "is for schedule interleaved only; it is 1f1b");
    check_layout(P(2) ", schedule: interleaved, virtual_pipeline_model_"
                      "parallel_size: 2}\ntrain: {global_batch_size: 7}",
                 2, "schedule: interleaved is not possible with 7");
    check_layout("parallel: {schedule: zb_h1}", 2,
                 "parallel.schedule: zb_h1 needs a pipeline");
    check_layout(P(2) "}\ntrain: {elastic: true}", 2,
                 "train.elastic: true does not go with a pipeline");
    check_layout("model: {tie_embeddings: true}\n" P(2) "}\ntrain: "
                                                        "{deterministic: true}",
                 2, "deterministic: true does not hold for model.tie_emb");
    check_layout(P(2) "}\ntrain: {deterministic: true}", 4, NULL);
    check_layout(P(2) "}\ncheckpoint: {inside: 2}", 2, NULL);
    check_layout("checkpoint: {inside: 2}", 2, NULL);
    check_layout("checkpoint: {inside: 2}\ntrain: {elastic: true}", 2,
                 "checkpoint.inside: 2 does not go with train.elastic");
    check_layout(P(2) "}\ntrain: {device: shadow}\n"
                      "checkpoint: {every: 5, async: false}",
                 2, "allowed is true, or checkpoint.every: 0");
    check_layout(P(2) "}\ncheckpoint: {inside: 2, async: false}", 2,
                 "allowed is 0, or checkpoint.async: true");
    check_layout(P(2) ", schedule: dualpipe}\ntrain: {deterministic: true, "
                      "global_batch_size: 24}",
                 2, "deterministic: true does not hold where 2 directions");
}

static void test_config_schedule_auto_needs_1f1b_to_fit(void **state)
{
    (void)state;
    check_layout(P(2) ", schedule: auto}", 2, NULL);
    check_layout("parallel: {schedule: auto}", 2,
                 "parallel.schedule: auto needs a pipeline");
    check_layout("model: {layers: 1}\n" P(2) ", schedule: auto}", 2,
                 "model.layers: 1 is too few for 2 stages");
    /* What is fixed stays so, for interleaved, where that is possible. */
    check_layout(P(2) ", schedule: auto, "
                      "virtual_pipeline_model_parallel_size: 2}",
                 2, NULL);
    check_layout(
        P(2) ", schedule: auto, "
             "virtual_pipeline_model_parallel_size: 2, compare: [zbv]}",
        2, NULL);
    check_layout(P(2) ", schedule: auto, virtual_group_size: 4}", 2, NULL);
    check_layout(P(2) ", schedule: auto, "
                      "virtual_pipeline_model_parallel_size: 3}",
                 2,
                 "virtual_pipeline_model_parallel_size: 3 leaves schedule auto "
                 "no interleaved to choose");
    check_layout(P(2) ", schedule: auto, virtual_group_size: 1}", 2,
                 "virtual_group_size: 1 leaves schedule auto no interleaved");
}

static void check_compare_refused(const char *list, const char *expected,
                                  const char *input)
{
    char text[256];
    wefti_config config;
    snprintf(text, sizeof(text), HEAD P(2) ", compare: %s}", list);
    expect_refusal(read_text(&config, text, NULL), WEFT_ERR_INVALID, expected,
                   input);
}

static void test_config_compare_takes_each_schedule_once(void **state)
{
    (void)state;
    wefti_config config;
    assert_int_equal(
        read_text(&config, HEAD P(2) ", compare: [zbv, 1f1b]}", NULL), WEFT_OK);
    assert_int_equal(config.parallel.compare.count, 2);
    assert_string_equal(config.parallel.compare.items[0], "zbv");
    assert_string_equal(config.parallel.compare.items[1], "1f1b");
    wefti_config_fini(&config);
    assert_int_equal(read_text(&config, HEAD P(2) ", compare: [zbv, 1f1b]}",
                               "parallel.compare=all"),
                     WEFT_OK);
    assert_int_equal(config.parallel.compare.count, 1);
    assert_string_equal(config.parallel.compare.items[0], "all");
    wefti_config_fini(&config);
    check_compare_refused("[zbv, zbv]",
                          "parallel.compare: zbv is wrong; "
                          "allowed is a list of gpipe, 1f1b",
                          "zbv, zbv");
    check_compare_refused(
        "[zbv, zbv]", "all or none, each once, all and none alone", "zbv, zbv");
    check_compare_refused("[zbv, all]", "parallel.compare: all is wrong",
                          "all");
    check_compare_refused("[none, zbv]", "parallel.compare: zbv is wrong",
                          "none, zbv");
    check_compare_refused("[auto]", "parallel.compare: auto is wrong", "auto");
    check_compare_refused("[]", "parallel.compare: an empty list", "[]");
}

static void test_config_compare_refuses_what_does_not_suit(void **state)
{
    (void)state;
    check_layout("parallel: {compare: [zbv]}", 2,
                 "parallel.compare: zbv needs a pipeline");
    check_layout("parallel: {compare: none}", 2, NULL);
    check_layout(P(2) ", compare: [zbv, dualpipev, interleaved]}", 2, NULL);
    check_layout(P(2) ", compare: all, virtual_pipeline_model_parallel_size: "
                      "2}",
                 2, NULL);
    check_layout(P(2) ", compare: [interleaved], virtual_group_size: 4}", 2,
                 NULL);
    check_layout(P(2) ", compare: [zbv], virtual_group_size: 4}", 2,
                 "is for schedule interleaved only");
    check_layout("model: {layers: 2}\n" P(2) ", compare: [gpipe, zbv]}", 2,
                 "parallel.compare: gpipe, zbv has zbv, which does not suit");
    check_layout("model: {layers: 2}\n" P(2) ", compare: [interleaved]}", 2,
                 "has interleaved, which does not suit");
}

static void test_config_schedule_of_a_file_is_joined(void **state)
{
    (void)state;
    wefti_config config;
    assert_int_equal(
        read_text(&config, HEAD P(2) ", schedule: mine.csv}", NULL), WEFT_OK);
    assert_string_equal(config.parallel.schedule, "FILE.csv");
    assert_string_equal(config.parallel.schedule_file, "dir/mine.csv");
    expect_refusal(wefti_config_check(&config, 2), WEFT_ERR_SYSTEM,
                   "parallel.schedule: dir/mine.csv: No such file", "mine.csv");
    wefti_config_fini(&config);
    assert_int_equal(read_text(&config, HEAD, "parallel.schedule=/a/b.csv"),
                     WEFT_OK);
    assert_string_equal(config.parallel.schedule_file, "/a/b.csv");
    wefti_config_fini(&config);
}

/* Ranks that share sequences: lengths, heads, and what goes with what. */
static void test_config_context_divides_tokens_and_heads(void **state)
{
#define CONTEXT(size, rest)                                                    \
    "model: {seq_length: 120}\n"                                               \
    "parallel: {context_parallel_size: " #size ", context_parallel: " rest "}"
    (void)state;
    check_layout(CONTEXT(2, "ring"), 2, NULL);
    check_layout(CONTEXT(4, "ring, context_layout: zigzag"), 4, NULL);
    check_layout(CONTEXT(8, "ring+ulysses, ulysses_size: 2, "
                            "context_layout: zigzag"),
                 8, NULL);
    check_layout(CONTEXT(8, "ulysses, ulysses_size: 8"), 8, NULL);
    check_layout(CONTEXT(7, "ring"), 7,
                 "model.seq_length: 120 is not divisible by "
                 "context_parallel_size 7; nearest that work: 119 or 126");
    check_layout(CONTEXT(8, "ring, context_layout: zigzag"), 8,
                 "by 2 * context_parallel_size 8 of a zigzag; nearest that "
                 "work: 112 or 128");
    check_layout(CONTEXT(3, "ulysses"), 3,
                 "parallel.context_parallel_size: 3 does not deal out "
                 "model.heads 8 and kv_heads 4 evenly; nearest that work: 2 "
                 "or 4, or context_parallel: ring");
    check_layout(CONTEXT(6, "ring+ulysses, ulysses_size: 4"), 6,
                 "parallel.ulysses_size: 4 does not divide "
                 "context_parallel_size 6; nearest that work: 3 or 6");
    check_layout(CONTEXT(4, "ring, ulysses_size: 2"), 4,
                 "does not go with context_parallel: ring, where no ranks");
    check_layout(CONTEXT(2, "ulysses, context_layout: zigzag"), 2,
                 "parallel.context_layout: zigzag is of a ring");
    check_layout(CONTEXT(1, "ulysses"), 2,
                 "parallel.context_parallel: ulysses needs ranks that share "
                 "each sequence");
    check_layout(CONTEXT(1, "ring, context_layout: stripe"), 2,
                 "parallel.context_layout: stripe needs ranks that share");
    check_layout(CONTEXT(1, "ring, ulysses_size: 2"), 2,
                 "parallel.ulysses_size: 2 needs ranks that share");
    check_layout("model: {shared_experts: 1}", 1,
                 "model.shared_experts: 1 needs experts");
    check_layout("moe: {balance_every: 1}", 1,
                 "moe.balance_every: 1 needs experts");
    check_layout("model: {experts: 4}\nmoe: {room: 2}", 2,
                 "moe.room: 2 is of rows from other ranks");
    check_layout(CONTEXT(2, "ring}\ntrain: {deterministic: true"), 2,
                 "train.deterministic: true does not hold where ranks share "
                 "sequences");
    check_layout(CONTEXT(2, "ring}\ntrain: {elastic: true"), 2, NULL);
    check_layout(CONTEXT(2, "ring"), 3,
                 "parallel.context_parallel_size: 2 does not divide 3 ranks, "
                 "pipelines of 1; nearest that work: 1, or 2 or 4 ranks");
    check_layout(CONTEXT(4, "ring"), 2,
                 "parallel.context_parallel_size: 4 does not divide 2 ranks, "
                 "pipelines of 1; nearest that work: 2, or 4 ranks");
    check_layout(CONTEXT(4, "ulysses, tensor_model_parallel_size: 2"), 8, NULL);
    check_layout(CONTEXT(8, "ulysses, tensor_model_parallel_size: 2"), 16,
                 "model.heads 8 and kv_heads 4 of 2 ranks of a layer evenly; "
                 "nearest that work: 4, or");
    check_layout(CONTEXT(2, "ring, tensor_model_parallel_size: 2"), 6,
                 "parallel.context_parallel_size: 2 does not divide 6 ranks, "
                 "pipelines of 2; nearest that work: 1, or 4 or 8 ranks");
    check_layout(CONTEXT(8, "ring, tensor_model_parallel_size: 2, "
                            "sequence_parallel: true"),
                 16,
                 "shares 15 tokens of a micro-batch "
                 "(train.micro_batch_size * model.seq_length / "
                 "parallel.context_parallel_size) over 2 ranks; nearest "
                 "that work: 14 or 16 tokens");
#undef CONTEXT
}

static void test_config_memory_of_the_host_is_no_other(void **state)
{
    (void)state;
    check_layout("memory: {offload: optimizer}", 1,
                 "memory.offload: optimizer moves nothing with train.device: "
                 "host, which computes in the host's memory");
    check_layout("memory: {offload: optimizer}\ntrain: {device: shadow}", 1,
                 NULL);
    check_layout("memory: {ema_export: true}", 1,
                 "memory.ema_export: true has no average to write");
}

static void test_config_parts_only_a_gpu(void **state)
{
    (void)state;
    check_layout("overlap: {comm_sms: 8}", 1,
                 "overlap.comm_sms: 8 is a part of a GPU, and train.device: "
                 "host has no multiprocessors; allowed is 0");
    check_layout("overlap: {comm_sms: 8}\ntrain: {device: shadow}", 1,
                 "train.device: shadow has no multiprocessors");
    check_layout("overlap: {comm_sms: 8}\ntrain: {device: cuda}", 1, NULL);
}

static void test_config_documents_end_with_a_token(void **state)
{
    (void)state;
    wefti_config config;
    assert_int_equal(read_text(&config, HEAD, "data.document_end=256"),
                     WEFT_OK);
    expect_refusal(wefti_config_check(&config, 1), WEFT_ERR_INVALID,
                   "data.document_end: 256 is no token of model.vocab 256; "
                   "allowed is -1 to 255",
                   "data.document_end=256");
    wefti_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_pipeline_names_what_fails),
        cmocka_unit_test(test_config_schedule_auto_needs_1f1b_to_fit),
        cmocka_unit_test(test_config_compare_takes_each_schedule_once),
        cmocka_unit_test(test_config_compare_refuses_what_does_not_suit),
        cmocka_unit_test(test_config_schedule_of_a_file_is_joined),
        cmocka_unit_test(test_config_context_divides_tokens_and_heads),
        cmocka_unit_test(test_config_memory_of_the_host_is_no_other),
        cmocka_unit_test(test_config_parts_only_a_gpu),
        cmocka_unit_test(test_config_documents_end_with_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
