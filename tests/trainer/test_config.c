/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the config says what the file says and nothing else; whatever does not
 * fit is refused with file:line:column, the key and what is allowed; what this
 * version cannot do is never accepted silently.
 * Method: a table of texts with the refusal expected of each, then the same
 * through --set; every row of the key table is tried at and beyond its limits.
 */
#include "base/check.h"
#include "scratch.h"
#include "tests/trainer/configs.h"

static void test_config_minimal_text_gives_defaults(void **state)
{
    (void)state;
    wefti_config config;
    assert_int_equal(read_text(&config, HEAD, NULL), WEFT_OK);
    assert_string_equal(config.path, "dir/c.yaml");
    assert_string_equal(config.folder, "dir");
    assert_int_equal(config.data.path_count, 1);
    assert_string_equal(config.data.paths[0], "dir/t");
    assert_string_equal(config.checkpoint.dir, "dir/ckpt");
    assert_true(config.checkpoint.async);
    assert_int_equal(config.model.layers, 4);
    assert_int_equal(config.model.vocab, 256);
    assert_true(config.train.lr == 3e-3);
    assert_true(config.model.rope_theta == 10000);
    assert_true(config.overlap.grad_reduce);
    assert_false(config.train.deterministic);
    assert_string_equal(config.parallel.schedule, "1f1b");
    assert_int_equal(config.train.validate_every, 50);
    wefti_config_fini(&config);
    wefti_config_fini(&config); /* of an empty one: legal */
}

static void test_config_all_of_the_contract_is_read(void **state)
{
    (void)state;
    static const char text[] =
        "# a comment\n"
        "model:    {layers: 2, hidden_size: 64, heads: 4, kv_heads: 2,\n"
        "           ffn_size: 100, vocab: 300, seq_length: 32, experts: 0,\n"
        "           experts_per_token: 2, shared_experts: 0,\n"
        "           rope_theta: 5e4, dtype: fp32, tie_embeddings: true}\n"
        "data:\n"
        "  paths:\n"
        "    - /abs/folder\n"
        "    - 'a file: with #'\n"
        "    - \"tab\\tfile\"\n"
        "  validation_fraction: .25\n"
        "  seed: 7\n"
        "parallel: {tensor_model_parallel_size: 1, sequence_parallel: false,\n"
        "           pipeline_model_parallel_size: 1,\n"
        "           virtual_pipeline_model_parallel_size: 1,\n"
        "           context_parallel_size: 1, context_parallel: ring,\n"
        "           expert_model_parallel_size: 1, schedule: 1f1b}\n"
        "train:    {steps: 9, micro_batch_size: 2, global_batch_size: 8,\n"
        "           lr: 1.5E-3, warmup_steps: 3, weight_decay: 0, clip: 2.,\n"
        "           lr_decay_style: linear, min_lr_ratio: 0.5,\n"
        "           adam_beta1: 0.8, adam_beta2: 0.95, adam_eps: 1e-6,\n"
        "           seed: 9007199254740992, deterministic: true,\n"
        "           elastic: false, validate_every: 3}\n"
        "overlap:  {grad_reduce: false, param_gather: false, tensor: true,\n"
        "           pipeline: true, expert: true, bucket_mb: 0.5,\n"
        "           comm_sms: 0}\n"
        "memory:   {recompute: none, ema: none, release_activations: true,\n"
        "           zero: 1, offload: none}\n"
        "checkpoint: {dir: \"c\", every: 0, keep: 3, async: false}\n"
        "moe: {node_limit: 0, dispatch: bf16, balance_every: 0}\n";
    wefti_config config;
    weft_status status = read_text(&config, text, NULL);
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
    assert_int_equal(config.model.vocab, 300);
    assert_true(config.model.rope_theta == 5e4);
    assert_true(config.model.tie_embeddings);
    assert_int_equal(config.data.path_count, 3);
    assert_string_equal(config.data.paths[0], "/abs/folder");
    assert_string_equal(config.data.paths[1], "dir/a file: with #");
    assert_string_equal(config.data.paths[2], "dir/tab\tfile");
    assert_true(config.data.validation_fraction == 0.25);
    assert_true(config.train.lr == 1.5e-3 && config.train.clip == 2);
    assert_true(config.train.seed == INT64_C(9007199254740992));
    assert_true(config.train.deterministic && !config.overlap.grad_reduce);
    assert_true(config.overlap.bucket_mb == 0.5);
    assert_string_equal(config.train.lr_decay_style, "linear");
    assert_true(config.train.min_lr_ratio == 0.5);
    assert_true(config.train.adam_beta1 == 0.8);
    assert_true(config.train.adam_beta2 == 0.95);
    assert_true(config.train.adam_eps == 1e-6);
    assert_string_equal(config.checkpoint.dir, "dir/c");
    assert_false(config.checkpoint.async);
    wefti_config_fini(&config);
}

/* Of each text: status, and what the refusal must say. */
static const struct refusal {
    const char *text;
    weft_status status;
    const char *part;
} refusals[] = {
    /* wrong types */
    {HEAD "model: {layers: 4x}", WEFT_ERR_INVALID,
     "dir/c.yaml:2:17: model.layers: 4x is wrong; allowed is a whole number "
     "1..1024"},
    {HEAD "model:\n  layers: 3.5\n", WEFT_ERR_INVALID, "c.yaml:3:11: "},
    {HEAD "model: {layers: 0x4}", WEFT_ERR_INVALID, "0x4 is wrong"},
    {HEAD "model: {layers: 1_0}", WEFT_ERR_INVALID, "1_0 is wrong"},
    {HEAD "model: {layers: \"4\"}", WEFT_ERR_INVALID, "(a quoted text)"},
    {HEAD "model: {layers: 1e2}", WEFT_ERR_INVALID, "1e2 is wrong"},
    {HEAD "model: {layers: [4]}", WEFT_ERR_INVALID,
     "2:17: model.layers: a list; allowed"},
    {HEAD "model: {layers: {a: 4}}", WEFT_ERR_INVALID, "a mapping; allowed"},
    {HEAD "train: {lr: nan}", WEFT_ERR_INVALID, "train.lr: nan is wrong"},
    {HEAD "train: {lr: .nan}", WEFT_ERR_INVALID, ".nan is wrong"},
    {HEAD "train: {lr: inf}", WEFT_ERR_INVALID, "inf is wrong"},
    {HEAD "train: {lr: -.inf}", WEFT_ERR_INVALID, "-.inf is wrong"},
    {HEAD "train: {lr: 1e999}", WEFT_ERR_INVALID, "1e999 is out of range"},
    {HEAD "train: {lr: 1e}", WEFT_ERR_INVALID, "1e is wrong"},
    {HEAD "train: {lr: 0x1p3}", WEFT_ERR_INVALID, "is wrong"},
    {HEAD "train: {lr: .}", WEFT_ERR_INVALID, ". is wrong"},
    {HEAD "train: {lr: 1e5 }", WEFT_ERR_INVALID, "allowed is a number 0..100"},
    {HEAD "train: {deterministic: banana}", WEFT_ERR_INVALID,
     "banana is wrong; allowed is true or false"},
    {HEAD "train: {deterministic: yes}", WEFT_ERR_INVALID, "yes is wrong"},
    {HEAD "train: {deterministic: True}", WEFT_ERR_INVALID, "True is wrong"},
    {HEAD "train: {deterministic: 1}", WEFT_ERR_INVALID, "1 is wrong"},
    {HEAD "train: {deterministic: 'true'}", WEFT_ERR_INVALID, "quoted"},
    {HEAD "model: {dtype: fp16}", WEFT_ERR_INVALID,
     "fp16 is wrong; allowed is fp32 or bf16"},
    {HEAD "memory: {offload: all}", WEFT_ERR_INVALID,
     "all is wrong; allowed is none or optimizer"},
    {HEAD "model: {vocab: words}", WEFT_ERR_INVALID,
     "allowed is bytes, or a whole number 2..1048576"},
    /* empty values */
    {HEAD "model: {layers: }", WEFT_ERR_INVALID, "is an empty value"},
    {HEAD "model: {layers: ~}", WEFT_ERR_INVALID, "~ is an empty value"},
    {HEAD "model: {layers: ''}", WEFT_ERR_INVALID, "empty value"},
    {HEAD "checkpoint: {dir: null}", WEFT_ERR_INVALID, "empty value"},
    {HEAD "checkpoint: {dir: \"\"}", WEFT_ERR_INVALID, "empty value"},
    {HEAD "model:\n", WEFT_ERR_INVALID, "section model: no keys"},
    {"data: {paths: []}", WEFT_ERR_INVALID, "data.paths: an empty list"},
    {"data: {paths: [a, [b]]}", WEFT_ERR_INVALID, "inside the list"},
    {"data: {paths: [a, '']}", WEFT_ERR_INVALID, "1:19: data.paths: is an e"},
    {"data: {paths: {a: b}}", WEFT_ERR_INVALID, "a mapping; allowed is a list"},
    {"", WEFT_ERR_INVALID, "c.yaml:1:1: the file says nothing"},
    {"# nothing\n", WEFT_ERR_INVALID, "the file says nothing"},
    {"---\n", WEFT_ERR_INVALID, "no sections"},
    {"- a\n", WEFT_ERR_INVALID, "no sections"},
    /* out of range */
    {HEAD "model: {layers: 0}", WEFT_ERR_INVALID, "0 is out of range"},
    {HEAD "model: {layers: -1}", WEFT_ERR_INVALID, "-1 is out of range"},
    {HEAD "model: {layers: 99999999999999999999}", WEFT_ERR_INVALID,
     "is out of range"},
    {HEAD "model: {vocab: 1}", WEFT_ERR_INVALID, "1 is out of range"},
    {HEAD "train: {lr: -1e-9}", WEFT_ERR_INVALID, "is out of range"},
    /* unknown and given twice */
    {HEAD "model: {layer: 4}", WEFT_ERR_INVALID,
     "2:9: model.layer: unknown key: did you mean model.layers?"},
    {HEAD "model: {lr: 4}", WEFT_ERR_INVALID, "did you mean train.lr?"},
    {HEAD "model: {qqqqqqq: 4}", WEFT_ERR_INVALID,
     "qqqqqqq: unknown key; allowed is layers, hidden_size, "},
    {HEAD "train: {steps: 010}", WEFT_ERR_INVALID, "train.steps: 010 is wrong"},
    {HEAD "train: {steps: +3}", WEFT_ERR_INVALID, "train.steps: +3 is wrong"},
    {HEAD "modle: {layers: 4}", WEFT_ERR_INVALID,
     "2:1: modle: unknown section: did you mean model?"},
    {HEAD "<<: {layers: 4}", WEFT_ERR_INVALID,
     "unknown section; allowed is model, data, parallel, train, "},
    {HEAD "? [a]\n: b\n", WEFT_ERR_INVALID, "must be a plain word"},
    {HEAD "model: {? {a: b} : c}", WEFT_ERR_INVALID, "must be a plain word"},
    {HEAD "model: {layers: 4,\n layers: 5}", WEFT_ERR_INVALID,
     "3:2: model.layers: given twice (first at line 2)"},
    {HEAD "model: {layers: 4}\nmodel: {heads: 2}", WEFT_ERR_INVALID,
     "3:1: model: section given twice"},
    {"model: {layers: 4}", WEFT_ERR_INVALID,
     "1:1: data.paths: is not given; allowed is a list of paths"},
    /* what no config needs */
    {HEAD "model: &a {layers: 4}", WEFT_ERR_INVALID, "2:8: &a: anchors"},
    {HEAD "model: {layers: &a 4}", WEFT_ERR_INVALID, "anchors"},
    {"data: {paths: &p [t]}", WEFT_ERR_INVALID, "anchors"},
    {HEAD "model: {layers: *a}", WEFT_ERR_INVALID, "*a: aliases"},
    {HEAD "model: {layers: !!int 4}", WEFT_ERR_INVALID, "tags"},
    {HEAD "model: !x {layers: 4}", WEFT_ERR_INVALID, "!x: tags"},
    {"data: {paths: !!seq [t]}", WEFT_ERR_INVALID, "tags"},
    {HEAD "---\nmodel: {layers: 4}", WEFT_ERR_INVALID,
     "2:1: a second document is not allowed"},
    {HEAD "checkpoint: {dir: \"a\\0b\"}", WEFT_ERR_INVALID, "NUL"},
    {HEAD "model: {\"layers\\0x\": 4}", WEFT_ERR_INVALID, "plain word"},
    {HEAD "model: {layers: 4", WEFT_ERR_INVALID, "not YAML: "},
    {HEAD "model: {layers: 4]", WEFT_ERR_INVALID, "c.yaml:2:18: not YAML"},
    {HEAD "\tmodel: {}", WEFT_ERR_INVALID, "not YAML"},
    {HEAD "model: \xFF", WEFT_ERR_INVALID, "not YAML"},
    {HEAD "model: {layers: \x01}", WEFT_ERR_INVALID, "not YAML"},
    /* right, but not yet */
    {HEAD "overlap: {comm_sms: -1}", WEFT_ERR_INVALID, "0..1024"},
    {HEAD "parallel: {schedule: .csv}", WEFT_ERR_INVALID, "FILE.csv"},
    {HEAD "moe: {node_limit: -1}", WEFT_ERR_INVALID, "0..4096"},
    {HEAD "memory: {recompute: half}", WEFT_ERR_INVALID, "selective"},
    {HEAD "memory: {ema_decay: 2}", WEFT_ERR_INVALID, "0..1"},
    {HEAD "memory: {zero: 0}", WEFT_ERR_UNSUPPORTED, "allowed is 1"},
    {HEAD "moe: {dispatch: fp16}", WEFT_ERR_INVALID, "bf16 or fp8"},
};

static void test_config_bad_text_is_refused_with_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(refusals); i++) {
        wefti_config config;
        weft_status status = read_text(&config, refusals[i].text, NULL);
        expect_refusal(status, refusals[i].status, refusals[i].part,
                       refusals[i].text);
        assert_null(config.path); /* left empty */
    }
}

static const struct refusal setting_refusals[] = {
    {"train.steps=4x", WEFT_ERR_INVALID,
     "--set train.steps=4x: train.steps: 4x is wrong"},
    {"train.steps=", WEFT_ERR_INVALID, "empty value"},
    {"train.steps=''", WEFT_ERR_INVALID, "empty value"},
    {"train.steps", WEFT_ERR_INVALID, "allowed is section.key=value"},
    {"steps=4", WEFT_ERR_INVALID, "allowed is section.key=value"},
    {"=4.0", WEFT_ERR_INVALID, "allowed is section.key=value"},
    {"train.step=4", WEFT_ERR_INVALID, "did you mean train.steps?"},
    {"trian.steps=4", WEFT_ERR_INVALID, "did you mean train?"},
    {"train.steps=4\n---\n5", WEFT_ERR_INVALID, "second document"},
    {"train.steps=[4]", WEFT_ERR_INVALID, "a list"},
    {"data.paths=[]", WEFT_ERR_INVALID, "an empty list"},
    {"data.paths=[a", WEFT_ERR_INVALID, "not YAML"},
    {"memory.zero=0", WEFT_ERR_UNSUPPORTED, "allowed is 1"},
    {"tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt.k=4",
     WEFT_ERR_INVALID, "unknown section"},
};

static void test_config_bad_setting_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(setting_refusals); i++) {
        wefti_config config;
        const struct refusal *one = &setting_refusals[i];
        weft_status status = read_text(&config, HEAD, one->text);
        expect_refusal(status, one->status, one->part, one->text);
    }
}

static void test_config_setting_wins_over_the_file(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "train.steps=7", "train.steps=8", "data.paths=[/x, y]", "train.lr=1e-4",
        "checkpoint.dir=/tmp/a=b"};
    wefti_config config;
    static const char text[] = HEAD "train: {steps: 3, lr: 1}";
    assert_int_equal(wefti_config_init_text(&config, "c.yaml", text,
                                            sizeof(text) - 1, settings,
                                            WEFTI_COUNT_OF(settings)),
                     WEFT_OK);
    assert_int_equal(config.train.steps, 8);
    assert_true(config.train.lr == 1e-4);
    assert_int_equal(config.data.path_count, 2);
    assert_string_equal(config.data.paths[1], "y");
    assert_string_equal(config.checkpoint.dir, "/tmp/a=b");
    wefti_config_fini(&config);
    assert_int_equal(read_text(&config, HEAD, "data.paths=one"), WEFT_OK);
    assert_int_equal(config.data.path_count, 1);
    assert_string_equal(config.data.paths[0], "dir/one");
    wefti_config_fini(&config);
}

/* Tries section.name: value, and expects a verdict. */
static void try_number(const wefti_config_key *key, double value, bool good)
{
    wefti_config config;
    char setting[160];
    snprintf(setting, sizeof(setting), "%s.%s=%.17g", key->section, key->name,
             value);
    weft_status status = read_text(&config, HEAD, setting);
    bool only = key->now != NULL && strtod(key->now, NULL) != value;
    weft_status expected = !good  ? WEFT_ERR_INVALID
                           : only ? WEFT_ERR_UNSUPPORTED
                                  : WEFT_OK;
    if (status != expected) {
        fail_msg("%s gave %d, expected %d", setting, status, expected);
    }
    if (status == WEFT_OK) {
        wefti_config_fini(&config);
    }
}

static void test_config_each_number_has_its_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        bool real = key->kind == WEFTI_CONFIG_REAL;
        if (real || key->kind == WEFTI_CONFIG_INT ||
            key->kind == WEFTI_CONFIG_VOCAB) {
            double step = real ? 1e-4 * (1 + key->most) : 1;
            step = key->most > 1e15 ? 1e14 : step;
            try_number(key, key->least, true);
            if (key->most < 1e15) { /* printed in full, not as 1e+16 */
                try_number(key, key->most, true);
            }
            try_number(key, key->least - step, false);
            try_number(key, key->most + step, false);
        }
    }
}

static void test_config_words_are_taken_unless_beyond_this_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        for (size_t w = 0; key->words != NULL && key->words[w] != NULL; w++) {
            wefti_config config;
            char setting[160];
            snprintf(setting, sizeof(setting), "%s.%s=%s", key->section,
                     key->name, key->words[w]);
            bool now = key->now == NULL || strcmp(key->now, key->words[w]) == 0;
            assert_int_equal(read_text(&config, HEAD, setting),
                             now ? WEFT_OK : WEFT_ERR_UNSUPPORTED);
            if (now) {
                wefti_config_fini(&config);
            }
        }
    }
}

static void test_config_layout_names_nearest_that_work(void **state)
{
    (void)state;
    check_layout("", 1, NULL);
    check_layout("", 4, NULL);
    check_layout("train: {global_batch_size: 24}", 3, NULL);
    check_layout("train: {global_batch_size: 32}", 3,
                 "dir/c.yaml:2:28: train.global_batch_size: 32 is not "
                 "divisible by 3 ranks * micro_batch_size 1 = 3; nearest that "
                 "work: 30 or 33, or 2 ranks");
    check_layout("train: {global_batch_size: 2, micro_batch_size: 4}", 1,
                 "= 4; nearest that work: 4");
    check_layout("", 64, "dir/c.yaml (default): train.global_batch_size: 32 ");
    check_layout("train: {deterministic: true, global_batch_size: 48}", 1,
                 NULL);
    check_layout("train: {deterministic: true, global_batch_size: 48}", 3,
                 NULL);
    check_layout("train: {deterministic: true, global_batch_size: 48}", 4,
                 "dir/c.yaml:2:24: train.deterministic: true does not hold "
                 "where 4 ranks share 48 micro-batches: each must have a power "
                 "of two of them; nearest that work: global_batch_size 32 or "
                 "64, or 3 ranks");
    check_layout("train: {deterministic: true, elastic: true}", 5,
                 "or 4 ranks");
    check_layout("model: {hidden_size: 250}", 1,
                 "2:22: model.hidden_size: 250 does not give 8 heads of one "
                 "even size (it must be divisible by 16); nearest that work: "
                 "hidden_size 240 or 256, or heads 5 or 25");
    check_layout("model: {hidden_size: 24, heads: 8}", 1, "16 or 32, or heads");
    check_layout("model: {hidden_size: 3, heads: 1, kv_heads: 1}", 1,
                 "2 or 4, or heads none");
    check_layout("model: {kv_heads: 3}", 1,
                 "does not divide model.heads 8; nearest that work: 2 or 4");
    check_layout("model: {kv_heads: 16}", 1, "nearest that work: 8");
    wefti_config config;
    assert_int_equal(read_text(&config, HEAD, "train.global_batch_size=5"),
                     WEFT_OK);
    expect_refusal(wefti_config_check(&config, 2), WEFT_ERR_INVALID,
                   "--set train.global_batch_size=5: train.global_batch_size: "
                   "5 is not",
                   "--set");
    wefti_config_fini(&config);
}

/* Wherever it is said; --set makes a short try of any file. */
static void test_config_warmup_beyond_the_run_is_refused(void **state)
{
    (void)state;
    wefti_config config;
    check_layout("train: {steps: 10, warmup_steps: 11}", 1,
                 "2:34: train.warmup_steps: 11 is longer than the run of 10 "
                 "steps (train.steps); allowed is up to that");
    static const char *const good[] = {
        HEAD "train: {steps: 10, warmup_steps: 10}", HEAD "train: {steps: 10}",
        HEAD "train: {steps: 0, warmup_steps: 11}"};
    for (size_t i = 0; i < WEFTI_COUNT_OF(good); i++) {
        assert_int_equal(read_text(&config, good[i], NULL), WEFT_OK);
        assert_int_equal(wefti_config_check(&config, 1), WEFT_OK);
        wefti_config_fini(&config);
    }
    assert_int_equal(read_text(&config,
                               HEAD "train: {steps: 90, warmup_steps: 60}",
                               "train.steps=10"),
                     WEFT_OK);
    assert_int_equal(wefti_config_check(&config, 1), WEFT_OK);
    wefti_config_fini(&config);

    static const char *const files[] = {HEAD "train: {steps: 10}", HEAD};
    for (size_t i = 0; i < WEFTI_COUNT_OF(files); i++) {
        assert_int_equal(read_text(&config, files[i], "train.warmup_steps=201"),
                         WEFT_OK);
        expect_refusal(wefti_config_check(&config, 1), WEFT_ERR_INVALID,
                       "--set train.warmup_steps=201: train.warmup_steps: 201 "
                       "is longer than the run of ",
                       files[i]);
        wefti_config_fini(&config);
    }
    check_layout("train: {warmup_steps: 201}", 1, "longer than the run of 200");
}

static void test_config_digest_changes_with_lasting_keys_only(void **state)
{
    (void)state;
    wefti_config config;
    uint8_t first[WEFTI_CONFIG_DIGEST_BYTES];
    uint8_t other[WEFTI_CONFIG_DIGEST_BYTES];
    static const struct {
        const char *setting;
        bool same;
    } changes[] = {
        {"train.steps=0", true},        {"train.lr=1", true},
        {"checkpoint.dir=x", true},     {"data.paths=[q]", true},
        {"model.layers=4", true},       {"model.layers=5", false},
        {"model.rope_theta=1", false},  {"data.seed=2", false},
        {"data.document_end=-1", true}, {"data.document_end=9", false},
        {"model.vocab=256", true},      {"model.vocab=257", false}};
    assert_int_equal(read_text(&config, HEAD, NULL), WEFT_OK);
    wefti_config_digest(&config, first);
    wefti_config_fini(&config);
    for (size_t i = 0; i < WEFTI_COUNT_OF(changes); i++) {
        assert_int_equal(read_text(&config, HEAD, changes[i].setting), WEFT_OK);
        wefti_config_digest(&config, other);
        wefti_config_fini(&config);
        assert_int_equal(memcmp(first, other, sizeof(first)) == 0,
                         changes[i].same);
    }
}

static void test_config_file_is_read_and_bounded(void **state)
{
    (void)state;
    scratch own;
    wefti_config config;
    scratch_open(&own);
    scratch_text(&own, "c.yaml", HEAD);
    assert_int_equal(
        wefti_config_init(&config, scratch_path(&own, "c.yaml"), NULL, 0),
        WEFT_OK);
    assert_string_equal(config.folder, own.dir);
    wefti_config_fini(&config);

    expect_refusal(
        wefti_config_init(&config, scratch_path(&own, "none.yaml"), NULL, 0),
        WEFT_ERR_SYSTEM, "none.yaml: No such file", "missing");
    expect_refusal(wefti_config_init(&config, own.dir, NULL, 0),
                   WEFT_ERR_INVALID, "is a folder: allowed is a regular file",
                   "folder");
    /* Nothing to wait for: a FIFO without a writer, a device without an end. */
    assert_int_equal(mkfifo(scratch_path(&own, "fifo"), 0600), 0);
    expect_refusal(
        wefti_config_init(&config, scratch_path(&own, "fifo"), NULL, 0),
        WEFT_ERR_INVALID, "fifo: is a pipe: allowed is a regular file", "FIFO");
    expect_refusal(
        wefti_config_init(&config, "/dev/zero", NULL, 0), WEFT_ERR_INVALID,
        "/dev/zero: is a device: allowed is a regular file", "device");

    size_t bytes = WEFTI_CONFIG_FILE_BYTES_MOST;
    char *big = malloc(bytes + 1);
    assert_non_null(big);
    memset(big, '#', bytes + 1);
    memcpy(big, HEAD, sizeof(HEAD) - 1);
    scratch_write(&own, "big.yaml", big, bytes);
    assert_int_equal(
        wefti_config_init(&config, scratch_path(&own, "big.yaml"), NULL, 0),
        WEFT_OK);
    wefti_config_fini(&config);
    scratch_write(&own, "big.yaml", big, bytes + 1);
    expect_refusal(
        wefti_config_init(&config, scratch_path(&own, "big.yaml"), NULL, 0),
        WEFT_ERR_INVALID, "big.yaml: larger than the 1048576 bytes allowed",
        "too big");
    /* Nothing but nesting: refused at once, not after a megabyte of it. */
    memset(big, '[', bytes);
    expect_refusal(
        wefti_config_init_text(&config, "c.yaml", big, bytes, NULL, 0),
        WEFT_ERR_INVALID, "1:1: no sections", "deep");
    free(big);
    scratch_close(&own);
}

static const char *example_path;

static void test_config_example_is_possible_on_some_ranks(void **state)
{
    (void)state;
    wefti_config config;
    if (wefti_config_init(&config, example_path, NULL, 0) != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
    for (int nranks = 1; nranks <= 4; nranks *= 2) {
        assert_int_equal(wefti_config_check(&config, nranks), WEFT_OK);
    }
    wefti_config_fini(&config);
}

/* Usage: test_config EXAMPLE.yaml */
int main(int argc, char **argv)
{
    if (argc != 2) {
        return 2;
    }
    example_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_minimal_text_gives_defaults),
        cmocka_unit_test(test_config_all_of_the_contract_is_read),
        cmocka_unit_test(test_config_bad_text_is_refused_with_place),
        cmocka_unit_test(test_config_bad_setting_is_refused),
        cmocka_unit_test(test_config_setting_wins_over_the_file),
        cmocka_unit_test(test_config_each_number_has_its_limits),
        cmocka_unit_test(
            test_config_words_are_taken_unless_beyond_this_version),
        cmocka_unit_test(test_config_layout_names_nearest_that_work),
        cmocka_unit_test(test_config_warmup_beyond_the_run_is_refused),
        cmocka_unit_test(test_config_digest_changes_with_lasting_keys_only),
        cmocka_unit_test(test_config_file_is_read_and_bounded),
        cmocka_unit_test(test_config_example_is_possible_on_some_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
