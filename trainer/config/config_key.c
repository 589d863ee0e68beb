/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_key.c - every key of the config, once: type, limits,
 * default, and which value this version is bound to.
 */
#include "trainer/config/config_key.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtypes[] = {"fp32", "bf16", NULL};
static const char *const context_kinds[] = {"ring", "ulysses", "ring+ulysses",
                                            NULL};
static const char *const context_layouts[] = {"contiguous", "zigzag", "stripe",
                                              NULL};
static const char *const schedules[] = {
    "gpipe",    "1f1b",      "interleaved", "zb_h1",    "zb_h2", "zbv",
    "dualpipe", "dualpipev", "auto",        "FILE.csv", NULL};
static const char *const compared[] = {
    "gpipe",    "1f1b",      "interleaved", "zb_h1", "zb_h2", "zbv",
    "dualpipe", "dualpipev", "all",         "none",  NULL};
static const char *const recomputes[] = {"none", "norms", "selective", "full",
                                         NULL};
static const char *const emas[] = {"none", "fp32", "bf16", "fp8", NULL};
static const char *const offloads[] = {"none", "optimizer", NULL};
static const char *const dispatches[] = {"bf16", "fp8", NULL};

#define INT(section_, name_, least_, most_, fallback_)                         \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_INT,            \
    .offset = offsetof(wefti_config, section_.name_), .least = (least_),       \
    .most = (most_), .fallback = (fallback_)
#define REAL(section_, name_, least_, most_, fallback_)                        \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_REAL,           \
    .offset = offsetof(wefti_config, section_.name_), .least = (least_),       \
    .most = (most_), .fallback = (fallback_)
#define BOOL(section_, name_, fallback_)                                       \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_BOOL,           \
    .offset = offsetof(wefti_config, section_.name_), .fallback = (fallback_)
#define WORD(section_, name_, words_, fallback_)                               \
    .section = #section_, .name = #name_, .kind = WEFTI_CONFIG_WORD,           \
    .offset = offsetof(wefti_config, section_.name_), .words = (words_),       \
    .fallback = (fallback_)

/* Seeds and counters: exact in a double, and in JSON everywhere. */
#define SEED_MOST  9007199254740992.0
#define STEPS_MOST 1e9
#define RANKS_MOST 65536

/* clang-format off */
const wefti_config_key wefti_config_keys[] = {
    {INT(model, layers, 1, 1024, "4"), .lasting = true},
    {INT(model, hidden_size, 2, 65536, "256"), .lasting = true},
    {INT(model, heads, 1, 1024, "8"), .lasting = true},
    {INT(model, kv_heads, 1, 1024, "4"), .lasting = true},
    {INT(model, ffn_size, 1, 262144, "704"), .lasting = true},
    {.section = "model", .name = "vocab", .kind = WEFTI_CONFIG_VOCAB,
     .offset = offsetof(wefti_config, model.vocab),
     .least = WEFTI_VOCAB_BYTES, .most = 65536, .fallback = "bytes",
     .lasting = true},
    {INT(model, seq_length, 1, 1048576, "512"), .lasting = true},
    {INT(model, experts, 0, 4096, "0"), .now = "0", .lasting = true},
    {INT(model, experts_per_token, 1, 64, "2"), .now = "2", .lasting = true},
    {INT(model, shared_experts, 0, 64, "0"), .now = "0", .lasting = true},
    {REAL(model, rope_theta, 1, 1e12, "10000.0"), .lasting = true},
    {WORD(model, dtype, dtypes, "fp32"), .now = "fp32", .lasting = true},
    {BOOL(model, tie_embeddings, "false"), .lasting = true},

    {.section = "data", .name = "paths", .kind = WEFTI_CONFIG_PATHS,
     .offset = offsetof(wefti_config, data.paths), .by_content = true},
    {REAL(data, validation_fraction, 0, 0.9, "0.05"), .lasting = true},
    {INT(data, seed, 0, SEED_MOST, "1"), .lasting = true},

    {INT(parallel, tensor_model_parallel_size, 1, RANKS_MOST, "1"),
     .now = "1"},
    {BOOL(parallel, sequence_parallel, "false"), .now = "false"},
    {INT(parallel, pipeline_model_parallel_size, 1, RANKS_MOST, "1")},
    {INT(parallel, virtual_pipeline_model_parallel_size, 1, 1024, "1")},
    {INT(parallel, virtual_group_size, 0, RANKS_MOST, "0")},
    {INT(parallel, context_parallel_size, 1, RANKS_MOST, "1"), .now = "1"},
    {WORD(parallel, context_parallel, context_kinds, "ring"), .now = "ring"},
    {WORD(parallel, context_layout, context_layouts, "contiguous"),
     .now = "contiguous"},
    {INT(parallel, ulysses_size, 1, RANKS_MOST, "1"), .now = "1"},
    {INT(parallel, expert_model_parallel_size, 1, RANKS_MOST, "1"),
     .now = "1"},
    {WORD(parallel, schedule, schedules, "1f1b"), .by_content = true},
    {.section = "parallel", .name = "compare", .kind = WEFTI_CONFIG_WORDS,
     .offset = offsetof(wefti_config, parallel.compare), .words = compared,
     .fallback = "none"},

    {INT(train, steps, 0, STEPS_MOST, "200")},
    {INT(train, micro_batch_size, 1, 65536, "1")},
    {INT(train, global_batch_size, 1, 16777216, "32")},
    {REAL(train, lr, 0, 100, "3.0e-3")},
    {INT(train, warmup_steps, 0, STEPS_MOST, "20")},
    {REAL(train, weight_decay, 0, 100, "0.1")},
    {REAL(train, clip, 0, 1e9, "1.0")},
    {INT(train, seed, 0, SEED_MOST, "1")},
    {INT(train, validate_every, 1, STEPS_MOST, "50")},
    {BOOL(train, deterministic, "false")},
    {BOOL(train, elastic, "false")},

    {BOOL(overlap, grad_reduce, "true")},
    {BOOL(overlap, param_gather, "true")},
    {BOOL(overlap, tensor, "true")},
    {BOOL(overlap, pipeline, "true")},
    {BOOL(overlap, expert, "true")},
    {REAL(overlap, bucket_mb, 0.001, 65536, "16")},
    {INT(overlap, comm_sms, 0, 1024, "0"), .now = "0"},

    {WORD(memory, recompute, recomputes, "none"), .now = "none"},
    {WORD(memory, ema, emas, "none"), .now = "none"},
    {WORD(memory, offload, offloads, "none"), .now = "none"},
    {BOOL(memory, release_activations, "true"), .now = "true"},
    {INT(memory, zero, 0, 1, "1"), .now = "1"},

    {.section = "checkpoint", .name = "dir", .kind = WEFTI_CONFIG_PATH,
     .offset = offsetof(wefti_config, checkpoint.dir), .fallback = "ckpt"},
    {INT(checkpoint, every, 0, STEPS_MOST, "50")},
    {INT(checkpoint, keep, 1, 100000, "2")},
    {INT(checkpoint, inside, 0, 1000, "0")},
    {BOOL(checkpoint, async, "true")},

    {INT(moe, node_limit, 0, 4096, "0"), .now = "0"},
    {WORD(moe, dispatch, dispatches, "bf16"), .now = "bf16"},
    {INT(moe, balance_every, 0, STEPS_MOST, "0"), .now = "0"},
};
/* clang-format on */

const size_t wefti_config_key_count = WEFTI_COUNT_OF(wefti_config_keys);
_Static_assert(WEFTI_COUNT_OF(wefti_config_keys) <= WEFTI_CONFIG_KEYS_MOST,
               "raise WEFTI_CONFIG_KEYS_MOST");

const wefti_config_key *wefti_config_key_find(const char *section,
                                              const char *name)
{
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        if (strcmp(key->section, section) == 0 &&
            strcmp(key->name, name) == 0) {
            return key;
        }
    }
    return NULL;
}

wefti_config_place *wefti_config_key_place(wefti_config *config,
                                           const wefti_config_key *key)
{
    return &config->places[key - wefti_config_keys];
}

/* "a, b or c" */
static void list_words(const char *const *words, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; words[i] != NULL && used < text_bytes; i++) {
        const char *between = i == 0                 ? ""
                              : words[i + 1] == NULL ? " or "
                                                     : ", ";
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                 between, words[i]);
    }
}

char *wefti_config_key_describe(const wefti_config_key *key, char *text,
                                size_t text_bytes)
{
    char words[128];
    switch (key->kind) {
    case WEFTI_CONFIG_INT:
        snprintf(text, text_bytes, "a whole number %.0f..%.0f", key->least,
                 key->most);
        break;
    case WEFTI_CONFIG_REAL:
        snprintf(text, text_bytes, "a number %g..%g", key->least, key->most);
        break;
    case WEFTI_CONFIG_BOOL:
        snprintf(text, text_bytes, "true or false");
        break;
    case WEFTI_CONFIG_WORD:
        list_words(key->words, text, text_bytes);
        break;
    case WEFTI_CONFIG_WORDS:
        list_words(key->words, words, sizeof(words));
        snprintf(text, text_bytes,
                 "a list of %s, each once, all and none alone", words);
        break;
    case WEFTI_CONFIG_VOCAB:
        snprintf(text, text_bytes, "bytes, or a whole number %.0f..%.0f",
                 key->least, key->most);
        break;
    case WEFTI_CONFIG_PATH:
        snprintf(text, text_bytes, "a path");
        break;
    case WEFTI_CONFIG_PATHS:
        snprintf(text, text_bytes, "a list of paths, such as [some/folder]");
        break;
    }
    return text;
}

/*
 * Edits (insert, delete, replace one character) from a to b; both are cut at
 * 63. Source: Wagner and Fischer, J. ACM 21(1), 1974.
 */
static size_t distance(const char *a, const char *b)
{
    size_t row[64];
    size_t a_length = strnlen(a, 63);
    size_t b_length = strnlen(b, 63);
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_length];
}

/* How far off a key is; a key of another section must have the very name. */
static size_t key_distance(const wefti_config_key *key, const char *section,
                           const char *name)
{
    if (strcmp(key->section, section) == 0) {
        return distance(name, key->name);
    }
    return strcmp(key->name, name) == 0 ? 0 : SIZE_MAX;
}

char *wefti_config_key_suggest(const char *section, const char *name,
                               char *text, size_t text_bytes)
{
    const wefti_config_key *best = NULL;
    size_t least = strlen(name) / 3 + 2; /* farther is not near */
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        size_t off = section != NULL ? key_distance(key, section, name)
                                     : distance(name, key->section);
        if (off < least) {
            least = off;
            best = key;
        }
    }
    text[0] = '\0';
    if (best != NULL) {
        snprintf(text, text_bytes, ": did you mean %s%s%s?", best->section,
                 section != NULL ? "." : "", section != NULL ? best->name : "");
    }
    return text;
}

char *wefti_config_key_list(const char *section, char *text, size_t text_bytes)
{
    size_t used = 0;
    const char *before = ""; /* rows of a section lie together */
    text[0] = '\0';
    for (size_t i = 0; i < wefti_config_key_count && used < text_bytes; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        bool listed = strcmp(key->section, section ? section : before) == 0;
        if (listed != (section != NULL)) {
            continue;
        }
        before = key->section;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                 used > 0 ? ", " : "",
                                 section ? key->name : key->section);
    }
    return text;
}
